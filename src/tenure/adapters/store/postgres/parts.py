"""Turns the changes of a batch into the arrays of its statement; nothing here calls a server.

Two changes of a batch never touch the same row, so their rows are written grouped by shape, in this
order: rows to lock, guards to check, rows to insert, update and delete.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tenure.adapters.store.postgres.functions import (
    APPEND,
    CHECK,
    INSERT,
    LOCK,
    RAISE_REFUSALS,
    RECORD_BATCH,
    REMOVE,
    ROW_NUMBER_BITS,
    SERVER_TIME_COLUMN,
    UPDATE,
    FunctionShape,
    Types,
)
from tenure.core.audit import link
from tenure.core.errors import Defect, LimitExceeded
from tenure.core.records import TABLES
from tenure.ports.store import (
    AtLeast,
    Below,
    ChainHash,
    Change,
    CommitRefusal,
    Drop,
    Is,
    Next,
    Put,
    Row,
    Set,
)

APPENDED_TABLE = "outbox"
"""The table (and counter) whose keys are made of transaction ids; they have gaps."""
APPENDS_MAX = 1 << ROW_NUMBER_BITS
"""How many rows one transaction can append."""
_RANK = {table: rank for rank, table in enumerate(TABLES)}
_KEYS = {table: shape.key for table, shape in TABLES.items()}
_LENGTHS = {table: len(shape.key) for table, shape in TABLES.items()}


class ChangeParts:
    """One change, analysed: the rows and counters it touches, and its writes by kind.

    Several `Set`s of one row are merged.  `duplicate_put` is a second `Put` of one row, which is
    always refused: only the writes before it are tried.
    """

    __slots__ = ("change", "counters", "drops", "duplicate_put", "keys", "puts", "sets")

    def __init__(self, change: Change) -> None:
        self.change = change = change.expand_prepared()
        self.keys: set[tuple[str, tuple[Any, ...]]] = {
            (guard.table, guard.key) for guard in change.guards
        }
        self.counters: set[str] = set()
        self.puts: list[Put] = []
        self.sets: dict[tuple[str, tuple[Any, ...]], tuple[Set, Mapping[str, Any]]] = {}
        self.drops: list[Drop] = []
        self.duplicate_put: tuple[Put, Row] | None = None
        for guard in change.guards:
            if _LENGTHS.get(guard.table) != len(guard.key):
                _refuse_unknown(guard.table, guard.key)
        self._read(change)

    def _read(self, change: Change) -> None:
        new: dict[tuple[str, tuple[Any, ...]], Put] = {}
        write: Any  # Put, Set or Drop; its type is checked below
        for write in change.writes:
            kind, key, table = type(write), write.key, write.table
            if kind is Put:
                if _LENGTHS.get(table) != len(key):
                    _refuse_unknown(table, key)
                if table != APPENDED_TABLE or key != _APPENDED_KEY:
                    self._count(write)
                    where = (table, key)
                    if type(key[0]) is not Next:
                        if self._is_duplicate(new, where, write):
                            return
                        self.keys.add(where)
                self.puts.append(write)
                continue
            where = (table, key)
            if _LENGTHS.get(table) != len(key):
                _refuse_unknown(*where)
            self.keys.add(where)
            if kind is Drop:
                self.drops.append(write)
            else:
                first, row = self.sets.get(where, (write, None))
                self.sets[where] = (first, write.row if row is None else {**row, **write.row})

    def _is_duplicate(self, new: dict[Any, Put], where: tuple[str, Any], write: Put) -> bool:
        first = new.get(where)
        if first is None:
            new[where] = write
            return False
        table = first.table
        row: Row = dict.fromkeys((*_KEYS[table], *TABLES[table].columns))
        row.update(zip(_KEYS[table], first.key, strict=True))  # type: ignore[arg-type]
        row.update(first.row)  # type: ignore[arg-type]
        self.duplicate_put = (write, row)
        self.sets.clear()
        self.drops.clear()
        return True

    def _count(self, write: Put) -> None:
        for value in (*write.key, *write.row.values()):
            if type(value) is Next:
                self.counters.add(value.counter)
            elif type(value) is ChainHash:
                self.counters.add(value.table)


class Numbers(NamedTuple):
    """The values of the counters that the server has locked for this batch."""

    last: dict[str, int]
    """Last numbers before this batch."""
    heads: dict[str, str]
    """Hashes of the last rows of chained tables."""


class StatementCall(NamedTuple):
    """The functions of one statement in their order, and their arguments."""

    shapes: tuple[FunctionShape, ...]
    arguments: list[Any]
    origins: list[tuple[int, Is | Put | Set]]
    """For each number in a refusal: the position of its change, and the guard or write."""


def count_numbers(batch: Iterable[ChangeParts]) -> dict[str, int]:
    """How many numbers of each counter these changes need."""
    needed: dict[str, int] = {}
    for parts in batch:
        if parts.counters:
            for put in parts.puts:
                for value in () if put.key == _APPENDED_KEY else (*put.key, *put.row.values()):
                    if type(value) is Next:
                        needed[value.counter] = needed.get(value.counter, 0) + 1
    return needed


class Builder:
    """Collects the rows of a batch by shape."""

    def __init__(self, numbers: Numbers | None = None) -> None:
        self._numbers = numbers
        self._locked_keys: dict[str, set[tuple[Any, ...]]] = {}
        self._checks: dict[FunctionShape, list[tuple[Any, ...]]] = {}
        self._inserts: dict[FunctionShape, list[tuple[Any, ...]]] = {}
        self._updates: dict[FunctionShape, list[tuple[Any, ...]]] = {}
        self._removes: dict[str, list[tuple[Any, ...]]] = {}
        self._origins: list[tuple[int, Is | Put | Set]] = []
        self._append_count = 0

    def add(self, position: int, parts: ChangeParts) -> None:
        """Add one change at its position in the batch."""
        origins, locked_keys = self._origins, self._locked_keys
        for guard in parts.change.guards:
            table, key, conditions = guard.table, guard.key, guard.columns
            locked_keys.setdefault(table, set()).add(key)
            columns, operators = tuple(conditions), "=" * len(conditions)
            values = tuple(conditions.values())
            for value in values:
                if type(value) is Below or type(value) is AtLeast:
                    operators, values = _split_operators(values)
                    break
            rows = self._checks.setdefault((CHECK, table, columns, operators), [])
            rows.append((len(origins), *key, *values))
            origins.append((position, guard))
        for put in parts.puts:
            self._put(position, put)
        for (table, key), (write, row) in parts.sets.items():
            locked_keys.setdefault(table, set()).add(key)
            rows = self._updates.setdefault((UPDATE, table, tuple(row), ""), [])
            rows.append((len(origins), *key, *row.values()))
            origins.append((position, write))
        for drop in parts.drops:
            locked_keys.setdefault(drop.table, set()).add(drop.key)
            self._removes.setdefault(drop.table, []).append(drop.key)

    def _put(self, position: int, put: Put) -> None:
        table, key = put.table, put.key
        columns, values = tuple(put.row), tuple(put.row.values())
        if table == APPENDED_TABLE and key == _APPENDED_KEY:
            self._append(table, columns, values)
            return
        if self._numbers is not None:
            key, values = self._fill(table, key, values)
        rows = self._inserts.setdefault((INSERT, table, columns, ""), [])
        rows.append((len(self._origins), *key, *values))
        self._origins.append((position, put))

    def _append(self, table: str, columns: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """Add a row whose key the server assigns; one more column may get a counter's number."""
        if self._append_count == APPENDS_MAX:  # the committer then halves the batch
            raise LimitExceeded(
                f"One change records at most {APPENDS_MAX} events: nothing was written."
                " Request less at once; delete the parts of a cascade first."
            )
        counted_columns = [
            column for column, one in zip(columns, values, strict=True) if type(one) is Next
        ]
        row = [one.counter if type(one) is Next else one for one in values]
        rows = self._inserts.setdefault((APPEND, table, columns, " ".join(counted_columns)), [])
        rows.append((self._append_count, *row))
        self._append_count += 1

    def _fill(self, table: str, key: Any, values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Replace every `Next` by its number and a `ChainHash` by the hash of the row."""
        assert self._numbers is not None  # noqa: S101 (the caller has checked)
        last, heads = self._numbers
        whole = [*key, *values]
        for position, value in enumerate(whole):
            if type(value) is Next:
                last[value.counter] += 1
                whole[position] = last[value.counter]
            elif type(value) is ChainHash:
                heads[table] = whole[position] = link(heads[table], whole[:position])
        return tuple(whole[: len(key)]), tuple(whole[len(key) :])

    def call(self, batch_id: str, at: float, ids: str, *, uses_server_time: bool) -> StatementCall:
        """Return the statement: lock, check, insert, update, append, delete, record the batch.

        With `uses_server_time` the ends of leases are sent relative to now.
        """
        shapes: list[FunctionShape] = []
        arguments: list[Any] = []

        def add_call(shape: FunctionShape, rows: Iterable[tuple[Any, ...]]) -> None:
            shapes.append(shape)
            arguments.extend(zip(*rows, strict=True))
            if (
                uses_server_time
                and shape[1] == SERVER_TIME_COLUMN[0]
                and SERVER_TIME_COLUMN[1] in shape[2]
            ):
                _make_relative(shape, arguments, at)

        for table in sorted(self._locked_keys, key=_RANK.__getitem__):
            add_call((LOCK, table, (), ""), sorted(self._locked_keys[table]))
        for shape, rows in self._checks.items():
            add_call(shape, rows)
        if self._checks:
            shapes.append(RAISE_REFUSALS)
        inserts = [shape for shape in self._inserts if shape[0] == INSERT]
        inserts.sort(key=lambda shape: _RANK[shape[1]])
        for shape in inserts:
            rows = self._inserts[shape]
            rows.sort(key=_key_of_row)
            add_call(shape, rows)
        if inserts:
            shapes.append(RAISE_REFUSALS)
        for shape, rows in self._updates.items():
            add_call(shape, rows)
        if self._updates:
            shapes.append(RAISE_REFUSALS)
        for shape, rows in self._inserts.items():
            if shape[0] == APPEND:
                add_call(shape, rows)
        for table, keys in self._removes.items():
            add_call((REMOVE, table, (), ""), keys)
        shapes.append(RECORD_BATCH)
        arguments += (batch_id, at, ids)
        return StatementCall(tuple(shapes), arguments, self._origins)


def _make_relative(shape: FunctionShape, arguments: list[Any], at: float) -> None:
    """Make the server-timed column in the last arguments relative to now."""
    kind, _, columns, operators = shape
    position = columns.index(SERVER_TIME_COLUMN[1])
    if kind != CHECK or operators[position] != "=":
        arguments[position - len(columns)] = [
            None if one is None else one - at for one in arguments[position - len(columns)]
        ]


def decode_refusals(call: StatementCall, detail: str, types: Types) -> dict[int, CommitRefusal]:
    """Decode a refusal: for each change the first guard or write that failed."""
    found: dict[int, tuple[int, CommitRefusal]] = {}
    for number, row in json.loads(f"[{detail.rstrip(',')}]"):
        position, origin = call.origins[number]
        if position not in found or number < found[position][0]:
            refusal = CommitRefusal(origin, _decode_row(origin.table, row, types))
            found[position] = (number, refusal)
    return {position: refusal for position, (_, refusal) in found.items()}


def _decode_row(table: str, row: dict[str, Any] | None, types: Types) -> Row | None:
    if row is None:
        return None
    names = (*_KEYS[table], *TABLES[table].columns)
    return {
        name: float(row[name])
        if row[name] is not None and types[table, name] == "double precision"
        else row[name]
        for name in names
    }


def _refuse_unknown(table: str, key: tuple[Any, ...]) -> None:
    if table not in _KEYS:
        raise Defect(f"There is no table {table!r}; nothing was written.")
    raise Defect(f"Table {table!r} has no key like {key!r}; nothing was written.")


_APPENDED_KEY = (Next(APPENDED_TABLE),)


def _key_of_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sort key of a row: its columns without the number; key columns come first."""
    return row[1:]


def _split_operators(values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    marks = {Below: "<", AtLeast: ">"}
    operators = "".join(marks.get(type(value), "=") for value in values)
    return operators, tuple(
        value.value if isinstance(value, Below | AtLeast) else value for value in values
    )
