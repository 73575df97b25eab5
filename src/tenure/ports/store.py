"""The store: where operations, journals, intents and events are kept.

A write is a value.  The app builds a `Change` from a closed vocabulary, and `commit` applies it
whole or returns the `CommitRefusal` that names the failed guard and the row in the way.  Columns
hold None, int, float, str or bytes.  A read returns records: see `tenure.core.records`.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.errors import Defect
from tenure.core.records.operation import IntentRecord, JournalRecord, OperationRecord
from tenure.core.records.outbox import OutboxRecord
from tenure.core.records.table import columns_of, dict_of, key_of, table_of

Value = None | int | float | str | bytes
Key = tuple[str | int, ...]
Row = dict[str, Value]
"""Columns by their names: what a `Put` or a `Set` writes."""
R = TypeVar("R", bound=tuple[Any, ...])
"""A record type of `tenure.core.records`."""


class Below(Struct, frozen=True, gc=False):
    """In a guard: the column is smaller than this."""

    value: int | float | str


class AtLeast(Struct, frozen=True, gc=False):
    """In a guard: the column is this or greater."""

    value: int | float | str


class Next(Struct, frozen=True, gc=False):
    """In a new row: the next number of this counter, which the store fills in when it commits.

    A counter that `begins` has issued no number yet: a store need not look for it.
    """

    counter: str
    begins: bool = False


class ChainHash(Struct, frozen=True, gc=False):
    """In a `Put`: the hash of this row and of the one before it, which the store fills in.

    It is the row's last value, and its key is a `Next`; see `tenure.core.audit.link`.
    """

    table: str


Generated = Next | ChainHash
"""What the store fills in when it commits."""
Condition = Value | Below | AtLeast
"""In a guard: the value of a column, or its bound."""


class Is(Struct, frozen=True, gc=False):
    """Guard: the row is there and its columns meet these conditions."""

    table: str
    key: Key
    columns: Mapping[str, Condition]

    @classmethod
    def of(cls, record: tuple[Any, ...], *columns: str) -> "Is":
        """The row is there, and these columns still have the values of this record."""
        row = dict_of(record)
        conditions = {name: row[name] for name in columns}
        return cls(table_of(type(record)).name, key_of(record), conditions)


class Put(Struct, frozen=True, gc=False):
    """Write a new row; refused if the key exists.  Absence is guarded only by putting the row.

    A key column may be `Next`, and then cannot clash.
    """

    table: str
    key: tuple[str | int | Next, ...]
    row: Mapping[str, Value | Generated]

    @classmethod
    def of(cls, record: tuple[Any, ...]) -> "Put":
        """Write this record as a new row."""
        return cls(table_of(type(record)).name, key_of(record), columns_of(record))


class Set(Struct, frozen=True, gc=False):
    """Change columns of a row that is there; refused if it is not."""

    table: str
    key: Key
    row: Mapping[str, Value]


class Drop(Struct, frozen=True, gc=False):
    """Remove a row; dropping what is not there succeeds."""

    table: str
    key: Key


class WakeHint(Struct, frozen=True, gc=False):
    """Who else works on this operation, or waits for it, should look at it now."""

    operation: str
    interrupt: bool = False
    unclaimed: bool = False
    others: tuple["WakeHint", ...] = ()
    """Those about other operations that the same change concerns."""


def combine_hints(*wake_hints: WakeHint) -> WakeHint | None:
    """All of these as one; None: there are none."""
    return replace(wake_hints[0], others=wake_hints[1:]) if wake_hints else None


Write = Put | Set | Drop
Writes = tuple[Write, ...]


class HeaderGuard(NamedTuple):
    """What the line of a `Header` asks of a row: that these columns still say what it brings.

    In the line's own table that is its own row; elsewhere one whose key begins as the line's does:
    the line brings the rest of that key, then the columns.
    """

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


Line = tuple[Value | Generated, ...]
"""Values of one row, as its header orders them."""


class Header:
    """What lines have in common, made once.

    A line is a write with its guards, in the lighter form of what is written often.  It brings the
    key, then the columns, then what each guard asks for.  In a change a line with guards comes
    first, and no two lines set one row.
    """

    __slots__ = ("adds", "columns", "generated", "guards", "key", "table")

    def __init__(
        self,
        table: str,
        key: tuple[str, ...],
        columns: tuple[str, ...],
        *,
        adds: bool = False,
        generated: tuple[int, ...] = (),
        guards: tuple[HeaderGuard, ...] = (),
    ) -> None:
        """It `adds` rows as `Put` does, or changes them as `Set` does, if the guards hold.

        `generated` are the places of a line where there is a `Next`, its key among them.
        """
        self.table = table
        self.key = key
        self.columns = columns
        self.adds = adds
        self.generated = generated
        self.guards = guards

    def write(self, line: Line) -> Put | Set:
        """A line as the write it stands for."""
        key, values = line[: len(self.key)], line[len(self.key) :]
        row: dict[str, Any] = dict(zip(self.columns, values, strict=not self.guards))
        return (Put if self.adds else Set)(self.table, key, row)  # type: ignore[arg-type]

    def asks(self, line: Line) -> Iterator[Is]:
        """The guards of a line."""
        left = iter(line[len(self.key) + len(self.columns) :])
        for table, key, columns in self.guards:
            own = table == self.table
            whole = line[: len(key)] if own else (line[0], *islice(left, len(key) - 1))
            conditions = dict(zip(columns, islice(left, len(columns)), strict=True))
            yield Is(table, whole, conditions)  # type: ignore[arg-type]


class Change(Struct, frozen=True, gc=False):
    """Guards and writes that become true together or not at all.

    `id` is stored with the batch that applied the change, so that one whose reply was lost can be
    looked up.  A change that `admits` new work is refused (StoreFull) when the store runs out of
    room; others may use the reserve.  A `ring` tells other processes once the change is durable.
    What is written often comes as `lines`, each under the header of the same place in `headers`.
    """

    id: str
    guards: tuple[Is, ...] = ()
    writes: Writes = ()
    is_new_work: bool = False
    wake_hint: WakeHint | None = None
    headers: Sequence[Header] = ()
    lines: Sequence[Line] = ()

    def plain(self) -> "Change":
        """The same change without lines."""
        if not self.headers:
            return self
        try:
            both = list(zip(self.headers, self.lines, strict=True))
            guards = [guard for header, line in both for guard in header.asks(line)]
            writes = [header.write(line) for header, line in both]
        except ValueError as error:
            message = f"A line does not fit its header ({error}); nothing was written."
            raise Defect(message) from None
        return replace(
            self, guards=(*self.guards, *guards), writes=(*writes, *self.writes),
            headers=(), lines=(),
        )  # fmt: skip


class ChangePart(Struct, frozen=True, gc=False):
    """Guards and writes that one room contributes to the change of another."""

    guards: tuple[Is, ...] = ()
    writes: tuple[Put | Set, ...] = ()


class CommitRefusal(Struct, frozen=True, gc=False):
    """The guard or write that failed, and the row that stands in the way (None: there is none)."""

    what: Is | Put | Set
    row: Row | None

    def found(self, record: type[R]) -> R | None:
        """The row that stands in the way, if it is a row of this record's table."""
        table = table_of(record)
        if self.row is None or self.what.table != table.name:
            return None
        return tuple.__new__(record, [self.row[name] for name in table.key + table.columns])


class Queue(StrEnum):
    """What can be claimed."""

    OPERATIONS = "operations"


class ClaimedOperation(NamedTuple):
    """One operation that is now this worker's, under this token; `due_at` None: not by time."""

    id: str
    token: int
    due_at: float | None


class LoadedOperation(NamedTuple):
    """Everything the saga needs of one operation, read at one instant."""

    operation: OperationRecord
    journal: Sequence[JournalRecord]
    intents: Sequence[IntentRecord]


class TenantEvents(NamedTuple):
    """The events of one tenant in the outbox."""

    total: int
    oldest: int
    """A position; the tenant has no event before it."""


class Store(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.store`."""

    def now(self) -> float:
        """The store's clock: the one by which leases and deadlines are judged."""
        ...

    def commit(self, change: Change) -> Awaitable[CommitRefusal | None]:
        """Apply the change durably (None) or not at all (CommitRefusal).

        Raises StoreFull for a change that admits work when there is no room, and CommitUnknown
        (BaseException) when COMMIT itself failed: from then on this store refuses everything.
        """
        ...

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """Call this for the rings of other processes' changes; a hint, which may be lost."""
        ...

    def claim(
        self, queue: Queue, worker: str, *, limit: int, but_plans: Sequence[str] = ()
    ) -> Awaitable[Sequence[ClaimedOperation]]:
        """Take up to `limit` open operations whose worker has no live lease, oldest first.

        Those that follow one of `but_plans` (digests) are left: this worker cannot perform them.

        Each gets this worker, the next token on itself and on its intents that are not burned, a
        raised revision, and leaves PENDING.  The outcome of its INTENDED and REMOVING intents is
        unknown from now on, if it was not already; but not of what was PENDING: nobody called it.
        """
        ...

    def begin_epoch(self, epoch: int) -> Awaitable[None]:
        """Raise what events are numbered by into this epoch: no number is given a second time.

        A counter of an agent's events becomes `core.events.in_epoch` of itself; twice is once.
        """
        ...

    async def list_due(self, worker: str) -> Sequence[ClaimedOperation]:
        """Open operations of this worker whose `due_at` has come, under the tokens it holds."""
        ...

    async def was_committed(self, change_id: str) -> bool:
        """Whether a recent change with this id was applied."""
        ...

    @overload
    async def find(self, record: type[R], key: Key) -> R | None: ...
    @overload
    async def find(self, record: str, key: Key) -> Row | None: ...
    async def find(self, record: type[R] | str, key: Key) -> R | Row | None:
        """The row with this key in the table of this record type, as committed."""
        ...

    async def load(self, operation: str) -> LoadedOperation | None:
        """One operation with its journal in order and its intents, from one snapshot."""
        ...

    async def list_operations(
        self, tenant: str, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Operations of a tenant in id order (oldest first), of these states if any are named."""
        ...

    async def list_resources(self, tenant: str, agent: str) -> Sequence[IntentRecord]:
        """Intents of an agent that hold or may hold a resource, by operation and step."""
        ...

    async def list_living(
        self, slot: str, owners: Sequence[tuple[str, int]], *, gone: str
    ) -> frozenset[str]:
        """Keys of a slot that agents hold or may hold, unless their state is `gone`.

        `owners` are the agents by uid, each with the generation of the operation that intended
        the key; the cost is one lookup for each of them, whatever else an agent has.
        """
        ...

    async def list_open(
        self, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Open operations of all tenants in id order, of these states if any are named.

        The cost grows with what is open, not with what has ended.
        """
        ...

    async def list_events(self, *, after: int = 0, limit: int = 100) -> Sequence[OutboxRecord]:
        """Outbox rows by their positions, beyond `after`: that of the last row read, or 0.

        What is committed later has a greater position than all that was ever listed.
        """
        ...

    async def newest_event(self) -> int:
        """The position of the last row that `list_events` would list by now; 0: there is none."""
        ...

    async def count_events(self, *, until: int) -> Mapping[str, TenantEvents]:
        """The events of each tenant that has any, up to this position.

        It reads every event: a leader calls it once.
        """
        ...

    @overload
    async def list_rows(
        self, record: type[R], columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[R]: ...
    @overload
    async def list_rows(
        self, record: str, columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[Row]: ...
    async def list_rows(
        self,
        record: type[R] | str,
        columns: Mapping[str, Value],
        *,
        after: Key = (),
        limit: int = 100,
    ) -> Sequence[R] | Sequence[Row]:
        """Rows of a table with these values in these columns, in key order, beyond `after`.

        It is quick where an index or the key begins with the columns named.
        """
        ...

    async def count_rows(
        self, record: type[tuple[Any, ...]] | str, columns: Mapping[str, Value]
    ) -> int:
        """How many rows of a table have these values; the cost grows with the answer."""
        ...

    async def count_states(self, tenant: str) -> Mapping[tuple[str, str], int]:
        """How many of a tenant's open operations and named agents are in each state they are in.

        By ("operation" or "agent", state); the cost grows with what is open or named, not with
        what has ended.
        """
        ...

    async def plans_of_open_operations(self) -> Sequence[str]:
        """Digests of the plans that open operations follow."""
        ...

    async def backup(self, path: str) -> None:
        """Write a consistent copy while work goes on; the copy opens as a store of its own."""
        ...

    async def write_problem(self) -> str:
        """Why the store takes no new work now, in words that name no address; "": it knows none.

        It is asked after a commit has failed or taken long, and may open a connection.
        """
        ...

    def stop_waiting(self) -> None:
        """Whoever uses it is leaving: from now on a store that is away is not waited for."""
        ...

    async def close(self) -> None:
        """Finish what was handed in, then let go.  A second close does nothing."""
        ...
