"""Randomness: for ids, secrets and jitter, never for a decision."""

from typing import Protocol


class Entropy(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.clock`."""

    def bits(self) -> int:
        """62 random bits, for a time-ordered id."""
        ...

    def secret(self) -> bytes:
        """32 bytes that nobody can guess, for what is handed out once and kept as a hash."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1), for jitter."""
        ...
