"""Generated SQL: from shapes alone, made once."""

import pytest

from tenure.core.errors import Defect
from tenure.core.records.table import TableShape
from tenure.ports.store import PreparedGuard, PreparedWrite
from tenure.sqlite.statements import Statements

PAIR = ("left", "right")
STATEMENTS = Statements(
    {"pair": TableShape(PAIR, ("size", "note")), "other": TableShape(("left", "name"), ("size",))}
)


def test_every_kind_has_one_text() -> None:
    assert (
        STATEMENTS.reads["pair", "size", "left"]
        == "SELECT size,left FROM pair WHERE left=? AND right=?"
    )
    assert STATEMENTS.reads[("pair",)] == "SELECT 1 FROM pair WHERE left=? AND right=?"
    assert (
        STATEMENTS.puts["pair", "note"]
        == "INSERT INTO pair(left,right,note) VALUES(?,?,?) ON CONFLICT DO NOTHING"
    )
    assert (
        STATEMENTS.sets["pair", "note", "size"]
        == "UPDATE pair SET note=?,size=? WHERE left=? AND right=?"
    )
    assert STATEMENTS.drops[("pair",)] == "DELETE FROM pair WHERE left=? AND right=?"
    assert STATEMENTS.columns("pair") == ("left", "right", "size", "note")


def test_a_line_is_written_by_one_statement_that_looks_at_its_guards() -> None:
    guards = (
        PreparedGuard("other", ("left", "name"), ("size",)),
        PreparedGuard("pair", PAIR, ("note", "left")),
    )
    assert STATEMENTS.prepared_statement(PreparedWrite("pair", PAIR, ("note",), guards=guards)) == (
        "UPDATE pair SET note=?3 WHERE left=?1 AND right=?2"
        " AND EXISTS(SELECT 1 FROM other WHERE left=?1 AND name=?4 AND size IS ?5)"
        " AND note IS ?6 AND left IS ?7"
    )
    assert (
        STATEMENTS.prepared_statement(PreparedWrite("pair", PAIR, ("size",), adds=True))
        == "INSERT INTO pair(left,right,size) VALUES(?,?,?) ON CONFLICT DO NOTHING"
    )


def test_a_text_is_made_once() -> None:
    assert STATEMENTS.sets["pair", "size"] is STATEMENTS.sets["pair", "size"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("reads", ("moon",)),
        ("puts", ("moon",)),
        ("sets", ("moon", "x")),
        ("drops", ("moon",)),
        ("reads", ("pair", "colour")),
        ("puts", ("pair", "left")),
        ("sets", ("pair", "right")),
        ("sets", ("pair",)),
        ("puts", ("pair", "size) VALUES (1); DROP TABLE pair; --")),
        ("drops", ("pair; x",)),
    ],
)
def test_names_that_are_in_no_shape_never_become_sql(kind: str, names: tuple[str, ...]) -> None:
    with pytest.raises(Defect):
        getattr(STATEMENTS, kind)[names]
    assert names not in getattr(STATEMENTS, kind)


@pytest.mark.parametrize(
    "prepared",
    [
        PreparedWrite("moon", PAIR, ("note",)),
        PreparedWrite("pair", ("left",), ("note",)),
        PreparedWrite("pair", PAIR, ("colour",)),
        PreparedWrite("pair", PAIR, ()),
        PreparedWrite("pair", PAIR, ("1=1 OR x",), adds=True),
        *(
            PreparedWrite("pair", PAIR, ("note",), guards=(guard,))
            for guard in (
                PreparedGuard("moon", PAIR, ("size",)),
                PreparedGuard("pair", PAIR, ("1=1 OR x",)),
                PreparedGuard("other", PAIR, ("size",)),
                PreparedGuard("other", ("name",), ("size",)),
            )
        ),
    ],
)
def test_names_of_a_prepared_write_that_are_in_no_shape_never_become_sql(
    prepared: PreparedWrite,
) -> None:
    with pytest.raises(Defect):
        STATEMENTS.prepared_statement(prepared)
