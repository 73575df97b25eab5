"""The server's clock, as it is known here: one time for all processes, whatever their own says."""

from collections.abc import Callable

import asyncpg

SERVER_NOW = "extract(epoch FROM pg_catalog.clock_timestamp())::double precision"
"""Asked for what `store.now()` is made of, and where the server judges by itself: leases."""


SLOWEST = 0.5
"""How fast time passes at least, while the server's is behind what was told before."""


class ServerClock:
    """The server's time at the last look, and what has passed here since.

    It never goes back, and never stands still: a server whose clock was set back, or another that
    has taken its place, is waited for at half the speed.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ahead = 0.0
        """How far the server's time is ahead of our own count of seconds."""
        self._last = self._last_at = 0.0
        """What was told last, and when by our own count."""

    def now(self) -> float:
        """The server's time."""
        here = self._monotonic()
        slowed = self._last + (here - self._last_at) * SLOWEST
        self._last, self._last_at = max(here + self._ahead, slowed), here
        return self._last

    async def look(self, connection: asyncpg.Connection) -> None:
        """Ask the server; its answer is taken for the middle of the way there and back."""
        asked_at = self._monotonic()
        told: float = await connection.fetchval(f"SELECT {SERVER_NOW}")
        self._ahead = told - (asked_at + self._monotonic()) / 2
