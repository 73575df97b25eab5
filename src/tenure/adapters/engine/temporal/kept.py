"""Operations as this worker has left them, so that their next move need not read them again.

What is kept may have become stale.  Then its record is refused by the revision that it guards, and
it is read and decided again, as for whoever was slow between reading and recording; so what is kept
must not grow older than one who is slow.  It is dropped as soon as something is heard of it.
"""

from collections.abc import Callable
from typing import Generic

from tenure.ports.engine import L

KEPT_MAX = 1_000
KEPT_SECONDS = 5.0
"""Less than a worker may be silent: one that was taken for lost comes back and reads anew."""


class Kept(Generic[L]):
    """Each is given to one at most."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Nothing is kept."""
        self._monotonic = monotonic
        self._lives: dict[str, tuple[float, L]] = {}
        """When each was kept, oldest first."""

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._lives)

    def keep(self, live: L) -> None:
        """Until it is taken; of one operation the newest."""
        now = self._monotonic()
        self._make_room(now)
        other = self._lives.get(live.id)
        if other is None or other[1].revision <= live.revision:
            self.forget(live.id)
            self._lives[live.id] = (now, live)

    def _make_room(self, now: float) -> None:
        while self._lives:
            oldest = next(iter(self._lives))
            if len(self._lives) < KEPT_MAX and now - self._lives[oldest][0] <= KEPT_SECONDS:
                return
            del self._lives[oldest]

    def take(self, operation: str, token: int, revision: int) -> L | None:
        """The one that is held under this token, if it knows all that was known by then."""
        if operation not in self._lives:
            return None
        at, live = self._lives.pop(operation)
        fits = live.token == token and live.revision >= revision
        return live if fits and self._monotonic() - at <= KEPT_SECONDS else None

    def forget(self, operation: str) -> None:
        """Something was, or may have been, recorded for it."""
        self._lives.pop(operation, None)
