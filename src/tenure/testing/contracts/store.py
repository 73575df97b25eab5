"""The contract of a store: each promise of `tenure.ports.store.Store` is a test.

Derive a class and give it the fixture `stores`:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def stores(self, tmp_path):
            return MyStores(tmp_path)
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.core.errors import CommitUnknown, Defect, StoreError, StoreFull
from tenure.core.limits import IDENTIFIER_CHARACTERS_MAX
from tenure.core.records import IntentRecord, JournalRecord, LockRecord, OperationRecord
from tenure.ports.store import (
    AtLeast,
    Below,
    Change,
    CommitRefusal,
    Drop,
    Is,
    Next,
    Put,
    Queue,
    Row,
    Set,
    Store,
)
from tenure.testing.contracts.store_chain import ChainPromises
from tenure.testing.contracts.store_claims import ClaimPromises
from tenure.testing.contracts.store_prepared import PreparedWritePromises
from tenure.testing.contracts.store_reads import ReadPromises
from tenure.testing.contracts.store_refusals import RefusalPromises
from tenure.testing.contracts.store_rows import (
    Names,
    StoppedClock,
    Stores,
    event,
    intent,
    one_loop,
    operation,
    record,
    scenario,
    stored_record,
    stored_row,
)


class StoreContract(
    ClaimPromises, ReadPromises, ChainPromises, RefusalPromises, PreparedWritePromises
):
    """Derive a class and give it the fixture `stores`."""

    @pytest.fixture
    def stores(self) -> Stores:
        """Opens the store under test."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def running(self) -> Iterator[asyncio.Runner]:
        """The event loop of this test; some stores are bound to one loop."""
        with one_loop() as runner:
            yield runner

    @pytest.fixture
    def clock(self) -> StoppedClock:
        """The clock of the store."""
        return StoppedClock()

    @pytest.fixture
    def change(self) -> Names:
        """Makes changes."""
        return Names()

    @pytest.fixture
    def store(
        self, stores: Stores, clock: StoppedClock, running: asyncio.Runner
    ) -> Iterator[Store]:
        """The store, open; closed at the end."""
        store = running.run(stores.open(clock))
        yield store
        running.run(store.close())

    # ------------------------------------------------------------------------------------- commit

    def test_now_is_the_clock_it_was_given(self, store: Store, clock: StoppedClock) -> None:
        clock.at = 1234.5
        assert store.now() == 1234.5

    @scenario
    async def test_an_applied_change_is_there_for_every_reader(
        self, store: Store, change: Names
    ) -> None:
        assert await store.commit(change(operation("a"), intent("a", "one"))) is None
        assert await store.find(OperationRecord, ("a",)) == stored_record(operation("a"))
        assert await store.find(IntentRecord, ("a", "one")) == stored_record(intent("a", "one"))
        assert await store.find(IntentRecord, ("a", "two")) is None

    @scenario
    async def test_a_record_with_some_of_the_columns_reads_those(
        self, store: Store, change: Names
    ) -> None:
        row: Row = {"tenant": "north", "generation": 3, "name": "hello", "operation": "a"}
        await store.commit(change(Put("agent", ("x",), row)))
        assert await store.find(LockRecord, ("x",)) == LockRecord("x", "north", 3, "a", None)
        assert await store.find(LockRecord, ("y",)) is None

    @scenario
    async def test_a_row_handed_out_is_not_the_record(self, store: Store, change: Names) -> None:
        mine = dict(operation("a").row)
        await store.commit(change(Put("operation", ("a",), mine)))
        mine["state"] = "STUCK"
        found = await store.find(OperationRecord, ("a",))
        assert found is not None
        with pytest.raises(AttributeError):
            found.state = "STUCK"  # type: ignore[misc]
        assert await store.find(OperationRecord, ("a",)) == stored_record(operation("a"))

    @pytest.mark.parametrize(
        "text", ["", "snow ☃ 🗝", "line\nline", "'; DROP TABLE plan; --", "x" * 300_000]
    )
    @scenario
    async def test_text_comes_back_as_it_went_in(
        self, store: Store, change: Names, text: str
    ) -> None:
        name = text[:IDENTIFIER_CHARACTERS_MAX]  # a column by which rows are found may be bounded
        await store.commit(change(operation("a", input=text, agent=name)))
        found = await store.find(OperationRecord, ("a",))
        assert found is not None
        assert (found.input, found.agent) == (text, name)

    @pytest.mark.parametrize("text", ["a\0b", "\ud800", "x\udfffy"])
    @scenario
    async def test_text_that_cannot_be_kept_fails_alone(
        self, store: Store, change: Names, text: str
    ) -> None:
        odd = asyncio.ensure_future(store.commit(change(operation("a", input=text))))
        assert await store.commit(change(operation("b"))) is None
        try:
            assert await odd is None
        except Defect:
            assert await store.find(OperationRecord, ("a",)) is None
        else:
            found = await store.find(OperationRecord, ("a",))
            assert found is not None
            assert found.input == text
        assert await store.find(OperationRecord, ("b",)) is not None

    @scenario
    async def test_numbers_come_back_as_they_went_in(self, store: Store, change: Names) -> None:
        await store.commit(change(operation("a", generation=2**63 - 1, due_at=1234567890.123456)))
        found = await store.find(OperationRecord, ("a",))
        assert found is not None
        assert (found.generation, found.due_at) == (2**63 - 1, 1234567890.123456)

    @scenario
    async def test_columns_that_may_be_empty_need_not_be_said(
        self, store: Store, change: Names
    ) -> None:
        row = dict(intent("a", "one").row)
        for column in ("due_at", "unknown_since", "waiting_on", "detail"):
            del row[column]
        assert await store.commit(change(Put("intent", ("a", "one"), row))) is None
        assert await store.find(IntentRecord, ("a", "one")) == stored_record(intent("a", "one"))

    @pytest.mark.parametrize(
        ("columns", "holds"),
        [
            ({}, True), ({"token": 3}, True),
            ({"token": 3, "state": "RUNNING", "error": None}, True),
            ({"token": 4}, False), ({"error": ""}, False), ({"due_at": None}, False),
            ({"token": 3, "state": "STUCK"}, False),
            ({"due_at": Below(20.5)}, True), ({"due_at": Below(20)}, False),
            ({"due_at": AtLeast(20)}, True),
            ({"due_at": AtLeast(20.5)}, False), ({"state": Below("S")}, True),
            ({"state": AtLeast("S")}, False),
            ({"error": Below("z")}, False), ({"error": AtLeast("")}, False),
            ({"token": AtLeast(3), "revision": Below(1)}, True),
            ({"id": "a"}, True),
        ],
    )  # fmt: skip
    @scenario
    async def test_a_guard_holds_when_the_row_says_so(
        self, store: Store, change: Names, columns: dict[str, Any], *, holds: bool
    ) -> None:
        put = operation("a", token=3, state="RUNNING", due_at=20.0)
        await store.commit(change(put))
        guard = Is("operation", ("a",), columns)
        answer = await store.commit(change(record("a", 1), guards=(guard,)))
        assert answer == (None if holds else CommitRefusal(guard, stored_row(put)))
        assert (await store.find(JournalRecord, ("a", 1)) is not None) == holds

    @scenario
    async def test_a_guard_on_a_missing_row_is_refused_with_no_row(
        self, store: Store, change: Names
    ) -> None:
        first, second = Is("operation", ("a",), {}), Is("operation", ("b",), {"token": 1})
        await store.commit(change(operation("a")))
        assert await store.commit(change(guards=(first, second))) == CommitRefusal(second, None)

    @scenario
    async def test_of_two_changes_that_guard_one_revision_one_wins(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a")))
        guard = Is("operation", ("a",), {"revision": 0})
        raise_it = Set("operation", ("a",), {"revision": 1})
        answers = await asyncio.gather(
            *(store.commit(change(record("a", n), raise_it, guards=(guard,))) for n in range(5))
        )
        row = stored_row(operation("a", revision=1))
        assert answers == [None] + [CommitRefusal(guard, row)] * 4
        assert [await store.find(JournalRecord, ("a", n)) is not None for n in range(5)] == [
            True
        ] + [False] * 4

    @scenario
    async def test_a_put_on_a_key_that_exists_is_refused_and_takes_the_others_back(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), event("first")))
        clash = operation("a", tenant="south")
        writes = (
            event("lost"),
            operation("b"),
            clash,
            operation("c"),
            Set("operation", ("a",), {"token": 9}),
        )
        assert await store.commit(change(*writes)) == CommitRefusal(
            clash, stored_row(operation("a"))
        )
        assert await store.find(OperationRecord, ("b",)) is None
        assert await store.find(OperationRecord, ("a",)) == stored_record(operation("a"))
        await store.commit(change(event("second")))
        assert [row.type for row in await store.list_events()] == ["first", "second"]

    @scenario
    async def test_of_two_puts_of_one_key_the_first_wins(self, store: Store, change: Names) -> None:
        first, second = operation("a", tenant="north"), operation("a", tenant="south")
        waiting = [store.commit(change(first)), store.commit(change(second))]
        assert [await answer for answer in waiting] == [
            None,
            CommitRefusal(second, stored_row(first)),
        ]

    @scenario
    async def test_a_set_changes_what_it_names(self, store: Store, change: Names) -> None:
        await store.commit(change(operation("a")))
        assert (
            await store.commit(change(Set("operation", ("a",), {"state": "STUCK", "error": "x"})))
            is None
        )
        assert await store.find(OperationRecord, ("a",)) == stored_record(
            operation("a", state="STUCK", error="x")
        )

    @scenario
    async def test_a_set_without_its_row_is_refused_and_nothing_of_its_change_stays(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), operation("b")))
        missing = Set("operation", ("z",), {"token": 1})
        waiting = [
            store.commit(change(record("a", 1))),
            store.commit(change(missing, Set("operation", ("a",), {"token": 5}))),
            store.commit(change(record("b", 1), event(), missing)),
            store.commit(
                change(Set("operation", ("b",), {"token": 5}), missing, Drop("operation", ("a",)))
            ),
            store.commit(change(record("a", 2), event("kept"))),
        ]
        answers = [await answer for answer in waiting]
        assert answers == [
            None,
            CommitRefusal(missing, None),
            CommitRefusal(missing, None),
            CommitRefusal(missing, None),
            None,
        ]
        assert await store.find(OperationRecord, ("a",)) == stored_record(operation("a"))
        assert await store.find(OperationRecord, ("b",)) == stored_record(operation("b"))
        assert await store.find(JournalRecord, ("b", 1)) is None
        assert [row.type for row in await store.list_events()] == ["kept"]

    @scenario
    async def test_a_drop_removes_and_dropping_nothing_succeeds(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "one")))
        drop = Drop("intent", ("a", "one"))
        assert await store.commit(change(drop)) is None
        assert await store.commit(change(drop)) is None
        assert await store.find(IntentRecord, ("a", "one")) is None

    @scenario
    async def test_writes_are_puts_then_sets_then_drops_in_any_order(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a")))
        writes = (
            Drop("operation", ("b",)), Set("operation", ("c",), {"token": 7}), operation("b"),
            operation("c"),
            Drop("operation", ("a",)), Set("operation", ("a",), {"token": 1}),
        )  # fmt: skip
        assert await store.commit(change(*writes)) is None
        assert await store.find(OperationRecord, ("a",)) is None
        assert await store.find(OperationRecord, ("b",)) is None
        assert await store.find(OperationRecord, ("c",)) == stored_record(operation("c", token=7))

    @scenario
    async def test_next_numbers_grow_by_one_in_commit_order(
        self, store: Store, change: Names
    ) -> None:
        waiting = [store.commit(change(event(f"e{n}"), event(f"f{n}"))) for n in range(3)]
        assert [await answer for answer in waiting] == [None] * 3
        found = [row.type for row in await store.list_events()]
        assert found == ["e0", "f0", "e1", "f1", "e2", "f2"]
        for number, name in enumerate("abc", 1):
            await store.commit(change(operation(name, generation=Next("other"))))  # type: ignore[arg-type]
            kept = stored_record(operation(name, generation=number))
            assert await store.find(OperationRecord, (name,)) == kept

    @pytest.mark.parametrize(
        "wrong",
        [
            Put("nowhere", ("a",), {}), Put("agent", ("a", "b"), {"tenant": "t", "generation": 1}),
            Put("agent", ("a",), {"tenant": "t", "generation": 1, "colour": 1}),
            Put("agent", ("a",), {"tenant": "t"}),
            Put("agent", ("a",), {"tenant": None, "generation": 1}),
            Set("operation", ("a",), {"colour": 1}),
            Set("operation", ("a",), {"tenant": None}), Set("nowhere", ("a",), {"x": 1}),
            Drop("nowhere", ("a",)),
            Set("operation", ("a",), {"id": "b"}),
        ],
    )  # fmt: skip
    @scenario
    async def test_a_change_that_makes_no_sense_fails_alone(
        self, store: Store, change: Names, wrong: Put | Set | Drop
    ) -> None:
        answers = await asyncio.gather(
            store.commit(change(operation("a"), event())),
            store.commit(change(operation("b"), event(), wrong)),
            store.commit(change(guards=(Is("operation", ("a",), {"colour": 1}),))),
            store.commit(change(operation("c"), event())),
            return_exceptions=True,
        )
        assert [answers[0], answers[3]] == [None, None]
        assert isinstance(answers[1], Defect)
        assert isinstance(answers[2], Defect)
        assert await store.find(OperationRecord, ("b",)) is None
        assert len(await store.list_events()) == 2

    @scenario
    async def test_the_answer_comes_on_a_later_turn(self, store: Store, change: Names) -> None:
        answer = asyncio.ensure_future(store.commit(change(operation("a"))))
        assert not answer.done()
        assert await answer is None

    @scenario
    async def test_a_caller_who_stops_waiting_changes_nothing(
        self, store: Store, change: Names
    ) -> None:
        waiting = [asyncio.ensure_future(store.commit(change(operation(name)))) for name in "abc"]
        waiting[1].cancel()
        assert [await waiting[0], await waiting[2]] == [None, None]
        await store.commit(change())
        assert await store.find(OperationRecord, ("b",)) is not None

    @scenario
    async def test_without_room_new_work_is_refused_and_the_rest_goes_on(
        self, store: Store, stores: Stores, change: Names
    ) -> None:
        await store.commit(change(operation("a"), is_new_work=True))
        stores.fill(full=True)
        new, old = (
            store.commit(change(operation("b"), is_new_work=True)),
            store.commit(change(record("a", 1))),
        )
        with pytest.raises(StoreFull):
            await new
        assert await old is None
        assert await store.find(OperationRecord, ("b",)) is None
        assert "full" in await store.write_problem()
        stores.fill(full=False)
        assert await store.write_problem() == ""
        assert await store.commit(change(operation("b"), is_new_work=True)) is None

    @scenario
    async def test_what_was_acknowledged_is_there_after_a_restart(
        self, stores: Stores, clock: StoppedClock, change: Names
    ) -> None:
        store = await stores.open(clock)
        await asyncio.gather(
            *(store.commit(change(operation(name), event(name))) for name in "abc")
        )
        await store.commit(refused := change(operation("a")))
        await store.close()
        store = await stores.open(clock)
        assert [row.type for row in await store.list_events()] == ["a", "b", "c"]
        assert [await store.was_committed(f"change-{n}") for n in (1, 2, 3)] == [True] * 3
        assert not await store.was_committed(refused.id)
        await store.commit(change(event("d")))
        assert [row.type for row in await store.list_events()] == ["a", "b", "c", "d"]
        await store.close()

    @scenario
    async def test_a_change_is_looked_up_by_its_whole_id(self, store: Store) -> None:
        await asyncio.gather(*(store.commit(Change(name, (), ())) for name in ("one", "two-2", "")))
        asked = ("one", "two-2", "two", "one two-2", "", " ", "-")
        assert [await store.was_committed(name) for name in asked] == [True, True] + [False] * 5

    @scenario
    async def test_after_a_failed_commit_nothing_is_answered_but_that(
        self, stores: Stores, clock: StoppedClock, change: Names
    ) -> None:
        store = await stores.open(clock)
        await store.commit(change(operation("a")))
        stores.fail_commit(store)
        lost = change(operation("b"))
        for attempt in (lost, change(operation("c")), change()):
            with pytest.raises(CommitUnknown):
                await store.commit(attempt)
        with pytest.raises(CommitUnknown):
            await store.claim(Queue.OPERATIONS, "w", limit=1)
        await store.close()
        store = await stores.open(clock)
        found = [await store.find(OperationRecord, (name,)) is not None for name in "abc"]
        assert found == [True, await store.was_committed(lost.id), False]
        await store.close()

    # --------------------------------------------------------------------------- closing

    @scenario
    async def test_close_finishes_what_was_handed_in(
        self, stores: Stores, clock: StoppedClock, change: Names
    ) -> None:
        store = await stores.open(clock)
        waiting = [store.commit(change(operation(f"{n:04}"))) for n in range(600)]
        store.stop_waiting()
        await asyncio.gather(store.close(), store.close())
        await store.close()
        assert [await answer for answer in waiting] == [None] * 600
        with pytest.raises(StoreError):
            await store.commit(change())
        for read in (
            store.find(OperationRecord, ("0000",)), store.load("0000"), store.was_committed("x"),
            store.list_operations("north"), store.list_resources("north", "x"), store.list_due("w"),
            store.list_events(), store.plans_of_open_operations(), store.count_events(until=1),
            store.write_problem(),
        ):  # fmt: skip
            with pytest.raises(StoreError):
                await read
        store = await stores.open(clock)
        assert len(await store.list_operations("north", limit=1000)) == 600
        await store.close()
