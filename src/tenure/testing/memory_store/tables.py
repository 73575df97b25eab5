"""`Tables`: what a disk would hold, as dicts, and the ways to change it.

A change is applied whole, at once, or not at all: nothing here waits.  Rows are copied on the way
in and on the way out, so what a caller holds is never the record itself.
"""

import json
from collections.abc import Sequence
from typing import Any, Self, cast

from tenure.core.audit import link
from tenure.core.decisions import unknown_after_claim
from tenure.core.errors import Defect, StoreFull
from tenure.core.operation import IntentState
from tenure.core.records import RECORDS, TABLES, table_of
from tenure.ports.store import (
    ChainHash,
    Change,
    ClaimedOperation,
    CommitRefusal,
    Drop,
    Generated,
    Is,
    Key,
    Next,
    Put,
    Row,
    Set,
    Value,
)
from tenure.sqlite.guards import meets

CHANGES_KEPT = 100_000
"""Ids of changes that can still be looked up."""
NULLABLE = {table.name: table.nullable for table in map(table_of, RECORDS)}
"""Columns that may hold None."""

_BLANK: dict[str, Row] = {
    table: dict.fromkeys(shape.key + shape.columns) for table, shape in TABLES.items()
}


class Tables:
    """Every table of the port as {key: row}, the counters, and the ids of recent changes."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Key, Row]] = {table: {} for table in TABLES}
        self._parts: dict[str, dict[str | int, dict[Key, Row]]] = {"journal": {}, "intent": {}}
        self.counters: dict[str, int] = {}
        self.changes: dict[str, None] = {}
        self.full = False
        """Whether there is no room for new work; set by whoever plays the disk."""

    def apply(self, change: Change) -> CommitRefusal | None:
        """Apply the change, or say what refused it; if it makes no sense, nothing of it stays."""
        change = change.expand_prepared()
        if change.is_new_work and self.full:
            raise StoreFull("There is no room: this was not accepted; what was accepted is kept.")
        puts: list[Put] = []
        sets: list[Set] = []
        drops: list[Drop] = []
        try:
            for guard in change.guards:
                row = self.rows[guard.table].get(guard.key)
                if row is None or not _holds(guard, row):
                    return CommitRefusal(guard, None if row is None else dict(row))
            for write in change.writes:
                _check(write)
                if type(write) is Put:
                    puts.append(write)
                elif type(write) is Set:
                    sets.append(write)
                else:
                    drops.append(write)  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise Defect(f"This change cannot be written and was left out: {error!r}.") from None
        refused = self._put(puts, sets)
        if refused is not None:
            return refused
        for change_of in sets:
            self.rows[change_of.table][change_of.key].update(change_of.row)
        for drop in drops:
            self._remove(drop.table, drop.key)
        self.changes[change.id] = None
        if len(self.changes) > CHANGES_KEPT:
            del self.changes[next(iter(self.changes))]
        return None

    def _put(self, puts: list[Put], sets: list[Set]) -> CommitRefusal | None:
        """Add the new rows, see that those to change are there; else take the new ones back."""
        made: list[tuple[str, Key]] = []
        counters: list[str] = []
        refused: CommitRefusal | None = None
        for put in puts:
            key, row = self._new(put, counters)
            stands = self._add(put.table, key, row)
            if stands is not row:
                refused = CommitRefusal(put, dict(stands))
                break
            made.append((put.table, key))
        else:
            for write in sets:
                if write.key not in self.rows[write.table]:
                    refused = CommitRefusal(write, None)
                    break
        if refused is not None:
            for table, key in made:
                self._remove(table, key)
            for counter in counters:
                self.counters[counter] -= 1
        return refused

    def _add(self, table: str, key: Key, row: Row) -> Row:
        """The row that stands under the key now: this one, or the one that was there."""
        stands = self.rows[table].setdefault(key, row)
        if stands is row and table in self._parts:
            self._parts[table].setdefault(key[0], {})[key] = row
        return stands

    def _remove(self, table: str, key: Key) -> None:
        if self.rows[table].pop(key, None) is not None and table in self._parts:
            del self._parts[table][key[0]][key]

    def _new(self, put: Put, counters: list[str]) -> tuple[Key, Row]:
        """The row as it will stand: every column, numbers filled in, None where none was named."""
        table, key, columns = put.table, put.key, put.row
        if Next in map(type, key):
            key = tuple(self._generate(part, counters) for part in key)
        if Next in map(type, columns.values()):
            columns = {column: self._generate(value, counters) for column, value in columns.items()}
        row = _BLANK[table].copy()
        row.update(columns)  # type: ignore[arg-type]
        for name, part in zip(TABLES[table].key, key, strict=True):
            row[name] = part  # type: ignore[assignment]
        for name, value in columns.items():
            if type(value) is ChainHash:
                row[name] = self._chain_hash(table, [*row.values()][:-1])
        return key, row  # type: ignore[return-value]

    def _chain_hash(self, table: str, values: list[Value]) -> str:
        """The hash that chains these values to the last row of their table."""
        last = next(reversed(self.rows[table].values()), None)
        return link("" if last is None else str([*last.values()][-1]), values)

    def _generate(self, value: Value | Generated, counters: list[str]) -> Any:
        """The value itself, or the next number of its counter."""
        if not isinstance(value, Next):
            return value
        counters.append(value.counter)
        number = self.counters[value.counter] = self.counters.get(value.counter, 0) + 1
        return number

    def claim(
        self, worker: str, *, limit: int, now: float, except_plans: Sequence[str] = ()
    ) -> list[ClaimedOperation]:
        """Give this worker the oldest open operations of workers without a live lease."""
        leases, operations = self.rows["lease"], self.rows["operation"]
        gone: dict[Value, bool] = {}
        ids: list[Key] = []
        for key, row in operations.items():
            if row["ended_at"] is not None or row["plan"] in except_plans:
                continue
            holder = row["worker"]
            if holder not in gone:
                lease = leases.get((f"worker/{holder!s}",))
                gone[holder] = lease is None or lease["until"] < now  # type: ignore[operator]
            if gone[holder]:
                ids.append(key)
        ids = sorted(ids)[:limit]
        for key in ids:
            row = operations[key]
            row["worker"] = worker
            row["token"] += 1  # type: ignore[operator]
            row["revision"] += 1  # type: ignore[operator]
            for intent in self.parts("intent", key[0]):
                if intent["state"] == "BURNED":
                    continue
                intent["token"] = row["token"]
                intent["unknown_since"] = unknown_after_claim(
                    IntentState(str(intent["state"])),
                    cast("float | None", intent["unknown_since"]),
                    was_called=row["state"] != "PENDING",
                    now=now,
                )
            if row["state"] == "PENDING":
                row["state"] = "RUNNING"
        rows = (operations[key] for key in ids)
        claimed: list[tuple[Any, ...]] = [(row["id"], row["token"], row["due_at"]) for row in rows]
        return [ClaimedOperation(*row) for row in claimed]

    def parts(self, table: str, operation: str | int) -> list[Row]:
        """The rows of one operation in `journal` or `intent`, in key order."""
        rows = self._parts[table].get(operation, {})
        return [row for _, row in sorted(rows.items())]

    def dump(self) -> str:
        """Everything as JSON text."""
        rows = {
            table: [list(row.values()) for row in rows.values()]
            for table, rows in self.rows.items()
        }
        kept = {"rows": rows, "counters": self.counters, "changes": list(self.changes)}
        return json.dumps(kept, default=lambda value: {"hex": value.hex()})

    @classmethod
    def read(cls, text: str) -> Self:
        """The tables of a dump."""
        kept = json.loads(
            text, object_hook=lambda o: bytes.fromhex(o["hex"]) if o.keys() == {"hex"} else o
        )
        tables = cls()
        for table, rows in kept["rows"].items():
            for values in rows:
                row = dict(zip(_BLANK[table], values, strict=True))
                tables._add(table, tuple(values[: len(TABLES[table].key)]), row)
        tables.counters = kept["counters"]
        tables.changes = dict.fromkeys(kept["changes"])
        return tables


def _holds(guard: Is, row: Row) -> bool:
    for column, condition in guard.columns.items():
        found = row[column]
        if found != condition and not meets(condition, found):
            return False
    return True


def _check(write: Put | Set | Drop) -> None:
    """Refuse what no schema would take: another table, column or length of key, a missing value."""
    if len(write.key) != len(TABLES[write.table].key):
        raise TypeError(f"{write.table} has no key like {write.key!r}")
    if type(write) is Drop:
        return
    row = write.row  # type: ignore[union-attr]
    needed = _NEEDED.get((type(write), write.table, *row))
    if needed is None:
        needed = _required_columns(write)  # type: ignore[arg-type]
    if None in row.values() and None in map(row.get, needed):
        raise TypeError(f"one of {needed} of {write.table} is None")


_NEEDED: dict[tuple[object, ...], tuple[str, ...]] = {}


def _required_columns(write: Put | Set) -> tuple[str, ...]:
    """The columns of this write that may not be None; kept for every write like it."""
    table, columns = write.table, TABLES[write.table].columns
    unknown = [column for column in write.row if column not in columns]
    strict = [column for column in columns if column not in NULLABLE[table]]
    missing = [column for column in strict if column not in write.row and type(write) is Put]
    if unknown or missing or (not write.row and type(write) is Set):
        raise TypeError(f"{table} cannot be written with {list(write.row)}")
    needed = tuple(column for column in strict if column in write.row)
    _NEEDED[(type(write), table, *write.row)] = needed
    return needed
