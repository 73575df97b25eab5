"""Reads committed events in order, from the store once for all readers of this process.

The newest events are cached in memory; readers of older ones read the store.  A position is a
cursor: that of the last event read, or 0.  Later commits have greater positions.  A reader may name
any position, so only the store says where the newest event is.  If one reader of this process has
seen an event, every later read finds it as well.
"""

import asyncio
from collections.abc import Sequence

from tenure.app.events.fair_lock import FairLock
from tenure.app.wakeups import Wakeup
from tenure.core.records import OutboxRecord
from tenure.ports.store import Store

MEMORY_EVENTS = 8_192
"""Events that are cached."""
PAGE = 1_000
PAUSE_SECONDS = 0.002
"""Pause before each read of old events, so that many such readers do not block the event loop."""
AGE_SECONDS = 0.2
"""How old the cache may be if this process was not notified of a commit: others commit too."""


class Feed:
    """Reads committed events after any position."""

    def __init__(self, store: Store, commits: Wakeup) -> None:
        self._store = store
        self._commits = commits
        self._rows: list[OutboxRecord] = []
        self._indexes: dict[int, int] = {}
        """For each cached position the index of the row after it; dropped rows count."""
        self._dropped = 0
        """How many rows the cache has dropped since it was started."""
        self._last: int | None = None
        self._commits_seen = -1
        self._read_at = 0.0
        self._lock = asyncio.Lock()
        self._store_reads = FairLock()

    async def after(self, position: int, *, limit: int) -> Sequence[OutboxRecord]:
        """Events after a position, in an order that later commits only append to."""
        async with self._lock:
            if position in self._indexes:
                rows = self._beyond(position, limit)
                if len(rows) == limit:
                    return rows
                if self._commits_seen != self._commits.number or self._is_old():
                    await self._read_new(limit)
                if position in self._indexes:  # else the cache has dropped it
                    return self._beyond(position, limit)
        rows = await self._store.list_events(after=position, limit=limit)
        if len(rows) == limit:
            await self._note_newer(rows[-1].position)
        else:  # this is the end: the cache can start here
            last = rows[-1].position if rows else await self.head()
            async with self._lock:
                if self._last is not None and last > self._last:
                    await self._read_new(PAGE)
                if self._last is None or last > self._last:  # or it is far behind
                    self._start_at(last)
        return rows

    async def more(self, position: int, *, limit: int, tenant: str) -> Sequence[OutboxRecord]:
        """As `after`, for a reader that passes over many events: tenants take turns at the store.

        However many readers one tenant has, another tenant waits for one of them at most.
        """
        if position in self._indexes:
            return await self.after(position, limit=limit)
        async with self._store_reads.acquire(tenant):
            await asyncio.sleep(PAUSE_SECONDS)
            return await self.after(position, limit=limit)

    async def head(self) -> int:
        """The position of the newest event; 0: there is none."""
        newest = await self._store.newest_event()
        await self._note_newer(newest)
        return newest

    async def _note_newer(self, position: int) -> None:
        """Mark the cache as out of date if it ends before this position, which exists."""
        if self._last is not None and position > self._last:
            async with self._lock:  # a read in progress may not find it
                self._commits_seen = -1

    def _start_at(self, position: int) -> None:
        self._rows, self._dropped, self._commits_seen = [], 0, -1
        self._indexes, self._last = {position: 0}, position

    def _beyond(self, position: int, limit: int) -> Sequence[OutboxRecord]:
        start = self._indexes[position] - self._dropped
        return self._rows[start : start + limit]

    def _is_old(self) -> bool:
        """Whether the cache must be read again; always, if the store reports no commits."""
        is_notified = self._commits.number > 0
        return not is_notified or self._store.now() >= self._read_at + AGE_SECONDS

    async def _read_new(self, limit: int) -> None:
        """Read new events into the cache, up to `limit`; drop the oldest."""
        number, now = self._commits.number, self._store.now()
        limit = max(limit, PAGE)
        rows = await self._store.list_events(after=self._last or 0, limit=limit)
        for row in rows:
            self._rows.append(row)
            self._last = row.position
            self._indexes[self._last] = self._dropped + len(self._rows)
        if len(self._rows) > MEMORY_EVENTS:
            count = len(self._rows) - MEMORY_EVENTS // 2
            self._dropped += count
            del self._rows[:count]
            self._indexes = {
                known: place for known, place in self._indexes.items() if place >= self._dropped
            }
        if len(rows) < limit:  # else there is more
            self._commits_seen, self._read_at = number, now
