"""What is printed: aligned, in the form asked for, and never able to steer a terminal."""

import json
import sys

import pytest
import yaml

from tenure.faces.cli import nouns
from tenure.faces.cli.output import counted, fields, instant, pass_on, plain, show, show_all, table

AGENT = {
    "name": "a", "state": "READY", "uid": "0" * 32, "created_at": 0.0, "updated_at": 60.0,
    "spec": {"labels": {"b": "2", "a": "1"}, "runtime": {"command": ["x", "y"]}}, "parent": "",
    "operation": "", "etag": "1-READY",
}  # fmt: skip


def test_columns_are_aligned_and_lines_end_clean():
    made = table(["A", "LONGER"], [["xxx", ""], ["", "y"]])
    assert made.splitlines() == ["A    LONGER", "xxx", "     y"]


def test_what_is_not_printable_is_written_out():
    assert plain("a\x1b[31mb\n\u202ec") == r"a\x1b[31mb\n\u202ec"
    assert plain("Grüße ☃") == "Grüße ☃"


def test_what_an_agent_printed_steers_no_terminal_and_is_as_it_is_for_a_program(
    capsys, monkeypatch
):
    said = "one\ttwo\n\x1b]0;title\x07three\n"
    pass_on(said)
    assert capsys.readouterr().out == said
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    pass_on(said)
    assert capsys.readouterr().out == "one\ttwo\n\\x1b]0;title\\x07three\n"
    assert "\x1b" not in table(["A"], [["\x1b[2J"]])
    assert "\x1b" not in fields([("a", "\x1b[2J")])


def test_one_is_one():
    assert [counted(n, "agent") for n in range(3)] == ["0 agents", "1 agent", "2 agents"]


def test_a_value_of_several_lines_stands_below_its_beginning():
    assert fields([("why", "one\ntwo\x1b"), ("b", "c")]) == "why: one\n     two\\x1b\nb:   c"


def test_a_list_has_four_forms(capsys):
    for form in ("table", "json", "yaml", "name"):
        show_all([AGENT], nouns.AGENT, form=form)
    out = capsys.readouterr().out
    head = "NAME  STATE  LABELS   CREATED              UID"
    assert out.startswith(f"{head}\na     READY  a=1,b=2  1970-01-01 00:00:00  {'0' * 32}\n")
    assert out.endswith("\na\n")
    show_all([AGENT], nouns.AGENT, form="json")
    assert json.loads(capsys.readouterr().out) == [AGENT]
    show_all([AGENT], nouns.AGENT, form="yaml")
    assert yaml.safe_load(capsys.readouterr().out) == [AGENT]


def test_one_thing_has_four_forms(capsys):
    show(AGENT, nouns.AGENT, form="table", text=nouns.agent_text)
    out = capsys.readouterr().out
    assert "command: x y\n" in out
    assert "parent" not in out, "what is empty is left out"
    show(AGENT, nouns.AGENT, form="name", text=nouns.agent_text)
    assert capsys.readouterr().out == "a\n"


@pytest.mark.parametrize(("at", "words"), [(None, ""), (86_399.9, "1970-01-01 23:59:59")])
def test_moments_are_in_utc(at, words):
    assert instant(at) == words


def test_a_stuck_operation_comes_with_what_can_be_done():
    step = {"name": "runtime", "stuck": True}
    lines = nouns.advice_on({"id": "i", "state": "STUCK", "steps": [step]})
    assert [line.split()[2] for line in lines] == ["retry", "mark-absent", "adopt", "abandon"]
    assert nouns.advice_on({"id": "i", "state": "RUNNING", "steps": [step]}) == []
