"""The server's clock, as it is known here: one time for all processes, whatever their own says."""

from collections.abc import Callable

import asyncpg

SERVER_NOW = "extract(epoch FROM pg_catalog.clock_timestamp())::double precision"
"""Asked for what `store.now()` is made of, and where the server judges by itself: leases."""


class ServerClock:
    """The server's time at the last look, and what has passed here since; it never goes back."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ahead = 0.0
        """How far the server's time is ahead of our own count of seconds."""
        self._last = 0.0

    def now(self) -> float:
        """The server's time."""
        self._last = max(self._last, self._monotonic() + self._ahead)
        return self._last

    async def look(self, connection: asyncpg.Connection) -> None:
        """Ask the server; its answer is taken for the middle of the way there and back."""
        asked_at = self._monotonic()
        told: float = await connection.fetchval(f"SELECT {SERVER_NOW}")
        self._ahead = told - (asked_at + self._monotonic()) / 2
