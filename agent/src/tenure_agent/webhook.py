"""Verifies that the sender of a webhook knows the secret, and that it is neither old nor changed.

This is the scheme of Standard Webhooks: HMAC-SHA256 over id, time and body.
"""

import hmac
import time
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256

TOLERANCE_SECONDS = 300
PREFIX = "whsec_"


class InvalidWebhook(Exception):
    """The delivery does not match its headers; answer 401 and do nothing."""


def verify(
    headers: Mapping[str, str], body: bytes, secret: str, *, now: float | None = None
) -> str:
    """The event's id, by which you recognise copies; InvalidWebhook if the delivery is not valid.

    Args:
        headers: the request's headers; upper and lower case are the same.
        body: the bytes as you received them, not parsed and encoded again.
        secret: as `tenure subscription create` printed it, `whsec_…`.
        now: seconds since 1970; default: this machine's clock.
    """
    values = {name.lower(): value for name, value in headers.items()}
    event, stamp = values.get("webhook-id", ""), values.get("webhook-timestamp", "")
    if not event or not stamp.isdecimal() or len(stamp) > 12:  # noqa: PLR2004 (an instant has ten)
        raise InvalidWebhook("a header is missing")
    if abs((time.time() if now is None else now) - int(stamp)) > TOLERANCE_SECONDS:
        raise InvalidWebhook("the timestamp is too old, or in the future")
    signed = f"{event}.{stamp}.".encode() + body
    expected = hmac.digest(b64decode(secret.removeprefix(PREFIX)), signed, sha256)
    for entry in values.get("webhook-signature", "").split(" "):
        version, _, signature = entry.partition(",")
        try:
            if version == "v1" and hmac.compare_digest(
                b64decode(signature, validate=True), expected
            ):
                return event
        except ValueError:
            continue
    raise InvalidWebhook("no signature matches")
