"""Operations as this worker has left them, so that their next move need not read them again.

A record is refused if the operation's revision has grown since; but a poll leaves it as it is and
says that a call may be out.  So what is kept is given only to who shows the ticket of the answer
that told of it, and the workflow shows it only while nothing else was performed since.  What others
record meanwhile, as a cancel, is found by the revision, as for whoever was slow between reading and
recording; so what is kept must not grow older than one who is slow.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple

from tenure.ports.engine import L

KEPT_MAX = 1_000
KEPT_SECONDS = 5.0
"""Less than a worker may be silent: one that was taken for lost comes back and reads anew."""


class CacheEntry(NamedTuple, Generic[L]):
    """An operation, the ticket to it, and when it was kept."""

    live: L
    ticket: str
    at: float


class StickyCache(Generic[L]):
    """Where operations are left between two moves; each is given to one at most."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lives: dict[str, CacheEntry[L]] = {}
        """Oldest first."""

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._lives)

    def keep(self, live: L, ticket: str) -> None:
        """Until it is taken; of one operation the last."""
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
        """The one that is held under this token and was kept with this ticket."""
        kept = self._lives.pop(operation, None)
        if kept is None or self._monotonic() - kept.at > KEPT_SECONDS:
            return None
        return kept.live if (kept.live.token, kept.ticket) == (token, ticket) else None

    def forget(self, operation: str) -> None:
        """Something was, or may have been, recorded for it."""
        self._lives.pop(operation, None)
