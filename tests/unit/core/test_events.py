"""Events: every record has one, and an end is told as an end."""

import re
from pathlib import Path

import pytest

from tenure.core.events import OF_RECORD, Event, event_of
from tenure.core.operation import OPERATION, Noted, State

PAGE = Path(__file__).parents[3] / "docs/reference/events.md"


def test_every_record_tells_an_event():
    assert set(OF_RECORD) == set(Noted)


@pytest.mark.parametrize("kind", Noted)
def test_a_record_that_ends_the_operation_tells_the_end(kind):
    ends = {
        State.SUCCEEDED: Event.OPERATION_SUCCEEDED,
        State.COMPENSATED: Event.OPERATION_COMPENSATED,
        State.ABANDONED: Event.OPERATION_ABANDONED,
    }
    assert set(ends) == OPERATION.final
    for state in State:
        assert event_of(kind, state) is ends.get(state, OF_RECORD[kind])


def test_every_event_can_happen():
    told = {event_of(kind, state) for kind in Noted for state in State}
    assert told == set(Event)


@pytest.mark.parametrize("event", Event)
def test_an_event_is_a_noun_and_a_past_fact_on_the_wire(event):
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", event)
    assert event.name == event.replace(".", "_").upper()


def test_the_page_lists_every_event_once_and_no_other():
    listed = re.findall(r"^\| `(\w+\.\w+)`", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(Event)
