"""The machine's own clock and randomness."""

import asyncio
import random
import secrets
import time


class SystemClock:
    """The machine's clock; see `tenure.ports.clock.Clock`."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        await asyncio.sleep(seconds)


class SystemEntropy:
    """The machine's randomness; see `tenure.ports.entropy.Entropy`."""

    def __init__(self) -> None:
        """Seeded by the machine."""
        self._random = random.Random()  # noqa: S311 (ids and jitter)

    def bits(self) -> int:
        """62 random bits."""
        return self._random.getrandbits(62)

    def secret(self) -> bytes:
        """32 bytes from the machine's own source."""
        return secrets.token_bytes(32)

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()
