"""The part of the store's contract about prepared writes, the compact form of writes."""

import asyncio

from tenure.core.errors import Defect
from tenure.core.records import IntentRecord, OperationRecord
from tenure.ports.store import (
    Change,
    CommitRefusal,
    Is,
    Next,
    PreparedGuard,
    PreparedWrite,
    Put,
    Set,
    Store,
)
from tenure.testing.contracts.store_rows import Names, intent, operation, scenario

STEP = ("operation", "step")
OPERATION = PreparedWrite(
    "operation",
    ("id",),
    ("revision", "error"),
    guards=(
        PreparedGuard("intent", STEP, ("token",)),
        PreparedGuard("operation", ("id",), ("revision",)),
    ),
)
INTENT = PreparedWrite("intent", STEP, ("token", "detail"))
JOURNAL = PreparedWrite(
    "journal", ("operation", "seq"), ("tenant", "kind", "step", "at", "body"), adds=True
)
OUTBOX = PreparedWrite(
    "outbox", ("position",), ("tenant", "agent", "operation", "type", "at", "body", "sequence"),
    adds=True, generated=(0, 7),
)  # fmt: skip


def record_change(name: str, revision: int, *, token: int = 0, id: str = "") -> Change:  # noqa: A002
    """The change that takes an operation from this revision to the next."""
    return Change(
        id,
        prepared_writes=(OPERATION, JOURNAL, OUTBOX, INTENT),
        parameters=(
            (name, revision + 1, f"at {revision}", "runtime", token, revision),
            (name, revision, "north", "done", "runtime", 2.0, "{}"),
            (Next("outbox"), "north", name, name, "told", 3.0, "{}", Next(f"event/{name}")),
            (name, "runtime", token, f"after {revision}"),
        ),
    )


class PreparedWritePromises:
    """A part of `StoreContract`, which has its fixtures."""

    @scenario
    async def test_lines_are_written_whole_and_numbered(self, store: Store, change: Names) -> None:
        for name in "ab":
            await store.commit(change(operation(name), intent(name, "runtime")))
        together = [record_change(name, revision) for revision in range(3) for name in "ab"]
        answers = await asyncio.gather(*map(store.commit, together))
        assert answers == [None] * 6
        for name in "ab":
            loaded = await store.load(name)
            assert loaded is not None
            assert (loaded.operation.revision, loaded.operation.error) == (3, "at 2")
            assert [row.seq for row in loaded.journal] == [0, 1, 2]
            assert [row.detail for row in loaded.intents] == ["after 2"]
        told = await store.list_events(limit=10)
        assert [row.sequence for row in told if row.agent == "a"] == [1, 2, 3]
        assert len({row.position for row in told}) == 6

    @scenario
    async def test_events_alone_can_be_lines(self, store: Store) -> None:
        values = (Next("outbox"), "north", "a", "o", "told", 3.0, "{}", Next("event/a"))
        both = Change("", prepared_writes=(OUTBOX, OUTBOX), parameters=(values, values))
        assert await store.commit(both) is None
        assert [row.sequence for row in await store.list_events(limit=10)] == [1, 2]

    @scenario
    async def test_a_guard_of_a_line_refuses_all_of_its_change(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a", revision=4), intent("a", "runtime", token=2)))
        late, fenced, fine = (
            record_change("a", 3, token=2, id="late"), record_change("a", 4, token=1, id="fenced"),
            record_change("a", 4, token=2, id="fine"),
        )  # fmt: skip
        by_revision, by_token, none = await asyncio.gather(*map(store.commit, (late, fenced, fine)))
        assert isinstance(by_revision, CommitRefusal)
        assert by_revision.what == Is("operation", ("a",), {"revision": 3})
        assert by_revision.row is not None
        assert by_revision.row["revision"] == 4
        assert isinstance(by_token, CommitRefusal)
        assert by_token.what == Is("intent", ("a", "runtime"), {"token": 1})
        assert none is None
        loaded = await store.load("a")
        assert loaded is not None
        assert [row.seq for row in loaded.journal] == [4]
        assert [row.sequence for row in await store.list_events(limit=10)] == [1]
        assert [await store.was_committed(one) for one in ("late", "fenced", "fine")] == [
            False, False, True,
        ]  # fmt: skip

    @scenario
    async def test_a_line_that_is_there_already_refuses_and_so_does_one_that_is_not(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "runtime")))
        await store.commit(record_change("a", 0))
        there = Change(
            "", writes=(Set("operation", ("a",), {"revision": 9}),),
            prepared_writes=(JOURNAL,), parameters=(("a", 0, "north", "done", "x", 2.0, "{}"),),
        )  # fmt: skip
        refused = await store.commit(there)
        assert isinstance(refused, CommitRefusal)
        assert isinstance(refused.what, Put)
        assert refused.what.key == ("a", 0)
        gone = Change("", prepared_writes=(INTENT,), parameters=(("a", "moon", 1, ""),))
        assert await store.commit(gone) == CommitRefusal(
            Set("intent", ("a", "moon"), {"token": 1, "detail": ""}), None
        )
        row = await store.find(OperationRecord, ("a",))
        assert row is not None
        assert row.revision == 1

    @scenario
    async def test_a_header_of_no_table_is_a_defect_of_that_change_alone(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "runtime")))
        odd = Change(
            "", prepared_writes=(PreparedWrite("moon", ("id",), ("x",)),), parameters=(("a", 1),)
        )
        both = await asyncio.gather(
            store.commit(record_change("a", 0)), store.commit(odd), return_exceptions=True
        )
        assert both[0] is None
        assert isinstance(both[1], Defect)

    @scenario
    async def test_a_guard_is_about_what_was_before_its_change(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "runtime")))
        odd = Change(
            "",
            prepared_writes=(INTENT, OPERATION),
            parameters=(("a", "runtime", 5, ""), ("a", 1, "", "runtime", 5, 0)),
        )
        refused = await store.commit(odd)
        assert isinstance(refused, CommitRefusal)
        assert refused.what == Is("intent", ("a", "runtime"), {"token": 5})
        row = await store.find(IntentRecord, ("a", "runtime"))
        assert row is not None
        assert row.token == 0

    @scenario
    async def test_a_line_that_does_not_fit_its_header_is_a_defect(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "runtime")))
        for prepared, values in (
            (JOURNAL, ("a", 1, "north")),
            (OPERATION, ("a", 1, "", "runtime")),
        ):
            short = Change("", prepared_writes=(prepared,), parameters=(values,))
            answers = await asyncio.gather(
                _commit(store, short), _commit(store, record_change("b", 0)), return_exceptions=True
            )
            assert isinstance(answers[0], Defect)
            assert isinstance(answers[1], CommitRefusal)

    @scenario
    async def test_a_counter_that_begins_counts_on(self, store: Store, change: Names) -> None:
        await store.commit(change(operation("a")))
        first = (Next("outbox"), "north", "n", "o", "1", 3.0, "{}", Next("event/n", begins=True))
        more = (*first[:4], "2", 3.0, "{}", Next("event/n"))
        refused, *fine = await asyncio.gather(
            store.commit(change(operation("a"))),
            store.commit(Change("", prepared_writes=(OUTBOX,), parameters=(first,))),
            store.commit(Change("", prepared_writes=(OUTBOX,), parameters=(more,))),
        )
        assert isinstance(refused, CommitRefusal)
        assert fine == [None, None]
        assert await store.commit(Change("", prepared_writes=(OUTBOX,), parameters=(more,))) is None
        assert [row.sequence for row in await store.list_events(limit=10)] == [1, 2, 3]


async def _commit(store: Store, change: Change) -> CommitRefusal | None:
    """Wait for a refusal, which is raised at once or by the future."""
    return await store.commit(change)
