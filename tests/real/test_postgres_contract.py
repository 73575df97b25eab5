"""Who keeps the store's contract on a server: PostgreSQL, through a proxy that can lose answers."""

import asyncio
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

pytestmark = pytest.mark.timeout(60)  # the first one starts the server


class PostgresStores:
    def __init__(self, url: str, lanes: postgres.Lanes) -> None:
        self.url = url
        self.lanes = lanes
        self.full = False
        self.proxies: dict[int, Proxy] = {}

    async def open(self, clock: Clock) -> Store:
        parts = urlsplit(self.url)
        proxy = await Proxy(parts.hostname or "", parts.port or 0).__aenter__()
        near = parts._replace(netloc=f"tenure@127.0.0.1:{proxy.port}").geturl()
        store = await postgres.build(
            near, clock=clock, entropy=SystemEntropy(), lanes=self.lanes, room=self.room,
            own_clock=True,
        )  # fmt: skip
        self.proxies[id(store)] = proxy
        return store

    async def close(self) -> None:
        for proxy in self.proxies.values():
            await proxy.__aexit__(None, None, None)

    def room(self) -> int:
        return RESERVE_BYTES - self.full

    def fill(self, *, full: bool) -> None:
        self.full = full

    def fail_commit(self, store: Store) -> None:
        proxy = self.proxies[id(store)]
        proxy.behaviour = Behaviour(refuses=True, cut_after_answered=0)


class TestPostgresStore(StoreContract):
    @pytest.fixture(
        params=[pytest.param(1, marks=pytest.mark.slow), 3], ids=["one writer", "three writers"]
    )
    def stores(
        self, postgres_url: str, running: asyncio.Runner, request: pytest.FixtureRequest
    ) -> Iterator[Stores]:
        lanes = postgres.Lanes(writers=request.param, patience_seconds=0.3)
        stores = PostgresStores(postgres_url, lanes)
        yield stores
        running.run(stores.close())
