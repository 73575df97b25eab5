"""Turns: of those who wait one goes on at a time, each tenant's as often as any other's."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """One turn at a time; who waits for whom depends on how many tenants wait, not how often."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By tenant, the next one first; a tenant that nobody waits for is not there."""

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        """The turn of one who waits for this tenant, until the block is left."""
        if self._taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(tenant, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was given to us in this very moment
                    self._pass_on(tenant)
                raise
        self._taken = True
        try:
            yield
        finally:
            self._pass_on(tenant)

    def _pass_on(self, tenant: str) -> None:
        """To another tenant's first, if any waits; this one's others wait behind all tenants."""
        if tenant in self._waiting:
            self._waiting[tenant] = self._waiting.pop(tenant)
        while self._waiting:
            name, lane = next(iter(self._waiting.items()))
            turn = lane.popleft()
            if not lane:
                del self._waiting[name]
            if not turn.done():  # else whoever waited has gone
                turn.set_result(None)
                return
        self._taken = False
