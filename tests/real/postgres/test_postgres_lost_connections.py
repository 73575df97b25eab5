"""Connections that are lost: what was acknowledged is there, what was refused is not, once each.

Goal: RULES S26 on a server. Method: a proxy loses answers, cuts connections and stays half open
while changes are committed; then the rows are counted on a connection of our own.
"""

import asyncio
import random
from typing import Any

import pytest

from tenure.adapters.store.postgres import parts, writer_sessions
from tenure.adapters.store.postgres.functions import Functions
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.records import JournalRecord, OperationRecord
from tenure.ports.store import Change, CommitRefusal, Is, Queue, Set
from tenure.testing.contracts.store_rows import event, lease, operation, record
from tenure.testing.proxy import PLAIN, Behaviour
from tests.real.postgres.test_postgres_events import stranger
from tests.real.support.postgres import behind_a_proxy, eventually, open_store

pytestmark = pytest.mark.timeout(300)


def raise_revision(revision: int, name: str = "a") -> Change:
    """One more record, guarded by the revision before it: applied twice it would be refused."""
    return Change(
        "",
        (Is("operation", (name,), {"revision": revision}),),
        (record(name, revision), event(), Set("operation", (name,), {"revision": revision + 1})),
    )


async def answers_lost(url: str) -> tuple[Any, list[Any]]:
    """A change without an id whose answer is lost: what its caller hears, and the events."""
    async with behind_a_proxy(url, writers=1) as (store, proxy):
        await store.commit(Change("", (), (operation("a"),)))
        await store.commit(raise_revision(0))
        proxy.behaviour = Behaviour(cut_after_answered=0)
        waiting = asyncio.ensure_future(store.commit(raise_revision(1)))
        direct = await stranger(url)
        await eventually(lambda: _has(direct, 2))
        proxy.behaviour = PLAIN
        proxy.cut()
        answer = await waiting
        events = await direct.fetch("SELECT * FROM outbox")
        await direct.close()
        return answer, events


async def _has(connection: Any, number: int) -> bool:
    found: int = await connection.fetchval("SELECT revision FROM operation")
    return found == number


def test_a_commit_whose_answer_is_lost_is_looked_up_and_not_repeated(postgres_url: str) -> None:
    answer, events = asyncio.run(answers_lost(postgres_url))
    assert answer is None
    assert len(events) == 2


def test_ablation_without_the_lookup_it_is_repeated_and_refused(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    async def never(*_args: object) -> bool:
        return False

    monkeypatch.setattr(writer_sessions, "_was_committed", never)
    answer, _ = asyncio.run(answers_lost(postgres_url))
    assert isinstance(answer, CommitRefusal)  # of a change that is there: a lie
    tally.add("ablations")


def test_a_claim_whose_answer_is_lost_gives_what_it_claimed(postgres_url: str) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=1) as (store, proxy):
            changes = (operation("a"), operation("b"), lease("me", store.now() + 60))
            await store.commit(Change("", (), changes))
            assert list(await store.claim(Queue.OPERATIONS, "me", limit=0)) == []  # it is prepared
            proxy.behaviour = Behaviour(cut_after_answered=0)
            waiting = asyncio.ensure_future(store.claim(Queue.OPERATIONS, "me", limit=9))
            direct = await stranger(postgres_url)
            await eventually(lambda: _has_owner(direct))
            proxy.behaviour = PLAIN
            proxy.cut()
            assert [(one.id, one.token) for one in await waiting] == [("a", 1), ("b", 1)]
            await direct.close()

    asyncio.run(scenario())


async def _has_owner(connection: Any) -> bool:
    found: int = await connection.fetchval("SELECT count(*) FROM operation WHERE worker = 'me'")
    return found == 2


@pytest.mark.parametrize("bytes_passed", [0, 40, 400, 4_000])
def test_a_request_cut_short_is_sent_again(postgres_url: str, bytes_passed: int) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=2) as (store, proxy):
            await store.commit(Change("", (), tuple(operation(f"{n:02}") for n in range(20))))
            proxy.behaviour = Behaviour(cut_after_sent=bytes_passed)
            waiting = [
                asyncio.ensure_future(store.commit(raise_revision(0, f"{n:02}"))) for n in range(20)
            ]
            await asyncio.sleep(0.05)
            proxy.behaviour = PLAIN
            assert await asyncio.gather(*waiting) == [None] * 20
            assert await store.count_rows(JournalRecord, {}) == 20
            assert len(await store.list_events()) == 20

    asyncio.run(scenario())


def test_a_half_open_connection_is_given_up_and_its_session_ended(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.adapters.store.postgres.server.STATEMENT_SECONDS", 0.5)

    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=1) as (store, proxy):
            await store.commit(Change("", (), (operation("a"),)))
            await store.commit(raise_revision(0))
            proxy.behaviour = Behaviour(deaf=True, mute=True)
            waiting = asyncio.ensure_future(store.commit(raise_revision(1)))
            await asyncio.sleep(0.2)
            proxy.behaviour = PLAIN
            assert await waiting is None
            assert await store.count_rows(JournalRecord, {}) == 2

    asyncio.run(scenario())


def test_a_server_that_stays_away_is_told_as_what_is_known(postgres_url: str) -> None:
    async def scenario() -> None:
        settings = {"patience_seconds": 0.3, "writers": 1}
        async with behind_a_proxy(postgres_url, **settings) as (store, proxy):
            await store.commit(Change("", (), (operation("a"),)))
            proxy.behaviour = Behaviour(refuses=True)
            proxy.cut()
            with pytest.raises(StoreError, match="Nothing of this was stored"):  # it was never sent
                await store.commit(raise_revision(0))
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.find(OperationRecord, ("a",))
            proxy.behaviour = PLAIN
            assert await store.commit(raise_revision(0)) is None
            assert await store.find(JournalRecord, ("a", 0)) is not None
            proxy.behaviour = Behaviour(refuses=True, cut_after_answered=0)
            for revision in (1, 2):  # what was sent only the server knows; then nothing goes
                with pytest.raises(CommitUnknown):
                    await store.commit(raise_revision(revision))
        async with open_store(postgres_url) as store:
            assert await store.find(JournalRecord, ("a", 1)) is not None
            assert await store.find(JournalRecord, ("a", 2)) is None

    asyncio.run(scenario())


async def meeting(url: str, *, rounds: int = 5) -> tuple[int, int]:
    """Two stores raise the same revisions, their rows in opposite orders: won, and recorded."""
    names = [f"{n:02}" for n in range(30)]
    async with open_store(url, writers=1) as one, open_store(url, writers=1) as two:
        await one.commit(Change("", (), tuple(map(operation, names))))
        won = 0
        for revision in range(rounds):
            waiting = [
                store.commit(raise_revision(revision, name))
                for store, order in ((one, names), (two, names[::-1]))
                for name in order
            ]
            answers = await asyncio.gather(*waiting)
            won += sum(answer is None for answer in answers)
            assert all(answer is None or isinstance(answer, CommitRefusal) for answer in answers)
        return won, await one.count_rows(JournalRecord, {})


def test_of_two_processes_that_write_the_same_rows_one_wins_each(postgres_url: str) -> None:
    assert asyncio.run(meeting(postgres_url)) == (150, 150)


def blind(revision: int) -> Change:
    """A set that is guarded, and puts nothing that could clash instead of the guard."""
    guard = Is("operation", ("a",), {"revision": revision})
    return Change("", (guard,), (Set("operation", ("a",), {"revision": revision + 1}),))


async def twice(url: str) -> list[bool]:
    async with open_store(url) as one, open_store(url) as two:
        await one.commit(Change("", (), (operation("a"),)))
        return [await store.commit(blind(0)) is None for store in (one, two)]


def test_a_guard_is_looked_at_by_the_server(postgres_url: str) -> None:
    assert asyncio.run(twice(postgres_url)) == [True, False]


def test_ablation_without_the_guards_both_win(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    check = Functions._check

    def content(self: Functions, shape: Any) -> Any:
        made = check(self, shape)
        create = made.create.replace(
            "RETURN nullif(concat(so_far, refused), '');", "RETURN so_far;"
        )
        assert create != made.create
        return made._replace(create=create)

    monkeypatch.setattr(Functions, "_check", content)
    assert asyncio.run(twice(postgres_url)) == [True, True]
    tally.add("ablations")


async def crossing(url: str) -> int:
    """Two stores set the same rows, again and again; how often the server met a deadlock.

    A third holds some of the rows until both wait, so each has begun before either has all.
    """
    names = [f"{n:04}" for n in range(300)]
    direct, looking = await stranger(url), await stranger(url)
    await direct.execute("SELECT pg_stat_reset()")

    async def both_wait() -> bool:
        waiting: int = await looking.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return waiting >= 2

    async with open_store(url, writers=1) as one, open_store(url, writers=1) as two:
        await one.commit(Change("", (), tuple(map(operation, names))))
        for number in range(6):
            sets = [Set("operation", (name,), {"token": number}) for name in names]
            both = (Change("", (), tuple(sets)), Change("", (), tuple(reversed(sets))))
            async with direct.transaction():
                held = "SELECT id FROM operation WHERE id = ANY($1) ORDER BY id FOR UPDATE"
                await direct.fetch(held, names[15::30])
                committed = asyncio.gather(one.commit(both[0]), two.commit(both[1]))
                await eventually(both_wait)
            await committed
    ask = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    await direct.execute("SELECT pg_stat_clear_snapshot()")
    await asyncio.sleep(1.2)  # the server tells of them once a second
    met: int = await direct.fetchval(ask)
    await direct.close()
    await looking.close()
    return met


def test_rows_are_held_in_one_order_so_nobody_waits_in_a_circle(postgres_url: str) -> None:
    assert asyncio.run(crossing(postgres_url)) == 0


def test_ablation_without_the_order_they_wait_in_circles(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    hold = Functions._lock

    def anyhow(self: Functions, shape: Any) -> Any:
        made = hold(self, shape)
        create = made.create.replace(" ORDER BY existing.id", "")
        assert create != made.create or shape[1] != "operation"
        return made._replace(create=create)

    monkeypatch.setattr(Functions, "_lock", anyhow)
    dice = random.Random(1)

    def in_random_order(rows: Any, **_rest: object) -> list[Any]:
        return dice.sample(list(rows), len(rows))

    monkeypatch.setattr(parts, "sorted", in_random_order, raising=False)
    # Whether two meet is up to the machine: they are given several evenings.
    assert any(asyncio.run(crossing(postgres_url)) for _ in range(10))
    tally.add("ablations")
