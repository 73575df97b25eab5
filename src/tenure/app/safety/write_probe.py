"""Whether the store takes records, which one that answers reads need not: it may be read-only.

It is asked by a change that says nothing.  Whoever can reach the plane may ask whether it is ready,
so one such change is under way at a time, and one that was taken is an answer for some seconds.
"""

import asyncio

from tenure.app.plane import Plane
from tenure.ports.store import Change, Refused

LATELY_SECONDS = 5.0
"""For how long the store counts as taking records after it took one."""


class Taking:
    """What is known of it in one process."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._asked: asyncio.Future[Refused | None] | None = None
        self._taken_at: float | None = None

    async def until_taken(self, plane: Plane) -> None:
        """Return once the store has taken a record, or at once if it did lately.

        StoreError if it says that it cannot; whoever breaks off leaves the question to others.
        """
        loop = asyncio.get_running_loop()
        if self._taken_at is not None and loop.time() < self._taken_at + LATELY_SECONDS:
            return
        if self._asked is None:
            self._asked = asyncio.ensure_future(plane.store.commit(Change("", (), ())))
            self._asked.add_done_callback(self._answered)
        await asyncio.shield(self._asked)

    def _answered(self, asked: asyncio.Future[Refused | None]) -> None:
        self._asked = None
        if not asked.cancelled() and asked.exception() is None:
            self._taken_at = asked.get_loop().time()
