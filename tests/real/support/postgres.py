"""What the tests on PostgreSQL share: a store behind a proxy, and a world that outlives both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.store import postgres
from tenure.testing.proxy import Proxy


@asynccontextmanager
async def open_store(url: str, **settings: float) -> AsyncIterator[postgres.PostgresStore]:
    """A store on the server itself."""
    pool = postgres.PoolSettings(**settings)  # type: ignore[arg-type]
    store = await postgres.build(url, clock=SystemClock(), entropy=SystemEntropy(), pool=pool)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def behind_a_proxy(
    url: str, **settings: float
) -> AsyncIterator[tuple[postgres.PostgresStore, Proxy]]:
    """A store that reaches its server through a proxy of its own."""
    parts = urlsplit(url)
    async with Proxy(parts.hostname or "", parts.port or 0) as proxy:
        near = parts._replace(netloc=f"tenure@127.0.0.1:{proxy.port}").geturl()
        async with open_store(near, **settings) as store:
            yield store, proxy


async def eventually(
    holds: Callable[[], bool | Awaitable[bool]], *, seconds: float = 120.0
) -> None:
    """Look until it is so; fail if that takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            said = holds()
            if said if isinstance(said, bool) else await said:
                return
            await asyncio.sleep(0.02)
