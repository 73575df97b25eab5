"""What the store in memory has beside its contract: handles that die alone, ways to play a disk."""

import asyncio

import pytest

from tenure.core.errors import CommitUnknown, Defect
from tenure.core.records import OperationRecord
from tenure.ports.store import Change, Drop, Put, Queue
from tenure.testing import memory_store
from tenure.testing.contracts.store_chain import NoRecord
from tenure.testing.contracts.store_rows import (
    Names,
    StoppedClock,
    intent,
    operation,
    record,
    scenario,
    stored_record,
)
from tenure.testing.memory_store import tables as module
from tenure.testing.memory_store.tables import Tables


@scenario
async def test_a_killed_handle_answers_nobody_while_others_go_on() -> None:
    change, clock = Names(), StoppedClock()
    mine = memory_store.build(clock=clock)
    other = memory_store.build(clock=clock, tables=mine.tables)
    waiting = mine.commit(change(operation("a")))
    mine.kill()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert await other.find(OperationRecord, ("a",)) == stored_record(operation("a"))
    for use in (
        mine.now,
        lambda: mine.commit(change()),
        lambda: mine.claim(Queue.OPERATIONS, "w", limit=1),
    ):
        with pytest.raises(CommitUnknown):
            use()
    for read in (
        mine.find(OperationRecord, ("a",)),
        mine.load("a"),
        mine.was_committed("change-1"),
        mine.list_operations("north"),
        mine.list_resources("north", "x"),
        mine.list_events(),
        mine.list_due("w"),
        mine.plans_of_open_operations(),
        mine.backup("/nowhere"),
    ):
        with pytest.raises(CommitUnknown):
            await read
    await mine.close()
    with pytest.raises(CommitUnknown):
        mine.now()
    assert await other.commit(change(operation("b"))) is None


@scenario
async def test_claims_of_two_handles_see_each_other() -> None:
    change, clock = Names(), StoppedClock()
    one = memory_store.build(clock=clock)
    two = memory_store.build(clock=clock, tables=one.tables)
    await one.commit(change(operation("a"), operation("b")))
    await one.commit(
        change(Put("lease", ("worker/one",), {"holder": "one", "token": 1, "until": clock.at}))
    )
    taken = [
        await one.claim(Queue.OPERATIONS, "one", limit=1),
        await two.claim(Queue.OPERATIONS, "two", limit=9),
    ]
    assert [[claimed.id for claimed in claims] for claims in taken] == [["a"], ["b"]]


@scenario
async def test_close_answers_those_who_wait() -> None:
    store = memory_store.build(clock=StoppedClock())
    waiting = store.commit(Names()(operation("a")))
    await store.close()
    assert waiting.done()


@scenario
async def test_a_table_nobody_named_is_a_defect() -> None:
    store = memory_store.build(clock=StoppedClock())
    with pytest.raises(Defect):
        await store.find(NoRecord, ("a",))


def test_only_so_many_ids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_KEPT", 2)
    tables = Tables()
    for name in "abc":
        tables.apply(Change(name, (), ()))
    assert list(tables.changes) == ["b", "c"]


def test_a_dump_is_read_back_whole() -> None:
    tables, change = Tables(), Names()
    tables.apply(
        change(
            operation("a", input=b"\x00\xff"), intent("a", "one"), record("a", 1), operation("b")
        )
    )
    tables.apply(change(Drop("operation", ("b",))))
    again = Tables.read(tables.dump())
    assert (again.rows, again.counters, again.changes) == (
        tables.rows,
        tables.counters,
        tables.changes,
    )
    assert again.parts("journal", "a") == tables.parts("journal", "a")
