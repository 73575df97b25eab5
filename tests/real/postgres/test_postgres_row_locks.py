"""Rows that a stranger holds: only what touches them waits, and its caller is told in the end."""

import asyncio

import pytest

from tenure.adapters.store.postgres import committer, server
from tenure.core.errors import CommitUnknown, StoreClosed, StoreError
from tenure.core.retry import POSTGRES_COMMIT
from tenure.ports.store import Change, Is, Put, Queue, Set
from tenure.testing.contracts.store_rows import lease, operation
from tenure.testing.proxy import Behaviour
from tests.real.postgres.test_postgres_events import stranger
from tests.real.support.postgres import behind_a_proxy, eventually, open_store

pytestmark = pytest.mark.timeout(300)
NAMES = [f"{n:02}" for n in range(12)]
HELD = "05"


def raise_revision(name: str, revision: int) -> Change:
    guard = Is("operation", (name,), {"revision": revision})
    return Change("", (guard,), (Set("operation", (name,), {"revision": revision + 1}),))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOCK_SECONDS", 0.3)
    monkeypatch.setitem(server.SESSION_SETTINGS, "lock_timeout", "0.3s")
    policy = POSTGRES_COMMIT._replace(cap_seconds=0.1)
    monkeypatch.setattr(committer, "POSTGRES_COMMIT", policy)


@pytest.mark.parametrize(("writers", "batch"), [(1, 512), (2, 512), (2, 2)])
def test_only_what_touches_a_held_row_waits(
    postgres_url: str, writers: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait for it: also if they would fill a batch."""
    monkeypatch.setattr(committer, "BATCH_CHANGES_MAX", batch)

    async def scenario() -> None:
        async with open_store(postgres_url, writers=writers) as store:
            await store.commit(Change("", (), tuple(map(operation, NAMES))))
            other = await stranger(postgres_url)
            async with other.transaction():
                await other.execute("SELECT 1 FROM operation WHERE id = $1 FOR UPDATE", HELD)
                answers = {
                    name: asyncio.ensure_future(store.commit(raise_revision(name, 0)))
                    for name in NAMES
                }
                held = [answers.pop(HELD)]
                held += [
                    asyncio.ensure_future(store.commit(raise_revision(HELD, n))) for n in (1, 2)
                ]
                assert set(await asyncio.gather(*answers.values())) == {None}
                # What stands alone does not wait for it either, nor what comes after that.
                await store.commit(Change("", (), (lease("me", store.now() + 60),)))
                claimed = await store.claim(Queue.OPERATIONS, "me", limit=99)
                assert [one.id for one in claimed] == [name for name in NAMES if name != HELD]
                assert await store.commit(raise_revision("00", 2)) is None
                assert not any(one.done() for one in held)
            assert await asyncio.gather(*held) == [None] * 3  # in the order they were handed in
            await other.close()

    asyncio.run(scenario())


def test_whose_row_is_never_let_go_is_told_so(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url, patience_seconds=0.5) as store:
            await store.commit(Change("", (), tuple(map(operation, NAMES))))
            other = await stranger(postgres_url)
            async with other.transaction():
                await other.execute("SELECT 1 FROM operation WHERE id = $1 FOR UPDATE", HELD)
                with pytest.raises(
                    StoreError, match="another session has locked a row of this"
                ) as caught:
                    await store.commit(raise_revision(HELD, 0))
                assert "Nothing of this was stored" in str(caught.value)
            await other.close()

    asyncio.run(scenario())


def test_a_close_waits_for_what_waits_for_a_row(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as store:
            await store.commit(Change("", (), tuple(map(operation, NAMES))))
            other = await stranger(postgres_url)
            async with other.transaction():
                await other.execute("SELECT 1 FROM operation WHERE id = $1 FOR UPDATE", HELD)
                waiting = asyncio.ensure_future(store.commit(raise_revision(HELD, 0)))
                await eventually(lambda: bool(store._committer._locked_items))
                closing = asyncio.ensure_future(store.close())
                await asyncio.sleep(0)
                with pytest.raises(StoreClosed):
                    await store.commit(raise_revision("00", 0))
            assert await waiting is None
            await closing
            await other.close()

    asyncio.run(scenario())


def test_a_change_that_stands_alone_waits_for_a_held_row_as_long_as_it_can(
    postgres_url: str,
) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url, writers=1) as store:
            await store.commit(Change("", (), (operation("a"),)))
            other = await stranger(postgres_url)
            new = operation("b")
            twice = Change("", (Is("operation", ("a",), {"revision": 0}),), (new, new))
            async with other.transaction():
                await other.execute("SELECT 1 FROM operation FOR UPDATE")
                waiting = asyncio.ensure_future(store.commit(twice))
                await asyncio.sleep(0.5)
                assert not waiting.done()
            refused = await waiting
            assert refused is not None
            assert isinstance(refused.what, Put)
            await other.close()

    asyncio.run(scenario())


def test_what_waits_for_a_row_is_told_when_everything_ends(postgres_url: str) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=2, patience_seconds=1.0) as (store, proxy):
            await store.commit(Change("", (), tuple(map(operation, NAMES))))
            other = await stranger(postgres_url)
            async with other.transaction():
                await other.execute("SELECT 1 FROM operation WHERE id = $1 FOR UPDATE", HELD)
                waiting = asyncio.ensure_future(store.commit(raise_revision(HELD, 0)))
                await eventually(lambda: bool(store._committer._locked_items))
                proxy.behaviour = Behaviour(refuses=True, cut_after_answered=0)
                with pytest.raises(CommitUnknown):
                    await store.commit(raise_revision("00", 0))
                with pytest.raises((CommitUnknown, StoreError)):
                    await waiting
            await other.close()

    asyncio.run(scenario())
