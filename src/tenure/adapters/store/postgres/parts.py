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
    CHECKPOINT,
    HOLD,
    INSERT,
    PLACE_BITS,
    RECORD_BATCH,
    REMOVE,
    SERVER_TIMED,
    UPDATE,
    Shape,
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

NUMBERED = "outbox"
"""The table, and the counter, whose numbers come from transaction ids and have gaps."""
PLACES = 1 << PLACE_BITS
"""How many rows one transaction can append; the next number belongs to the next one."""
_RANK = {table: rank for rank, table in enumerate(TABLES)}
_KEYS = {table: shape.key for table, shape in TABLES.items()}
_LENGTHS = {table: len(shape.key) for table, shape in TABLES.items()}


class Parts:
    """One change, read once: which rows and counters it touches, and its writes by kind.

    Several `Set`s of one row are merged.  `duplicate_put` is a second `Put` of one row, which is
    always refused: only the writes before it are tried.
    """

    __slots__ = ("change", "counters", "drops", "duplicate_put", "keys", "puts", "sets")

    def __init__(self, change: Change) -> None:
        self.change = change = change.plain()
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
                if table != NUMBERED or key != _NUMBERED_KEY:
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

    shapes: tuple[Shape, ...]
    arguments: list[Any]
    what: list[tuple[int, Is | Put | Set]]
    """For each number in a refusal: the position of its change, and the guard or write."""


def count_numbers(batch: Iterable[Parts]) -> dict[str, int]:
    """How many numbers of each counter these changes need."""
    needed: dict[str, int] = {}
    for parts in batch:
        if parts.counters:
            for put in parts.puts:
                for value in () if put.key == _NUMBERED_KEY else (*put.key, *put.row.values()):
                    if type(value) is Next:
                        needed[value.counter] = needed.get(value.counter, 0) + 1
    return needed


class Builder:
    """Collects the rows of a batch by shape."""

    def __init__(self, numbers: Numbers | None = None) -> None:
        self._numbers = numbers
        self._locked_keys: dict[str, set[tuple[Any, ...]]] = {}
        self._checks: dict[Shape, list[tuple[Any, ...]]] = {}
        self._inserts: dict[Shape, list[tuple[Any, ...]]] = {}
        self._updates: dict[Shape, list[tuple[Any, ...]]] = {}
        self._removes: dict[str, list[tuple[Any, ...]]] = {}
        self._what: list[tuple[int, Is | Put | Set]] = []
        self._append_count = 0

    def add(self, place: int, parts: Parts) -> None:
        """Add one change at its position in the batch."""
        what, locked_keys = self._what, self._locked_keys
        for guard in parts.change.guards:
            table, key, conditions = guard.table, guard.key, guard.columns
            locked_keys.setdefault(table, set()).add(key)
            columns, operators = tuple(conditions), "=" * len(conditions)
            values = tuple(conditions.values())
            for value in values:
                if type(value) is Below or type(value) is AtLeast:
                    operators, values = _bounds(values)
                    break
            rows = self._checks.setdefault((CHECK, table, columns, operators), [])
            rows.append((len(what), *key, *values))
            what.append((place, guard))
        for put in parts.puts:
            self._put(place, put)
        for (table, key), (write, row) in parts.sets.items():
            locked_keys.setdefault(table, set()).add(key)
            rows = self._updates.setdefault((UPDATE, table, tuple(row), ""), [])
            rows.append((len(what), *key, *row.values()))
            what.append((place, write))
        for drop in parts.drops:
            locked_keys.setdefault(drop.table, set()).add(drop.key)
            self._removes.setdefault(drop.table, []).append(drop.key)

    def _put(self, place: int, put: Put) -> None:
        table, key = put.table, put.key
        columns, values = tuple(put.row), tuple(put.row.values())
        if table == NUMBERED and key == _NUMBERED_KEY:
            self._append(table, columns, values)
            return
        if self._numbers is not None:
            key, values = self._fill(table, key, values)
        rows = self._inserts.setdefault((INSERT, table, columns, ""), [])
        rows.append((len(self._what), *key, *values))
        self._what.append((place, put))

    def _append(self, table: str, columns: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """Add a row that the server numbers; it may also fill one counted column."""
        if self._append_count == PLACES:  # a batch is halved then
            raise LimitExceeded(
                f"One change tells of at most {PLACES} events: nothing was written. Ask for less at"
                " once, of a cascade for its parts first."
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
        for place, value in enumerate(whole):
            if type(value) is Next:
                last[value.counter] += 1
                whole[place] = last[value.counter]
            elif type(value) is ChainHash:
                heads[table] = whole[place] = link(heads[table], whole[:place])
        return tuple(whole[: len(key)]), tuple(whole[len(key) :])

    def call(self, batch_id: str, at: float, ids: str, *, uses_server_time: bool) -> StatementCall:
        """The statement: hold, compare, put, set, number, drop, note.

        If the server `uses_server_time` when leases end, it is told how far off that is.
        """
        shapes: list[Shape] = []
        arguments: list[Any] = []

        def take(shape: Shape, rows: Iterable[tuple[Any, ...]]) -> None:
            shapes.append(shape)
            arguments.extend(zip(*rows, strict=True))
            if uses_server_time and shape[1] == SERVER_TIMED[0] and SERVER_TIMED[1] in shape[2]:
                _make_relative(shape, arguments, at)

        for table in sorted(self._locked_keys, key=_RANK.__getitem__):
            take((HOLD, table, (), ""), sorted(self._locked_keys[table]))
        for shape, rows in self._checks.items():
            take(shape, rows)
        if self._checks:
            shapes.append(CHECKPOINT)
        plain = [shape for shape in self._inserts if shape[0] == INSERT]
        plain.sort(key=lambda shape: _RANK[shape[1]])
        for shape in plain:
            rows = self._inserts[shape]
            rows.sort(key=_key_of_row)
            take(shape, rows)
        if plain:
            shapes.append(CHECKPOINT)
        for shape, rows in self._updates.items():
            take(shape, rows)
        if self._updates:
            shapes.append(CHECKPOINT)
        for shape, rows in self._inserts.items():
            if shape[0] == APPEND:
                take(shape, rows)
        for table, keys in self._removes.items():
            take((REMOVE, table, (), ""), keys)
        shapes.append(RECORD_BATCH)
        arguments += (batch_id, at, ids)
        return StatementCall(tuple(shapes), arguments, self._what)


def _make_relative(shape: Shape, arguments: list[Any], at: float) -> None:
    """Make the server-timed column in the last arguments relative to now."""
    what, _, columns, operators = shape
    place = columns.index(SERVER_TIMED[1])
    if what != CHECK or operators[place] != "=":
        arguments[place - len(columns)] = [
            None if one is None else one - at for one in arguments[place - len(columns)]
        ]


def refusals(call: StatementCall, detail: str, types: Types) -> dict[int, CommitRefusal]:
    """Decode a refusal: for each change the first guard or write that failed."""
    found: dict[int, tuple[int, CommitRefusal]] = {}
    for number, row in json.loads(f"[{detail.rstrip(',')}]"):
        place, what = call.what[number]
        if place not in found or number < found[place][0]:
            found[place] = (number, CommitRefusal(what, _row(what.table, row, types)))
    return {place: refused for place, (_, refused) in found.items()}


def _row(table: str, row: dict[str, Any] | None, types: Types) -> Row | None:
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


_NUMBERED_KEY = (Next(NUMBERED),)


def _key_of_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sort key of a row: its columns without the number; key columns come first."""
    return row[1:]


def _bounds(values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    marks = {Below: "<", AtLeast: ">"}
    operators = "".join(marks.get(type(value), "=") for value in values)
    return operators, tuple(
        value.value if isinstance(value, Below | AtLeast) else value for value in values
    )
