"""Which servers and schemas are refused, and with which sentence; nothing is touched then."""

import asyncio
from urllib.parse import urlsplit

import pytest

from tenure.adapters.store.postgres import schema
from tenure.adapters.store.postgres.server import read_address
from tenure.core.errors import StoreError, StoreForeign, StoreNewer
from tenure.core.records import TABLES, OperationRecord
from tenure.ports.store import Change
from tenure.testing.contracts.store_rows import operation
from tenure.testing.servers import lasting_port
from tests.real.postgres.test_postgres_events import stranger
from tests.real.support.postgres import open_store

pytestmark = pytest.mark.timeout(300)


def refusal(url: str, kind: type[StoreError] = StoreError) -> str:
    async def scenario() -> str:
        with pytest.raises(kind) as caught:
            async with open_store(url):
                pass
        return str(caught.value)

    return asyncio.run(scenario())


def test_a_wrong_address_says_what_to_do(postgres_url: str) -> None:
    away = f"postgresql://tenure@127.0.0.1:{lasting_port()}/postgres"
    assert "cannot be reached" in refusal(away)
    other = urlsplit(postgres_url)._replace(path="/elsewhere").geturl()
    assert "createdb" in refusal(other)
    nobody = postgres_url.replace("tenure@", "nobody:hush@", 1)
    said = refusal(nobody)
    assert "user" in said
    assert "hush" not in said
    assert "named like" in refusal("mysql://x/y")
    assert "lower-case letters" in refusal(postgres_url.split("?", maxsplit=1)[0] + "?schema=Up;")
    assert read_address("postgresql://h/d").schema == "tenure"


def test_another_programs_schema_is_left_alone(postgres_url: str) -> None:
    async def scenario() -> str:
        other = await stranger(postgres_url)
        name = read_address(postgres_url).schema
        await other.execute(f'CREATE SCHEMA "{name}"')
        await other.execute("CREATE TABLE theirs (x int)")
        await other.close()
        return name

    asyncio.run(scenario())
    assert "another program" in refusal(postgres_url, StoreForeign)


def test_a_newer_schema_is_left_alone(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url):
            pass
        other = await stranger(postgres_url)
        await other.execute("INSERT INTO tenure_migration VALUES (99, 'later', false)")
        await other.close()

    asyncio.run(scenario())
    assert "newer Tenure" in refusal(postgres_url, StoreNewer)


def test_many_may_start_at_once(postgres_url: str) -> None:
    async def one(number: int) -> None:
        async with open_store(postgres_url, writers=1, readers=1) as store:
            await store.commit(Change("", (), (operation(str(number)),)))

    async def scenario() -> None:
        await asyncio.gather(*(one(number) for number in range(8)))
        async with open_store(postgres_url) as store:
            assert await store.count_rows(OperationRecord, {}) == 8

    asyncio.run(scenario())


def test_the_migrations_make_every_column_that_is_written(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url):
            pass
        reader = await stranger(postgres_url)
        types = await schema.read_types(reader, read_address(postgres_url).schema)
        assert {(t, c) for t, s in TABLES.items() for c in s.key + s.columns} <= types.keys()
        await reader.close()

    asyncio.run(scenario())


def test_the_stores_time_is_the_servers(postgres_url: str) -> None:
    async def scenario() -> None:
        from tenure.adapters.clock.system import SystemEntropy
        from tenure.adapters.store import postgres
        from tenure.testing.contracts.store_rows import StoppedClock

        clock = StoppedClock(at=5.0)  # a clock that is fifty years behind, and stands still
        store = await postgres.build(postgres_url, clock=clock, entropy=SystemEntropy())
        other = await stranger(postgres_url)
        told = await other.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        assert abs(store.now() - told) < 600.0
        before = store.now()
        clock.at += 100.0
        assert store.now() == pytest.approx(before + 100.0)
        clock.at -= 50.0
        assert store.now() == pytest.approx(before + 100.0)  # it never goes back
        await other.close()
        await store.close()

    asyncio.run(scenario())


def test_a_copy_is_left_to_the_servers_own_means(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as store:
            with pytest.raises(StoreError, match="pg_dump"):
                await store.backup("/nowhere")

    asyncio.run(scenario())
