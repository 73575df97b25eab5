"""The part of the store's contract about reads."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tenure.core.events import EPOCH_SPAN
from tenure.core.limits import POSITION_MAX
from tenure.core.records import CursorRecord, OperationRecord, OutboxRecord
from tenure.ports.store import Drop, Generated, Next, Put, Row, Set, Store, TenantEvents, Value
from tenure.testing.contracts.store_rows import (
    Names,
    StoppedClock,
    event,
    intent,
    operation,
    record,
    scenario,
    stored_record,
)


class ReadPromises:
    """A part of `StoreContract`, which has its fixtures."""

    @scenario
    async def test_load_gives_journal_and_intents_in_order(
        self, store: Store, change: Names
    ) -> None:
        puts = [
            record("a", 10),
            record("a", 2),
            record("b", 1),
            intent("a", "z"),
            intent("a", "m"),
            intent("b", "m"),
        ]
        await store.commit(change(operation("a"), operation("b"), *puts))
        loaded = await store.load("a")
        assert loaded is not None
        assert loaded.operation == stored_record(operation("a"))
        assert list(loaded.journal) == [
            stored_record(record("a", 2)),
            stored_record(record("a", 10)),
        ]
        assert list(loaded.intents) == [
            stored_record(intent("a", "m")),
            stored_record(intent("a", "z")),
        ]
        assert await store.load("missing") is None

    @scenario
    async def test_load_reads_one_instant(self, store: Store, change: Names) -> None:
        await store.commit(change(operation("a", revision=0)))

        async def write() -> None:
            for n in range(1, 60):
                await store.commit(
                    change(record("a", n), Set("operation", ("a",), {"revision": n}))
                )

        writing = asyncio.ensure_future(write())
        while not writing.done():
            loaded = await store.load("a")
            assert loaded is not None
            assert loaded.operation.revision == len(loaded.journal)
            await asyncio.sleep(0)
        await writing

    @scenario
    async def test_lists_a_tenants_operations_by_age_page_by_page(
        self, store: Store, change: Names
    ) -> None:
        states = {"a": "STUCK", "b": "RUNNING", "c": "STUCK", "d": "SUCCEEDED"}
        puts = [operation(name, state=state) for name, state in reversed(states.items())]
        await store.commit(change(*puts, operation("bb", tenant="south")))

        def names(rows: Sequence[OperationRecord]) -> list[Any]:
            return [row.id for row in rows]

        assert names(await store.list_operations("north")) == ["a", "b", "c", "d"]
        assert names(await store.list_operations("north", limit=2)) == ["a", "b"]
        assert names(await store.list_operations("north", after="b", limit=1)) == ["c"]
        assert names(await store.list_operations("north", states=("STUCK", "SUCCEEDED"))) == [
            "a",
            "c",
            "d",
        ]
        assert names(await store.list_operations("north", states=["STUCK"], after="a")) == ["c"]
        assert list(await store.list_operations("south")) == [
            stored_record(operation("bb", tenant="south"))
        ]
        assert names(await store.list_operations("west")) == []

    @scenario
    async def test_lists_what_an_agent_holds_or_may_hold(self, store: Store, change: Names) -> None:
        states = ("INTENDED", "PRESENT", "REFUSED", "REMOVING", "BURNED")
        await store.commit(
            change(
                operation("b", agent="x"), operation("a", agent="x"), operation("c", agent="y"),
                *(intent("b", state, state=state) for state in states), intent("a", "z"),
                intent("c", "q"), record("a", 1, kind="done", step="z"),
            )
        )  # fmt: skip
        found = [
            (row.operation, row.step, row.state) for row in await store.list_resources("north", "x")
        ]
        assert found == [
            ("a", "z", "PRESENT"),  # a record says so
            ("b", "INTENDED", "INTENDED"),
            ("b", "PRESENT", "PRESENT"),
            ("b", "REFUSED", "REFUSED"),
            ("b", "REMOVING", "REMOVING"),
        ]
        assert list(await store.list_resources("south", "x")) == []
        assert list(await store.list_resources("north", "nobody")) == []

    @scenario
    async def test_lists_the_keys_of_a_slot_that_living_agents_hold(
        self, store: Store, change: Names
    ) -> None:
        agents = {"x": "READY", "y": "DELETED", "z": None}
        await store.commit(
            change(
                *(Put("agent", (uid,), {"tenant": "north", "generation": 2, "state": state})
                  for uid, state in agents.items()),
                operation("a", agent="x"), operation("b", agent="x", generation=2),
                operation("c", agent="y"), operation("d", agent="z"), operation("e", agent="w"),
                intent("a", "one"), intent("a", "two", slot="identity"),
                intent("b", "one", state="BURNED"), intent("b", "two", state="REMOVING"),
                *(intent(name, "one") for name in "cde"),
            )
        )  # fmt: skip
        asked = [("x", 1), ("x", 2), ("y", 1), ("z", 1), ("w", 1), ("nobody", 1), ("x", 3)]
        found = await store.list_living("runtime", asked, gone="DELETED")
        assert found == {"key-a-one", "key-b-two", "key-d-one", "key-e-one"}
        assert await store.list_living("identity", asked, gone="DELETED") == {"key-a-two"}
        assert await store.list_living("runtime", [], gone="DELETED") == frozenset()
        assert "key-c-one" in await store.list_living("runtime", asked, gone="ENDED")

    @scenario
    async def test_lists_open_operations_of_every_tenant(self, store: Store, change: Names) -> None:
        await store.commit(
            change(
                operation("c", state="STUCK"), operation("a", state="STUCK", tenant="south"),
                operation("b", state="RUNNING", worker="w"),
                operation("d", state="SUCCEEDED", ended_at=1.0),
            )
        )  # fmt: skip
        assert [row.id for row in await store.list_open()] == ["a", "b", "c"]
        assert [row.id for row in await store.list_open(states=["STUCK"])] == ["a", "c"]
        assert [row.id for row in await store.list_open(after="a", limit=1)] == ["b"]

    @scenario
    async def test_lists_events_after_a_position(self, store: Store, change: Names) -> None:
        assert await store.newest_event() == 0
        await store.commit(change(*(event(f"e{n}") for n in range(5))))
        places = [row.position for row in await store.list_events()]
        assert places == sorted(set(places))
        page = await store.list_events(after=places[1], limit=2)
        assert [row.position for row in page] == places[2:4]
        assert (await store.list_events(after=places[3]))[0] == OutboxRecord(
            position=places[4], tenant="north", agent="agent", operation="operation",
            type="e4", at=3.0, body="{}", sequence=None,
        )  # fmt: skip
        assert list(await store.list_events(after=places[4])) == []
        assert await store.newest_event() == places[4]

    @scenario
    async def test_counts_the_events_of_each_tenant(self, store: Store, change: Names) -> None:
        assert await store.count_events(until=POSITION_MAX) == {}
        for tenant in ("north", "south", "north", "north"):
            put = event("told")
            await store.commit(change(replace(put, row={**put.row, "tenant": tenant})))
        places = [row.position for row in await store.list_events()]
        assert await store.count_events(until=places[2]) == {
            "north": TenantEvents(2, places[0]), "south": TenantEvents(1, places[1]),
        }  # fmt: skip
        await store.commit(change(Drop("outbox", (places[0],))))
        assert await store.count_events(until=POSITION_MAX) == {
            "north": TenantEvents(2, places[2]), "south": TenantEvents(1, places[1]),
        }  # fmt: skip

    @scenario
    async def test_a_place_among_the_events_is_before_all_that_commit_later(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(event("earlier")))
        fresh: dict[str, Value | Generated] = {"attempts": 0, "due_at": 0.0, "why": "", "missed": 0}
        fresh["position"] = Next("outbox")
        await store.commit(change(Put("cursor", ("mine",), fresh)))
        await store.commit(change(event("later")))
        mine = await store.find(CursorRecord, ("mine",))
        assert mine is not None
        after = await store.list_events(after=mine.position)
        assert [one.type for one in after] == ["later"]

    @scenario
    async def test_counts_the_events_of_each_agent(self, store: Store, change: Names) -> None:
        def agent_event(agent: str) -> Put:
            put = event("told")
            counted = Next(f"event/{agent}")
            return replace(put, row={**put.row, "agent": agent, "sequence": counted})

        await store.commit(change(agent_event("a"), agent_event("b"), agent_event("a")))
        await asyncio.gather(
            *(store.commit(change(agent_event("a"), agent_event("b"))) for _ in range(5))
        )
        found = await store.list_events(limit=100)
        for agent in ("a", "b"):
            numbers = [row.sequence for row in found if row.agent == agent]
            assert numbers == [*range(1, len(numbers) + 1)]
        assert len(found) == 13

    @scenario
    async def test_numbers_of_events_begin_anew_in_a_later_epoch(
        self, store: Store, change: Names
    ) -> None:
        def agent_event(agent: str) -> Put:
            put = event("told")
            counted = Next(f"event/{agent}")
            return replace(put, row={**put.row, "agent": agent, "sequence": counted})

        answers = [store.commit(change(agent_event("a"), agent_event("b"), agent_event("a")))]
        await asyncio.gather(*answers, store.begin_epoch(3), store.commit(change(agent_event("a"))))
        await store.begin_epoch(3)
        await store.commit(change(agent_event("a"), agent_event("b"), agent_event("c")))
        numbers: dict[object, list[Value]] = {}
        for row in await store.list_events(limit=100):
            numbers.setdefault(row.agent, []).append(row.sequence)
        start = 3 * EPOCH_SPAN
        assert numbers == {"a": [1, 2, start + 3, start + 4], "b": [1, start + 2], "c": [1]}

    @scenario
    async def test_names_what_is_due_and_the_plans_still_followed(
        self, store: Store, clock: StoppedClock, change: Names
    ) -> None:
        mine: Row = {"worker": "me", "due_at": clock.at}
        await store.commit(
            change(
                operation("b", plan="q", **mine), operation("a", plan="p", **mine),
                operation("c", plan="p", worker="me"),
                operation("d", plan="p", worker="you", due_at=1.0),
                operation("e", plan="r", ended_at=1.0, **mine),
                operation("f", plan="q", worker="me", due_at=clock.at + 1),
            )
        )  # fmt: skip
        due = [(name, at) for name, _, at in await store.list_due("me")]
        assert due == [("a", clock.at), ("b", clock.at)]
        assert list(await store.list_due("nobody")) == []
        assert sorted(await store.plans_of_open_operations()) == ["p", "q"]
