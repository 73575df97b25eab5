"""The feed: committed events in order, read from the store once for all who follow them.

The newest ones are held in memory; whoever asks for older ones reads the store.  Positions are
cursors: they grow, and nothing else is known of them.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import cast

from tenure.app.news import News
from tenure.ports.store import Row, Store

HELD = 8_192
"""Events held in memory."""
PAGE = 1_000
AGE_SECONDS = 0.2
"""How old a look may be if nobody told of news since: other processes commit too."""


class Feed:
    """What was committed, after any position."""

    def __init__(self, store: Store, news: News) -> None:
        """Nothing is held yet."""
        self._store = store
        self._news = news
        self._rows: list[Row] = []
        self._from: int | None = None
        """Everything after this position is held, as far as the last look."""
        self._seen = -1
        self._looked_at = 0.0
        self._lock = asyncio.Lock()

    async def after(self, position: int, *, limit: int) -> Sequence[Row]:
        """Events after a position in the order of their commits; none if there are none yet."""
        async with self._lock:
            if self._from is None or position > self._last():
                self._from, self._rows, self._seen = position, [], -1  # who is ahead leads
            if position >= self._from:
                rows = self._beyond(position, limit)
                if len(rows) == limit:
                    return rows
                if self._seen != self._news.number or self._is_old():
                    await self._look()
                if position >= self._from:  # else it was let go of
                    return self._beyond(position, limit)
        return await self._store.list_events(after=position, limit=limit)

    def _beyond(self, position: int, limit: int) -> Sequence[Row]:
        start = bisect_right(self._rows, position, key=_position)
        return self._rows[start : start + limit]

    def newest(self) -> int:
        """The position of the newest event that somebody here has seen; 0: none."""
        return 0 if self._from is None else self._last()

    def _last(self) -> int:
        return _position(self._rows[-1]) if self._rows else cast(int, self._from)

    def _is_old(self) -> bool:
        """Always, where nobody tells of commits."""
        told = self._news.number > 0
        return not told or self._store.now() >= self._looked_at + AGE_SECONDS

    async def _look(self) -> None:
        """Read what is new; the oldest are let go of."""
        number, now = self._news.number, self._store.now()
        rows = await self._store.list_events(after=self._last(), limit=PAGE)
        self._rows += rows
        if len(self._rows) > HELD:
            gone = len(self._rows) - HELD // 2
            self._from = _position(self._rows[gone - 1])
            del self._rows[:gone]
        if len(rows) < PAGE:  # else there is more, whatever was told
            self._seen, self._looked_at = number, now


def _position(row: Row) -> int:
    return cast(int, row["position"])
