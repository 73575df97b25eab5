"""A lock that goes from tenant to tenant: each has it as often as any other that waits."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """One holder at a time; how long one waits depends on how many tenants do, not how often."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By tenant, the next one first; a tenant that nobody waits for is not there."""

    @asynccontextmanager
    async def held_for(self, tenant: str) -> AsyncIterator[None]:
        """Held for a tenant until the block is left."""
        if self._taken:
            mine = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(tenant, deque()).append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():  # it was given to us in this very moment
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
            first = lane.popleft()
            if not lane:
                del self._waiting[name]
            if not first.done():  # else whoever waited has gone
                first.set_result(None)
                return
        self._taken = False
