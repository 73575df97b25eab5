"""Record types: what they say of their tables is what the databases have."""

import ast
import re
from pathlib import Path
from types import NoneType
from typing import NamedTuple, get_args, get_type_hints

import apsw
import pytest

import tenure.adapters.store
import tenure.core.records
from tenure.core.errors import Defect
from tenure.core.records import (
    RECORDS,
    AgentNameRecord,
    AgentRecord,
    LeaseRecord,
    LockRecord,
    declares_table,
    table_of,
)
from tenure.ports.store import CommitRefusal, Is, Put
from tenure.sqlite.migrations import migrate, read_migrations

STORES = Path(tenure.adapters.store.__path__[0])
MODULES = sorted(Path(tenure.core.records.__path__[0]).glob("*.py"))
SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}
EACH = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)


def checks_of(store: str) -> dict[str, tuple[str, ...]]:
    """The words of each named CHECK in the migrations of a store."""
    scripts = "\n".join(file.read_text() for file in (STORES / store / "migrations").iterdir())
    found = re.findall(r"CONSTRAINT (\w+) CHECK \((.*?)\n\s*\)", scripts, re.DOTALL)
    return {name: tuple(re.findall(r"'([^']*)'", text)) for name, text in found}


@EACH
def test_a_column_has_the_type_of_its_field(record):
    file = apsw.Connection("")
    migrate(file, read_migrations(STORES / "sqlite" / "migrations"))
    name = table_of(record).name
    found = file.execute("SELECT name, type FROM pragma_table_info(?)", (name,)).fetchall()
    columns = {str(column): kind for column, kind in found}
    file.close()
    hints = get_type_hints(record).values()
    for field, hint in zip(table_of(record).all_columns, hints, strict=True):
        (kind,) = [one for one in get_args(hint) or (hint,) if one is not NoneType]
        assert columns[field] == SQL_TYPES[kind], field


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_check_allows_the_words_that_a_record_names_and_there_is_no_other(store):
    named = {
        f"{table.name}_{column}": words
        for table in map(table_of, RECORDS)
        for column, words in table.words.items()
    }
    assert len(named) >= 8
    assert checks_of(store) == named


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_every_record_and_every_field_has_a_sentence(module):
    for node in ast.parse(module.read_text()).body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Record"):
            continue
        assert ast.get_docstring(node), node.name
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr), ast.unparse(field)
                assert isinstance(after.value, ast.Constant)
                assert str(after.value.value).endswith("."), ast.unparse(field)


def test_every_record_type_is_listed_once_and_names_one_table():
    declared = {
        node.name
        for module in MODULES
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Record") and node.decorator_list
    }
    assert [record.__name__ for record in RECORDS] == sorted(
        declared - {LockRecord.__name__}, key=[record.__name__ for record in RECORDS].index
    )
    assert len({table_of(record).name for record in RECORDS}) == len(RECORDS)


def test_the_lock_has_columns_of_the_row_that_it_locks_in_the_same_types():
    lock, whole = table_of(LockRecord), table_of(AgentRecord)
    assert (lock.name, lock.key) == (whole.name, whole.key)
    types = get_type_hints(AgentRecord)
    assert get_type_hints(LockRecord).items() < types.items()


def test_a_record_type_whose_fields_do_not_begin_with_its_key_is_refused():
    class Odd(NamedTuple):
        value: str
        name: str

    with pytest.raises(TypeError, match="do not begin with its key"):
        declares_table("odd", key=("name",))(Odd)


def test_a_type_that_describes_no_table_is_a_defect():
    with pytest.raises(Defect, match="is not the record of a table"):
        table_of(tuple)


def test_a_record_is_put_with_its_key_and_its_columns():
    lease = LeaseRecord(name="leader", holder="a", token=2, until=3.0)
    assert Put.of(lease) == Put("lease", ("leader",), {"holder": "a", "token": 2, "until": 3.0})


def test_a_refusal_returns_the_row_in_the_way_as_a_record_of_its_table():
    guard = Is("lease", ("leader",), {"token": 1})
    refused = CommitRefusal(guard, {"holder": "a", "name": "leader", "until": 3.0, "token": 2})
    assert refused.found(LeaseRecord) == LeaseRecord("leader", "a", 2, 3.0)
    assert refused.found(AgentNameRecord) is None
    assert CommitRefusal(guard, None).found(LeaseRecord) is None
