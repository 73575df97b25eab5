"""The machine's own clock and randomness."""

import asyncio
import random
import secrets
import time
from functools import partial
from math import copysign

from tenure.ports.clock import Clock

DRIFT = 0.1
"""How much faster or slower a steady clock may go than time does."""
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, where there is such a clock."""


class SystemClock:
    """The machine's clock; see `tenure.ports.clock.Clock`."""

    def now(self) -> float:
        """Seconds since the epoch, as the machine is set."""
        return time.time()

    monotonic = staticmethod(partial(time.clock_gettime, _BOOT))
    """Seconds that never go back; asked so often that a call of Python's own would be felt."""

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        await asyncio.sleep(seconds)


class SteadyClock:
    """A clock that is never set; see `tenure.ports.clock.Clock`.

    It begins where another stands and follows it at most `DRIFT` faster or slower, so that what is
    due by it comes in time when the machine's clock is set, an hour forward or back.
    """

    def __init__(self, clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep
        self._follow = clock.now
        self._seen = clock.monotonic()
        self._ahead = clock.now() - self._seen
        """Of `monotonic`; put right at most once a second."""

    def now(self) -> float:
        """Seconds since the epoch, or a little off for a while."""
        seen = self.monotonic()
        if seen - self._seen > 1.0:
            wrong = self._follow() - seen - self._ahead
            most = (seen - self._seen) * DRIFT
            self._ahead += copysign(min(abs(wrong), most), wrong)
            self._seen = seen
        return seen + self._ahead


class SystemEntropy:
    """The machine's randomness; see `tenure.ports.entropy.Entropy`."""

    def __init__(self) -> None:
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
