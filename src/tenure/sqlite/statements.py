"""SQL for the operations of a change, generated once for each (table, columns) and cached.

Names come only from the tables' shapes, so no text of a caller becomes SQL.  Values are always
bound: the key columns first in a `Put` and in a prepared write, last elsewhere.  The SQL text is
short because the library hashes it at every use.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from tenure.core.errors import Defect
from tenure.core.records.table import TableShape
from tenure.ports.store import Key, PreparedGuard, PreparedWrite, Value

TableColumns = tuple[str, ...]
"""A table and some of its columns."""
T = TypeVar("T")


class StatementCache(dict[tuple[T, ...], str]):
    """(table, column, …) → SQL; generated at first use."""

    def __init__(self, make: Callable[[T, tuple[T, ...]], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: tuple[T, ...]) -> str:
        sql = self[key] = self._make(key[0], key[1:])
        return sql


class Statements:
    """The statements of these tables, looked up as in `puts[table, *columns]`."""

    def __init__(self, tables: Mapping[str, TableShape]) -> None:
        self._tables = tables
        self._columns = {table: shape.key + shape.columns for table, shape in tables.items()}
        self._selects: dict[tuple[object, ...], str] = {}
        self.reads = StatementCache(self._read)
        self.puts = StatementCache(self._put)
        self.sets = StatementCache(self._set)
        self.drops = StatementCache(self._drop)

    def select(self, table: str, columns: Mapping[str, Value], after: Key) -> str:
        """Rows with these values after a key, in key order; the limit is bound last."""
        kind = (table, *columns, len(after), *(one is None for one in columns.values()))
        sql = self._selects.get(kind)
        if sql is None:
            sql = self._selects[kind] = (
                f"SELECT {','.join(self.columns(table))} FROM {table}"
                f"{self._where_all(table, columns, after)}"
                f" ORDER BY {','.join(self._tables[table].key)} LIMIT ?"
            )
        return sql

    def count(self, table: str, columns: Mapping[str, Value]) -> str:
        """SQL that counts the rows with these values."""
        self.columns(table)
        return f"SELECT count(*) FROM {table}{self._where_all(table, columns, ())}"

    def _where_all(self, table: str, columns: Mapping[str, Value], after: Key) -> str:
        unknown = [column for column in columns if column not in self._columns[table]]
        if unknown:
            raise Defect(f"Table {table!r} has no column {unknown[0]!r}; nothing was read.")
        # SQLite uses a partial index only if its condition is in the SQL, so None is never bound.
        terms = [f"{name} IS NULL" if one is None else f"{name}=?" for name, one in columns.items()]
        if after:
            key = self.key_after(table, columns, self._tables[table].key[: len(after)])
            terms.append(f"({','.join(key)}) > ({','.join('?' * len(key))})")
        return " WHERE " + " AND ".join(terms) if terms else ""

    def key_after(
        self, table: str, columns: Mapping[str, Value], after: Sequence[T]
    ) -> tuple[T, ...]:
        """The part of a key after the columns whose values are fixed.

        If the whole key were compared, SQLite would find the rows by the values and skip them one
        by one.
        """
        same = 0
        for column in self._tables[table].key[: len(after) - 1]:
            if column not in columns:
                break
            same += 1
        return tuple(after[same:])

    def columns(self, table: str) -> tuple[str, ...]:
        """Every column of a table, the key's first."""
        columns = self._columns.get(table)
        if columns is None:
            raise Defect(f"There is no table {table!r}; nothing was written.")
        return columns

    def _shape(self, table: str, columns: tuple[str, ...]) -> TableShape:
        self.columns(table)
        shape = self._tables[table]
        unknown = [column for column in columns if column not in shape.columns]
        if unknown:
            raise Defect(
                f"Table {table!r} has no column {unknown[0]!r} to write; nothing was written."
            )
        return shape

    def _read(self, table: str, columns: tuple[str, ...]) -> str:
        names = self.columns(table)
        unknown = [column for column in columns if column not in names]
        if unknown:
            raise Defect(f"Table {table!r} has no column {unknown[0]!r}; nothing was written.")
        return f"SELECT {','.join(columns) or 1} FROM {table}{self._where(table)}"

    def _put(self, table: str, columns: tuple[str, ...]) -> str:
        names = self._shape(table, columns).key + columns
        marks = ",".join("?" * len(names))
        return f"INSERT INTO {table}({','.join(names)}) VALUES({marks}) ON CONFLICT DO NOTHING"

    def _set(self, table: str, columns: tuple[str, ...]) -> str:
        self._shape(table, columns)
        if not columns:
            raise Defect(f"A Set on table {table!r} names no column; nothing was written.")
        values = ",".join(f"{column}=?" for column in columns)
        return f"UPDATE {table} SET {values}{self._where(table)}"

    def prepared_statement(self, prepared: PreparedWrite) -> str:
        """SQL that carries out this write if its guards hold."""
        table, columns = prepared.table, prepared.columns
        self._set(table, columns)  # raises for an unknown table or column
        for one in (PreparedGuard(table, prepared.key, columns), *prepared.guards):
            self._read(one.table, one.columns)
            if self._tables[one.table].key != one.key:
                raise Defect(
                    f"The key of table {one.table!r} is not {one.key}; nothing was written."
                )
        if prepared.adds:
            return self._put(table, columns)
        places = count(len(prepared.key) + 1)
        values = ",".join(f"{column}=?{next(places)}" for column in columns)
        own = [f"{column}=?{place}" for place, column in enumerate(prepared.key, 1)]
        sql = f"UPDATE {table} SET {values} WHERE {' AND '.join(own)}"
        for guard in prepared.guards:
            first, *more = guard.key
            here = guard.table == table
            key = [] if here else [f"{first}=?1", *(f"{column}=?{next(places)}" for column in more)]
            same = [f"{column} IS ?{next(places)}" for column in guard.columns]
            condition = " AND ".join((*key, *same))
            there = f"EXISTS(SELECT 1 FROM {guard.table} WHERE {condition})"
            sql += f" AND {condition if here else there}"
        return sql

    def _drop(self, table: str, columns: tuple[str, ...]) -> str:
        self._shape(table, columns)
        return f"DELETE FROM {table}{self._where(table)}"

    def _where(self, table: str) -> str:
        key = self._tables[table].key
        return " WHERE " + " AND ".join(f"{column}=?" for column in key)
