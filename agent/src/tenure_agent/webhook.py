"""Verifies that a webhook comes from who knows the secret, and is neither old nor changed.

The scheme is that of the Standard Webhooks: HMAC-SHA256 over id, time and body.
"""

import hmac
import time
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256

TOLERANCE_SECONDS = 300
PREFIX = "whsec_"


class Forged(Exception):
    """This delivery is not what its headers say; answer 401 and do nothing."""


def verify(
    headers: Mapping[str, str], body: bytes, secret: str, *, now: float | None = None
) -> str:
    """The event's id, by which copies are told; Forged if anything does not fit.

    Args:
        headers: those of the request; upper and lower case are the same.
        body: as it was received, not parsed and written again.
        secret: as it was shown when the subscription was made, `whsec_…`.
        now: seconds since 1970; by default this machine's clock.
    """
    given = {name.lower(): value for name, value in headers.items()}
    event, stamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not event or not stamp.isdecimal() or len(stamp) > 12:  # noqa: PLR2004 (an instant has ten)
        raise Forged("a header is missing")
    if abs((time.time() if now is None else now) - int(stamp)) > TOLERANCE_SECONDS:
        raise Forged("it is too old, or from the future")
    said = f"{event}.{stamp}.".encode() + body
    good = hmac.digest(b64decode(secret.removeprefix(PREFIX)), said, sha256)
    for one in given.get("webhook-signature", "").split(" "):
        version, _, signature = one.partition(",")
        try:
            if version == "v1" and hmac.compare_digest(b64decode(signature, validate=True), good):
                return event
        except ValueError:
            continue
    raise Forged("no signature fits")
