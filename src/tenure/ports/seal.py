"""The seal: keeps a secret so that whoever has only the store has nothing."""

from typing import Protocol


class Seal(Protocol):
    """Every promise here is a test in `tests/contract/test_seal.py`."""

    def close_up(self, secret: bytes, *, label: str) -> str:
        """The secret, sealed under a label that says whose it is."""
        ...

    def open_up(self, ciphertext: str, *, label: str) -> bytes:
        """The secret again; Invalid if it was sealed under another label or key, or changed."""
        ...
