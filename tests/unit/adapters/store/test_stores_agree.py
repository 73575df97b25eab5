"""The store in memory, the store on disk and the store on a server are one store.

Goal: whatever is done, in whatever groups, all give the same answers and end with the same rows
and numbers. Method: hypothesis draws batches of changes and claims over few keys, so that they
meet; the stores run them. Only the positions of events may differ on a server, where changes that
do not meet overtake each other.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.adapters.clock.system import SystemEntropy
from tenure.adapters.store import postgres, sqlite
from tenure.core.errors import TenureError
from tenure.core.records import RECORD_NAMED, TABLES
from tenure.core.records.table import dict_of
from tenure.ports.store import (
    AtLeast,
    Below,
    Change,
    Drop,
    Is,
    Next,
    PreparedWrite,
    Put,
    Queue,
    Set,
    Store,
)
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.sqlite.commit_thread import InlineRunner
from tenure.testing import memory_store
from tenure.testing.contracts.store_prepared import INTENT, JOURNAL, OPERATION, OUTBOX
from tenure.testing.contracts.store_rows import (
    StoppedClock,
    event,
    intent,
    lease,
    operation,
    record,
)
from tenure.testing.servers import PostgresServer
from tests.simulation import postgres_disk

names = st.sampled_from(["a", "b", "c"])
small = st.integers(0, 3)
states = st.sampled_from(["PENDING", "RUNNING", "STUCK"])
intent_states = st.sampled_from(["INTENDED", "PRESENT", "REFUSED", "REMOVING", "BURNED"])
workers = st.sampled_from(["", "v", "w"])
ended = st.sampled_from([None, None, 5.0])
plans = st.sampled_from(["old", "new"])
bounds = st.builds(Below, small) | st.builds(AtLeast, small)


def some(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=columns)


operation_keys, intent_keys = st.tuples(names), st.tuples(names, names)
operation_guards = some(
    token=small | bounds, revision=small | bounds, due_at=bounds | st.none(), state=states
)
operation_columns = some(
    token=small,
    revision=small,
    state=states,
    due_at=st.none() | st.floats(0, 9),
    ended_at=ended,
    worker=workers,
    error=st.none() | st.text(max_size=3),
)
guards = st.builds(Is, st.just("operation"), operation_keys, operation_guards) | st.builds(
    Is, st.just("intent"), intent_keys, some(token=small | bounds)
)
lease_keys = st.builds(lambda worker: (f"worker/{worker}",), workers)
# One statement, with and without a number to be given.
agents = st.builds(
    lambda name, generation: Put("agent", (name,), {"tenant": "t", "generation": generation}),
    names,
    st.sampled_from([7, Next("generation"), Next("other")]),
)
writes = st.one_of(
    st.builds(
        operation, names, state=states, worker=workers, token=small, ended_at=ended, plan=plans
    ),
    st.builds(intent, names, names, state=intent_states, token=small),
    st.builds(record, names, small),
    st.builds(event, names),
    st.builds(lease, workers, st.floats(990, 1010)),
    agents,
    st.builds(Set, st.just("operation"), operation_keys, operation_columns.filter(bool)),
    st.builds(Set, st.just("intent"), intent_keys, st.fixed_dictionaries({"token": small})),
    st.builds(Drop, st.just("operation"), operation_keys),
    st.builds(Drop, st.just("intent"), intent_keys),
    st.builds(Drop, st.just("agent"), st.tuples(names)),
    st.builds(Drop, st.just("lease"), lease_keys),
)


def line_of(prepared: PreparedWrite, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(prepared), st.tuples(*values))


parameters = st.one_of(
    line_of(OPERATION, names, small, st.none() | st.text(max_size=3), names, small, small),
    line_of(INTENT, names, names, small, st.none()),
    line_of(
        JOURNAL, names, small, st.just("north"), st.just("done"), names, st.just(2.0), st.just("{}")
    ),
    line_of(
        OUTBOX,
        st.just(Next("outbox")),
        st.just("north"),
        names,
        names,
        st.just("told"),
        st.just(3.0),
        st.just("{}"),
        st.just(Next("event")),
    ),
)
changes = st.builds(
    lambda guards, writes, is_new_work, parameters: Change(
        "",
        tuple(guards),
        tuple(writes),
        is_new_work,
        prepared_writes=[prepared for prepared, _ in parameters],
        parameters=[values for _, values in parameters],
    ),
    st.lists(guards, max_size=2),
    st.lists(writes, max_size=4),
    st.booleans(),
    st.lists(parameters, max_size=3),
)
# What makes no sense stands alone: beside a refusal, either answer would do.
senseless = st.sampled_from(
    [
        Put("agent", ("a",), {"tenant": "t"}),
        Put("agent", ("a",), {"tenant": None, "generation": 1}),
        Put("moon", ("a",), {}),
        Put("agent", ("a", "b"), {"tenant": "t", "generation": 1}),
        Set("operation", ("a",), {}),
        Drop("moon", ("a",)),
        Set("operation", ("a",), {"colour": 1}),
        Set("operation", ("a",), {"id": "b"}),
    ]
)
changes |= st.builds(lambda write: Change("", (), (write,)), senseless)
claims = st.tuples(workers, small, st.lists(plans, max_size=2))
batches = st.lists(
    st.tuples(st.lists(changes | claims, max_size=6), st.sampled_from([False, False, True])),
    max_size=8,
)


async def play(store: Store, fill: Any, clock: StoppedClock, story: Any) -> list[Any]:
    """Hand in each batch in one turn; every answer, an error by its kind."""
    answers: list[Any] = []
    number = 0
    for batch, full in story:
        fill(full)
        clock.at += 1
        waiting: list[Any] = []
        for item in batch:
            number += 1
            if isinstance(item, Change):
                waiting.append(store.commit(replace(item, id=f"id{number}")))
            else:
                worker, limit, but = item
                waiting.append(store.claim(Queue.OPERATIONS, worker, limit=limit, except_plans=but))
        given_back = await asyncio.gather(*waiting, return_exceptions=True)
        answers.extend(
            type(answer) if isinstance(answer, TenureError) else answer for answer in given_back
        )
    answers.extend([await store.was_committed(f"id{n}") for n in range(1, number + 1)])
    for name in "abc":
        answers.append(await store.load(name))
        answers.append(await store.list_resources("north", f"agent-{name}"))
    answers += [
        await store.list_operations("north", states=("RUNNING",)),
        await store.list_events(),
        await store.list_due("w"),
    ]
    return answers


def rows_on_disk(path: Path) -> tuple[dict[str, list[Any]], dict[str, int]]:
    file = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows: dict[str, list[Any]] = {
        table: file.execute(f"SELECT * FROM {table} ORDER BY {', '.join(shape.key)}").fetchall()
        for table, shape in TABLES.items()
    }
    found: list[Any] = file.execute("SELECT name, value FROM counter WHERE value > 0").fetchall()
    file.close()
    return rows, dict(found)


async def compare(story: Any, folder: Path) -> None:
    clock, room = StoppedClock(), [0]
    on_disk = sqlite.build(
        folder / "a.db", clock=clock, flush=InlineRunner(), free_bytes=lambda: room[0]
    )

    def fill_disk(full: bool) -> None:
        room[0] = RESERVE_BYTES - full

    from_disk = await play(on_disk, fill_disk, clock, story)
    rows, counters = rows_on_disk(folder / "a.db")
    await on_disk.close()
    clock = StoppedClock()
    in_memory = memory_store.build(clock=clock)

    def fill_memory(full: bool) -> None:
        in_memory.tables.full = full

    assert await play(in_memory, fill_memory, clock, story) == from_disk
    kept = {
        table: [tuple(row.values()) for _, row in sorted(rows.items())]
        for table, rows in in_memory.tables.rows.items()
    }
    assert kept == rows
    assert {name: value for name, value in in_memory.tables.counters.items() if value} == counters


async def compare_with_server(story: Any, url: str) -> None:
    clock, room = StoppedClock(), [0]
    pool = postgres.PoolSettings(writers=2)
    await postgres_disk.empty(url)
    served = await postgres.build(
        url,
        clock=clock,
        entropy=SystemEntropy(),
        pool=pool,
        free_bytes=lambda: room[0],
        own_clock=True,
    )

    def fill_server(full: bool) -> None:
        room[0] = postgres.RESERVE_BYTES - full

    from_server = await play(served, fill_server, clock, story)
    records: dict[str, Any] = RECORD_NAMED
    rows = {
        table: [dict_of(row) for row in await served.list_rows(record, {}, limit=1000)]
        for table, record in records.items()
    }
    await served.close()
    clock = StoppedClock()
    in_memory = memory_store.build(clock=clock)

    def fill_memory(full: bool) -> None:
        in_memory.tables.full = full

    from_memory = await play(in_memory, fill_memory, clock, story)
    events = from_server.pop(-2), from_memory.pop(-2)
    assert from_server == from_memory
    assert _without_numbers(events[0]) == _without_numbers(events[1])
    del rows["outbox"]
    kept = {
        table: [row for _, row in sorted(in_memory.tables.rows[table].items())] for table in rows
    }
    assert kept == {table: list(found) for table, found in rows.items()}


def _without_numbers(events: Any) -> list[list[Any]]:
    return sorted(list(row[1:]) for row in events)


@pytest.mark.timeout(300)
@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=batches)
def test_a_server_tells_the_same_story(story: Any, postgres_server: PostgresServer) -> None:
    asyncio.run(compare_with_server(story, f"{postgres_server.url}?schema=same_answers"))


@pytest.mark.timeout(120)
@pytest.mark.slow
@settings(max_examples=400)
@given(story=batches)
def test_both_stores_tell_the_same_story(story: Any) -> None:
    # In memory where there is such a place: what a flush is worth is not asked here.
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        asyncio.run(compare(story, Path(folder)))
