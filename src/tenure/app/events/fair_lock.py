"""A lock that is fair between tenants: each tenant that waits gets it equally often."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """One holder at a time; a wait grows with the number of waiting tenants, not of their waits."""

    def __init__(self) -> None:
        """The lock is free, and no task waits."""
        self._is_locked = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waits of each tenant, the next one first; a tenant without waits has no entry."""

    @asynccontextmanager
    async def acquire(self, tenant: str) -> AsyncIterator[None]:
        """Acquire the lock for a tenant until the block is left."""
        if self._is_locked:
            granted = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(tenant, deque()).append(granted)
            try:
                await granted
            except asyncio.CancelledError:
                if not granted.cancelled():  # the lock was passed to this wait at the same moment
                    self._pass_on(tenant)
                raise
        self._is_locked = True
        try:
            yield
        finally:
            self._pass_on(tenant)

    def _pass_on(self, tenant: str) -> None:
        """Pass the lock to the next tenant; further waits of this tenant go behind all others."""
        if tenant in self._waiting:
            self._waiting[tenant] = self._waiting.pop(tenant)
        while self._waiting:
            name, waits = next(iter(self._waiting.items()))
            first = waits.popleft()
            if not waits:
                del self._waiting[name]
            if not first.done():  # else that caller has stopped waiting
                first.set_result(None)
                return
        self._is_locked = False
