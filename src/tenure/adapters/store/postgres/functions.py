"""Generates the temporary SQL functions that apply a batch, once for each connection and shape.

A batch is one statement, so that it takes one round trip and commits by itself:

    SELECT pg_temp.batch_5(pg_temp.insert_4(pg_temp.raise_3(pg_temp.check_2(pg_temp.lock_1(…)))))

Each function gets the result of the one before it, which fixes their order.  Each statement inside
a function sees everything committed before it.  Rows are locked in the order of table and key, so
that two batches never deadlock.  If a change is refused, the whole statement fails with
`REFUSED_SQLSTATE`; the error's detail has every refusal with the conflicting row, and the batch is
sent again without those changes.  Leases expire by the server's own clock: the end of a lease is
sent as seconds from now.  Table and column names come only from the tables' shapes; values are
always bound.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tenure.adapters.store.postgres.clock import SERVER_NOW
from tenure.core.errors import Defect
from tenure.core.records import TABLES

REFUSED_SQLSTATE = "TN001"
"""SQLSTATE of the error that a statement raises if some of its changes are refused."""

Types = Mapping[tuple[str, str], str]
"""(table, column) → the column's type, as the server names it."""
FunctionShape = tuple[str, str, tuple[str, ...], str]
"""A function's kind, table and columns, and the operators by which it compares them."""

LOCK = "lock"
"""Lock these rows; missing rows are ignored."""
CHECK = "check"
"""Compare columns with values, each by `=`, `<` or `>` (which means "at least")."""
INSERT = "insert"
"""Insert rows."""
APPEND = "append"
"""Insert rows whose key is the transaction id and a number within it; keys never conflict."""
ROW_NUMBER_BITS = 16
"""Bits of a position for the number of a row within its transaction."""
COUNTER_IS_OLDER = (
    "((counter.xmin::text::bigint - pg_current_xact_id()::text::bigint) & 4294967295)"
    " NOT BETWEEN 1 AND 1000000"
)
"""SQL: the transaction that last incremented this counter has a smaller id than this one.

Otherwise its rows would have later positions than ours but smaller numbers; the batch is then
retried in a later transaction.  A larger distance means an id so old that it has wrapped around.
"""
UPDATE = "update"
"""Update columns of existing rows."""
REMOVE = "remove"
"""Delete rows."""
RAISE_REFUSALS: FunctionShape = ("raise", "", (), "")
"""Raise the refusals that were found so far, if there are any."""
SERVER_TIME_COLUMN = ("lease", "until")
"""Table and column with times of the server's clock; they are sent as seconds from now."""
RECORD_BATCH: FunctionShape = ("batch", "", (), "")
"""Insert the batch row with the ids of its changes."""


class Function(NamedTuple):
    """A PL/pgSQL function: its SQL and the types of its arguments."""

    create: str
    """The SQL; `{name}` stands for the function's name."""
    texts: tuple[bool, ...]
    """For each argument whether it is a text column."""


class Functions:
    """The functions for all shapes of guards and writes."""

    def __init__(self, types: Types, *, uses_server_time: bool = True) -> None:
        """With `uses_server_time` leases expire by the server's clock, else by the stored times."""
        self.types = types
        self.uses_server_time = uses_server_time
        self._functions: dict[FunctionShape, Function] = {}
        self._makers: dict[str, Callable[[FunctionShape], Function]] = {
            LOCK: self._lock, CHECK: self._check, INSERT: self._insert, APPEND: self._append,
            UPDATE: self._update, REMOVE: self._remove, RAISE_REFUSALS[0]: _raise_refusals,
            RECORD_BATCH[0]: _record_batch,
        }  # fmt: skip

    def of(self, shape: FunctionShape) -> Function:
        """Return the function of this shape; Defect if there is no such table or column."""
        function = self._functions.get(shape)
        if function is None:
            function = self._functions[shape] = self._makers[shape[0]](shape)
        return function

    def _lock(self, shape: FunctionShape) -> Function:
        table = shape[1]
        key = _key_of(table)
        columns = ", ".join(f"existing.{column}" for column in key)
        body = (
            f"PERFORM 1 FROM {_unnest(key)} JOIN {table} existing ON {_same_key(key)}"
            f" ORDER BY {columns} FOR UPDATE OF existing; RETURN so_far;"
        )
        return self._function(table, key, body)

    def _check(self, shape: FunctionShape) -> Function:
        _, table, columns, operators = shape
        key = _key_of(table)
        names = tuple(f"value_{number}" for number in range(len(columns)))
        terms = [
            f"existing.{column} IS NOT DISTINCT FROM given.{name}"
            if operator == "="
            else f"coalesce(existing.{column} {'<' if operator == '<' else '>='}"
            f" {self._value(table, column, name)}, false)"
            for column, name, operator in zip(columns, names, operators, strict=True)
        ]
        condition = " AND ".join(terms) or "true"
        body = _find_refused(
            f"FROM {_unnest(('n', *key, *names))} LEFT JOIN {table} existing ON {_same_key(key)}"
            f" WHERE existing.{key[0]} IS NULL OR NOT ({condition})"
        )
        types = [self._type(table, column) for column in (*key, *columns)]
        body += " RETURN nullif(concat(so_far, refused), '');"
        return _function(("n", *key, *names), ["integer", *types], body)

    def _insert(self, shape: FunctionShape) -> Function:
        _, table, columns, _ = shape
        key = _key_of(table)
        _refuse_unknown(table, columns)
        names = (*key, *columns)
        values = [self._value(table, column, column) for column in names]
        into = f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)}"
        refused = _find_refused(
            f"FROM {_unnest(('n', *names))} JOIN {table} existing ON {_same_key(key)}"
            " WHERE existing.xmin <> pg_current_xact_id()::xid"
        )
        body = (
            f"{into} FROM {_unnest(('n', *names))} ON CONFLICT DO NOTHING;"
            f" {_RETURN_IF_ALL_WRITTEN} {refused} {_RETURN_REFUSED}"
        )
        types = [self._type(table, column) for column in names]
        return _function(("n", *names), ["integer", *types], body)

    def _append(self, shape: FunctionShape) -> Function:
        """If the shape names a counted column, each row gives the counter's name for it."""
        _, table, columns, counted_column = shape
        _refuse_unknown(table, columns)
        key, names = _key_of(table)[0], ("n", *columns)
        given = f"FROM {_unnest(names)}"
        values, raised, retry = _given_columns(columns), "", ""
        types = [self._type(table, column) for column in columns]
        if counted_column:
            if counted_column not in columns:
                raise Defect(f"A row of table {table!r} counts one column at most.")
            types[columns.index(counted_column)] = "text"
            raised = (
                "WITH raised AS (INSERT INTO counter (name, value)"
                f" SELECT given.{counted_column}, count(*) {given} GROUP BY 1 ORDER BY 1"
                " ON CONFLICT (name) DO UPDATE SET value = counter.value + excluded.value"
                f" WHERE {COUNTER_IS_OLDER} RETURNING name, value) "
            )
            retry = f" {_RETURN_IF_ALL_WRITTEN} {_RAISE_RETRY}"
            number = (
                f"raised.value - count(*) OVER (PARTITION BY given.{counted_column})"
                f" + row_number() OVER (PARTITION BY given.{counted_column} ORDER BY given.n)"
            )
            values = ", ".join(number if c == counted_column else f"given.{c}" for c in columns)
            given += f" JOIN raised ON raised.name = given.{counted_column}"
        body = (
            f"{raised}INSERT INTO {table} ({key}, {', '.join(columns)})"
            f" SELECT ((pg_current_xact_id()::text::bigint + horizon.moved) << {ROW_NUMBER_BITS})"
            f" + given.n, {values} {given} CROSS JOIN horizon;{retry} RETURN so_far;"
        )
        return _function(names, ["integer", *types], body)

    def _update(self, shape: FunctionShape) -> Function:
        _, table, columns, _ = shape
        key = _key_of(table)
        _refuse_unknown(table, columns)
        if not columns:
            raise Defect(f"A Set on table {table!r} names no column; nothing was written.")
        values = ", ".join(f"{column} = {self._value(table, column, column)}" for column in columns)
        names = ("n", *key, *columns)
        refused = _find_refused(
            f"FROM {_unnest(names)} LEFT JOIN {table} existing ON {_same_key(key)}"
            f" WHERE existing.{key[0]} IS NULL"
        )
        body = (
            f"UPDATE {table} existing SET {values} FROM {_unnest(names)} WHERE {_same_key(key)};"
            f" {_RETURN_IF_ALL_WRITTEN} {refused} {_RETURN_REFUSED}"
        )
        types = [self._type(table, column) for column in (*key, *columns)]
        return _function(names, ["integer", *types], body)

    def _remove(self, shape: FunctionShape) -> Function:
        table = shape[1]
        key = _key_of(table)
        body = (
            f"DELETE FROM {table} existing USING {_unnest(key)}"
            f" WHERE {_same_key(key)}; RETURN so_far;"
        )
        return self._function(table, key, body)

    def _function(self, table: str, names: tuple[str, ...], body: str) -> Function:
        return _function(names, [self._type(table, column) for column in names], body)

    def _value(self, table: str, column: str, name: str) -> str:
        """SQL for the argument of this name; a server-time column is relative to now."""
        is_relative = self.uses_server_time and (table, column) == SERVER_TIME_COLUMN
        return f"{SERVER_NOW} + given.{name}" if is_relative else f"given.{name}"

    def _type(self, table: str, column: str) -> str:
        type_ = self.types.get((table, column))
        if type_ is None:
            raise Defect(f"Table {table!r} has no column {column!r}; nothing was written.")
        return type_


def _raise_refusals(_shape: FunctionShape) -> Function:
    body = (
        "IF so_far IS NOT NULL THEN RAISE EXCEPTION 'refused' USING"
        f" ERRCODE = '{REFUSED_SQLSTATE}', DETAIL = so_far; END IF; RETURN so_far;"
    )
    return _function((), [], body)


def _record_batch(_shape: FunctionShape) -> Function:
    create = (
        "CREATE FUNCTION pg_temp.{name}(so_far text, a_id text, a_at double precision,"
        " a_changes text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO batch (id, at, changes) VALUES (a_id, a_at, a_changes); RETURN so_far; END $$"
    )
    return Function(create, (False, False, False))


def _function(names: tuple[str, ...], types: list[str], body: str) -> Function:
    parameters = "".join(f", a_{name} {type_}[]" for name, type_ in zip(names, types, strict=True))
    create = (
        f"CREATE FUNCTION pg_temp.{{name}}(so_far text{parameters}) RETURNS text"
        " LANGUAGE plpgsql AS $$"
        f" DECLARE written bigint; refused text; BEGIN {body} END $$"
    )
    return Function(create, tuple(type_ == "text" for type_ in types))


def _unnest(names: tuple[str, ...]) -> str:
    arrays = ", ".join(f"a_{name}" for name in names)
    return f"unnest({arrays}) AS given({', '.join(names)})"


def _given_columns(names: tuple[str, ...]) -> str:
    return ", ".join(f"given.{name}" for name in names)


def _same_key(key: tuple[str, ...]) -> str:
    return " AND ".join(f"existing.{column} = given.{column}" for column in key)


def _find_refused(rows: str) -> str:
    """SQL that puts `[n, row],` for each of these rows into `refused`; NULL if there is none.

    The row is `existing.*`: `existing` alone would mean a column of that name.
    """
    return (
        "SELECT string_agg('[' || given.n || ',' || coalesce(to_json(existing.*)::text, 'null')"
        f" || '],', '') INTO refused {rows};"
    )


_RETURN_IF_ALL_WRITTEN = (
    "GET DIAGNOSTICS written = ROW_COUNT; IF written = cardinality(a_n) THEN RETURN so_far; END IF;"
)
_RAISE_RETRY = "RAISE EXCEPTION 'rows changed concurrently' USING ERRCODE = '40001';"
# If the conflicting row is gone by now, the batch is tried again.
_RETURN_REFUSED = f"IF refused IS NULL THEN {_RAISE_RETRY} END IF; RETURN concat(so_far, refused);"


def _key_of(table: str) -> tuple[str, ...]:
    shape = TABLES.get(table)
    if shape is None:
        raise Defect(f"There is no table {table!r}; nothing was written.")
    return shape.key


def _refuse_unknown(table: str, columns: tuple[str, ...]) -> None:
    unknown = [column for column in columns if column not in TABLES[table].columns]
    if unknown:
        raise Defect(f"Table {table!r} has no column {unknown[0]!r} to write; nothing was written.")
