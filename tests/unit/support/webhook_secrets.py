"""The key of a webhook's secret, as a receiver reads it from the text of the secret."""

from base64 import b64decode

from tenure.app.events.subscriptions import SECRET_PREFIX


def secret_of(text: str) -> bytes:
    return b64decode(text.removeprefix(SECRET_PREFIX))
