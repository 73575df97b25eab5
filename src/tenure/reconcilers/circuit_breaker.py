"""Which providers say nothing at a look: each costs it three waits at most, and no other its turn.

A call that is not answered in time may be about one thing that hangs.  A provider is silent, and is
not asked again at this look, when two such calls follow each other and nobody else had an answer
meanwhile; or when it was waited for three times in all, whoever had an answer.  What hung is asked
last at the next look, behind all that can be answered.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.app.plane import Plane
from tenure.core.errors import ProviderError

LOOK_SECONDS = 10.0
"""How long one call may take."""
CALLS = 2
"""So many without an answer, one after the other, are a provider's silence."""
WAITS = 3
"""So many waits for one provider are all that a look has time for; side by side they are one."""
PASSED_OVER, HUNG = 1, 2
"""Whose turn is later: what was asked the last time makes way for what was not."""


class Silence:
    """What one look of one reconciler has heard so far, by provider; each key has a name."""

    def __init__(self, plane: Plane, reconciler: str) -> None:
        """Nothing was asked yet; what hung at the look before is known by this process."""
        self._before = plane.reconciled.hung.get(reconciler, {})
        self._now = plane.reconciled.hung[reconciler] = {}
        self._heard = Counter[str]()
        self._missed = Counter[str]()
        self._waits = Counter[str]()
        self._waited_until: dict[str, float] = {}
        self.whole = True
        """Whether everything was asked and answered."""

    def turn(self, key: str) -> int:
        """Its place: what has not hung is asked first."""
        return self._before.get(key, 0)

    def passes_over(self, slot: str, key: str) -> bool:
        """Whether its provider is silent, so that it is not asked at this look."""
        if self._missed[slot] < CALLS and self._waits[slot] < WAITS:
            return False
        self.whole = False
        if key in self._before:
            self._now.setdefault(key, PASSED_OVER)
        return True

    @asynccontextmanager
    async def asking(self, slot: str, key: str) -> AsyncIterator[None]:
        """One call about this key; TimeoutError if it takes too long.

        Calls may be under way side by side: one that is answered speaks for all that had begun.
        """
        heard, loop = self._heard[slot], asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                yield
        except TimeoutError:
            self.whole = False
            self._now[key] = HUNG
            self._missed[slot] += self._heard[slot] == heard
            self._waits[slot] += began >= self._waited_until.get(slot, began)
            self._waited_until[slot] = loop.time()
            raise
        except ProviderError:
            self._answered(slot)
            raise
        self._answered(slot)

    def _answered(self, slot: str) -> None:
        self._heard[slot] += 1
        self._missed[slot] = 0
