"""The scheme of the Standard Webhooks: HMAC-SHA256 over id, time and body.

While a secret is being changed there is one signature for each of the two, and a receiver is
content with any that fits (`tenure_agent.webhook` verifies them).
"""

import hmac
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256


def signed(event: str, body: bytes, *, at: float, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of a delivery."""
    stamp = str(int(at))
    return {
        "webhook-id": event,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{_sign(event, stamp, body, one)}" for one in secrets),
    }


def _sign(event: str, stamp: str, body: bytes, secret: bytes) -> str:
    said = f"{event}.{stamp}.".encode() + body
    return b64encode(hmac.digest(secret, said, sha256)).decode()
