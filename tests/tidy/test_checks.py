"""Shows that each house rule can fail.

Every check is handed something bad and must complain, and something good that looks alike and must
not.
"""

import inspect

import pytest

from tests.tidy import checks, import_rules, migrations, signposts
from tests.tidy.rule_cases import BAD, GOOD
from tests.tidy.sources import Source


def source(path: str, text: str) -> Source:
    return Source(f"src/tenure/{path}", text)


def complaints_about(rule, path, text):
    """Hands one snippet to a rule, with a small project around it where the rule compares files."""
    at = source(path, text)
    match rule.__name__:
        case "banned_names":
            return rule([at.path])
        case "open_markers" | "sql_asking_time" | "machine_traces":
            return rule(at.path, text)
        case "dead_modules":
            user = Source(
                "tests/unit/test_a.py", "from tenure.core import agent\nRUN = 'tenure.core.child'\n"
            )
            return rule([at], [user], "run: ; python -m tenure.testing.prove")
        case "capability_imports":
            typing = "if TYPE_CHECKING:\n    from tenure.core.finding import FindingKind\n"
            around = [
                source("core/ids.py", "def f():\n    from tenure.core import plain\n"),
                source("core/plain.py", typing),
                source("core/errors.py", "from enum import Enum\n"),
                source("core/records/__init__.py", "import tenure.core.records.agent\n"),
            ]
            return rule(at, [at, *around])
        case "unused_permissions":
            return rule([at])
        case "gone_names":
            there = source("core/saga.py", '"""Decides."""\ndef next_moves(): ...\n')
            paths = [at.path, there.path, "tests/tidy/checks.py"]
            return rule(at, [at, there], paths)
        case "gone_paths":
            tree = ["src/tenure/core/saga.py", "src/tenure/faces/api/routes/agents.py"]
            return rule(path, text, [*tree, "tests/tidy/checks.py"])
        case "missing_from_page":
            names = checks.event_names(at) if "event" in path else checks.error_names(at)
            return rule(
                names, "docs/reference/page.md", "`NotFound` is raised. `agent.created` follows."
            )
        case "misnamed_migrations":
            return rule("src/tenure/store", text.split())
        case "misread_columns":
            return rule("src/tenure/store", text.split("=>"))
        case "twin_differences":
            one, other = text.split("=>")
            return rule("sqlite", "postgres", ([one], [other]))
        case _:
            return rule(at)


@pytest.mark.parametrize(
    "case", range(len(BAD)), ids=[f"{b[0].__name__}-{n}" for n, b in enumerate(BAD)]
)
def test_a_rule_complains_about_what_breaks_it(case):
    rule, path, text, word = BAD[case]
    found = complaints_about(rule, path, text)
    assert found, "the rule said nothing"
    assert any(word in complaint for complaint in found), found


@pytest.mark.parametrize(
    "case", range(len(GOOD)), ids=[f"{g[0].__name__}-{n}" for n, g in enumerate(GOOD)]
)
def test_a_rule_lets_pass_what_only_looks_alike(case):
    rule, path, text = GOOD[case]
    assert complaints_about(rule, path, text) == []


def test_every_rule_has_been_seen_to_fail_and_to_pass():
    rules = {
        rule
        for module in (checks, import_rules, migrations, signposts)
        for name, rule in inspect.getmembers(module, inspect.isfunction)
        if rule.__module__ == module.__name__
        and not name.startswith("_")
        and inspect.signature(rule).return_annotation == list[str]
    } - {checks.error_names, checks.event_names}
    assert {rule.__name__ for rule in rules} == {case[0].__name__ for case in BAD}
    assert {rule.__name__ for rule in rules} == {case[0].__name__ for case in GOOD}
