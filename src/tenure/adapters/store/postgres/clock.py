"""Estimates the database server's clock, which is the one clock of all processes."""

from collections.abc import Callable

import asyncpg

SERVER_NOW = "extract(epoch FROM pg_catalog.clock_timestamp())::double precision"
"""SQL for the server's time; `store.now()` estimates it, and leases are compared with it."""
CATCH_UP_RATE = 0.5
"""Speed of `now` while the server's time is behind what `now` has returned."""


class ServerClock:
    """The server's time at the last synchronization plus the local time since then.

    It never goes back and never stops.  If the server's clock was set back, or a server with an
    earlier clock has taken over, time passes at half the speed until the server has caught up.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._offset = 0.0
        """The server's time minus the local monotonic time."""
        self._last = self._last_at = 0.0
        """What `now` last returned, and the local monotonic time of that call."""

    def now(self) -> float:
        """Return the estimated time of the server."""
        local = self._monotonic()
        slowed = self._last + (local - self._last_at) * CATCH_UP_RATE
        self._last, self._last_at = max(local + self._offset, slowed), local
        return self._last

    async def synchronize(self, connection: asyncpg.Connection) -> None:
        """Read the server's time; it counts as the time at half of the round trip."""
        sent_at = self._monotonic()
        server_time: float = await connection.fetchval(f"SELECT {SERVER_NOW}")
        self._offset = server_time - (sent_at + self._monotonic()) / 2
