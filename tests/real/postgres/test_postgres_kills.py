"""`kill -9` of the server under load: what was acknowledged is there afterwards, once.

Goal: P1, P6 and RULES S26 for a server that dies. Method: callers raise revisions through one store
while the postmaster is killed and started again; every acknowledged record is then looked for.
"""

import asyncio
from functools import partial

import pytest

from tenure.core.errors import StoreError
from tenure.core.records import JournalRecord, OperationRecord, OutboxRecord
from tenure.ports.store import Change
from tenure.testing.contracts.store_rows import operation
from tests.real.postgres.test_postgres_lost_connections import raise_revision
from tests.real.support.postgres import eventually, open_store

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
KILLS = 4
CALLERS = 40


async def _has_grown(store, length: int) -> bool:
    return int(await store.count_rows(JournalRecord, {})) >= length


def test_a_killed_server_loses_nothing_that_was_acknowledged(own_postgres, tally) -> None:
    async def raise_on(store, name: str, stop: asyncio.Event) -> int:
        revision = 0
        while not stop.is_set():
            assert await store.commit(raise_revision(revision, name)) is None, (name, revision)
            revision += 1
        return revision

    async def scenario() -> None:
        async with open_store(f"{own_postgres.url}?schema=kills", patience_seconds=150.0) as store:
            names = [f"{n:02}" for n in range(CALLERS)]
            await store.commit(Change("", (), tuple(map(operation, names))))
            stop = asyncio.Event()
            callers = [asyncio.ensure_future(raise_on(store, name, stop)) for name in names]
            for _ in range(KILLS):
                grown = await store.count_rows(JournalRecord, {}) + CALLERS
                await eventually(partial(_has_grown, store, grown))
                own_postgres.kill()
                tally.add("kills")
                await asyncio.to_thread(own_postgres.start)
            stop.set()
            acknowledged = await asyncio.gather(*callers)
            assert await store.count_rows(JournalRecord, {}) == sum(acknowledged)
            assert await store.count_rows(OutboxRecord, {}) == sum(acknowledged)
            for name, count in zip(names, acknowledged, strict=True):
                row = await store.find(OperationRecord, (name,))
                assert row is not None
                assert row.revision == count

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("setting", "message"),
    [("fsync=off", "fsync = off"), ("full_page_writes=off", "full_page_writes"),
     ("default_transaction_read_only=on", "read-only")],
)  # fmt: skip
def test_a_server_that_would_lose_records_is_refused(
    own_postgres, setting: str, message: str
) -> None:
    own_postgres.halt()
    own_postgres.start(setting)

    async def scenario() -> None:
        with pytest.raises(StoreError, match=message):
            async with open_store(own_postgres.url):
                pass

    asyncio.run(scenario())


def test_synchronous_commit_off_is_set_on_for_what_we_write(own_postgres) -> None:
    own_postgres.halt()
    own_postgres.start("synchronous_commit=off")

    async def scenario() -> None:
        async with open_store(own_postgres.url) as store:
            await store.commit(Change("", (), (operation("a"),)))
            session = next(filter(None, store._committer._writers._sessions))
            assert await session.connection.fetchval("SHOW synchronous_commit") == "on"

    asyncio.run(scenario())
