"""The store: the database of operations, journals, intents, agents and events.

The app builds every write as a `Change` value: guards that must hold, and rows to insert, change or
delete.  `commit` applies a change completely, or returns a `CommitRefusal` that names the failed
guard and the row that it found.  A read returns records: see `tenure.core.records`.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.errors import Defect
from tenure.core.records.operation import IntentRecord, JournalRecord, OperationRecord
from tenure.core.records.outbox import OutboxRecord
from tenure.core.records.table import columns_of, dict_of, key_of, table_of

Value = None | int | float | str | bytes
Key = tuple[str | int, ...]
Row = dict[str, Value]
"""The values of a row by the names of its columns."""
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

    `begins`: the counter is new, so the store does not have to look for it.
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
"""In a guard: the value of a column, or a bound for it."""


class Is(Struct, frozen=True, gc=False):
    """Guard: the row exists and its columns meet these conditions."""

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
    """Insert a row; the change is refused if the key exists.

    There is no guard for the absence of a row: insert the row instead.  A key with a `Next` is
    always new.
    """

    table: str
    key: tuple[str | int | Next, ...]
    row: Mapping[str, Value | Generated]

    @classmethod
    def of(cls, record: tuple[Any, ...]) -> "Put":
        """Write this record as a new row."""
        return cls(table_of(type(record)).name, key_of(record), columns_of(record))


class Set(Struct, frozen=True, gc=False):
    """Change columns of a row; the change is refused if the row does not exist."""

    table: str
    key: Key
    row: Mapping[str, Value]


class Drop(Struct, frozen=True, gc=False):
    """Delete a row; succeeds also if the row does not exist."""

    table: str
    key: Key


class WakeHint(Struct, frozen=True, gc=False):
    """Tells other processes to read this operation now: one may execute it or wait for it."""

    operation: str
    interrupt: bool = False
    unclaimed: bool = False
    others: tuple["WakeHint", ...] = ()
    """Hints for other operations that the same change concerns."""


def combine_hints(*wake_hints: WakeHint) -> WakeHint | None:
    """All of these as one hint; None if there are none."""
    return replace(wake_hints[0], others=wake_hints[1:]) if wake_hints else None


Write = Put | Set | Drop
Writes = tuple[Write, ...]


class PreparedGuard(NamedTuple):
    """Guard of a `PreparedWrite`: these columns of one row have the values in the parameters.

    If `table` is the table of the write, it is the row that is written.  In another table, the key
    of the row begins with the first parameter; the parameters of the guard are the rest of that
    key, then the values of `columns`.  Example: a write of `operation` (key `id`) guards the column
    `token` of an intent (key `operation, step`); its parameters end with the step and the token.
    """

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


Parameters = tuple[Value | Generated, ...]
"""The values of one prepared write: of its key, then its columns, then each of its guards."""


class PreparedWrite:
    """A write of one table without its values, made once for rows that are often written.

    With its parameters it means the same as a `Put` or `Set` and its guards, and costs less to
    build.  In a change, a prepared write with guards comes first, and no two change the same row.
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
        guards: tuple[PreparedGuard, ...] = (),
    ) -> None:
        """With `adds` it inserts a row as `Put` does, else it changes a row as `Set` does.

        `generated` are the indexes of the parameters that are a `Next`.
        """
        self.table = table
        self.key = key
        self.columns = columns
        self.adds = adds
        self.generated = generated
        self.guards = guards

    def expand(self, parameters: Parameters) -> Put | Set:
        """The write with these parameters."""
        key, values = parameters[: len(self.key)], parameters[len(self.key) :]
        row: dict[str, Any] = dict(zip(self.columns, values, strict=not self.guards))
        return (Put if self.adds else Set)(self.table, key, row)  # type: ignore[arg-type]

    def guards_of(self, parameters: Parameters) -> Iterator[Is]:
        """The guards with these parameters."""
        guard_parameters = iter(parameters[len(self.key) + len(self.columns) :])
        for table, key, columns in self.guards:
            own = table == self.table
            whole_key = (
                parameters[: len(key)]
                if own
                else (parameters[0], *islice(guard_parameters, len(key) - 1))
            )
            conditions = dict(zip(columns, islice(guard_parameters, len(columns)), strict=True))
            yield Is(table, whole_key, conditions)  # type: ignore[arg-type]


class Change(Struct, frozen=True, gc=False):
    """Guards and writes that are applied together or not at all.

    `id` is stored with the batch that applied the change, so a change whose reply was lost can be
    looked up.  A change with `is_new_work` is refused (StoreFull) when the disk is nearly full;
    others may use the space that is reserved for them.  `wake_hint` is sent to other processes
    once the change is durable.  Rows that are written often are `prepared_writes`; the parameters
    of each have the same index in `parameters`.
    """

    id: str
    guards: tuple[Is, ...] = ()
    writes: Writes = ()
    is_new_work: bool = False
    wake_hint: WakeHint | None = None
    prepared_writes: Sequence[PreparedWrite] = ()
    parameters: Sequence[Parameters] = ()

    def expand_prepared(self) -> "Change":
        """The same change, with every prepared write expanded to a write and its guards."""
        if not self.prepared_writes:
            return self
        try:
            both = list(zip(self.prepared_writes, self.parameters, strict=True))
            guards = [guard for prepared, values in both for guard in prepared.guards_of(values)]
            writes = [prepared.expand(values) for prepared, values in both]
        except ValueError as error:
            message = f"The parameters of a write do not fit it ({error}); nothing was written."
            raise Defect(message) from None
        return replace(
            self, guards=(*self.guards, *guards), writes=(*writes, *self.writes),
            prepared_writes=(), parameters=(),
        )  # fmt: skip


class ChangePart(Struct, frozen=True, gc=False):
    """Guards and writes that one package adds to the change of another."""

    guards: tuple[Is, ...] = ()
    writes: tuple[Put | Set, ...] = ()


class CommitRefusal(Struct, frozen=True, gc=False):
    """The guard or write that failed, and the row that was found (None: there is none)."""

    what: Is | Put | Set
    row: Row | None

    def found(self, record: type[R]) -> R | None:
        """The row that was found, if it belongs to the table of this record type."""
        table = table_of(record)
        if self.row is None or self.what.table != table.name:
            return None
        return tuple.__new__(record, [self.row[name] for name in table.key + table.columns])


class Queue(StrEnum):
    """The kinds of rows that workers claim."""

    OPERATIONS = "operations"


class ClaimedOperation(NamedTuple):
    """An operation that this worker has claimed; `due_at` None: it waits for a signal."""

    id: str
    token: int
    due_at: float | None


class LoadedOperation(NamedTuple):
    """One operation with its journal and its intents, read from one snapshot."""

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
        """The store's clock; leases and deadlines are compared with it."""
        ...

    def commit(self, change: Change) -> Awaitable[CommitRefusal | None]:
        """Apply the change durably (None) or not at all (CommitRefusal).

        StoreFull for a change with `is_new_work` when the disk is nearly full.  CommitUnknown (a
        BaseException) when COMMIT itself failed: from then on this store refuses everything.
        """
        ...

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """Call this for the wake hints of other processes; a hint may be lost."""
        ...

    def claim(
        self, queue: Queue, worker: str, *, limit: int, except_plans: Sequence[str] = ()
    ) -> Awaitable[Sequence[ClaimedOperation]]:
        """Take up to `limit` open operations whose worker has no live lease, oldest first.

        Operations whose plan is in `except_plans` (digests) are not claimed: this worker cannot
        perform them.

        A claim sets the worker, raises the token of the operation and of its intents that are not
        burned, raises the revision, and changes PENDING to RUNNING.  If the operation was not
        PENDING, the outcome of its INTENDED and REMOVING intents is unknown from now on
        (`tenure.core.decisions.unknown_after_claim`).  A claim does not change `updated_at`.
        """
        ...

    def begin_epoch(self, epoch: int) -> Awaitable[None]:
        """Raise every counter of an agent's events into this epoch, so that no number is reused.

        A counter becomes `core.events.in_epoch` of itself; a repeated call changes nothing.
        """
        ...

    async def list_due(self, worker: str) -> Sequence[ClaimedOperation]:
        """Open operations of this worker whose `due_at` has come, with their tokens."""
        ...

    async def was_committed(self, change_id: str) -> bool:
        """Whether a recent change with this id was applied."""
        ...

    async def find(self, record: type[R], key: Key) -> R | None:
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
        """Intents of an agent that hold or may hold a resource, ordered by operation and step."""
        ...

    async def list_living(
        self, slot: str, agent_generations: Sequence[tuple[str, int]], *, gone: str
    ) -> frozenset[str]:
        """Keys of a slot that agents hold or may hold, unless their state is `gone`.

        `agent_generations` are the agents by uid, each with the generation of the operation that
        intended the key; the cost is one lookup for each of them, whatever else an agent has.
        """
        ...

    async def list_open(
        self, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Open operations of all tenants in id order, of these states if any are named.

        The cost grows with the number of open operations, not with that of ended ones.
        """
        ...

    async def list_events(self, *, after: int = 0, limit: int = 100) -> Sequence[OutboxRecord]:
        """Outbox rows by their positions, beyond `after`: that of the last row read, or 0.

        A later commit always has a greater position than every event that was listed before.
        """
        ...

    async def newest_event(self) -> int:
        """The position of the newest event; 0: there is none."""
        ...

    async def count_events(self, *, until: int) -> Mapping[str, TenantEvents]:
        """The events of each tenant that has any, up to this position.

        It reads every event: a leader calls it once.
        """
        ...

    async def list_rows(
        self, record: type[R], columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[R]:
        """Rows of a table with these values in these columns, in key order, beyond `after`.

        It is fast if an index or the key begins with these columns.
        """
        ...

    async def count_rows(self, record: type[tuple[Any, ...]], columns: Mapping[str, Value]) -> int:
        """How many rows of a table have these values; the cost grows with the answer."""
        ...

    async def count_states(self, tenant: str) -> Mapping[tuple[str, str], int]:
        """How many of a tenant's open operations and named agents are in each state.

        The keys are ("operation" or "agent", state).  The cost grows with the number of open
        operations and named agents, not with that of ended ones.
        """
        ...

    async def plans_of_open_operations(self) -> Sequence[str]:
        """Digests of the plans that open operations follow."""
        ...

    async def backup(self, path: str) -> None:
        """Write a consistent copy without stopping work; the copy can be opened as a store."""
        ...

    async def write_problem(self) -> str:
        """Why the store accepts no new work now, without naming an address; "": not known.

        It is called after a commit has failed or was slow, and may open a connection.
        """
        ...

    def stop_waiting(self) -> None:
        """The process is stopping: from now on do not wait for a server that is unreachable."""
        ...

    async def close(self) -> None:
        """Finish the commits that were requested, then close.  A second call does nothing."""
        ...
