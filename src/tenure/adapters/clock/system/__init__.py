"""The machine's own clock and randomness."""

import asyncio
import random
import secrets
import time

SET_BACK_SECONDS = 1.0
"""A wall clock that is behind by more was set; by less it was corrected."""


class SystemClock:
    """The machine's clock; see `tenure.ports.clock.Clock`."""

    def __init__(self) -> None:
        """As the wall clock says."""
        self._now = time.time()
        self._seen = time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        """Seconds since the epoch, which never go back.

        A wall clock that was set forward is followed.  When it was set back we go on as if it had
        not been, until we are started anew: deadlines and drains last as long as was said.
        """
        wall, seen = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        went_on = self._now + seen - self._seen
        is_set_back = went_on - wall > SET_BACK_SECONDS
        self._now = went_on if is_set_back else max(self._now, wall)
        self._seen = seen
        return self._now

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
