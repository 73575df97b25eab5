"""The scheme of the Standard Webhooks: HMAC-SHA256 over id, time and body.

While a secret is being changed there is one signature for each of the two, and a receiver is
content with any that fits.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256

TOLERANCE_SECONDS = 300
"""How far a receiver's clock may be from ours."""
Headers = Mapping[str, str]


def signed(
    event: str, body: bytes, *, at: float, secrets: Sequence[bytes]
) -> dict[str, str]:
    """The headers of a delivery."""
    stamp = str(int(at))
    return {
        "webhook-id": event,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{_sign(event, stamp, body, one)}" for one in secrets),
    }


def verify(headers: Headers, body: bytes, *, now: float, secret: bytes) -> str:
    """The id of a delivery that is as its sender has signed it; ValueError says what is not."""
    event, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not event or not stamp.isdecimal() or len(stamp) > len("9999999999"):
        raise ValueError("a header is missing")
    if abs(now - int(stamp)) > TOLERANCE_SECONDS:
        raise ValueError("it is too old, or from the future")
    good = b64decode(_sign(event, stamp, body, secret))
    for one in headers.get("webhook-signature", "").split(" "):
        version, _, given = one.partition(",")
        try:
            if version == "v1" and hmac.compare_digest(b64decode(given, validate=True), good):
                return event
        except ValueError:
            continue
    raise ValueError("no signature fits")


def _sign(event: str, stamp: str, body: bytes, secret: bytes) -> str:
    said = f"{event}.{stamp}.".encode() + body
    return b64encode(hmac.digest(secret, said, sha256)).decode()
