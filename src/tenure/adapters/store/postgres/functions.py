"""Temporary functions that apply the parts of a batch, made once for each connection and shape.

A batch is one statement, so that it is one round trip and commits by itself:

    SELECT pg_temp.noted(pg_temp.put_4(pg_temp.met(pg_temp.is_3(pg_temp.hold_1(…), …)), …), …)

Each function takes what the one before it found, so their order is certain; each statement in one
sees what was committed before it.  Rows are held in the order of table and key, whoever asks, so
that two batches never wait for each other in a circle.  A change that is refused makes the whole
statement fail by `REFUSED`, with every refusal and the row in its way in the error's detail: the
batch is sent again without it.  When a lease ends is judged by the server's own clock, whatever a
process takes the time to be: it is told how many seconds are left.  Names come from the tables'
shapes alone; values are always bound.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tenure.adapters.store.postgres.clock import SERVER_NOW
from tenure.core.errors import Defect
from tenure.core.records import TABLES

REFUSED = "TN001"
"""The error by which a statement says that some of its changes are refused."""

Types = Mapping[tuple[str, str], str]
"""(table, column) → the column's type, as the server tells it."""


Shape = tuple[str, str, tuple[str, ...], str]
"""What a function does, to which table, which columns it names, and how it compares them."""

HOLD = "hold"
"""Lock these rows; those that are not there hold nobody up."""
CHECK = "check"
"""Compare columns with values, each by `=`, `<` or `>`, which stands for at least."""
INSERT = "insert"
"""Put new rows."""
APPEND = "append"
"""Put new rows whose key is the number of the transaction and a place in it: they never clash."""
PLACE_BITS = 16
"""How many rows one transaction can append, as a power of two."""
IN_ORDER = (
    "((counter.xmin::text::bigint - pg_current_xact_id()::text::bigint) & 4294967295)"
    " NOT BETWEEN 1 AND 1000000"
)
"""Whether the transaction that last raised this counter started before this one.

Otherwise its rows would come after ours with smaller numbers; the batch is then tried again under a
later transaction.  A larger distance is of an id so old that it has wrapped around.
"""
UPDATE = "update"
"""Set columns of rows that are there."""
REMOVE = "remove"
"""Drop rows."""
CHECKPOINT: Shape = ("met", "", (), "")
"""Raise the refusals so far, if there are any."""
SERVER_TIMED = ("lease", "until")
"""Table and column with times of the server's clock; they are sent as seconds from now."""
RECORD_BATCH: Shape = ("noted", "", (), "")
"""Insert the batch row with the ids of its changes."""


class Function(NamedTuple):
    """A PL/pgSQL function: its SQL and the types of its arguments."""

    create: str
    """SQL with `{name}` where the name goes."""
    texts: tuple[bool, ...]
    """For each argument whether it is a text column."""


class Functions:
    """The functions for all shapes of guards and writes."""

    def __init__(self, types: Types, *, uses_server_time: bool = True) -> None:
        """With `uses_server_time` leases end by the server's clock, else by the given times."""
        self.types = types
        self.uses_server_time = uses_server_time
        self._functions: dict[Shape, Function] = {}
        self._makers: dict[str, Callable[[Shape], Function]] = {
            HOLD: self._hold, CHECK: self._check, INSERT: self._insert, APPEND: self._append,
            UPDATE: self._update, REMOVE: self._remove, CHECKPOINT[0]: _raise_refusals,
            RECORD_BATCH[0]: _record_batch,
        }  # fmt: skip

    def of(self, shape: Shape) -> Function:
        """The function of this shape; a Defect if there is no such table or column."""
        function = self._functions.get(shape)
        if function is None:
            function = self._functions[shape] = self._makers[shape[0]](shape)
        return function

    def _hold(self, shape: Shape) -> Function:
        table = shape[1]
        key = _shape_of(table)
        columns = ", ".join(f"held.{column}" for column in key)
        body = (
            f"PERFORM 1 FROM {_unnest(key)} JOIN {table} held ON {_same('held', key)}"
            f" ORDER BY {columns} FOR UPDATE OF held; RETURN so_far;"
        )
        return self._function(table, key, body)

    def _check(self, shape: Shape) -> Function:
        _, table, columns, operators = shape
        key = _shape_of(table)
        names = tuple(f"said_{number}" for number in range(len(columns)))
        terms = [
            f"held.{column} IS NOT DISTINCT FROM given.{name}"
            if operator == "="
            else f"coalesce(held.{column} {'<' if operator == '<' else '>='}"
            f" {self._value(table, column, name)}, false)"
            for column, name, operator in zip(columns, names, operators, strict=True)
        ]
        met = " AND ".join(terms) or "true"
        body = _losers(
            f"FROM {_unnest(('n', *key, *names))} LEFT JOIN {table} held ON {_same('held', key)}"
            f" WHERE held.{key[0]} IS NULL OR NOT ({met})"
        )
        types = [self._type(table, column) for column in (*key, *columns)]
        body += " RETURN nullif(concat(so_far, lost), '');"
        return _function(("n", *key, *names), ["integer", *types], body)

    def _insert(self, shape: Shape) -> Function:
        _, table, columns, _ = shape
        key = _shape_of(table)
        _refuse_unknown(table, columns)
        names = (*key, *columns)
        values = [self._value(table, column, column) for column in names]
        into = f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)}"
        losers = _losers(
            f"FROM {_unnest(('n', *names))} JOIN {table} held ON {_same('held', key)}"
            " WHERE held.xmin <> pg_current_xact_id()::xid"
        )
        body = (
            f"{into} FROM {_unnest(('n', *names))} ON CONFLICT DO NOTHING;"
            f" {_RETURN_IF_ALL_WRITTEN} {losers} {_RETURN_LOSERS}"
        )
        types = [self._type(table, column) for column in names]
        return _function(("n", *names), ["integer", *types], body)

    def _append(self, shape: Shape) -> Function:
        """Columns named last are given the name of a counter, and get its next number."""
        _, table, columns, counted = shape
        _refuse_unknown(table, columns)
        key, names = _shape_of(table)[0], ("n", *columns)
        given = f"FROM {_unnest(names)}"
        values, raised, whole = _given_columns(columns), "", ""
        types = [self._type(table, column) for column in columns]
        if counted:
            if counted not in columns:
                raise Defect(f"A row of table {table!r} counts one column at most.")
            types[columns.index(counted)] = "text"
            raised = (
                "WITH raised AS (INSERT INTO counter (name, value)"
                f" SELECT given.{counted}, count(*) {given} GROUP BY 1 ORDER BY 1"
                " ON CONFLICT (name) DO UPDATE SET value = counter.value + excluded.value"
                f" WHERE {IN_ORDER} RETURNING name, value) "
            )
            whole = f" {_RETURN_IF_ALL_WRITTEN} {_RAISE_RETRY}"
            number = (
                f"raised.value - count(*) OVER (PARTITION BY given.{counted})"
                f" + row_number() OVER (PARTITION BY given.{counted} ORDER BY given.n)"
            )
            values = ", ".join(number if c == counted else f"given.{c}" for c in columns)
            given += f" JOIN raised ON raised.name = given.{counted}"
        body = (
            f"{raised}INSERT INTO {table} ({key}, {', '.join(columns)})"
            f" SELECT ((pg_current_xact_id()::text::bigint + horizon.moved) << {PLACE_BITS})"
            f" + given.n, {values} {given} CROSS JOIN horizon;{whole} RETURN so_far;"
        )
        return _function(names, ["integer", *types], body)

    def _update(self, shape: Shape) -> Function:
        _, table, columns, _ = shape
        key = _shape_of(table)
        _refuse_unknown(table, columns)
        if not columns:
            raise Defect(f"A Set on table {table!r} names no column; nothing was written.")
        values = ", ".join(f"{column} = {self._value(table, column, column)}" for column in columns)
        names = ("n", *key, *columns)
        losers = _losers(
            f"FROM {_unnest(names)} LEFT JOIN {table} held ON {_same('held', key)}"
            f" WHERE held.{key[0]} IS NULL"
        )
        body = (
            f"UPDATE {table} held SET {values} FROM {_unnest(names)} WHERE {_same('held', key)};"
            f" {_RETURN_IF_ALL_WRITTEN} {losers} {_RETURN_LOSERS}"
        )
        types = [self._type(table, column) for column in (*key, *columns)]
        return _function(names, ["integer", *types], body)

    def _remove(self, shape: Shape) -> Function:
        table = shape[1]
        key = _shape_of(table)
        body = (
            f"DELETE FROM {table} held USING {_unnest(key)} WHERE {_same('held', key)};"
            " RETURN so_far;"
        )
        return self._function(table, key, body)

    def _function(self, table: str, names: tuple[str, ...], body: str) -> Function:
        return _function(names, [self._type(table, column) for column in names], body)

    def _value(self, table: str, column: str, name: str) -> str:
        """SQL for the argument of this name, as it is stored or compared."""
        ahead = (
            f"{SERVER_NOW} + " if self.uses_server_time and (table, column) == SERVER_TIMED else ""
        )
        return f"{ahead}given.{name}"

    def _type(self, table: str, column: str) -> str:
        found = self.types.get((table, column))
        if found is None:
            raise Defect(f"Table {table!r} has no column {column!r}; nothing was written.")
        return found


def _raise_refusals(_shape: Shape) -> Function:
    body = (
        "IF so_far IS NOT NULL THEN RAISE EXCEPTION 'refused' USING"
        f" ERRCODE = '{REFUSED}', DETAIL = so_far; END IF; RETURN so_far;"
    )
    return _function((), [], body)


def _record_batch(_shape: Shape) -> Function:
    create = (
        "CREATE FUNCTION pg_temp.{name}(so_far text, a_id text, a_at double precision,"
        " a_changes text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO batch (id, at, changes) VALUES (a_id, a_at, a_changes); RETURN so_far; END $$"
    )
    return Function(create, (False, False, False))


def _function(names: tuple[str, ...], types: list[str], body: str) -> Function:
    taken = "".join(f", a_{name} {type_}[]" for name, type_ in zip(names, types, strict=True))
    create = (
        f"CREATE FUNCTION pg_temp.{{name}}(so_far text{taken}) RETURNS text LANGUAGE plpgsql AS $$"
        f" DECLARE written bigint; lost text; BEGIN {body} END $$"
    )
    return Function(create, tuple(type_ == "text" for type_ in types))


def _unnest(names: tuple[str, ...]) -> str:
    arrays = ", ".join(f"a_{name}" for name in names)
    return f"unnest({arrays}) AS given({', '.join(names)})"


def _given_columns(names: tuple[str, ...]) -> str:
    return ", ".join(f"given.{name}" for name in names)


def _same(alias: str, key: tuple[str, ...]) -> str:
    return " AND ".join(f"{alias}.{column} = given.{column}" for column in key)


def _losers(rows: str) -> str:
    """Put `[n, row],` for each of these rows that is refused into `lost`; NULL if none is.

    The row is `held.*`: in a table with a column `held`, that word alone would mean the column.
    """
    return (
        "SELECT string_agg('[' || given.n || ',' || coalesce(to_json(held.*)::text, 'null')"
        f" || '],', '') INTO lost {rows};"
    )


_RETURN_IF_ALL_WRITTEN = (
    "GET DIAGNOSTICS written = ROW_COUNT; IF written = cardinality(a_n) THEN RETURN so_far; END IF;"
)
_RAISE_RETRY = "RAISE EXCEPTION 'rows moved meanwhile' USING ERRCODE = '40001';"
# The conflicting row may be gone since: then the batch is tried again.
_RETURN_LOSERS = f"IF lost IS NULL THEN {_RAISE_RETRY} END IF; RETURN concat(so_far, lost);"


def _shape_of(table: str) -> tuple[str, ...]:
    shape = TABLES.get(table)
    if shape is None:
        raise Defect(f"There is no table {table!r}; nothing was written.")
    return shape.key


def _refuse_unknown(table: str, columns: tuple[str, ...]) -> None:
    unknown = [column for column in columns if column not in TABLES[table].columns]
    if unknown:
        raise Defect(f"Table {table!r} has no column {unknown[0]!r} to write; nothing was written.")
