"""A sticky cache of operations: the worker that answered need not re-read for the next move.

Every record guards the operation's revision, so an entry that has become stale because somebody
else recorded something (such as a cancel) cannot be recorded over.  A poll is the exception: it
does not raise the revision, although it says that a call may be in flight.  So an entry is returned
only for the cache key of the answer that created it, and the workflow sends that key only if no
other move was performed since.  An entry lives no longer than a slow worker may take between
reading and recording.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple

from tenure.ports.engine import Handle

ENTRIES_MAX = 1_000
ENTRY_TTL_SECONDS = 5.0
"""Less than the heartbeat timeout: a worker that counted as lost reads the operation again."""


class CacheEntry(NamedTuple, Generic[Handle]):
    """An operation, its cache key, and when it was cached."""

    handle: Handle
    cache_key: str
    at: float


class StickyCache(Generic[Handle]):
    """Operations between two moves; each entry is returned at most once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._entries: dict[str, CacheEntry[Handle]] = {}
        """By operation id, oldest first."""

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def put(self, handle: Handle, cache_key: str) -> None:
        """Cache an operation until it is taken; an earlier entry of it is replaced."""
        now = self._monotonic()
        self._evict(now)
        self.discard(handle.id)
        self._entries[handle.id] = CacheEntry(handle, cache_key, now)

    def _evict(self, now: float) -> None:
        """Remove expired entries, and the oldest if the cache is full."""
        while self._entries:
            oldest = next(iter(self._entries))
            is_fresh = now - self._entries[oldest].at <= ENTRY_TTL_SECONDS
            if len(self._entries) < ENTRIES_MAX and is_fresh:
                return
            del self._entries[oldest]

    def take(self, operation: str, token: int, cache_key: str) -> Handle | None:
        """Remove and return the operation that was cached with this token and key, or None."""
        entry = self._entries.pop(operation, None)
        if entry is None or self._monotonic() - entry.at > ENTRY_TTL_SECONDS:
            return None
        return entry.handle if (entry.handle.token, entry.cache_key) == (token, cache_key) else None

    def discard(self, operation: str) -> None:
        """Remove the entry, because something was or may have been recorded."""
        self._entries.pop(operation, None)
