"""The server's clock, as it is known here: one time for all processes, whatever their own says."""

from collections.abc import Callable

import asyncpg

SERVER_NOW = "extract(epoch FROM pg_catalog.clock_timestamp())::double precision"
"""Asked for what `store.now()` is made of, and where the server judges by itself: leases."""


SLOWEST = 0.5
"""How fast time passes at least, while the server's is behind what `now` returned."""


class ServerClock:
    """The server's time when it was last asked, and what has passed here since.

    It never goes back, and never stands still: a server whose clock was set back, or another that
    has taken its place, is waited for at half the speed.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ahead = 0.0
        """How far the server's time is ahead of our own count of seconds."""
        self._last = self._last_at = 0.0
        """What `now` last returned, and when by our own count."""

    def now(self) -> float:
        """The server's time."""
        here = self._monotonic()
        slowed = self._last + (here - self._last_at) * SLOWEST
        self._last, self._last_at = max(here + self._ahead, slowed), here
        return self._last

    async def synchronize(self, connection: asyncpg.Connection) -> None:
        """Ask the server for its time, which is taken as that of half the round trip."""
        sent_at = self._monotonic()
        server_time: float = await connection.fetchval(f"SELECT {SERVER_NOW}")
        self._ahead = server_time - (sent_at + self._monotonic()) / 2
