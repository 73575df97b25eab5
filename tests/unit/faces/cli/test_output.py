"""What is printed: aligned, in the form asked for, and never able to steer a terminal."""

import io
import json
import sys
from typing import Any

import click
import pytest
import yaml

from tenure.faces.cli import nouns
from tenure.faces.cli.commands import apply
from tenure.faces.cli.exits import ServerRefusal
from tenure.faces.cli.output import (
    Column,
    _shorten,
    count_of,
    escape_control,
    fields,
    instant,
    print_agent_output,
    show,
    show_all,
    table,
)

AGENT = {
    "name": "a",
    "state": "READY",
    "uid": "0" * 32,
    "created_at": 0.0,
    "updated_at": 60.0,
    "spec": {"labels": {"b": "2", "a": "1"}, "runtime": {"command": ["x", "y"]}},
    "parent": "",
    "operation": "",
    "etag": "1-READY",
}


def test_columns_are_aligned_and_lines_end_clean():
    made = table(["A", "LONGER"], [["xxx", ""], ["", "y"]])
    assert made.splitlines() == ["A    LONGER", "xxx", "     y"]


def test_what_is_not_printable_is_written_out():
    assert escape_control("a\x1b[31mb\n\u202ec") == r"a\x1b[31mb\n\u202ec"
    assert escape_control("Grüße ☃") == "Grüße ☃"


def test_what_an_agent_printed_steers_no_terminal_and_is_as_it_is_for_a_program(
    capsys, monkeypatch
):
    said = "one\ttwo\n\x1b]0;title\x07three\n"
    print_agent_output(said)
    assert capsys.readouterr().out == said
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_agent_output(said)
    assert capsys.readouterr().out == "one\ttwo\n\\x1b]0;title\\x07three\n"
    assert "\x1b" not in table(["A"], [["\x1b[2J"]])
    assert "\x1b" not in fields([("a", "\x1b[2J")])


def test_one_is_one():
    assert [count_of(n, "agent") for n in range(3)] == ["0 agents", "1 agent", "2 agents"]


def test_a_value_of_several_lines_stands_below_its_beginning():
    assert fields([("why", "one\ntwo\x1b"), ("b", "c")]) == "why: one\n     two\\x1b\nb:   c"


OPERATION = {
    "id": "7" * 32,
    "kind": "create_agent",
    "state": "COMPENSATED",
    "agent": "0" * 32,
    "agent_name": "a",
    "created_at": 0.0,
    "updated_at": 0.0,
    "done": True,
    "error": "runtime_ready: it exited with code 1; its output: tenure agent logs a\n"
    "  File \"agent.py\", line 3\nModuleNotFoundError: No module named 'flask'",
    "steps": [
        {"name": "runtime", "state": "BURNED", "stuck": False, "detail": ""},
        {
            "name": "runtime_ready",
            "state": "REFUSED",
            "stuck": False,
            "detail": 'it exited with code 1\n  File "agent.py", line 3, in a frame\x1b of many'
            "\nend",
        },
    ],
}


def at_a_terminal(monkeypatch, columns):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_a_step_that_says_several_lines_has_them_below_each_other(capsys, monkeypatch):
    show(OPERATION, nouns.OPERATION, form="table", text=nouns.operation_text)
    steps = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert steps == [
        "   STEP           STATE    DETAIL",
        "↺  runtime        undone",
        "✗  runtime_ready  refused  it exited with code 1",
        '                             File "agent.py", line 3, in a frame\\x1b of many',
        "                           end",
    ]
    at_a_terminal(monkeypatch, 55)
    show(OPERATION, nouns.OPERATION, form="table", text=nouns.operation_text)
    steps = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert steps[3:] == [
        '                             File "agent.py", line 3,',
        "                             in a frame\\x1b of many",
        "                           end",
    ]
    at_a_terminal(monkeypatch, 30)  # no room to wrap in: the terminal does it
    show(OPERATION, nouns.OPERATION, form="table", text=nouns.operation_text)
    assert "line 3, in a frame" in capsys.readouterr().out


def test_a_step_runs_only_once_its_operation_was_claimed(capsys):
    steps = [{"name": "identity", "state": "INTENDED", "stuck": False, "detail": ""}]
    for state, done, words in (
        ("PENDING", False, "   identity  waits for a worker"),
        ("RUNNING", False, "…  identity  running"),
        ("COMPENSATED", True, "   identity  not done"),
    ):
        told = {**OPERATION, "state": state, "done": done, "steps": steps}
        show(told, nouns.OPERATION, form="table", text=nouns.operation_text)
        assert capsys.readouterr().out.splitlines()[-1] == words


def test_a_list_fits_a_terminal_and_is_whole_for_a_program_or_if_asked_for(capsys, monkeypatch):
    whole = "No module named 'flask'"

    def list_lines(form="table"):
        show_all([OPERATION, {**OPERATION, "error": ""}], nouns.OPERATION, form=form)
        return click.unstyle(capsys.readouterr().out).splitlines()

    head, one, other = list_lines()
    assert one.endswith(whole)
    assert "\\n" not in one
    at_a_terminal(monkeypatch, 120)
    assert list_lines("wide") == [head, one, other]
    _, cut, _ = list_lines()
    assert len(cut) <= 120
    assert cut == one[: len(cut) - 1] + "…"
    at_a_terminal(monkeypatch, 40)  # ids are never cut, and of a sentence some is left
    _, cut, _ = list_lines()
    assert "7" * 32 in cut
    assert cut.endswith("runtime_rea…")
    at_a_terminal(monkeypatch, 400)
    assert list_lines() == [head, one, other]
    at_a_terminal(monkeypatch, 40)
    terminal = Ascii()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_all([OPERATION], nouns.OPERATION, form="table")
    assert terminal.getvalue().endswith("runtime_r...\n")
    show_all([{"kind": "agents", "used": 1, "most": 2}], nouns.QUOTA, form="table")


class Ascii(io.StringIO):
    """A terminal without UTF-8."""

    encoding = "ascii"

    def isatty(self):
        return True


UID, SENTENCE = "0" * 32, "a sentence that is longer than a terminal of eighty characters is wide"
AT = dict.fromkeys(
    ("created_at", "expires_at", "revoked_at", "failing_since", "due_at", "since", "at",
     "acknowledged_at", "resolved_at", "last_seen"), 1.7e9,
)  # fmt: skip
TOLD = {
    "id": UID,
    "type": "tenure.agent.suspending",
    "sequence": "17",
    "subject": UID,
    "operation": UID,
    "time": "2026-01-01T00:00:00Z",
}
LISTED: dict[str, Any] = {
    "AGENT": {**AGENT, "name": "a" * 20, "state": "DELETE_FAILED", **AT},
    "OPERATION": {**OPERATION, "agent_name": "a" * 63, "kind": "recover_runtime", **AT},
    "TOKEN": {
        "id": UID,
        "principal": "someone",
        "role": "operator",
        "tenant": "a" * 63,
        "void": True,
        **AT,
    },
    "ENTRY": {
        "position": 12_345,
        "principal": "s" * 40,
        "action": "subscription.create",
        "target": UID,
        "hash": "h" * 64,
        "body": None,
        **AT,
    },
    "EVENT": TOLD,
    "SUBSCRIPTION": {
        "name": "billing",
        "kind": "webhook",
        "target": SENTENCE,
        "required": True,
        "types": ["agent.*"],
        "parked": 3,
        "missed": 1_000,
        "id": UID,
        **AT,
    },
    "LETTER": {"agent": UID, "event": TOLD, "attempts": 3, "why": SENTENCE, **AT},
    "ACKNOWLEDGEMENT": {"name": "billing", "operation": UID, "agent": UID, "principal": "s", **AT},
    "FINDING": {
        "id": UID,
        "kind": "UNVERIFIABLE",
        "reconciler": "acknowledgements",
        "sightings": 9,
        "body": {"what": SENTENCE},
        **AT,
    },
    "RECONCILE_PASS": {
        "reconciler": "acknowledgements",
        "seen": 1,
        "fixed": 0,
        "findings": [],
        "sentence": SENTENCE,
        "error": SENTENCE,
    },
}
LISTED["FINDING_OF_ALL"] = LISTED["FINDING"]


@pytest.mark.parametrize("noun", LISTED)
def test_every_list_fits_a_terminal_of_eighty_characters(noun, capsys, monkeypatch):
    """What can be spared is left out, ids that others are asked for by are never cut."""
    kept = getattr(nouns, noun)
    at_a_terminal(monkeypatch, 80)
    show_all([LISTED[noun]], kept, form="table")
    head, row = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(len(head), len(row)) <= 80, row
    assert "0" * 31 + "…" not in row
    show_all([LISTED[noun]], kept, form="wide")
    whole = click.unstyle(capsys.readouterr().out).splitlines()[0]
    assert whole.split() == [column.title for column in kept.columns]


def test_a_column_goes_only_where_there_is_no_room_for_it(capsys, monkeypatch):
    for width, titles in (
        (110, "NAME STATE LABELS CREATED UID"),
        (80, "NAME STATE LABELS CREATED"),
        (30, "NAME STATE LABELS"),
    ):
        at_a_terminal(monkeypatch, width)
        show_all([{**AGENT, "name": "a" * 20}], nouns.AGENT, form="table")
        assert click.unstyle(capsys.readouterr().out).splitlines()[0].split() == titles.split()


def test_values_and_details_fit_too_and_no_tab_or_line_end_is_written_out(capsys, monkeypatch):
    said = f"panic: it is broken\r\n\tmain.go:17\n{SENTENCE}"
    operation: dict[str, Any] = {**OPERATION, "error": said}
    operation["steps"] = [{**operation["steps"][1], "detail": said}]
    show(operation, nouns.OPERATION, form="table", text=nouns.operation_text)
    out = capsys.readouterr().out
    assert "\\" not in out
    assert out.count("        main.go:17\n") == 2
    show_all([operation], nouns.OPERATION, form="table")
    assert f"panic: it is broken main.go:17 {SENTENCE}\n" in capsys.readouterr().out
    at_a_terminal(monkeypatch, 60)
    show(operation, nouns.OPERATION, form="table", text=nouns.operation_text)
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    assert "         characters is wide" in lines


def test_a_refusal_of_several_lines_is_told_in_several(capsys):
    told = {"code": "rejected", "detail": "it is refused:\nline 2"}
    apply._report_refusal("a", ServerRefusal(422, told))
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("agent a: it is refused:")
    assert second.startswith("  line 2")


def test_of_two_long_columns_the_longer_gives_way_first():
    columns = [Column("A", str, can_shrink=True), Column("B", str, can_shrink=True)]
    rows = [["a" * 20, "b" * 40]]
    assert _shorten(columns, rows, 42) == [["a" * 20, "b" * 19 + "…"]]
    assert _shorten(columns, rows, 32) == [["a" * 14 + "…", "b" * 14 + "…"]]


def test_a_list_has_forms_for_people_and_for_programs(capsys):
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


def test_one_thing_has_the_same_forms(capsys):
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
