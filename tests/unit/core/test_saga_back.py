"""The saga turning back, its pivot and its operator, rule by rule."""

import pytest

from tenure.core import decisions, saga
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.moves import AT_REST, Act, Move, Moves
from tenure.core.operation import Intent, IntentState, OperationState, Record, RecordKind
from tenure.core.plan import Plan, StepKind, nobody_knows, nothing, repeat
from tests.unit.support.saga_world import step
from tests.unit.support.situations import (
    BLIND,
    LINE,
    PAIR,
    TURN,
    folded,
    held,
    is_wanted,
    moves,
    settled,
)

# --- turning back ---------------------------------------------------------------------------------


def test_a_refusal_turns_back_and_names_step_and_reason():
    kind, body = settled(LINE, folded(LINE), Act.DO, "a", Rejected("no room")).record
    assert (kind, body) == (RecordKind.REFUSED, {"why": "a was refused: no room"})
    progress = folded(LINE, (RecordKind.REFUSED, "a", 105.0, body))
    assert (progress.compensating_at, progress.cause) == (105.0, "a was refused: no room")
    assert saga.state_of(LINE, progress, held("a")) is OperationState.COMPENSATING


def test_turning_back_says_all_of_what_a_poll_may_have_moved_unseen():
    anew = {"state": IntentState.REMOVING, "due_at": 0.0, "attempts": 0, "waiting_on": None}
    progress = folded(PAIR, (RecordKind.DONE, "a", 101.0), (RecordKind.REFUSED, "c", 102.0))
    said = decisions.compensate(PAIR, progress, held("a", "b", "c"))
    assert said == {"a": {"state": IntentState.REMOVING}, "b": anew, "c": anew}
    said = decisions.compensate(PAIR, progress, held("a", due_at=140.0) | held("b", "c"))
    assert said["a"] == anew, "of what is done it knows what the row says"


def test_undo_covers_every_intended_step_newest_stage_first_the_refused_and_unknown_included():
    progress = folded(PAIR, (RecordKind.DONE, "a", 101.0), (RecordKind.REFUSED, "c", 102.0))
    intents = held("a", "c") | held("b", unknown_since=101.0)
    assert [one.name for one in saga.steps_to_undo(PAIR, progress)] == ["b", "c", "a"]
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "b"), (Act.UNDO, "c")]
    progress = folded(
        PAIR,
        (RecordKind.DONE, "a", 101.0),
        (RecordKind.REFUSED, "c", 102.0),
        (RecordKind.UNDONE, "b", 103.0),
    )
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "c")]


def test_a_step_that_was_never_intended_is_not_undone():
    progress = folded(LINE, (RecordKind.DONE, "a", 101.0), (RecordKind.COMPENSATING, "", 102.0))
    assert [one.name for one in saga.steps_to_undo(LINE, progress)] == ["b", "a"]


def test_no_undo_while_a_call_of_its_do_is_out():
    progress = folded(PAIR, (RecordKind.DONE, "a", 101.0), (RecordKind.REFUSED, "c", 102.0))
    intents = held("a", "b", "c")
    intents["b"].busy = True
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "c")]


def test_the_last_undo_ends_the_operation():
    records = [(RecordKind.DONE, "a", 101.0), (RecordKind.REFUSED, "b", 102.0, {"why": "no"})]
    progress = folded(LINE, *records, (RecordKind.UNDONE, "b", 103.0))
    assert progress.end is None
    progress = folded(
        LINE, *records, (RecordKind.UNDONE, "b", 103.0), (RecordKind.UNDONE, "a", 104.0)
    )
    assert (progress.end, progress.cause) == (OperationState.COMPENSATED, "no")


def test_turning_back_with_nothing_to_undo_ends_when_no_call_is_out():
    plan = Plan("look", stages=[step("a", undo=nothing, inspect=repeat)])
    progress = folded(plan, (RecordKind.COMPENSATING, "", 101.0))
    assert progress.end is None
    intents = {"a": Intent("a", "", "a", unknown_since=100.5, busy=True)}
    assert saga.next_moves(plan, progress, intents, 102.0) == AT_REST
    intents["a"].busy = False
    forget = Moves((Move(Act.FORGET, plan.steps["a"]),), None)
    assert saga.next_moves(plan, progress, intents, 102.0) == forget
    done = folded(plan, (RecordKind.COMPENSATING, "", 101.0), (RecordKind.UNDONE, "a", 102.0))
    assert done.end is OperationState.COMPENSATED
    refused = folded(plan, (RecordKind.REFUSED, "a", 101.0))
    assert refused.end is OperationState.COMPENSATED


def test_an_operation_that_nobody_claimed_is_cancelled_without_undos():
    progress = folded(LINE, (RecordKind.COMPENSATING, "", 101.0, {"why": "x", "unclaimed": True}))
    assert progress.end is OperationState.COMPENSATED


@pytest.mark.parametrize("ending", [Done(), Absent()])
def test_gone_is_gone(ending):
    intent = Intent("a", "", "a", state=IntentState.REMOVING)
    progress = folded(LINE, (RecordKind.COMPENSATING, "", 101.0))
    found = settled(LINE, progress, Act.UNDO, "a", ending, intent=intent)
    assert found[:2] == ((RecordKind.UNDONE, {}), {"state": IntentState.BURNED})


@pytest.mark.parametrize(
    "ending",
    [Rejected("no"), Unavailable("x"), OutcomeUnknown("x"), Waiting("go"), NotYet(0.2)],
)
def test_an_undo_that_fails_is_tried_again_and_stuck_after_its_time(ending):
    progress = folded(LINE, (RecordKind.COMPENSATING, "", 101.0, {"why": "cancelled"}))
    intent = Intent("a", "", "a", state=IntentState.REMOVING)
    early = settled(LINE, progress, Act.UNDO, "a", ending, intent=intent, now=170.0)
    assert early.record is None
    assert early.intent["due_at"] == pytest.approx(170.2)
    late = {"intent": intent, "started_at": 161.0, "now": 161.0}
    kind, body = settled(LINE, progress, Act.UNDO, "a", ending, **late).record
    assert kind is RecordKind.STUCK
    assert body["why"].startswith("the undo of a still fails after 60 s: ")
    stuck = saga.after(LINE, progress, Record(9, kind, "a", 161.0, body))
    assert stuck.cause == "cancelled"
    assert settled(LINE, stuck, Act.UNDO, "a", ending, **late).record is None
    assert moves(LINE, stuck, held("a", state=IntentState.REMOVING, due_at=160.0), now=162.0)


def test_a_stuck_undo_does_not_hold_up_the_older_ones():
    progress = folded(
        LINE,
        (RecordKind.DONE, "a", 101.0),
        (RecordKind.REFUSED, "b", 102.0, {"why": "no"}),
        (RecordKind.STUCK, "b", 170.0, {"why": "still there"}),
    )
    intents = held("a") | held("b", due_at=190.0)
    assert saga.state_of(LINE, progress, intents) is OperationState.STUCK
    assert moves(LINE, progress, intents, now=171.0) == [(Act.UNDO, "a")]
    assert moves(LINE, progress, intents, now=190.0) == [(Act.UNDO, "b"), (Act.UNDO, "a")]
    both = held("a", due_at=195.0) | held("b", due_at=190.0)
    late = moves(LINE, progress, both, now=171.0)
    assert late == [(Act.UNDO, "a")], "past its time it is looked at whatever it was told"
    gone = saga.after(LINE, progress, Record(9, RecordKind.UNDONE, "b", 191.0, {}))
    assert saga.state_of(LINE, gone, intents) is OperationState.COMPENSATING


def test_a_do_that_ends_while_its_operation_is_undone_says_nothing():
    progress = folded(LINE, (RecordKind.COMPENSATING, "", 101.0))
    for ending in (Done(), Rejected("no"), NotYet()):
        assert not is_wanted(LINE, progress, Act.DO, "a", ending)


def test_an_undo_counts_once_and_only_while_turning_back():
    assert not is_wanted(LINE, folded(LINE), Act.UNDO, "a", Done())
    back = folded(LINE, (RecordKind.DONE, "a", 101.0), (RecordKind.COMPENSATING, "", 102.0))
    assert is_wanted(LINE, back, Act.UNDO, "b", Done())
    again = saga.after(LINE, back, Record(9, RecordKind.UNDONE, "b", 103.0, {}))
    assert not is_wanted(LINE, again, Act.UNDO, "b", Done())


def test_a_step_is_done_only_once_however_many_say_so():
    assert is_wanted(LINE, folded(LINE), Act.DO, "a", Done())
    assert not is_wanted(LINE, folded(LINE, (RecordKind.ADOPTED, "a", 101.0)), Act.DO, "a", Done())


# --- turning back where nobody can tell -----------------------------------------------------------


def test_turning_back_over_a_blind_step_needs_a_word_only_if_a_call_is_out():
    progress = folded(BLIND, (RecordKind.DONE, "a", 101.0), (RecordKind.COMPENSATING, "", 102.0))
    assert [one.name for one in saga.steps_to_undo(BLIND, progress)] == ["x", "a"]
    assert moves(BLIND, progress, held("a", "x")) == [(Act.FORGET, "x")]
    found = settled(BLIND, progress, Act.FORGET, "x", Done())
    assert found[:2] == ((RecordKind.UNDONE, {}), {"state": IntentState.BURNED})
    unknown = held("a") | held("x", unknown_since=101.0)
    assert moves(BLIND, progress, unknown) == [(Act.GIVE_UP, "x")]
    stuck = saga.after(BLIND, progress, Record(9, RecordKind.STUCK, "x", 103.0, {"why": "?"}))
    assert moves(BLIND, stuck, unknown) == [(Act.UNDO, "a")]


def test_giving_up_is_dropped_if_the_operation_turned_back_to_undo_the_step():
    plan = Plan("blind", stages=[step("x", inspect=nobody_knows)])
    assert is_wanted(plan, folded(plan), Act.GIVE_UP, "x", Done())
    assert not is_wanted(
        plan, folded(plan, (RecordKind.COMPENSATING, "", 101.0)), Act.GIVE_UP, "x", Done()
    )
    back = folded(BLIND, (RecordKind.DONE, "a", 101.0), (RecordKind.COMPENSATING, "", 102.0))
    assert is_wanted(BLIND, back, Act.GIVE_UP, "x", Done())


def test_a_late_end_is_kept_where_nobody_else_could_tell():
    back = folded(BLIND, (RecordKind.DONE, "a", 101.0), (RecordKind.COMPENSATING, "", 102.0))
    for ending, record, state in (
        (Done({"id": 7}), (RecordKind.DONE, {"id": 7}), IntentState.PRESENT),
        (Rejected("no"), (RecordKind.REFUSED, {"why": "no"}), IntentState.REFUSED),
        (Unavailable("busy"), (RecordKind.REFUSED, {"why": "busy"}), IntentState.REFUSED),
    ):
        assert is_wanted(BLIND, back, Act.DO, "x", ending)
        found = settled(BLIND, back, Act.DO, "x", ending)
        assert found[:2] == (record, {"unknown_since": None, "state": state})
        then = saga.after(BLIND, back, Record(9, record[0], "x", 103.0, record[1]))
        assert [one.name for one in saga.steps_to_undo(BLIND, then)] == ["a"]
        assert then.compensating_at == 102.0
    for unclear in (NotYet(), Waiting("go"), OutcomeUnknown("lost")):
        assert not is_wanted(BLIND, back, Act.DO, "x", unclear)


def test_a_late_end_of_what_is_being_removed_leaves_its_state_alone():
    intent = Intent("x", "", "x", state=IntentState.REMOVING)
    back = folded(BLIND, (RecordKind.DONE, "a", 101.0), (RecordKind.COMPENSATING, "", 102.0))
    found = settled(BLIND, back, Act.DO, "x", Done(), intent=intent)
    assert found.intent == {"unknown_since": None}


# --- the pivot ------------------------------------------------------------------------------------


def test_there_is_a_way_back_until_the_pivot_is_intended():
    assert not saga.past_pivot(TURN, folded(TURN))
    assert saga.past_pivot(TURN, folded(TURN, (RecordKind.DONE, "a", 101.0)))
    assert not saga.past_pivot(LINE, folded(LINE, (RecordKind.DONE, "a", 101.0)))
    refused = folded(TURN, (RecordKind.DONE, "a", 101.0), (RecordKind.REFUSED, "p", 102.0))
    assert not saga.past_pivot(TURN, refused)


def test_a_plan_that_only_goes_forward_has_no_way_back_at_all():
    plan = Plan("forward", stages=[step("r", kind=StepKind.RETRIABLE)])
    assert saga.past_pivot(plan, folded(plan))


def test_a_refused_pivot_turns_back_and_is_not_undone_itself():
    progress = folded(TURN, (RecordKind.DONE, "a", 101.0))
    assert settled(TURN, progress, Act.DO, "p", Rejected("no")).record[0] is RecordKind.REFUSED
    back = folded(TURN, (RecordKind.DONE, "a", 101.0), (RecordKind.REFUSED, "p", 102.0))
    assert [one.name for one in saga.steps_to_undo(TURN, back)] == ["a"]


def test_an_unknown_pivot_is_inspected_then_stuck_and_never_turned_back():
    progress = folded(TURN, (RecordKind.DONE, "a", 101.0))
    intents = held("a") | held("p", unknown_since=101.0)
    assert moves(TURN, progress, intents) == [(Act.INSPECT, "p")]
    late = {"intent": intents["p"], "started_at": 161.0, "now": 161.0}
    for ending in (Unavailable("x"), OutcomeUnknown("x"), Rejected("x"), Absent(), NotYet(1.0)):
        found = settled(TURN, progress, Act.INSPECT, "p", ending, **late)
        assert found.record[0] is RecordKind.STUCK
    stuck = folded(
        TURN, (RecordKind.DONE, "a", 101.0), (RecordKind.STUCK, "p", 161.0, {"why": "late"})
    )
    assert moves(TURN, stuck, intents, now=500.0) == [(Act.INSPECT, "p")]
    assert settled(TURN, stuck, Act.INSPECT, "p", Unavailable("x"), **late).record is None


def test_after_the_pivot_a_refusal_is_retried_then_stuck_and_not_passed():
    progress = folded(TURN, (RecordKind.DONE, "a", 101.0), (RecordKind.DONE, "p", 102.0))
    found = settled(TURN, progress, Act.DO, "r", Rejected("no"))
    assert found.record is None
    late = settled(TURN, progress, Act.DO, "r", Rejected("no"), started_at=162.0, now=162.0)
    assert late.record[0] is RecordKind.STUCK
    stuck = saga.after(TURN, progress, Record(9, late.record[0], "r", 162.0, late.record[1]))
    assert stuck.end is None
    assert moves(TURN, stuck, held("a", "p", "r")) == [(Act.DO, "r")]
    assert saga.state_of(TURN, stuck, {}) is OperationState.STUCK


# --- an operator's words --------------------------------------------------------------------------

LATE = [(RecordKind.DONE, "a", 101.0), (RecordKind.STUCK, "p", 170.0, {"why": "late"})]


def test_a_stuck_operation_says_why_and_forgets_it_when_it_moves_again():
    assert folded(TURN, *LATE).cause == "late"
    for word in (RecordKind.DONE, RecordKind.ADOPTED, RecordKind.RETRIED, RecordKind.MARKED_ABSENT):
        freed = folded(TURN, *LATE, (word, "p", 180.0))
        assert (freed.cause, freed.stuck) == ("", frozenset())


def test_one_step_that_moves_again_does_not_free_its_sibling():
    records = [(RecordKind.DONE, "a", 101.0), (RecordKind.STUCK, "b", 170.0, {"why": "b"})]
    records += [(RecordKind.STUCK, "c", 171.0, {"why": "c"}), (RecordKind.DONE, "b", 172.0)]
    progress = folded(PAIR, *records)
    assert (progress.cause, progress.stuck) == ("c", {"c"})


def test_adopt_counts_as_done():
    progress = folded(TURN, *LATE, (RecordKind.ADOPTED, "p", 180.0, {"id": 9}))
    assert (progress.stage, progress.done["p"]) == (2, {"id": 9})


def test_retry_and_mark_absent_start_the_clock_anew():
    for word in (RecordKind.RETRIED, RecordKind.MARKED_ABSENT):
        progress = folded(TURN, *LATE, (word, "p", 180.0))
        assert saga.deadline_of(progress, TURN.steps["p"]) == 240.0
        assert moves(TURN, progress, held("a", "p")) == [(Act.DO, "p")]


BACK = [
    (RecordKind.DONE, "a", 101.0),
    (RecordKind.REFUSED, "b", 102.0, {"why": "no"}),
    (RecordKind.STUCK, "b", 170.0, {"why": "still there"}),
]


def test_a_retry_while_turning_back_tries_the_newest_first_again_on_a_new_clock():
    progress = folded(LINE, *BACK, (RecordKind.RETRIED, "", 300.0))
    assert (progress.cause, progress.stuck) == ("no", frozenset())
    assert moves(LINE, progress, held("a", "b"), now=301.0) == [(Act.UNDO, "b")]
    intent = Intent("b", "", "b", state=IntentState.REMOVING)
    times = {"intent": intent, "started_at": 359.0, "now": 359.0}
    assert settled(LINE, progress, Act.UNDO, "b", Unavailable("x"), **times).record is None


def test_mark_absent_while_turning_back_counts_as_undone():
    progress = folded(LINE, *BACK, (RecordKind.MARKED_ABSENT, "b", 300.0))
    assert (progress.undone, progress.end, progress.cause) == ({"b"}, None, "no")
    progress = folded(
        LINE, *BACK, (RecordKind.UNDONE, "a", 299.0), (RecordKind.MARKED_ABSENT, "b", 300.0)
    )
    assert progress.end is OperationState.COMPENSATED


def test_abandon_ends_it_as_it_stands():
    assert folded(LINE, *BACK, (RecordKind.ABANDONED, "", 300.0)).end is OperationState.ABANDONED
    assert folded(TURN, *LATE, (RecordKind.ABANDONED, "", 300.0)).end is OperationState.ABANDONED


def test_a_record_whose_body_is_no_object_is_read_as_an_empty_one():
    progress = folded(
        LINE, (RecordKind.SIGNALLED, "", 101.0, None), (RecordKind.REFUSED, "a", 102.0, None)
    )
    assert (progress.signals, progress.cause) == ({"": (None,)}, "")
