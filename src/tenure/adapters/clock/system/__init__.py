"""The machine's own clock and randomness."""

import asyncio
import random
import secrets
import time
from functools import partial
from math import copysign

from tenure.ports.clock import Clock

DRIFT = 0.1
"""How much faster or slower than real time a steady clock may run."""
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that continues while the machine sleeps, if the system has one."""


class SystemClock:
    """The machine's clock; see `tenure.ports.clock.Clock`."""

    def now(self) -> float:
        """Seconds since 1970, by the machine's clock."""
        return time.time()

    monotonic = staticmethod(partial(time.clock_gettime, _BOOT))
    """Seconds that never go back; called so often that a Python function would cost time."""

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        await asyncio.sleep(seconds)


class SteadyClock:
    """A clock without jumps; see `tenure.ports.clock.Clock`.

    It starts with the time of another clock and follows it at most `DRIFT` faster or slower, so
    that timers stay correct when an operator sets the machine's clock forward or back.
    """

    def __init__(self, clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep
        self._follow = clock.now
        self._read_at = clock.monotonic()
        self._ahead = clock.now() - self._read_at
        """Difference to `monotonic`; corrected at most once a second."""

    def now(self) -> float:
        """Seconds since 1970; slightly off for a while after the machine's clock was set."""
        monotonic_now = self.monotonic()
        if monotonic_now - self._read_at > 1.0:
            error = self._follow() - monotonic_now - self._ahead
            step_max = (monotonic_now - self._read_at) * DRIFT
            self._ahead += copysign(min(abs(error), step_max), error)
            self._read_at = monotonic_now
        return monotonic_now + self._ahead


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
