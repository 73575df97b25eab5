"""The part of the store's contract about changes that it refuses.

Every table is tried, so that no name of a column and no value of one is read as something else.
"""

import asyncio
from contextlib import suppress

from tenure.core.errors import Defect
from tenure.core.records import TABLES
from tenure.ports.store import AtLeast, Below, CommitRefusal, Is, Key, Put, Set, Store, Value
from tenure.testing.contracts.store_rows import Names, scenario, stored_row

ODD = 'it\'s "said":\n[1,{null}],\\ ☃ '
"""Text with every character that has a meaning in SQL, JSON, CSV or COPY."""
WHOLE = frozenset({
    "generation", "epoch", "version", "most", "revision", "sightings", "position", "attempts",
    "seq", "sequence", "required", "missed", "strict", "token",
})  # fmt: skip
"""Columns that hold whole numbers."""
MOMENTS = frozenset({"at", "until", "since", "first_seen", "last_seen"})
"""Columns that hold times, besides those whose names end with `_at`."""
WORDS = {
    ("agent", "state"): "READY", ("operation", "state"): "STUCK", ("journal", "kind"): "done",
    ("intent", "state"): "PRESENT", ("token", "role"): "admin", ("subscription", "kind"): "pull",
    ("finding", "kind"): "DRIFT", ("edge", "kind"): "grant",
}  # fmt: skip
"""Columns that hold one of a few words, and one of them."""
APPEND_ONLY_TABLE = "audit"
"""The table whose rows never change."""


def odd_row(table: str) -> Put:
    """A new row of this table with a value in every column, of text an odd one."""
    shape = TABLES[table]
    row = {name: _value(table, name) for name in (*shape.key, *shape.columns)}
    key = tuple(row.pop(name) for name in shape.key)
    return Put(table, key, row)  # type: ignore[arg-type]


def _value(table: str, column: str) -> int | float | str:
    if column in WHOLE:
        return 2**53 + 1
    if column in MOMENTS or column.endswith(("_at", "_since", "_until")):
        return 1234567890.123456
    return WORDS.get((table, column), ODD + column)


def _key(put: Put) -> Key:
    return tuple(part for part in put.key if isinstance(part, str | int))


def _sure(value: Value) -> int | float | str:
    assert isinstance(value, int | float | str)
    return value


def _unlike(value: Value) -> Value:
    return f"{value}'" if isinstance(value, str) else 0


class RefusalPromises:
    """A part of `StoreContract`, which has its fixtures."""

    @scenario
    async def test_what_stands_in_the_way_is_told_whole_whatever_table_it_is_in(
        self, store: Store, change: Names
    ) -> None:
        puts = [odd_row(table) for table in TABLES]
        taken = [store.commit(change(put)) for put in puts]
        assert [await answer for answer in taken] == [None] * len(puts)
        clashes = await asyncio.gather(*(store.commit(change(put)) for put in puts))
        assert clashes == [CommitRefusal(put, stored_row(put)) for put in puts]
        for put in puts:
            row, key = stored_row(put), _key(put)
            assert await store.commit(change(guards=(Is(put.table, key, row),))) is None
            unmet = [
                Is(put.table, key, {**row, column: said})
                for column, value in row.items()
                for said in (_unlike(value), None)
            ]
            unmet.append(Is(put.table, key, {name: Below(_sure(row[name])) for name in row}))
            answers = await asyncio.gather(
                *(store.commit(change(guards=(guard,))) for guard in unmet)
            )
            assert answers == [CommitRefusal(guard, row) for guard in unmet]

    @scenario
    async def test_what_is_not_there_is_told_as_no_row_whatever_table_it_is_looked_for_in(
        self, store: Store, change: Names
    ) -> None:
        for table, shape in TABLES.items():
            put = odd_row(table)
            key, column = _key(put), shape.columns[-1]
            value = _sure(stored_row(put)[column])
            for what in (
                Is(table, key, {column: value}),
                Is(table, key, {column: None}),
                Is(table, key, {column: AtLeast(value)}),
                Set(table, key, {column: value}),
            ):
                asked = change(what) if isinstance(what, Set) else change(guards=(what,))
                assert await store.commit(asked) == CommitRefusal(what, None)

    @scenario
    async def test_a_column_that_is_empty_is_told_as_empty(
        self, store: Store, change: Names
    ) -> None:
        for table in TABLES.keys() - {APPEND_ONLY_TABLE}:
            put = odd_row(table)
            key, before, row = _key(put), stored_row(put), stored_row(put)
            await store.commit(change(put))
            for column in put.row:
                with suppress(Defect):  # it may not be empty
                    await store.commit(change(Set(table, key, {column: None})))
                    row[column] = None
            assert await store.commit(change(put)) == CommitRefusal(put, row)
            assert await store.commit(change(guards=(Is(table, key, row),))) is None
            empty = [column for column in row if row[column] is None]
            for column in empty:
                for bound in (Below, AtLeast):
                    guard = Is(table, key, {**row, column: bound(_sure(before[column]))})
                    assert await store.commit(change(guards=(guard,))) == CommitRefusal(guard, row)
                guard = Is(table, key, {**row, column: before[column]})
                assert await store.commit(change(guards=(guard,))) == CommitRefusal(guard, row)
