"""Declares which table the values of a record type are rows of.

A record type is a `NamedTuple`.  Its fields are the columns in the order of the table, the columns
of the key first, so a store makes a record from a row without naming any field.
A record type may have some of the columns only: then `find` reads those.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from tenure.core.errors import Defect

R = TypeVar("R", bound=tuple[Any, ...])


class TableShape(NamedTuple):
    """A table: its key columns and its other columns."""

    key: tuple[str, ...]
    columns: tuple[str, ...]


class RecordTable(NamedTuple):
    """The table of a record type."""

    name: str
    """The name of the table."""
    key: tuple[str, ...]
    """The columns of the primary key, in its order."""
    columns: tuple[str, ...]
    """The other columns, in the order of the table."""
    all_columns: tuple[str, ...]
    """The columns of the key, then the others: the order of the record's fields."""
    nullable: frozenset[str]
    """The columns that may hold NULL."""
    words: dict[str, tuple[str, ...]]
    """The values that a CHECK allows, for each column that has one."""


_TABLES: dict[type[tuple[Any, ...]], RecordTable] = {}


def declares_table(
    table: str, *, key: tuple[str, ...], columns: Mapping[str, str] | None = None
) -> Callable[[type[R]], type[R]]:
    """Declare that values of the decorated record type are rows of this table.

    `columns` maps fields to their columns, where the two have different names.
    """
    renamed = columns or {}

    def declare(record: type[R]) -> type[R]:
        fields = get_type_hints(record, include_extras=True)
        hints = {renamed.get(name, name): hint for name, hint in fields.items()}
        names = tuple(hints)
        if names[: len(key)] != key:
            raise TypeError(f"the fields of {record.__name__} do not begin with its key {key}")
        types = {name: _bare(hint) for name, hint in hints.items()}
        _TABLES[record] = RecordTable(
            table,
            key,
            names[len(key) :],
            names,
            frozenset(name for name, kind in types.items() if NoneType in get_args(kind)),
            {name: words for name, hint in hints.items() if (words := _words(hint))},
        )
        return record

    return declare


def table_of(record: type[tuple[Any, ...]]) -> RecordTable:
    """The table whose rows this record type describes; Defect if it was not declared."""
    table = _TABLES.get(record)
    if table is None:
        raise Defect(f"{record!r} is not the record of a table; nothing was read or written.")
    return table


def key_of(row: tuple[Any, ...]) -> tuple[str | int, ...]:
    """The key of this row."""
    return tuple(row[: len(_TABLES[type(row)].key)])


def columns_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """The columns of this row that are not of its key, by their names."""
    table = _TABLES[type(row)]
    return dict(zip(table.columns, row[len(table.key) :], strict=True))


def dict_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """All columns of this row by their names."""
    table = _TABLES[type(row)]
    return dict(zip(table.all_columns, row, strict=True))


def _bare(hint: object) -> object:
    """The type inside an `Annotated`."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _words(hint: object) -> tuple[str, ...]:
    """The members of the enumeration in the `Annotated` type of a column."""
    for extra in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(extra, type) and issubclass(extra, StrEnum):
            return tuple(extra)
    return ()
