"""Who keeps the store's contract on a server: PostgreSQL, through a proxy that can lose answers."""

import asyncio
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tenure.adapters.clock.system import SystemEntropy
from tenure.adapters.store import postgres
from tenure.adapters.store.postgres.committer import RESERVE_BYTES
from tenure.ports.clock import Clock
from tenure.ports.store import Store
from tenure.testing.contracts.store import StoreContract
from tenure.testing.contracts.store_rows import Stores
from tenure.testing.proxy import Behaviour, Proxy

pytestmark = pytest.mark.timeout(300)  # the first one starts the server


class PostgresStores:
    def __init__(self, url: str, pool: postgres.PoolSettings) -> None:
        self.url = url
        self.pool = pool
        self.full = False
        self.proxies: dict[int, Proxy] = {}

    async def open(self, clock: Clock) -> Store:
        parts = urlsplit(self.url)
        proxy = await Proxy(parts.hostname or "", parts.port or 0).__aenter__()
        near = parts._replace(netloc=f"tenure@127.0.0.1:{proxy.port}").geturl()
        store = await postgres.build(
            near,
            clock=clock,
            entropy=SystemEntropy(),
            pool=self.pool,
            free_bytes=self.free_bytes,
            own_clock=True,
        )
        self.proxies[id(store)] = proxy
        return store

    async def close(self) -> None:
        for proxy in self.proxies.values():
            await proxy.__aexit__(None, None, None)

    def free_bytes(self) -> int:
        return RESERVE_BYTES - self.full

    def fill(self, *, full: bool) -> None:
        self.full = full

    def fail_commit(self, store: Store) -> None:
        proxy = self.proxies[id(store)]
        proxy.behaviour = Behaviour(refuses=True, cut_after_answered=0)


NEWEST, OLDEST = "postgres_server", "old_postgres_server"
WHERE = {
    "one writer": (NEWEST, 1),
    "three writers": (NEWEST, 3),
    "the oldest server, two writers": (OLDEST, 2),
}
SLOW = [name for name in WHERE if name != "three writers"]


class TestPostgresStore(StoreContract):
    @pytest.fixture(
        params=[
            pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in WHERE
        ]
    )
    def stores(
        self, running: asyncio.Runner, request: pytest.FixtureRequest, tally
    ) -> Iterator[Stores]:
        name, writers = WHERE[request.param]
        server = request.getfixturevalue(name)
        url = f"{server.url}?schema=t_{secrets.token_hex(6)}"
        pool = postgres.PoolSettings(writers=writers, patience_seconds=0.3)
        stores = PostgresStores(url, pool)
        yield stores
        running.run(stores.close())
        tally.add(f"store_promises_on_postgres_{server.version}")
