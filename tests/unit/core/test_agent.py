"""An agent's states: what leads where, what each allows, and what the end of an operation means."""

import itertools
import re
from pathlib import Path

import pytest

from tenure.core import operation
from tenure.core.agent import (
    AGENT,
    NAME,
    PERMISSIONS,
    STATES_WITHOUT_VERB,
    AgentState,
    AgentTrigger,
    state_if_undone,
)
from tenure.core.operation import OPERATION
from tenure.core.verb import VerbName
from tenure.plans.agents.lifecycle import CLOSING, VERBS

PAGE = Path(__file__).parents[3] / "docs/reference/states.md"
AT_REST = {
    AgentState.CREATE_FAILED,
    AgentState.READY,
    AgentState.SUSPENDED,
    AgentState.DELETE_FAILED,
}
DURING = {name: {verb.during, verb.during_stuck or verb.during} for name, verb in VERBS.items()}
STEPS = [
    (before, then)
    for before, then in itertools.product(operation.OperationState, repeat=2)
    if before is not then and OPERATION.permits(before, then)
]


@pytest.mark.parametrize("verb", VerbName)
@pytest.mark.parametrize("was", sorted(AT_REST))
@pytest.mark.parametrize(("before", "then"), STEPS)
def test_whatever_an_operation_does_its_agent_has_a_row_for_it(verb, was, before, then):
    """No way that the table of operations permits is a surprise to the table of agents."""
    stood = {
        state_if_undone(AgentState(row[0]))
        for row in AGENT.rows
        if row[1] is VERBS[verb].accept_trigger
    }
    if verb in CLOSING and was not in stood:
        return  # it is not accepted there
    after = VERBS[verb].agent_after(before, then, return_state=was)
    if after is not None:
        assert any(AGENT.permits(during, after) for during in DURING[verb])
    if then in OPERATION.final:
        assert (
            after in AT_REST | {AgentState.DELETED}
            or (
                # it was stuck already, and is what it was: nothing is told twice
                verb is VerbName.DELETE
                and after is None
                and before is operation.OperationState.STUCK
            )
            or (
                # it was READY all the time, and is reached where it was
                verb is VerbName.RECOVER
                and after is None
                and then is not operation.OperationState.SUCCEEDED
            )
        )


@pytest.mark.parametrize(
    ("verb", "end", "after"),
    [
        (VerbName.CREATE, "SUCCEEDED", AgentState.READY),
        (VerbName.CREATE, "COMPENSATED", AgentState.CREATE_FAILED),
        (VerbName.CREATE, "ABANDONED", AgentState.CREATE_FAILED),
        (VerbName.SUSPEND, "SUCCEEDED", AgentState.SUSPENDED),
        (VerbName.SUSPEND, "COMPENSATED", AgentState.READY),
        (VerbName.STOP, "SUCCEEDED", AgentState.SUSPENDED),
        (VerbName.RESUME, "SUCCEEDED", AgentState.READY),
        (VerbName.RESUME, "COMPENSATED", AgentState.SUSPENDED),
        (VerbName.RECOVER, "SUCCEEDED", AgentState.READY),
        (VerbName.DELETE, "SUCCEEDED", AgentState.DELETED),
        (VerbName.DELETE, "COMPENSATED", AgentState.READY),
        (VerbName.DELETE, "STUCK", AgentState.DELETE_FAILED),
        (VerbName.DELETE, "ABANDONED", AgentState.DELETE_FAILED),
    ],
)
def test_the_end_of_an_operation_decides_where_its_agent_is(verb, end, after):
    assert (
        VERBS[verb].agent_after(operation.OperationState.RUNNING, operation.OperationState(end))
        is after
    )


@pytest.mark.parametrize("was", sorted(AT_REST))
def test_a_delete_that_is_taken_back_leaves_the_agent_as_it_was(was):
    running, undone = operation.OperationState.RUNNING, operation.OperationState.COMPENSATED
    assert VERBS[VerbName.DELETE].agent_after(running, undone, return_state=was) is was


def test_a_delete_that_is_retried_is_deleting_again():
    stuck, running = operation.OperationState.STUCK, operation.OperationState.RUNNING
    assert VERBS[VerbName.DELETE].agent_after(stuck, running) is AgentState.DELETING
    assert VERBS[VerbName.DELETE].agent_after(running, operation.OperationState.WAITING) is None


def test_every_verb_is_declared_and_only_states_of_verbs_to_come_are_out_of_reach():
    assert set(VERBS) == set(VerbName)
    reached = {AGENT.start}
    while True:
        triggers = {verb.accept_trigger for verb in VERBS.values()} | {AgentTrigger.REPLACED}
        triggers |= {trigger for verb in VERBS.values() for trigger in verb.triggers.values()}
        triggers |= {one for one in AgentTrigger if one.startswith("spared")}
        more = {then for before, by, then in AGENT.rows if before in reached and by in triggers}
        if more <= reached:
            break
        reached |= more
    assert set(AgentState) - reached == STATES_WITHOUT_VERB


def test_every_state_says_how_it_conducts_itself():
    assert set(PERMISSIONS) == set(AgentState)
    for state, conduct in PERMISSIONS.items():
        assert conduct.serves == (conduct.issues_tokens == "yes"), state


def test_a_verb_that_closes_leads_to_a_state_that_does_not_serve():
    for verb in CLOSING:
        for before, trigger, then in AGENT.rows:
            if trigger is VERBS[verb].accept_trigger:
                assert not PERMISSIONS[AgentState(then)].serves, (before, verb)


def test_a_delete_is_accepted_from_every_settled_state_and_while_others_work():
    refused = {
        state
        for state in AgentState
        if (state, AgentTrigger.DELETE) not in {row[:2] for row in AGENT.rows}
    }
    assert refused == {AgentState.DELETING, AgentState.DELETED}


def test_a_stop_is_accepted_wherever_something_may_run():
    accepted = {before for before, trigger, _ in AGENT.rows if trigger is AgentTrigger.STOP}
    still = {
        AgentState.CREATING,
        AgentState.CREATE_FAILED,
        AgentState.DELETING,
        AgentState.DELETE_FAILED,
    }
    assert accepted == set(AgentState) - still - {AgentState.DELETED}


def test_only_closing_verbs_interrupt_and_none_overtakes_a_delete():
    assert {name for name, verb in VERBS.items() if verb.interrupts(AgentState.READY)} == CLOSING
    assert not any(verb.interrupts(AgentState.DELETE_FAILED) for verb in VERBS.values())


@pytest.mark.parametrize("state", AgentState)
def test_what_comes_to_nothing_leaves_an_agent_at_rest(state):
    if state is not AgentState.DELETED:
        assert state_if_undone(state) in AT_REST
    if state in AT_REST:
        assert state_if_undone(state) is state


@pytest.mark.parametrize("name", ["a", "a-b", "a" * 63, "z9"])
def test_a_name_begins_with_a_letter(name):
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "9a", "A", "a_b", "a" * 64, "a\n", "-a", "é"])
def test_another_name_is_none(name):
    assert not NAME.fullmatch(name)


def test_the_page_says_how_every_state_conducts_itself():
    row = r"^\| ([A-Z_]+) \| (yes|no) \| ([^|]+) \| ([^|]*) \|"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)
    verbs = {
        state: ", ".join(
            sorted(
                {
                    name.removesuffix("_agent")
                    for name, verb in VERBS.items()
                    if name != VerbName.RECOVER  # requested by a reconciler alone
                    and (state, verb.accept_trigger) in {row[:2] for row in AGENT.rows}
                }
            )
        )
        for state in AgentState
    }
    assert [(state, serves == "yes", mints, asks) for state, serves, mints, asks in rows] == [
        (state, conduct.serves, conduct.issues_tokens, verbs[state] or "none")
        for state, conduct in PERMISSIONS.items()
    ]
