"""The rules about tables can fail: each sees calls that break it and calls that look alike."""

import pytest

from tests.tidy.sources import Source
from tests.tidy.table_writes import idle_owners, misspelt_columns, store_calls, strange_writers

IMPORTS = """\
from functools import partial
from tenure.app.pages import every
from tenure.core import decisions
from tenure.core.records import AgentRecord, CursorRecord, FindingRecord, columns_of, key_of
from tenure.ports.store import Change, Drop, PreparedWrite, PreparedGuard, Is, Put, Set
"""
OWNER = "src/tenure/app/events/delivery_rows.py"


def source(text: str, path: str = OWNER) -> Source:
    return Source(path, IMPORTS + text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Set('cursor', k, {'positon': 1})", "cursor has no column positon"),
        ("Put('cursor', k, {'position': 1, 'missing': 0})", "no column missing"),
        ("Is('cursor', k, {'position': 1, 'atempts': 0})", "no column atempts"),
        ("Set('cursor', k, {'destination': 'x'})", "no column destination"),
        ("Set('curser', k, {'position': 1})", "there is no table curser"),
        ("Drop('curser', k)", "there is no table curser"),
        ("Drop('cursor', (one, two))", "the key of cursor is destination"),
        ("def f():\n    a = {'why': 1}\n    a['wy'] = 2\n    Set('cursor', k, a)", "column wy"),
        ("def f():\n    a = {'why': 1}\n    a |= {'wy': 2}\n    Set('cursor', k, a)", "column wy"),
        ("def f():\n    a = {'wy': 1}\n    Set('cursor', k, {**a, 'why': 2})", "column wy"),
        ("def f():\n    a, b = {'wy': 1}, 2\n    Set('cursor', k, a)", "column wy"),
        ("FIRST = {'wy': 1}\ndef f():\n    Set('cursor', k, FIRST)", "column wy"),
        ("Set('cursor', k, {'why': 1} if x else {'wy': 2})", "column wy"),
        ("Set('cursor', k, decisions.REMOVED)", "cursor has no column"),
        ("PreparedWrite('cursor', ('destination',), ('position', 'wy'))", "column wy"),
        (
            "KEY = ('destination', 'agent')\nPreparedWrite('cursor', KEY, ('why',))",
            "the key of cursor",
        ),
        ("PreparedGuard('cursor', ('destination',), ('wy',))", "column wy"),
        ("def f(row: CursorRecord):\n    Is.of(row, 'wy')", "cursor has no column wy"),
        ("async def f():\n    row = await s.find(CursorRecord, k)\n    Is.of(row, 'wy')", "cursor"),
        ("Is.of(row, 'wy')", "no table has a column wy"),
        ("store.list_rows(CursorRecord, {'wy': 1})", "list_rows: cursor has no column wy"),
        ("store.count_rows(CursorRecord, {'wy': 1}, limit=1)", "column wy"),
        ("every(store, CursorRecord, {'wy': 1})", "column wy"),
        ("store.find(CursorRecord, (one, two))", "the key of cursor is destination"),
        # What cannot be told is refused too.
        ("def f(columns):\n    Set('cursor', k, columns)", "cannot be told which columns"),
        ("Set('cursor', k, {name: 1 for name in names})", "cannot be told which columns"),
        ("def f(table):\n    Drop(table, k)", "cannot be told of which table"),
        ("def f(row):\n    Put.of(row)", "cannot be told of which table"),
    ],
)
def test_a_column_or_table_that_does_not_exist_is_refused(text, word):
    (complaint,) = misspelt_columns(source(text))
    assert complaint.startswith(f"{OWNER}:")
    assert word in complaint


@pytest.mark.parametrize(
    "text",
    [
        "Set('cursor', (name,), {'position': 1, 'why': ''})",
        "def f():\n    a = {'why': 1}\n    a |= {'since': 2}\n    Set('cursor', k, {**a})",
        "def f(row: CursorRecord):\n    Set('cursor', key_of(row), columns_of(row))",
        "def f(row: CursorRecord | None):\n    Is.of(row, 'position', 'destination')",
        "Set('intent', k, decisions.REMOVED)",
        "PreparedWrite('cursor', ('destination',), ('position',), adds=True)",
        "Put.of(CursorRecord(destination, 1, 0, 0.0, '', None, 0))",
        "every(store, CursorRecord, {'destination': 1})",
        "store.find(AgentRecord, (uid,))",
        "set('wy')",
    ],
)
def test_a_column_that_exists_is_accepted(text):
    assert misspelt_columns(source(text)) == []


def test_a_call_of_the_same_name_from_elsewhere_is_left_alone():
    other = Source(OWNER, "from collections.abc import Set\nSet('cursor', k, {'wy': 1})")
    assert store_calls(other) == []


@pytest.mark.parametrize(
    "text",
    [
        "Set('finding', k, {'sightings': 1})",
        "Drop('finding', k)",
        "PreparedWrite('finding', ('id',), ('sightings',))",
        "partial(PreparedWrite, 'finding', ('id',))",
        "def f(row: FindingRecord):\n    Put.of(row)",
    ],
)
def test_a_write_of_a_table_that_another_module_owns_is_refused(text):
    (complaint,) = strange_writers(source(text))
    assert "finding is written by tenure.app.safety.findings" in complaint


def test_an_owner_may_write_and_everybody_may_guard():
    text = "Set('cursor', k, {'why': ''})\nIs('finding', k, {'sightings': 1})"
    assert strange_writers(source(text)) == []


def test_an_owner_that_does_not_write_its_table_is_noticed():
    found = idle_owners([source("Set('cursor', k, {'why': ''})")])
    assert "tenure.ports.lease_rows is named as an owner of lease and does not write it" in found
    assert not any(" owner of cursor " in one for one in found)
