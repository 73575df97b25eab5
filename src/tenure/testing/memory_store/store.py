"""`MemoryStore`: one process's handle on tables in memory.

A change is applied when it is handed in; its caller hears of it on a later turn of the loop, as
from a disk. After `kill` this handle answers nobody, not even those who wait, while others on the
same tables go on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from tenure.core.errors import CommitUnknown, Defect, StoreClosed, StoreError, TenureError
from tenure.core.events import in_epoch
from tenure.core.records import (
    IntentRecord,
    JournalRecord,
    OperationRecord,
    OutboxRecord,
    table_of,
)
from tenure.ports.clock import Clock
from tenure.ports.store import (
    Change,
    ClaimedOperation,
    CommitRefusal,
    Key,
    LoadedOperation,
    Queue,
    R,
    Row,
    TenantEvents,
    Value,
    WakeHint,
)
from tenure.testing.memory_store.tables import Tables


class MemoryStore:
    """Keeps the promises of `tenure.ports.store.Store` as long as the process lives."""

    def __init__(self, tables: Tables, *, clock: Clock) -> None:
        self.tables = tables
        self._clock = clock
        self._waiting: list[tuple[asyncio.Future[Any], Any]] = []
        self._ended: Callable[[], BaseException] | None = None
        self._failing: bool | None = None

    def fail_commit(self, *, is_applied: bool) -> None:
        """Let the next COMMIT end in an error, its change on disk or not; then nothing works."""
        self._failing = is_applied

    def kill(self) -> None:
        """Die as a process does: who waits is not answered, who asks later gets CommitUnknown."""
        self._waiting = []
        self._ended = _killed_error

    def now(self) -> float:
        """The clock's time."""
        self._use()
        return self._clock.now()

    def commit(self, change: Change) -> asyncio.Future[CommitRefusal | None]:
        """Apply it now, answer on a later turn."""
        future: asyncio.Future[CommitRefusal | None] = self._later()
        answer: CommitRefusal | BaseException | None
        try:
            answer = None if self._failing is False else self.tables.apply(change)
        except TenureError as error:
            answer = error
        if self._failing is not None:
            self._ended = _unknown
            answer = _unknown()
        self._waiting.append((future, answer))
        return future

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """Deliver nothing: a wake hint may be lost, and this store loses each one."""

    def claim(
        self, queue: Queue, worker: str, *, limit: int, except_plans: Sequence[str] = ()
    ) -> asyncio.Future[Sequence[ClaimedOperation]]:
        """Claim now, answer on a later turn."""
        future: asyncio.Future[Sequence[ClaimedOperation]] = self._later()
        match queue:
            case Queue.OPERATIONS:
                now = self.now()
                answer = self.tables.claim(worker, limit=limit, now=now, except_plans=except_plans)
                self._waiting.append((future, answer))
                return future
            case _ as never:
                assert_never(never)

    def begin_epoch(self, epoch: int) -> asyncio.Future[None]:
        """Raise them now, answer on a later turn."""
        future: asyncio.Future[None] = self._later()
        for name, value in self.tables.counters.items():
            if name == "outbox" or name.startswith("event/"):
                self.tables.counters[name] = in_epoch(value, epoch)
        self._waiting.append((future, None))
        return future

    def _later(self) -> asyncio.Future[Any]:
        """A future for the answer; all answers of one turn are given together, in order."""
        self._use()
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer)
        return loop.create_future()

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future, answer in waiting:
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _use(self) -> None:
        if self._ended is not None:
            raise self._ended()

    async def list_due(self, worker: str) -> Sequence[ClaimedOperation]:
        """Look at every open operation."""
        now = self.now()
        return sorted(
            ClaimedOperation(str(name), row["token"], row["due_at"])  # type: ignore[arg-type]
            for (name,), row in self.tables.rows["operation"].items()
            if row["worker"] == worker
            and row["ended_at"] is None
            and row["due_at"] is not None
            and row["due_at"] <= now  # type: ignore[operator]
        )

    async def was_committed(self, change_id: str) -> bool:
        """Look among the ids that are still kept."""
        self._use()
        return change_id != "" and change_id in self.tables.changes

    async def find(self, record: type[R], key: Key) -> R | None:
        """Copy one row."""
        self._use()
        table = table_of(record)
        row = self.tables.rows[table.name].get(key)
        if row is None:
            return None
        return tuple.__new__(record, [row[name] for name in table.key + table.columns])

    async def load(self, operation: str) -> LoadedOperation | None:
        """Copy three tables' rows at once."""
        self._use()
        row = self.tables.rows["operation"].get((operation,))
        if row is None:
            return None
        return LoadedOperation(
            tuple.__new__(OperationRecord, row.values()),
            _records(JournalRecord, self.tables.parts("journal", operation)),
            _records(IntentRecord, self.tables.parts("intent", operation)),
        )

    async def list_operations(
        self, tenant: str, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Copy one page."""
        self._use()
        rows = sorted(self.tables.rows["operation"].items())
        return _records(
            OperationRecord,
            (
                row
                for (name,), row in rows
                if row["tenant"] == tenant
                and str(name) > after
                and (not states or row["state"] in states)
            ),
        )[:limit]

    async def list_resources(self, tenant: str, agent: str) -> Sequence[IntentRecord]:
        """Copy them through the agent's operations."""
        self._use()
        operations = self.tables.rows["operation"]
        return _records(
            IntentRecord,
            (
                self._as_recorded(intent)
                for (operation, _), intent in sorted(self.tables.rows["intent"].items())
                if intent["state"] != "BURNED"
                and (row := operations.get((operation,))) is not None
                and row["agent"] == agent
                and row["tenant"] == tenant
            ),
        )

    async def list_living(
        self, slot: str, agent_generations: Sequence[tuple[str, int]], *, gone: str
    ) -> frozenset[str]:
        """Look at every operation of these agents."""
        self._use()
        rows, wanted = self.tables.rows, set(agent_generations)
        return frozenset(
            str(intent["key"])
            for (name,), row in rows["operation"].items()
            if (row["agent"], row["generation"]) in wanted
            and rows["agent"].get((str(row["agent"]),), {}).get("state") != gone
            for intent in self.tables.parts("intent", name)
            if intent["slot"] == slot and intent["state"] != "BURNED"
        )

    async def list_open(
        self, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Copy one page."""
        self._use()
        rows = sorted(self.tables.rows["operation"].items())
        return _records(
            OperationRecord,
            (
                row
                for (name,), row in rows
                if row["ended_at"] is None
                and str(name) > after
                and (not states or row["state"] in states)
            ),
        )[:limit]

    def _as_recorded(self, intent: Row) -> Row:
        """An intent is PRESENT if a record says that its step is done."""
        journal = self.tables.parts("journal", str(intent["operation"]))
        done = {row["step"] for row in journal if row["kind"] in {"done", "adopted"}}
        there = intent["state"] == "INTENDED" and intent["step"] in done
        return {**intent, "state": "PRESENT"} if there else intent

    async def list_events(self, *, after: int = 0, limit: int = 100) -> Sequence[OutboxRecord]:
        """Copy one page."""
        self._use()
        rows = sorted(self.tables.rows["outbox"].items())
        beyond = [row for (position,), row in rows if int(position) > after]
        return _records(OutboxRecord, beyond[:limit])

    async def newest_event(self) -> int:
        """Look at every position."""
        self._use()
        return max((int(position) for (position,) in self.tables.rows["outbox"]), default=0)

    async def count_events(self, *, until: int) -> Mapping[str, TenantEvents]:
        """Look at every event."""
        self._use()
        found: dict[str, TenantEvents] = {}
        for (position,), row in sorted(self.tables.rows["outbox"].items()):
            if int(position) <= until:
                known = found.get(str(row["tenant"]), TenantEvents(0, int(position)))
                found[str(row["tenant"])] = known._replace(total=known.total + 1)
        return found

    async def list_rows(
        self, record: type[R], columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[R]:
        """Copy one page."""
        return _records(record, self._select(record, columns, after)[:limit])

    async def count_rows(self, record: type[tuple[Any, ...]], columns: Mapping[str, Value]) -> int:
        """Count them."""
        return len(self._select(record, columns, ()))

    def _select(self, record: Any, columns: Mapping[str, Value], after: Key) -> list[Row]:
        self._use()
        table = table_of(record)
        if not {*table.key, *table.columns}.issuperset(columns):
            raise Defect(f"Table {table.name!r} does not have the columns {sorted(columns)}.")
        return [
            row
            for key, row in sorted(self.tables.rows[table.name].items())
            if key[: len(after)] > after or not after
            if all(row[name] == value for name, value in columns.items())
        ]

    async def count_states(self, tenant: str) -> Mapping[tuple[str, str], int]:
        """Look at every open operation and at every name."""
        self._use()
        rows = self.tables.rows
        found = [
            ("operation", str(row["state"]))
            for row in rows["operation"].values()
            if row["tenant"] == tenant and row["ended_at"] is None
        ]
        agents = [row["agent"] for row in rows["agent_name"].values() if row["tenant"] == tenant]
        found += [("agent", str(rows["agent"][(str(uid),)]["state"])) for uid in agents]
        return Counter(found)

    async def plans_of_open_operations(self) -> Sequence[str]:
        """Look at every open operation."""
        self._use()
        operations = self.tables.rows["operation"].values()
        return sorted({str(row["plan"]) for row in operations if row["ended_at"] is None})

    async def backup(self, path: str) -> None:
        """Write the tables as JSON; `Tables.read` opens them again."""
        self._use()
        try:
            _write_new(Path(path), self.tables.dump())
        except OSError as error:
            raise StoreError(f"No copy was made at {path} ({error.strerror}).") from None

    async def write_problem(self) -> str:
        """Look at the disk that a test plays."""
        self._use()
        return "its disk is full" if self.tables.full else ""

    def stop_waiting(self) -> None:
        """It is never away."""

    async def close(self) -> None:
        """Answer what was handed in, then let go."""
        if self._waiting:
            self._answer()
        if self._ended is None:
            self._ended = _closed_error


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def _records(record: type[R], rows: Iterable[Row]) -> list[R]:
    return [tuple.__new__(record, row.values()) for row in rows]


def _killed_error() -> CommitUnknown:
    return CommitUnknown("This process was killed.")


def _unknown() -> CommitUnknown:
    return CommitUnknown(
        "The store failed while it committed: stop this process and start it again."
    )


def _closed_error() -> StoreClosed:
    return StoreClosed("This store is closed: nothing was written.")
