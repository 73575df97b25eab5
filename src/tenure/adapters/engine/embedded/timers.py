"""Calls a function at the due time of each operation: one heap of times, and one timer.

A waiting operation costs a heap entry, not a coroutine.
"""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush


class Timers:
    """Calls `due(name)` at the time set for a name; a newer time replaces an older one."""

    def __init__(self, now: Callable[[], float], due: Callable[[str], None]) -> None:
        """Read the time from `now`."""
        self._now = now
        self._due = due
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def __len__(self) -> int:
        """Number of names with a time."""
        return len(self._at)

    def set(self, name: str, at: float) -> None:
        """Call `due(name)` at this time, and at no time set earlier."""
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._at) + 64:
            self._heap = [(at, name) for name, at in self._at.items()]
            heapify(self._heap)
        if self._timer is None or at < self._armed_for:
            self._arm(at)

    def forget(self, name: str) -> None:
        """Cancel the time of `name`."""
        self._at.pop(name, None)

    def close(self) -> None:
        """Cancel all times."""
        self._at.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = at
        delay = min(
            max(0.0, at - self._now()), 60.0
        )  # wall clocks can be set: check at least once a minute
        self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                self._due(name)
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        if self._heap:
            self._arm(self._heap[0][0])
