"""Encrypts secrets by AES-256-GCM with a key in a file of its own, with mode 0600.

The label is authenticated: a secret that was sealed for one row does not open in another.
"""

import secrets
from base64 import b64decode, b64encode
from pathlib import Path

from tenure.atomic_file import create_atomically
from tenure.core.errors import Invalid, StoreError, StoreUnsafe

KEY_BYTES = 32
NONCE_BYTES = 12
VERSION = "v1."


class LocalSeal:
    """Implements `tenure.ports.seal.Seal`; the key is read, or created, at first use."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._key = b""

    def close_up(self, secret: bytes, *, label: str) -> str:
        """Encrypt the secret with a random nonce."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (130 ms)

        nonce = secrets.token_bytes(NONCE_BYTES)
        ciphertext = AESGCM(self._read()).encrypt(nonce, secret, label.encode())
        return VERSION + b64encode(nonce + ciphertext).decode()

    def open_up(self, ciphertext: str, *, label: str) -> bytes:
        """Decrypt the secret; Invalid if its key or label differs."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (as above)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        try:
            if not ciphertext.startswith(VERSION):
                raise ValueError
            whole = b64decode(ciphertext.removeprefix(VERSION), validate=True)
            nonce, rest = whole[:NONCE_BYTES], whole[NONCE_BYTES:]
            return AESGCM(self._read()).decrypt(nonce, rest, label.encode())
        except (ValueError, InvalidTag):
            message = f"the secret of {label} does not open: it was sealed with another key"
            raise Invalid(message) from None

    def _read(self) -> bytes:
        if not self._key:
            if not self._path.exists():
                create_atomically(self._path, secrets.token_bytes(KEY_BYTES))
            if self._path.stat().st_mode & 0o077:
                raise StoreUnsafe(f"{self._path} can be read by others: run chmod 600 on it.")
            key = self._path.read_bytes()
            if len(key) != KEY_BYTES:
                raise StoreError(f"{self._path} is no sealing key. Put the file back.")
            self._key = key
        return self._key
