"""Generated SQL: from shapes alone, made once."""

import pytest

from tenure.core.errors import Defect
from tenure.ports.store import Shape
from tenure.storage.statements import Statements

STATEMENTS = Statements({"pair": Shape(("left", "right"), ("size", "note"))})


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
    assert STATEMENTS.guarded[("pair", "note"), ("pair", "size"), ("", "note", "left")] == (
        "UPDATE pair SET note=? WHERE left=? AND right=?"
        " AND EXISTS(SELECT 1 FROM pair WHERE left=? AND right=? AND size IS ?)"
        " AND note IS ? AND left IS ?"
    )
    assert STATEMENTS.drops[("pair",)] == "DELETE FROM pair WHERE left=? AND right=?"
    assert STATEMENTS.columns("pair") == ("left", "right", "size", "note")


def test_a_text_is_made_once() -> None:
    assert STATEMENTS.sets["pair", "size"] is STATEMENTS.sets["pair", "size"]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("reads", ("moon",)), ("puts", ("moon",)), ("sets", ("moon", "x")), ("drops", ("moon",)),
        ("reads", ("pair", "colour")), ("puts", ("pair", "left")), ("sets", ("pair", "right")),
        ("sets", ("pair",)),
        ("puts", ("pair", "size) VALUES (1); DROP TABLE pair; --")), ("drops", ("pair; x",)),
    ],
)  # fmt: skip
def test_names_that_are_in_no_shape_never_become_sql(kind: str, asked: tuple[str, ...]) -> None:
    with pytest.raises(Defect):
        getattr(STATEMENTS, kind)[asked]
    assert asked not in getattr(STATEMENTS, kind)


@pytest.mark.parametrize("guard", [("moon",), ("moon", "x"), ("pair", "colour"), ("", "1=1 OR x")])
def test_names_of_a_guard_that_are_in_no_shape_never_become_sql(guard: tuple[str, ...]) -> None:
    with pytest.raises(Defect):
        STATEMENTS.guarded[("pair", "note"), guard]
