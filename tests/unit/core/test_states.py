"""State machines are tables: what the tables promise, what SQL and the docs make of them."""

import re
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import agent
from tenure.core.agent import AGENT
from tenure.core.errors import IllegalTransition
from tenure.core.operation import (
    INTENT,
    OPERATION,
    EntryKind,
    IntentState,
    IntentTrigger,
    OperationState,
    OperationTrigger,
)
from tenure.core.states import StateMachine

ROOT = Path(__file__).parents[3]
STORES = ROOT / "src/tenure/adapters/store"
PAGE = ROOT / "docs/reference/states.md"
TABLES = pytest.mark.parametrize(
    ("table", "states", "triggers"),
    [
        (OPERATION, OperationState, OperationTrigger),
        (INTENT, IntentState, IntentTrigger),
        (AGENT, agent.AgentState, agent.AgentTrigger),
    ],
)


class Door(StrEnum):
    SHUT = "SHUT"
    OPEN = "OPEN"
    GONE = "GONE"


class Act(StrEnum):
    PUSH = "push"
    BURN = "burn"


ROWS = [(Door.SHUT, Act.PUSH, Door.OPEN), (Door.OPEN, Act.BURN, Door.GONE)]
DOOR = StateMachine("door", start=Door.SHUT, final={Door.GONE}, rows=ROWS)


def test_a_trigger_leads_to_the_state_its_row_names():
    assert DOOR.after(Door.SHUT, Act.PUSH) is Door.OPEN


@given(st.sampled_from(Door), st.sampled_from(Act))
def test_what_has_no_row_is_refused_and_changes_nothing(state, trigger):
    legal = {(before, by): then for before, by, then in ROWS}
    if (state, trigger) in legal:
        assert DOOR.after(state, trigger) is legal[state, trigger]
        return
    with pytest.raises(IllegalTransition, match=f"door: {state} has no transition by {trigger}"):
        DOOR.after(state, trigger)
    assert DOOR.rows == tuple(ROWS)


def test_two_rows_for_one_state_and_trigger_are_refused():
    with pytest.raises(ValueError, match=r"door: two rows for \(SHUT, push\)"):
        StateMachine(
            "door", start=Door.SHUT, final=(), rows=[*ROWS, (Door.SHUT, Act.PUSH, Door.GONE)]
        )


def test_an_exit_from_a_final_state_is_refused():
    with pytest.raises(ValueError, match="door: OPEN is final and has an exit"):
        StateMachine("door", start=Door.SHUT, final=iter([Door.OPEN]), rows=ROWS)


def test_rows_and_final_states_may_be_given_once_only():
    table = StateMachine("door", start=Door.SHUT, final=iter([Door.GONE]), rows=iter(ROWS))
    assert table == DOOR


def test_a_step_is_permitted_if_some_row_makes_it_and_staying_always_is():
    assert DOOR.permits(Door.SHUT, Door.OPEN)
    assert DOOR.permits(Door.GONE, Door.GONE)
    assert not DOOR.permits(Door.SHUT, Door.GONE)


def test_states_come_in_the_order_of_the_rows():
    assert DOOR.states() == (Door.SHUT, Door.OPEN, Door.GONE)


def test_the_diagram_shows_start_rows_and_ends():
    assert DOOR.diagram().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> SHUT",
        "    SHUT --> OPEN: push",
        "    OPEN --> GONE: burn",
        "    GONE --> [*]",
    ]


@TABLES
def test_every_state_can_be_reached_and_every_trigger_is_used(table, states, triggers):
    reached, todo = {table.start}, [table.start]
    while todo:
        state = todo.pop()
        for before, _, then in table.rows:
            if before is state and then not in reached:
                reached.add(then)
                todo.append(then)
    assert reached == set(states) == set(table.states())
    assert {trigger for _, trigger, _ in table.rows} == set(triggers)


@TABLES
def test_every_state_that_is_not_final_has_an_exit(table, states, triggers):
    leaving = {before for before, _, _ in table.rows}
    assert leaving == set(states) - table.final


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ("operation_state", OperationState),
        ("intent_state", IntentState),
        ("journal_kind", EntryKind),
        ("agent_state", agent.AgentState),
    ],
)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_sql_allows_the_same_words(constraint, words, store):
    scripts = "\n".join(file.read_text() for file in (STORES / store / "migrations").iterdir())
    checks = re.findall(rf"CONSTRAINT {constraint} CHECK \((.*?)\n\s*\)", scripts, re.DOTALL)
    assert len(checks) == 1
    assert re.findall(r"'([^']*)'", checks[0]) == list(words)


@pytest.mark.parametrize("table", [OPERATION, INTENT, AGENT])
def test_the_diagram_in_the_docs_is_not_stale(table):
    assert f"```mermaid\n{table.diagram()}\n```" in PAGE.read_text()
