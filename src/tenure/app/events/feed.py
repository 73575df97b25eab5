"""The feed: committed events in order, read from the store once for all who follow them.

The newest ones are held in memory; whoever asks for older ones reads the store.  A position is a
cursor: the one of the last row read, or 0.  What is committed later has a greater one.  Where the
newest event is, only the store says: whoever asks may name any position.  What one of this process
was told of, whoever asks after that finds as well.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from tenure.app.events.fair_lock import FairLock
from tenure.app.wakeups import Wakeup
from tenure.ports.store import Row, Store

MEMORY_EVENTS = 8_192
"""Events held in memory."""
PAGE = 1_000
PAUSE_SECONDS = 0.002
"""What all else has of the loop before more is read from the store, however many ask for more."""
AGE_SECONDS = 0.2
"""How old a look may be if nobody told of news since: other processes commit too."""


class Feed:
    """What was committed, after any position."""

    def __init__(self, store: Store, news: Wakeup) -> None:
        """Nothing is held yet."""
        self._store = store
        self._news = news
        self._rows: list[Row] = []
        self._places: dict[int, int] = {}
        """Where the row after each position that we know would stand, from `_gone` on."""
        self._gone = 0
        """How many rows were let go of since we began."""
        self._last: int | None = None
        self._seen = -1
        self._looked_at = 0.0
        self._lock = asyncio.Lock()
        self._far_behind = FairLock()

    async def after(self, position: int, *, limit: int) -> Sequence[Row]:
        """Events after a position in an order that later commits only add to."""
        async with self._lock:
            if position in self._places:
                rows = self._beyond(position, limit)
                if len(rows) == limit:
                    return rows
                if self._seen != self._news.number or self._is_old():
                    await self._look(limit)
                if position in self._places:  # else it was let go of
                    return self._beyond(position, limit)
        rows = await self._store.list_events(after=position, limit=limit)
        if len(rows) == limit:
            await self._tell_of(_position(rows[-1]))
        else:  # nothing lies beyond: from now on we follow from there
            last = _position(rows[-1]) if rows else await self.head()
            async with self._lock:
                if self._last is not None and last > self._last:
                    await self._look(PAGE)
                if self._last is None or last > self._last:  # or it is far behind
                    self._begin(last)
        return rows

    async def more(self, position: int, *, limit: int, tenant: str) -> Sequence[Row]:
        """As `after`, for whoever passes over many: what is not held is read by turns.

        However many ask for one tenant, another one's turn comes after one of theirs.
        """
        if position in self._places:
            return await self.after(position, limit=limit)
        async with self._far_behind.held_for(tenant):
            await asyncio.sleep(PAUSE_SECONDS)
            return await self.after(position, limit=limit)

    async def head(self) -> int:
        """The position of the newest event there is; 0: there is none."""
        newest = await self._store.newest_event()
        await self._tell_of(newest)
        return newest

    async def _tell_of(self, position: int) -> None:
        """Somebody knows of this one: what was read before it is no longer all there is."""
        if self._last is not None and position > self._last:
            async with self._lock:  # a look that is under way may not find it
                self._seen = -1

    def _begin(self, position: int) -> None:
        self._rows, self._gone, self._seen = [], 0, -1
        self._places, self._last = {position: 0}, position

    def _beyond(self, position: int, limit: int) -> Sequence[Row]:
        start = self._places[position] - self._gone
        return self._rows[start : start + limit]

    def _is_old(self) -> bool:
        """Always, where nobody tells of commits."""
        told = self._news.number > 0
        return not told or self._store.now() >= self._looked_at + AGE_SECONDS

    async def _look(self, limit: int) -> None:
        """Read what is new, as much as is asked for if there is; the oldest are let go of."""
        number, now = self._news.number, self._store.now()
        limit = max(limit, PAGE)
        rows = await self._store.list_events(after=cast(int, self._last), limit=limit)
        for row in rows:
            self._rows.append(row)
            self._last = _position(row)
            self._places[self._last] = self._gone + len(self._rows)
        if len(self._rows) > MEMORY_EVENTS:
            count = len(self._rows) - MEMORY_EVENTS // 2
            self._gone += count
            del self._rows[:count]
            self._places = {
                known: place for known, place in self._places.items() if place >= self._gone
            }
        if len(rows) < limit:  # else there is more, whatever was told
            self._seen, self._looked_at = number, now


def _position(row: Row) -> int:
    return cast(int, row["position"])
