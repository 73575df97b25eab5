"""The seal: encrypts secrets before they are stored, with a key that is not in the store."""

from typing import Protocol


class Seal(Protocol):
    """Every promise here is a test in `tests/contract/test_seal.py`."""

    def encrypt(self, secret: bytes, *, label: str) -> str:
        """Encrypt the secret; `label` names its owner and is needed to decrypt it."""
        ...

    def decrypt(self, ciphertext: str, *, label: str) -> bytes:
        """Decrypt the secret; Invalid if the label or key is another one, or if it was changed."""
        ...
