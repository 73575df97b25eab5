"""Events: every record has one, and an end is told as an end."""

import re
from pathlib import Path

import pytest

from tenure.app.events.cloudevents import EVENT_TYPES
from tenure.core.agent import AGENT, AgentState, AgentTrigger
from tenure.core.agent_events import agent_event
from tenure.core.events import EVENT_OF_ENTRY, OperationEvent, event_of
from tenure.core.operation import OPERATION, EntryKind, OperationState
from tenure.plans.agents.lifecycle import VERBS

REQUESTS = {verb.accept_trigger for verb in VERBS.values()} - {None}
PAGE = Path(__file__).parents[3] / "docs/reference/events.md"


def test_every_record_tells_an_event():
    assert set(EVENT_OF_ENTRY) == set(EntryKind)


@pytest.mark.parametrize("kind", EntryKind)
def test_a_record_that_ends_the_operation_tells_the_end(kind):
    ends = {
        OperationState.SUCCEEDED: OperationEvent.SUCCEEDED,
        OperationState.COMPENSATED: OperationEvent.COMPENSATED,
        OperationState.ABANDONED: OperationEvent.ABANDONED,
    }
    assert set(ends) == OPERATION.final
    for state in OperationState:
        assert event_of(kind, state) is ends.get(state, EVENT_OF_ENTRY[kind])


def test_every_event_can_happen():
    told: set[str] = {event_of(kind, state) for kind in EntryKind for state in OperationState}
    told |= {agent_event(state) for state in _reachable_states()}
    assert told == set(EVENT_TYPES)


def _reachable_states():
    """Every state in which some verb, or its end, puts an agent."""
    asked = {AgentState(then) for _, by, then in AGENT.rows if by in REQUESTS}
    ended = {
        verb.agent_after(before, OperationState(then))
        for verb in VERBS.values()
        for before in OperationState
        for then in OPERATION.final | {OperationState.STUCK}
        if OPERATION.permits(before, then) and before is not then
    }
    return (asked | ended | {AGENT.start}) - {None}


def test_a_verb_that_was_accepted_and_its_end_are_told_of_the_agent():
    assert agent_event(AgentState.DELETE_FAILED) == "agent.delete_failed"
    assert set(AgentTrigger) >= REQUESTS
    for state in _reachable_states():
        assert agent_event(state) == f"agent.{state.lower()}"


@pytest.mark.parametrize("event", EVENT_TYPES)
def test_an_event_is_a_noun_and_a_past_fact_on_the_wire(event):
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", event)


def test_the_page_lists_every_event_once_and_no_other():
    listed = re.findall(r"^\| `(\w+\.\w+)`", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(EVENT_TYPES)
