"""The house rules about tables: a column that is named exists, and one module writes each table.

Both rules read the syntax tree of src/tenure and find the calls that make a guard or a write of
`tenure.ports.store`: `Is`, `Put`, `Set`, `Drop`, `PreparedWrite`, `PreparedGuard`,
`Put.of`, `Is.of`.  The columns of a table are those of its record in `tenure.core.records`.

The check of columns sees names in a literal: a dict or a tuple, also one that is bound to a name of
the same function, to a constant of a module, or completed by `|=`, `name["column"] = …`, `**other`
or a condition.  It sees the columns that a read names as well (`list_rows(AgentRecord, {…})`).  It
does not see columns that a caller passes in: these functions are in `OPEN_FUNCTIONS`, and any other
call whose columns it cannot tell is a complaint.  Of `Is.of(row, "column")` it knows the record if
the function says it (an annotation, `find(AgentRecord, …)`); else the column must be of some table.
That the parameters of a prepared write are in the right places is not checked here.

Neither rule looks at SQL, at tests and proofs, or at the databases of the providers, which have
tables of their own (`OWN_TABLES`).
"""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from tenure.core import records
from tenure.core.errors import Defect
from tenure.core.records.table import RecordTable, table_of
from tests.tidy.sources import Source

OWNERS: dict[str, tuple[str, ...]] = {
    "plane": ("tenure.ports.plane_rows",),
    "plan": ("tenure.ports.plane_rows",),
    # An operation locks a row of `agent`, and the kernel knows no agents: it writes the lock alone.
    "agent": ("tenure.app.agents.agent_rows", "tenure.ports.lock_rows"),
    "agent_name": ("tenure.app.agents.agent_rows",),
    "edge": ("tenure.app.agents.edge_rows",),
    "quota": ("tenure.app.tenancy.quota_rows",),
    "reservation": ("tenure.app.tenancy.quota_rows",),
    "token": ("tenure.app.tenancy.tokens",),
    "audit": ("tenure.app.tenancy.audit",),
    "tenancy": ("tenure.app.events.acknowledgement_rows",),
    "operation": ("tenure.ports.operation_rows",),
    "journal": ("tenure.ports.operation_rows",),
    "intent": ("tenure.ports.operation_rows",),
    "tombstone": ("tenure.app.operations.tombstones",),
    "idempotency": ("tenure.app.operations.idempotency",),
    "outbox": ("tenure.app.operations.outbox_rows",),
    "subscription": ("tenure.app.events.subscription_rows",),
    "cursor": ("tenure.app.events.delivery_rows",),
    "parked": ("tenure.app.events.delivery_rows",),
    "letter": ("tenure.app.events.delivery_rows",),
    "awaited": ("tenure.app.events.acknowledgement_rows",),
    "finding": ("tenure.app.safety.findings",),
    "lease": ("tenure.ports.lease_rows",),
}
"""The module that builds the writes of each table."""

OWN_TABLES = (
    "src/tenure/adapters/identity/",
    "src/tenure/adapters/access/",
    "src/tenure/adapters/credentials/",
    "src/tenure/sqlite/",
)
"""Where the tables are those of a provider's own database."""
ANY_TABLE = ("src/tenure/ports/store.py", "src/tenure/adapters/store/", "src/tenure/testing/")
"""Where changes are made and applied whatever table they are of."""
OPEN_FUNCTIONS = frozenset(
    {
        "tenure.app.agents.agent_rows.update_agent",
        "tenure.ports.operation_rows",  # INTENT_UPDATES, a table of prepared writes
        "tenure.ports.operation_rows._entry_update",
    }
)
"""Where the columns come from a caller, as `module.function`."""

PORT = "tenure.ports.store."
WRITES = frozenset({"Put", "Set", "Drop", "PreparedWrite", "Put.of"})
READS = frozenset({"find", "list_rows", "count_rows", "every"})
TABLES: dict[str, RecordTable] = {
    table_of(record).name: table_of(record) for record in records.RECORDS
}
ALL_COLUMNS = frozenset(name for table in TABLES.values() for name in (*table.key, *table.columns))


class StoreCall(NamedTuple):
    """A call that makes a guard, a write or a read of rows."""

    line: int
    verb: str
    function: str
    """The module and the function in which it stands."""
    table: str | None
    """None: the call does not tell."""
    columns: frozenset[str]
    is_complete: bool
    """Whether these are all the columns that it names."""
    key_length: int | None
    """The number of values in the key; None: the call does not tell."""


def misspelt_columns(source: Source) -> list[str]:
    """Every table and column that a guard, a write or a read names exists."""
    if source.path.startswith((*OWN_TABLES, *ANY_TABLE)):
        return []
    return [
        source.complain(call.line, f"{call.verb}: {wrong}")
        for call in store_calls(source)
        for wrong in _mistakes(call)
    ]


def strange_writers(source: Source) -> list[str]:
    """The writes of a table are built by the module that owns it."""
    if source.path.startswith((*OWN_TABLES, *ANY_TABLE)):
        return []
    complaints = []
    for call in store_calls(source):
        if call.verb not in WRITES or call.table not in TABLES:
            continue
        owners = OWNERS.get(call.table, ())
        if source.module not in owners:
            owned = f"{call.table} is written by {' and '.join(owners) or 'nobody'}"
            complaints.append(source.complain(call.line, f"{call.verb}: {owned}"))
    return complaints


def idle_owners(sources: Sequence[Source]) -> list[str]:
    """A module that is named as an owner writes its table."""
    written = {
        (source.module, call.table)
        for source in sources
        for call in store_calls(source)
        if call.verb in WRITES
    }
    return [
        f"{owner} is named as an owner of {table} and does not write it"
        for table, owners in OWNERS.items()
        for owner in owners
        if (owner, table) not in written
    ]


def _mistakes(call: StoreCall) -> Iterator[str]:
    table = TABLES.get(call.table or "")
    if call.table is None:
        if call.verb != "Is.of":
            yield "it cannot be told of which table this is"
        yield from (f"no table has a column {name}" for name in sorted(call.columns - ALL_COLUMNS))
        return
    if table is None:
        yield f"there is no table {call.table}"
        return
    known = {*table.columns, *(table.key if call.verb in READS or call.verb == "Is.of" else ())}
    yield from (f"{table.name} has no column {name}" for name in sorted(call.columns - known))
    if not call.is_complete and call.function not in OPEN_FUNCTIONS:
        yield f"it cannot be told which columns of {table.name} these are"
    if call.key_length is not None and call.key_length != len(table.key):
        yield f"the key of {table.name} is {', '.join(table.key)}"


# --- reading the tree -----------------------------------------------------------------------------


def store_calls(source: Source) -> list[StoreCall]:
    """The calls of a file that make guards, writes or reads of rows."""
    reader = _Reader(source, _imported_names(source))
    return list(reader.calls(source.tree, source.module, ()))


def _imported_names(source: Source) -> dict[str, str]:
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }


class _Columns(NamedTuple):
    names: frozenset[str] = frozenset()
    is_complete: bool = True

    def __or__(self, other: "_Columns") -> "_Columns":
        return _Columns(self.names | other.names, self.is_complete and other.is_complete)


UNKNOWN = _Columns(is_complete=False)
Scopes = tuple[ast.AST, ...]


class _Reader:
    """Reads the calls of one file."""

    def __init__(self, source: Source, names: dict[str, str]) -> None:
        self._source = source
        self._names = names

    def calls(self, node: ast.AST, function: str, scopes: Scopes) -> Iterator[StoreCall]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and (call := self._read(child, function, scopes)):
                yield call
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{self._source.module}.{child.name}"
                yield from self.calls(child, inner, (*scopes, child))
            else:
                yield from self.calls(child, function, scopes)

    def _read(self, call: ast.Call, function: str, scopes: Scopes) -> StoreCall | None:
        verb, args = self._verb(call.func), call.args
        if verb == "partial" and args:
            verb, args = self._verb(args[0]), args[1:]
            if verb != "PreparedWrite":
                return None
            args = [*args, ast.Name("_", ast.Load())]
        table, columns, length = _literal(args[0]) if args else None, _Columns(), None
        match verb, args:
            case "Put" | "Set" | "Is", [_, key, values]:
                columns, length = self._columns(values, scopes), _length(key)
            case "Drop", [_, key]:
                length = _length(key)
            case "PreparedWrite" | "PreparedGuard", [_, key, values]:
                columns = self._columns(values, scopes)
                length = len(named.names) if (named := self._columns(key, scopes)) else None
            case "Put.of", [row]:
                table = self._table_of_row(row, scopes)
            case "Is.of", [row, *values]:
                table = self._table_of_row(row, scopes)
                columns = self._columns(ast.Tuple(values, ast.Load()), scopes)
            case "find", [record, key]:
                table, length = self._table_of_record(record), _length(key)
                if table is None:
                    return None
            case "list_rows" | "count_rows" | "every", [*before, record, values] if len(before) == (
                verb == "every"
            ):
                table = self._table_of_record(record)
                if table is None:
                    return None
                columns = self._columns(values, scopes)._replace(is_complete=True)
            case _:
                return None
        return StoreCall(
            call.lineno, verb, function, table, columns.names, columns.is_complete, length
        )

    def _verb(self, func: ast.expr) -> str:
        match func:
            case ast.Name(id=name):
                dotted = self._names.get(name, "")
                if dotted == "functools.partial":
                    return "partial"
                if dotted == "tenure.app.pages.every":
                    return "every"
                return dotted.removeprefix(PORT) if dotted.startswith(PORT) else ""
            case ast.Attribute(value=ast.Name(id=name), attr="of"):
                dotted = self._names.get(name, "")
                return f"{dotted.removeprefix(PORT)}.of" if dotted.startswith(PORT) else ""
            case ast.Attribute(attr="find" | "list_rows" | "count_rows" as name):
                return name
            case _:
                return ""

    def _table_of_record(self, node: ast.expr) -> str | None:
        name = node.id if isinstance(node, ast.Name) else ""
        found = getattr(records, name, None) if name.endswith("Record") else None
        if not isinstance(found, type):
            return None
        for base in found.__mro__:
            with suppress(Defect):
                return table_of(base).name
        return None

    def _table_of_row(self, node: ast.expr | None, scopes: Scopes) -> str | None:
        """The table of a row, by what the function says of it."""
        match node:
            case ast.Await(value=value):
                return self._table_of_row(value, scopes)
            case ast.Call(func=ast.Name() as record) if table := self._table_of_record(record):
                return table
            case ast.Call(func=ast.Attribute(attr="find"), args=[record, *_]):
                return self._table_of_record(record)
            case ast.Call(func=ast.Attribute(value=row, attr="_replace")):
                return self._table_of_row(row, scopes)
            case ast.Name(id=name):
                found = {
                    table
                    for scope in scopes
                    for use in _uses_of(scope, name)
                    if (table := self._table_of_annotation(use, scopes))
                }
                return found.pop() if len(found) == 1 else None
            case _:
                return None

    def _table_of_annotation(self, use: "_NameUse", scopes: Scopes) -> str | None:
        if use.is_annotation:
            named = [one for one in ast.walk(use.node) if isinstance(one, ast.Name)]
            tables = {table for one in named if (table := self._table_of_record(one))}
            return tables.pop() if len(tables) == 1 else None
        if isinstance(use.node, ast.Name):
            return None
        return self._table_of_row(use.node, scopes)

    def _columns(self, node: ast.expr | None, scopes: Scopes) -> _Columns:
        match node:
            case ast.Constant(value=str(name)):
                return _Columns(frozenset({name}))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return self._union(parts, scopes)
            case ast.Starred(value=value):
                return self._columns(value, scopes)
            case ast.Dict(keys=keys, values=values):
                parts = [
                    value if key is None else key for key, value in zip(keys, values, strict=True)
                ]
                return self._union(parts, scopes)
            case ast.IfExp(body=one, orelse=other):
                return self._columns(one, scopes) | self._columns(other, scopes)
            case ast.BinOp(left=one, op=ast.BitOr(), right=other):
                return self._columns(one, scopes) | self._columns(other, scopes)
            case ast.Call(func=ast.Name(id="columns_of")):
                return _Columns()  # the fields of a record, which the type checker knows
            case ast.Name(id=name):
                return self._columns_of_name(name, scopes)
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return _constant(self._names.get(module, ""), name)
            case _:
                return UNKNOWN

    def _union(self, parts: list[ast.expr], scopes: Scopes) -> _Columns:
        found = _Columns()
        for part in parts:
            found |= self._columns(part, scopes)
        return found

    def _columns_of_name(self, name: str, scopes: Scopes) -> _Columns:
        for place in range(len(scopes) - 1, -1, -1):
            uses = list(_uses_of(scopes[place], name))
            if not uses:
                continue
            values = [one.node for one in uses if not one.is_annotation]
            if len(values) < len(uses):  # a parameter: the caller knows
                return self._union(values, scopes[:place]) | UNKNOWN
            return self._union(values, scopes[: place + 1])
        for node in self._source.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                    return self._columns(value, ())
                case ast.AnnAssign(target=ast.Name(id=bound), value=value) if bound == name:
                    return self._columns(value, ())
                case ast.Assign(targets=[ast.Tuple(elts=bound)], value=ast.Tuple(elts=values)):
                    for one, value in zip(bound, values, strict=True):
                        if isinstance(one, ast.Name) and one.id == name:
                            return self._columns(value, ())
                case _:
                    pass
        module, _, attribute = self._names.get(name, "").rpartition(".")
        return _constant(module, attribute)


class _NameUse(NamedTuple):
    """One place where a function binds a name: a parameter's annotation, or an assigned value."""

    node: ast.expr
    is_annotation: bool = False


def _uses_of(function: ast.AST, name: str) -> Iterator[_NameUse]:
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=bound, annotation=annotation) if bound == name:
                yield _NameUse(annotation or ast.Constant(None), is_annotation=True)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _parts_of(target, value, name)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _parts_of(target, value, name)
            case ast.AugAssign(target=ast.Name(id=bound), value=value) if bound == name:
                yield _NameUse(value)
            case ast.For(target=target) | ast.comprehension(target=target) if any(
                isinstance(one, ast.Name) and one.id == name for one in ast.walk(target)
            ):
                yield _NameUse(ast.Constant(None), is_annotation=True)
            case _:
                pass


def _parts_of(target: ast.expr, value: ast.expr, name: str) -> Iterator[_NameUse]:
    match target, value:
        case ast.Name(id=bound), _ if bound == name:
            yield _NameUse(value)
        case ast.Subscript(value=ast.Name(id=bound), slice=key), _ if bound == name:
            yield _NameUse(key)
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, other in zip(targets, values, strict=True):
                yield from _parts_of(one, other, name)
        case ast.Tuple(elts=targets), _:
            if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                yield _NameUse(ast.Constant(None), is_annotation=True)
        case _:
            pass


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _length(key: ast.expr) -> int | None:
    """The number of values in a key that is written out."""
    match key:
        case ast.Tuple(elts=values) if not any(isinstance(one, ast.Starred) for one in values):
            return len(values)
        case _:
            return None


def _constant(module: str, name: str) -> _Columns:
    """The columns in a constant of another module."""
    try:
        value: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return UNKNOWN
    if not isinstance(value, dict | tuple) or not all(isinstance(one, str) for one in value):
        return UNKNOWN
    return _Columns(frozenset(value))
