"""A sticky cache of operations, so that a worker need not read one again for its next move.

A record is refused if the operation's revision has grown meanwhile.  A poll does not raise the
revision, but it says that a call may be in flight.  So an entry is returned only for the ticket of
the answer that made it, and the workflow passes the ticket only while no other move was performed.
Records of others, such as a cancel, are noticed by the revision, as for a worker that is slow
between reading and recording.  So an entry must not grow older than a slow worker may be.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple

from tenure.ports.engine import L

KEPT_MAX = 1_000
KEPT_SECONDS = 5.0
"""Less than the heartbeat timeout: a worker that was taken for lost reads the operation again."""


class CacheEntry(NamedTuple, Generic[L]):
    """An operation, its ticket, and when it was cached."""

    live: L
    ticket: str
    at: float


class StickyCache(Generic[L]):
    """Operations between two moves; each entry is returned at most once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lives: dict[str, CacheEntry[L]] = {}
        """Oldest first."""

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._lives)

    def keep(self, live: L, ticket: str) -> None:
        """Cache an operation until it is taken; an earlier entry of it is replaced."""
        now = self._monotonic()
        self._make_room(now)
        self.forget(live.id)
        self._lives[live.id] = CacheEntry(live, ticket, now)

    def _make_room(self, now: float) -> None:
        while self._lives:
            oldest = next(iter(self._lives))
            if len(self._lives) < KEPT_MAX and now - self._lives[oldest].at <= KEPT_SECONDS:
                return
            del self._lives[oldest]

    def take(self, operation: str, token: int, ticket: str) -> L | None:
        """Return the operation that was cached with this token and ticket, if it is still there."""
        kept = self._lives.pop(operation, None)
        if kept is None or self._monotonic() - kept.at > KEPT_SECONDS:
            return None
        return kept.live if (kept.live.token, kept.ticket) == (token, ticket) else None

    def forget(self, operation: str) -> None:
        """Remove the entry: something was, or may have been, recorded."""
        self._lives.pop(operation, None)
