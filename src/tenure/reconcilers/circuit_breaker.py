"""A circuit breaker for one reconcile pass: an unresponsive provider delays it by three timeouts.

It never delays the calls to other providers.  One call may time out because of one resource that
hangs.  So a provider is skipped for the rest of the pass after two timeouts in a row without any
answer between them, or after three waits in all.  Resources whose calls timed out come last in the
next pass.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.app.plane import Plane
from tenure.core.errors import ProviderError

CALL_SECONDS = 10.0
"""The time limit of one call."""
TIMEOUTS_MAX = 2
"""After so many timeouts in a row the provider is skipped."""
WAITS_MAX = 3
"""After so many waits the provider is skipped; timeouts at the same time are one wait."""
SKIPPED, TIMED_OUT = 1, 2
"""The order in the next pass: skipped resources come after others, and timed out ones last."""


class ProviderBreaker:
    """The answers and timeouts of one pass of one reconciler, by provider."""

    def __init__(self, plane: Plane, reconciler: str) -> None:
        """Start a pass; `plane.reconcile_state` has the calls that timed out in the last one."""
        self._last_pass = plane.reconcile_state.hung.get(reconciler, {})
        self._this_pass = plane.reconcile_state.hung[reconciler] = {}
        self._answers = Counter[str]()
        self._timeouts = Counter[str]()
        self._waits = Counter[str]()
        self._waited_until: dict[str, float] = {}
        self.is_complete = True
        """Whether every call of this pass was made and answered."""

    def order_of(self, key: str) -> int:
        """The sort order of this key: keys whose calls timed out in the last pass come last."""
        return self._last_pass.get(key, 0)

    def skips(self, slot: str, key: str) -> bool:
        """Whether the provider is unresponsive, so that this call is not made in this pass."""
        if self._timeouts[slot] < TIMEOUTS_MAX and self._waits[slot] < WAITS_MAX:
            return False
        self.is_complete = False
        if key in self._last_pass:
            self._this_pass.setdefault(key, SKIPPED)
        return True

    @asynccontextmanager
    async def call(self, slot: str, key: str) -> AsyncIterator[None]:
        """Make one call about this key within the block; TimeoutError if it takes too long.

        Calls may run at the same time: one answer counts for all calls that had begun by then.
        """
        answers, loop = self._answers[slot], asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                yield
        except TimeoutError:
            self.is_complete = False
            self._this_pass[key] = TIMED_OUT
            self._timeouts[slot] += self._answers[slot] == answers
            self._waits[slot] += began >= self._waited_until.get(slot, began)
            self._waited_until[slot] = loop.time()
            raise
        except ProviderError:
            self._record_answer(slot)
            raise
        self._record_answer(slot)

    def _record_answer(self, slot: str) -> None:
        self._answers[slot] += 1
        self._timeouts[slot] = 0
