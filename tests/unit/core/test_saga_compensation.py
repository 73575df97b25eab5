"""The saga turning back, its pivot and its operator, rule by rule."""

import pytest

from tenure.core import decisions, saga
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.moves import NO_MOVES, Act, Move, Moves
from tenure.core.operation import EntryKind, Intent, IntentState, JournalEntry, OperationState
from tenure.core.plan import Plan, StepKind, nobody_knows, nothing, repeat
from tests.unit.support.saga_world import step
from tests.unit.support.situations import (
    BLIND,
    LINE,
    PAIR,
    PIVOT_PLAN,
    fold_records,
    intents_of,
    is_relevant,
    moves,
    settle_move,
)

# --- turning back ---------------------------------------------------------------------------------


def test_a_refusal_turns_back_and_names_step_and_reason():
    kind, body = settle_move(LINE, fold_records(LINE), Act.DO, "a", Rejected("no room")).entry
    assert (kind, body) == (EntryKind.REFUSED, {"why": "a was refused: no room"})
    progress = fold_records(LINE, (EntryKind.REFUSED, "a", 105.0, body))
    assert (progress.compensating_at, progress.cause) == (105.0, "a was refused: no room")
    assert saga.state_of(LINE, progress, intents_of("a")) is OperationState.COMPENSATING


def test_turning_back_says_all_of_what_a_poll_may_have_moved_unseen():
    anew = {"state": IntentState.REMOVING, "due_at": 0.0, "attempts": 0, "waiting_on": None}
    progress = fold_records(PAIR, (EntryKind.DONE, "a", 101.0), (EntryKind.REFUSED, "c", 102.0))
    said = decisions.compensate(PAIR, progress, intents_of("a", "b", "c"))
    assert said == {"a": {"state": IntentState.REMOVING}, "b": anew, "c": anew}
    said = decisions.compensate(
        PAIR, progress, intents_of("a", due_at=140.0) | intents_of("b", "c")
    )
    assert said["a"] == anew, "of what is done it knows what the row says"


def test_undo_covers_every_intended_step_newest_stage_first_the_refused_and_unknown_included():
    progress = fold_records(PAIR, (EntryKind.DONE, "a", 101.0), (EntryKind.REFUSED, "c", 102.0))
    intents = intents_of("a", "c") | intents_of("b", unknown_since=101.0)
    assert [one.name for one in saga.steps_to_undo(PAIR, progress)] == ["b", "c", "a"]
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "b"), (Act.UNDO, "c")]
    progress = fold_records(
        PAIR,
        (EntryKind.DONE, "a", 101.0),
        (EntryKind.REFUSED, "c", 102.0),
        (EntryKind.UNDONE, "b", 103.0),
    )
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "c")]


def test_a_step_that_was_never_intended_is_not_undone():
    progress = fold_records(LINE, (EntryKind.DONE, "a", 101.0), (EntryKind.COMPENSATING, "", 102.0))
    assert [one.name for one in saga.steps_to_undo(LINE, progress)] == ["b", "a"]


def test_no_undo_while_a_call_of_its_do_is_out():
    progress = fold_records(PAIR, (EntryKind.DONE, "a", 101.0), (EntryKind.REFUSED, "c", 102.0))
    intents = intents_of("a", "b", "c")
    intents["b"].busy = True
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "c")]


def test_the_last_undo_ends_the_operation():
    records = [(EntryKind.DONE, "a", 101.0), (EntryKind.REFUSED, "b", 102.0, {"why": "no"})]
    progress = fold_records(LINE, *records, (EntryKind.UNDONE, "b", 103.0))
    assert progress.end is None
    progress = fold_records(
        LINE, *records, (EntryKind.UNDONE, "b", 103.0), (EntryKind.UNDONE, "a", 104.0)
    )
    assert (progress.end, progress.cause) == (OperationState.COMPENSATED, "no")


def test_turning_back_with_nothing_to_undo_ends_when_no_call_is_out():
    plan = Plan("look", stages=[step("a", undo=nothing, inspect=repeat)])
    progress = fold_records(plan, (EntryKind.COMPENSATING, "", 101.0))
    assert progress.end is None
    intents = {"a": Intent("a", "", "a", unknown_since=100.5, busy=True)}
    assert saga.next_moves(plan, progress, intents, 102.0) == NO_MOVES
    intents["a"].busy = False
    forget = Moves((Move(Act.COUNT_UNDONE, plan.steps["a"]),), None)
    assert saga.next_moves(plan, progress, intents, 102.0) == forget
    done = fold_records(plan, (EntryKind.COMPENSATING, "", 101.0), (EntryKind.UNDONE, "a", 102.0))
    assert done.end is OperationState.COMPENSATED
    refused = fold_records(plan, (EntryKind.REFUSED, "a", 101.0))
    assert refused.end is OperationState.COMPENSATED


def test_an_operation_that_nobody_claimed_is_cancelled_without_undos():
    progress = fold_records(
        LINE, (EntryKind.COMPENSATING, "", 101.0, {"why": "x", "unclaimed": True})
    )
    assert progress.end is OperationState.COMPENSATED


@pytest.mark.parametrize("ending", [Done(), Absent()])
def test_gone_is_gone(ending):
    intent = Intent("a", "", "a", state=IntentState.REMOVING)
    progress = fold_records(LINE, (EntryKind.COMPENSATING, "", 101.0))
    found = settle_move(LINE, progress, Act.UNDO, "a", ending, intent=intent)
    assert found[:2] == ((EntryKind.UNDONE, {}), {"state": IntentState.BURNED})


@pytest.mark.parametrize(
    "ending",
    [Rejected("no"), Unavailable("x"), OutcomeUnknown("x"), Waiting("go"), NotYet(0.2)],
)
def test_an_undo_that_fails_is_tried_again_and_stuck_after_its_time(ending):
    progress = fold_records(LINE, (EntryKind.COMPENSATING, "", 101.0, {"why": "cancelled"}))
    intent = Intent("a", "", "a", state=IntentState.REMOVING)
    early = settle_move(LINE, progress, Act.UNDO, "a", ending, intent=intent, now=170.0)
    assert early.entry is None
    assert early.intent["due_at"] == pytest.approx(170.2)
    late = {"intent": intent, "started_at": 161.0, "now": 161.0}
    kind, body = settle_move(LINE, progress, Act.UNDO, "a", ending, **late).entry
    assert kind is EntryKind.STUCK
    assert body["why"].startswith("the undo of a still fails after 60 s: ")
    stuck = saga.after(LINE, progress, JournalEntry(9, kind, "a", 161.0, body))
    assert stuck.cause == "cancelled"
    assert settle_move(LINE, stuck, Act.UNDO, "a", ending, **late).entry is None
    assert moves(LINE, stuck, intents_of("a", state=IntentState.REMOVING, due_at=160.0), now=162.0)


def test_a_stuck_undo_does_not_hold_up_the_older_ones():
    progress = fold_records(
        LINE,
        (EntryKind.DONE, "a", 101.0),
        (EntryKind.REFUSED, "b", 102.0, {"why": "no"}),
        (EntryKind.STUCK, "b", 170.0, {"why": "still there"}),
    )
    intents = intents_of("a") | intents_of("b", due_at=190.0)
    assert saga.state_of(LINE, progress, intents) is OperationState.STUCK
    assert moves(LINE, progress, intents, now=171.0) == [(Act.UNDO, "a")]
    assert moves(LINE, progress, intents, now=190.0) == [(Act.UNDO, "b"), (Act.UNDO, "a")]
    both = intents_of("a", due_at=195.0) | intents_of("b", due_at=190.0)
    late = moves(LINE, progress, both, now=171.0)
    assert late == [(Act.UNDO, "a")], "past its time it is looked at whatever it was told"
    gone = saga.after(LINE, progress, JournalEntry(9, EntryKind.UNDONE, "b", 191.0, {}))
    assert saga.state_of(LINE, gone, intents) is OperationState.COMPENSATING


def test_a_do_that_ends_while_its_operation_is_undone_says_nothing():
    progress = fold_records(LINE, (EntryKind.COMPENSATING, "", 101.0))
    for ending in (Done(), Rejected("no"), NotYet()):
        assert not is_relevant(LINE, progress, Act.DO, "a", ending)


def test_an_undo_counts_once_and_only_while_turning_back():
    assert not is_relevant(LINE, fold_records(LINE), Act.UNDO, "a", Done())
    back = fold_records(LINE, (EntryKind.DONE, "a", 101.0), (EntryKind.COMPENSATING, "", 102.0))
    assert is_relevant(LINE, back, Act.UNDO, "b", Done())
    again = saga.after(LINE, back, JournalEntry(9, EntryKind.UNDONE, "b", 103.0, {}))
    assert not is_relevant(LINE, again, Act.UNDO, "b", Done())


def test_a_step_is_done_only_once_however_many_say_so():
    assert is_relevant(LINE, fold_records(LINE), Act.DO, "a", Done())
    assert not is_relevant(
        LINE, fold_records(LINE, (EntryKind.ADOPTED, "a", 101.0)), Act.DO, "a", Done()
    )


# --- turning back where nobody can tell -----------------------------------------------------------


def test_turning_back_over_a_blind_step_needs_a_word_only_if_a_call_is_out():
    progress = fold_records(
        BLIND, (EntryKind.DONE, "a", 101.0), (EntryKind.COMPENSATING, "", 102.0)
    )
    assert [one.name for one in saga.steps_to_undo(BLIND, progress)] == ["x", "a"]
    assert moves(BLIND, progress, intents_of("a", "x")) == [(Act.COUNT_UNDONE, "x")]
    found = settle_move(BLIND, progress, Act.COUNT_UNDONE, "x", Done())
    assert found[:2] == ((EntryKind.UNDONE, {}), {"state": IntentState.BURNED})
    unknown = intents_of("a") | intents_of("x", unknown_since=101.0)
    assert moves(BLIND, progress, unknown) == [(Act.DECLARE_STUCK, "x")]
    stuck = saga.after(BLIND, progress, JournalEntry(9, EntryKind.STUCK, "x", 103.0, {"why": "?"}))
    assert moves(BLIND, stuck, unknown) == [(Act.UNDO, "a")]


def test_giving_up_is_dropped_if_the_operation_turned_back_to_undo_the_step():
    plan = Plan("blind", stages=[step("x", inspect=nobody_knows)])
    assert is_relevant(plan, fold_records(plan), Act.DECLARE_STUCK, "x", Done())
    assert not is_relevant(
        plan,
        fold_records(plan, (EntryKind.COMPENSATING, "", 101.0)),
        Act.DECLARE_STUCK,
        "x",
        Done(),
    )
    back = fold_records(BLIND, (EntryKind.DONE, "a", 101.0), (EntryKind.COMPENSATING, "", 102.0))
    assert is_relevant(BLIND, back, Act.DECLARE_STUCK, "x", Done())


def test_a_late_end_is_kept_where_nobody_else_could_tell():
    back = fold_records(BLIND, (EntryKind.DONE, "a", 101.0), (EntryKind.COMPENSATING, "", 102.0))
    for ending, record, state in (
        (Done({"id": 7}), (EntryKind.DONE, {"id": 7}), IntentState.PRESENT),
        (Rejected("no"), (EntryKind.REFUSED, {"why": "no"}), IntentState.REFUSED),
        (Unavailable("busy"), (EntryKind.REFUSED, {"why": "busy"}), IntentState.REFUSED),
    ):
        assert is_relevant(BLIND, back, Act.DO, "x", ending)
        found = settle_move(BLIND, back, Act.DO, "x", ending)
        assert found[:2] == (record, {"unknown_since": None, "state": state})
        then = saga.after(BLIND, back, JournalEntry(9, record[0], "x", 103.0, record[1]))
        assert [one.name for one in saga.steps_to_undo(BLIND, then)] == ["a"]
        assert then.compensating_at == 102.0
    for unclear in (NotYet(), Waiting("go"), OutcomeUnknown("lost")):
        assert not is_relevant(BLIND, back, Act.DO, "x", unclear)


def test_a_late_end_of_what_is_being_removed_leaves_its_state_alone():
    intent = Intent("x", "", "x", state=IntentState.REMOVING)
    back = fold_records(BLIND, (EntryKind.DONE, "a", 101.0), (EntryKind.COMPENSATING, "", 102.0))
    found = settle_move(BLIND, back, Act.DO, "x", Done(), intent=intent)
    assert found.intent == {"unknown_since": None}


# --- the pivot ------------------------------------------------------------------------------------


def test_there_is_a_way_back_until_the_pivot_is_intended():
    assert not saga.pivot_begun(PIVOT_PLAN, fold_records(PIVOT_PLAN))
    assert saga.pivot_begun(PIVOT_PLAN, fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0)))
    assert not saga.pivot_begun(LINE, fold_records(LINE, (EntryKind.DONE, "a", 101.0)))
    refused = fold_records(
        PIVOT_PLAN, (EntryKind.DONE, "a", 101.0), (EntryKind.REFUSED, "p", 102.0)
    )
    assert not saga.pivot_begun(PIVOT_PLAN, refused)


def test_a_plan_that_only_goes_forward_has_no_way_back_at_all():
    plan = Plan("forward", stages=[step("r", kind=StepKind.RETRIABLE)])
    assert saga.pivot_begun(plan, fold_records(plan))


def test_a_refused_pivot_turns_back_and_is_not_undone_itself():
    progress = fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0))
    assert (
        settle_move(PIVOT_PLAN, progress, Act.DO, "p", Rejected("no")).entry[0] is EntryKind.REFUSED
    )
    back = fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0), (EntryKind.REFUSED, "p", 102.0))
    assert [one.name for one in saga.steps_to_undo(PIVOT_PLAN, back)] == ["a"]


def test_an_unknown_pivot_is_inspected_then_stuck_and_never_turned_back():
    progress = fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0))
    intents = intents_of("a") | intents_of("p", unknown_since=101.0)
    assert moves(PIVOT_PLAN, progress, intents) == [(Act.INSPECT, "p")]
    late = {"intent": intents["p"], "started_at": 161.0, "now": 161.0}
    for ending in (Unavailable("x"), OutcomeUnknown("x"), Rejected("x"), Absent(), NotYet(1.0)):
        found = settle_move(PIVOT_PLAN, progress, Act.INSPECT, "p", ending, **late)
        assert found.entry[0] is EntryKind.STUCK
    stuck = fold_records(
        PIVOT_PLAN, (EntryKind.DONE, "a", 101.0), (EntryKind.STUCK, "p", 161.0, {"why": "late"})
    )
    assert moves(PIVOT_PLAN, stuck, intents, now=500.0) == [(Act.INSPECT, "p")]
    assert settle_move(PIVOT_PLAN, stuck, Act.INSPECT, "p", Unavailable("x"), **late).entry is None


def test_after_the_pivot_a_refusal_is_retried_then_stuck_and_not_passed():
    progress = fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0), (EntryKind.DONE, "p", 102.0))
    found = settle_move(PIVOT_PLAN, progress, Act.DO, "r", Rejected("no"))
    assert found.entry is None
    late = settle_move(
        PIVOT_PLAN, progress, Act.DO, "r", Rejected("no"), started_at=162.0, now=162.0
    )
    assert late.entry[0] is EntryKind.STUCK
    stuck = saga.after(
        PIVOT_PLAN, progress, JournalEntry(9, late.entry[0], "r", 162.0, late.entry[1])
    )
    assert stuck.end is None
    assert moves(PIVOT_PLAN, stuck, intents_of("a", "p", "r")) == [(Act.DO, "r")]
    assert saga.state_of(PIVOT_PLAN, stuck, {}) is OperationState.STUCK


# --- an operator's words --------------------------------------------------------------------------

LATE = [(EntryKind.DONE, "a", 101.0), (EntryKind.STUCK, "p", 170.0, {"why": "late"})]


def test_a_stuck_operation_says_why_and_forgets_it_when_it_moves_again():
    assert fold_records(PIVOT_PLAN, *LATE).cause == "late"
    for word in (EntryKind.DONE, EntryKind.ADOPTED, EntryKind.RETRIED, EntryKind.MARKED_ABSENT):
        freed = fold_records(PIVOT_PLAN, *LATE, (word, "p", 180.0))
        assert (freed.cause, freed.stuck) == ("", frozenset())


def test_one_step_that_moves_again_does_not_free_its_sibling():
    records = [(EntryKind.DONE, "a", 101.0), (EntryKind.STUCK, "b", 170.0, {"why": "b"})]
    records += [(EntryKind.STUCK, "c", 171.0, {"why": "c"}), (EntryKind.DONE, "b", 172.0)]
    progress = fold_records(PAIR, *records)
    assert (progress.cause, progress.stuck) == ("c", {"c"})


def test_adopt_counts_as_done():
    progress = fold_records(PIVOT_PLAN, *LATE, (EntryKind.ADOPTED, "p", 180.0, {"id": 9}))
    assert (progress.stage, progress.done["p"]) == (2, {"id": 9})


def test_retry_and_mark_absent_start_the_clock_anew():
    for word in (EntryKind.RETRIED, EntryKind.MARKED_ABSENT):
        progress = fold_records(PIVOT_PLAN, *LATE, (word, "p", 180.0))
        assert saga.deadline_of(progress, PIVOT_PLAN.steps["p"]) == 240.0
        assert moves(PIVOT_PLAN, progress, intents_of("a", "p")) == [(Act.DO, "p")]


BACK = [
    (EntryKind.DONE, "a", 101.0),
    (EntryKind.REFUSED, "b", 102.0, {"why": "no"}),
    (EntryKind.STUCK, "b", 170.0, {"why": "still there"}),
]


def test_a_retry_while_turning_back_tries_the_newest_first_again_on_a_new_clock():
    progress = fold_records(LINE, *BACK, (EntryKind.RETRIED, "", 300.0))
    assert (progress.cause, progress.stuck) == ("no", frozenset())
    assert moves(LINE, progress, intents_of("a", "b"), now=301.0) == [(Act.UNDO, "b")]
    intent = Intent("b", "", "b", state=IntentState.REMOVING)
    times = {"intent": intent, "started_at": 359.0, "now": 359.0}
    assert settle_move(LINE, progress, Act.UNDO, "b", Unavailable("x"), **times).entry is None


def test_mark_absent_while_turning_back_counts_as_undone():
    progress = fold_records(LINE, *BACK, (EntryKind.MARKED_ABSENT, "b", 300.0))
    assert (progress.undone, progress.end, progress.cause) == ({"b"}, None, "no")
    progress = fold_records(
        LINE, *BACK, (EntryKind.UNDONE, "a", 299.0), (EntryKind.MARKED_ABSENT, "b", 300.0)
    )
    assert progress.end is OperationState.COMPENSATED


def test_abandon_ends_it_as_it_stands():
    assert (
        fold_records(LINE, *BACK, (EntryKind.ABANDONED, "", 300.0)).end is OperationState.ABANDONED
    )
    assert (
        fold_records(PIVOT_PLAN, *LATE, (EntryKind.ABANDONED, "", 300.0)).end
        is OperationState.ABANDONED
    )


def test_a_record_whose_body_is_no_object_is_read_as_an_empty_one():
    progress = fold_records(
        LINE, (EntryKind.SIGNALLED, "", 101.0, None), (EntryKind.REFUSED, "a", 102.0, None)
    )
    assert (progress.signals, progress.cause) == ({"": (None,)}, "")
