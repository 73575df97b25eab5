"""Randomness for ids, secrets and jitter; no decision of the saga depends on it."""

from typing import Protocol


class Entropy(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.clock`."""

    def bits(self) -> int:
        """62 random bits, for a time-ordered id."""
        ...

    def secret(self) -> bytes:
        """32 unpredictable bytes, for a token that is shown once and stored as a hash."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1), for jitter."""
        ...
