"""Encrypts secrets by AES-256-GCM with a key in a file of its own, with mode 0600.

The label is authenticated: a secret that was sealed for one row does not open in another.
"""

import secrets
from base64 import b64decode, b64encode
from pathlib import Path

from tenure.core.errors import Invalid
from tenure.home.key_file import make_key

NONCE_BYTES = 12
VERSION = "v1."


class LocalSeal:
    """Implements `tenure.ports.seal.Seal`; the key is read, or created, at first use."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._key = b""

    def encrypt(self, secret: bytes, *, label: str) -> str:
        """Encrypt the secret with a random nonce."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (130 ms)

        nonce = secrets.token_bytes(NONCE_BYTES)
        ciphertext = AESGCM(self._read_key()).encrypt(nonce, secret, label.encode())
        return VERSION + b64encode(nonce + ciphertext).decode()

    def decrypt(self, ciphertext: str, *, label: str) -> bytes:
        """Decrypt the secret; Invalid if its key or label differs."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (as above)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        try:
            if not ciphertext.startswith(VERSION):
                raise ValueError
            decoded = b64decode(ciphertext.removeprefix(VERSION), validate=True)
            nonce, rest = decoded[:NONCE_BYTES], decoded[NONCE_BYTES:]
            return AESGCM(self._read_key()).decrypt(nonce, rest, label.encode())
        except (ValueError, InvalidTag):
            message = f"the secret of {label} does not open: it was sealed with another key"
            raise Invalid(message) from None

    def _read_key(self) -> bytes:
        if not self._key:
            self._key = make_key(self._path)
        return self._key
