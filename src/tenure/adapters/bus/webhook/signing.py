"""The scheme of the Standard Webhooks: HMAC-SHA256 over id, time and body.

During a change of the secret there is one signature for each of the two secrets; a receiver accepts
any that matches (`tenure_agent.webhook` verifies them).
"""

import hmac
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256


def signature_headers(
    event: str, body: bytes, *, at: float, secrets: Sequence[bytes]
) -> dict[str, str]:
    """The headers of a delivery."""
    stamp = str(int(at))
    return {
        "webhook-id": event,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{_sign(event, stamp, body, one)}" for one in secrets),
    }


def _sign(event: str, stamp: str, body: bytes, secret: bytes) -> str:
    content = f"{event}.{stamp}.".encode() + body
    return b64encode(hmac.digest(secret, content, sha256)).decode()
