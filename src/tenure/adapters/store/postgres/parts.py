"""Turns the changes of a batch into the arrays of its statement; nothing here talks to a server.

Two changes of a batch never touch one row, so their rows can be written grouped by shape: what
must be held, what is compared, what is put, set and dropped, in this order.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tenure.adapters.store.postgres.functions import (
    APPEND,
    CHECK,
    HOLD,
    INSERT,
    JUDGED,
    MET,
    NOTED,
    PLACE_BITS,
    REMOVE,
    UPDATE,
    Shape,
    Types,
)
from tenure.core.audit import link
from tenure.core.errors import Defect, LimitExceeded
from tenure.ports.store import (
    TABLES,
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
"""The table, and the counter, whose numbers are those of transactions: they have gaps."""
PLACES = 1 << PLACE_BITS
"""How many rows one transaction can append: beyond them are the places of the next one."""
_RANK = {table: rank for rank, table in enumerate(TABLES)}
_KEYS = {table: shape.key for table, shape in TABLES.items()}
_LENGTHS = {table: len(shape.key) for table, shape in TABLES.items()}


class Parts:
    """One change, read once: which rows and counters it touches, and its writes by kind.

    Several `Set`s of one row are one.  `doubled` is a second `Put` of one row, which is refused
    however the rest fares: of such a change only what comes before it is tried.
    """

    __slots__ = ("change", "counters", "doubled", "drops", "keys", "puts", "sets")

    def __init__(self, change: Change) -> None:
        self.change = change = change.plain()
        self.keys: set[tuple[str, tuple[Any, ...]]] = {
            (guard.table, guard.key) for guard in change.guards
        }
        self.counters: set[str] = set()
        self.puts: list[Put] = []
        self.sets: dict[tuple[str, tuple[Any, ...]], tuple[Set, Mapping[str, Any]]] = {}
        self.drops: list[Drop] = []
        self.doubled: tuple[Put, Row] | None = None
        for guard in change.guards:
            if _LENGTHS.get(guard.table) != len(guard.key):
                _refuse_odd(guard.table, guard.key)
        self._read(change)

    def _read(self, change: Change) -> None:
        new: dict[tuple[str, tuple[Any, ...]], Put] = {}
        write: Any  # which of the three it is, its type says
        for write in change.writes:
            kind, key, table = type(write), write.key, write.table
            if kind is Put:
                if _LENGTHS.get(table) != len(key):
                    _refuse_odd(table, key)
                if table != NUMBERED or key != _NUMBERED_KEY:
                    self._count(write)
                    where = (table, key)
                    if type(key[0]) is not Next:
                        if self._is_doubled(new, where, write):
                            return
                        self.keys.add(where)
                self.puts.append(write)
                continue
            where = (table, key)
            if _LENGTHS.get(table) != len(key):
                _refuse_odd(*where)
            self.keys.add(where)
            if kind is Drop:
                self.drops.append(write)
            else:
                first, row = self.sets.get(where, (write, None))
                self.sets[where] = (first, write.row if row is None else {**row, **write.row})

    def _is_doubled(self, new: dict[Any, Put], where: tuple[str, Any], write: Put) -> bool:
        first = new.get(where)
        if first is None:
            new[where] = write
            return False
        table = first.table
        row: Row = dict.fromkeys((*_KEYS[table], *TABLES[table].columns))
        row.update(zip(_KEYS[table], first.key, strict=True))  # type: ignore[arg-type]
        row.update(first.row)  # type: ignore[arg-type]
        self.doubled = (write, row)
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
    """What the server says of the counters that it holds for this batch."""

    last: dict[str, int]
    """Numbers given before this batch."""
    heads: dict[str, str]
    """Hashes of the last rows of chained tables."""


class StatementCall(NamedTuple):
    """One statement's worth of functions in their order, and what each is given."""

    shapes: tuple[Shape, ...]
    arguments: list[Any]
    what: list[tuple[int, Is | Put | Set]]
    """What the numbers in a refusal stand for: the change's place, and the guard or write."""


def counted(batch: Iterable[Parts]) -> dict[str, int]:
    """How many numbers of each counter these changes want."""
    wanted: dict[str, int] = {}
    for parts in batch:
        if parts.counters:
            for put in parts.puts:
                for value in () if put.key == _NUMBERED_KEY else (*put.key, *put.row.values()):
                    if type(value) is Next:
                        wanted[value.counter] = wanted.get(value.counter, 0) + 1
    return wanted


class Builder:
    """Collects the rows of a batch by shape."""

    def __init__(self, numbers: Numbers | None = None) -> None:
        self._numbers = numbers
        self._held: dict[str, set[tuple[Any, ...]]] = {}
        self._checks: dict[Shape, list[tuple[Any, ...]]] = {}
        self._inserts: dict[Shape, list[tuple[Any, ...]]] = {}
        self._updates: dict[Shape, list[tuple[Any, ...]]] = {}
        self._removes: dict[str, list[tuple[Any, ...]]] = {}
        self._what: list[tuple[int, Is | Put | Set]] = []
        self._appended = 0

    def add(self, place: int, parts: Parts) -> None:
        """Take in one change."""
        what, held = self._what, self._held
        for guard in parts.change.guards:
            table, key, conditions = guard.table, guard.key, guard.columns
            held.setdefault(table, set()).add(key)
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
            held.setdefault(table, set()).add(key)
            rows = self._updates.setdefault((UPDATE, table, tuple(row), ""), [])
            rows.append((len(what), *key, *row.values()))
            what.append((place, write))
        for drop in parts.drops:
            held.setdefault(drop.table, set()).add(drop.key)
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
        """A row that the server numbers, and of which it may count one column by itself."""
        if self._appended == PLACES:  # a batch is halved then
            raise LimitExceeded(
                f"One change tells of at most {PLACES} events: nothing was written. Ask for less at"
                " once, of a cascade for its parts first."
            )
        counted = [column for column, one in zip(columns, values, strict=True) if type(one) is Next]
        row = [one.counter if type(one) is Next else one for one in values]
        rows = self._inserts.setdefault((APPEND, table, columns, " ".join(counted)), [])
        rows.append((self._appended, *row))
        self._appended += 1

    def _fill(self, table: str, key: Any, values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Replace every `Next` by its number and a `ChainHash` by the hash of the row."""
        assert self._numbers is not None  # noqa: S101 (the caller has looked)
        last, heads = self._numbers
        whole = [*key, *values]
        for place, value in enumerate(whole):
            if type(value) is Next:
                last[value.counter] += 1
                whole[place] = last[value.counter]
            elif type(value) is ChainHash:
                heads[table] = whole[place] = link(heads[table], whole[:place])
        return tuple(whole[: len(key)]), tuple(whole[len(key) :])

    def call(self, batch_id: str, at: float, ids: str, *, judges: bool) -> StatementCall:
        """The statement: hold, compare, put, set, number, drop, note.

        If the server `judges` when leases end, it is told how far off that is.
        """
        shapes: list[Shape] = []
        arguments: list[Any] = []

        def take(shape: Shape, rows: Iterable[tuple[Any, ...]]) -> None:
            shapes.append(shape)
            arguments.extend(zip(*rows, strict=True))
            if judges and shape[1] == JUDGED[0] and JUDGED[1] in shape[2]:
                _tell_left(shape, arguments, at)

        for table in sorted(self._held, key=_RANK.__getitem__):
            take((HOLD, table, (), ""), sorted(self._held[table]))
        for shape, rows in self._checks.items():
            take(shape, rows)
        if self._checks:
            shapes.append(MET)
        plain = [shape for shape in self._inserts if shape[0] == INSERT]
        plain.sort(key=lambda shape: _RANK[shape[1]])
        for shape in plain:
            rows = self._inserts[shape]
            rows.sort(key=_after_the_number)
            take(shape, rows)
        if plain:
            shapes.append(MET)
        for shape, rows in self._updates.items():
            take(shape, rows)
        if self._updates:
            shapes.append(MET)
        for shape, rows in self._inserts.items():
            if shape[0] == APPEND:
                take(shape, rows)
        for table, keys in self._removes.items():
            take((REMOVE, table, (), ""), keys)
        shapes.append(NOTED)
        arguments += (batch_id, at, ids)
        return StatementCall(tuple(shapes), arguments, self._what)


def _tell_left(shape: Shape, arguments: list[Any], at: float) -> None:
    """In the last arguments, make of every time that the server judges what is left until it."""
    what, _, columns, operators = shape
    place = columns.index(JUDGED[1])
    if what != CHECK or operators[place] != "=":
        arguments[place - len(columns)] = [
            None if one is None else one - at for one in arguments[place - len(columns)]
        ]


def refusals(call: StatementCall, detail: str, types: Types) -> dict[int, CommitRefusal]:
    """What a refused statement says: for each place the first guard or write that failed."""
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


def _refuse_odd(table: str, key: tuple[Any, ...]) -> None:
    if table not in _KEYS:
        raise Defect(f"There is no table {table!r}; nothing was written.")
    raise Defect(f"Table {table!r} has no key like {key!r}; nothing was written.")


_NUMBERED_KEY = (Next(NUMBERED),)


def _after_the_number(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Its key; what follows is never reached, since no two rows have one key."""
    return row[1:]


def _bounds(values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    marks = {Below: "<", AtLeast: ">"}
    operators = "".join(marks.get(type(value), "=") for value in values)
    return operators, tuple(
        value.value if isinstance(value, Below | AtLeast) else value for value in values
    )
