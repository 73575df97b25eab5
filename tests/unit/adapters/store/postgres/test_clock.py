"""The time of a server, as a process that asks it now and then tells it."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tenure.adapters.store.postgres.clock import ServerClock

HOUR = 3_600.0
NOON = 1_700_000_000.0


class ServerTimes:
    """A clock, its process's count of seconds, and the server that it asks."""

    def __init__(self) -> None:
        self.here = 50.0
        self.server = NOON
        self.clock = ServerClock(lambda: self.here)
        self.look()

    def look(self) -> None:
        async def fetchval(_: str) -> float:
            return self.server

        server: Any = SimpleNamespace(fetchval=fetchval)
        asyncio.run(self.clock.synchronize(server))

    def passes(self, seconds: float) -> float:
        """So much time passes, there and here; how much of it is told."""
        before = self.clock.now()
        self.here += seconds
        self.server += seconds
        return self.clock.now() - before


def test_it_is_the_servers_time_and_passes_as_here():
    server = ServerTimes()
    assert server.clock.now() == NOON
    assert server.passes(7.0) == 7.0
    server.server += HOUR
    server.look()
    assert server.clock.now() == server.server


def test_a_server_that_was_set_back_is_waited_for_and_time_goes_on():
    server = ServerTimes()
    before = server.clock.now()
    server.server -= HOUR
    server.look()
    assert server.clock.now() == before
    assert server.passes(60.0) == 30.0
    assert server.passes(HOUR) == HOUR / 2
    server.passes(HOUR - 60.0)
    assert server.clock.now() == server.server
    assert server.passes(7.0) == 7.0
