"""The saga going forward, rule by rule: one small situation each."""

import pytest

from tenure.core import saga
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import FAILURES_MAX, NO_DEADLINE_SECONDS, StepLimits
from tenure.core.moves import Act, Moves
from tenure.core.operation import EntryKind, Intent, IntentState, JournalEntry, OperationState
from tenure.core.plan import Plan, StepKind, repeat
from tests.unit.support.saga_world import SLOW, step
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
    wakes_at,
)

# --- going forward --------------------------------------------------------------------------------


def test_the_first_stage_is_done_first_and_the_next_only_after_its_record():
    start = fold_records(LINE)
    assert moves(LINE, start, intents_of("a")) == [(Act.DO, "a")]
    then = fold_records(LINE, (EntryKind.DONE, "a", 101.0, {"id": 7}))
    assert (then.stage, then.stage_since, then.done) == (1, 101.0, {"a": {"id": 7}})
    assert moves(LINE, then, intents_of("a", "b")) == [(Act.DO, "b")]


def test_steps_of_one_stage_run_at_the_same_time_and_the_later_completes_it():
    both = fold_records(PAIR, (EntryKind.DONE, "a", 101.0))
    intents = intents_of("a", "b", "c")
    assert moves(PAIR, both, intents) == [(Act.DO, "b"), (Act.DO, "c")]
    intents["b"].busy = True
    assert moves(PAIR, both, intents) == [(Act.DO, "c")]
    one = fold_records(PAIR, (EntryKind.DONE, "a", 101.0), (EntryKind.DONE, "c", 102.0))
    assert (one.stage, one.end) == (1, None)
    assert moves(PAIR, one, intents_of("a", "b", "c")) == [(Act.DO, "b")]
    all_done = fold_records(PAIR, *[(EntryKind.DONE, name, 103.0) for name in "acb"])
    assert (all_done.stage, all_done.end) == (2, OperationState.SUCCEEDED)


def test_an_ended_operation_has_no_moves():
    ended = fold_records(LINE, *[(EntryKind.DONE, name, 101.0) for name in "abc"])
    assert saga.next_moves(LINE, ended, intents_of("a", "b", "c"), 101.0) == Moves((), None)
    assert saga.state_of(LINE, ended, {}) is OperationState.SUCCEEDED
    assert not is_relevant(LINE, ended, Act.DO, "c", Done())


def test_after_changes_nothing_of_what_it_was_given():
    before = fold_records(LINE)
    saga.after(LINE, before, JournalEntry(2, EntryKind.DONE, "a", 101.0, {}))
    saga.after(LINE, before, JournalEntry(2, EntryKind.REFUSED, "a", 101.0, {}))
    saga.after(LINE, before, JournalEntry(2, EntryKind.SIGNALLED, "", 101.0, {"signal": "go"}))
    fresh = fold_records(LINE)
    assert all(getattr(before, slot) == getattr(fresh, slot) for slot in before.__slots__)


def test_done_is_a_record_with_the_result():
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", Done({"id": 7}))
    assert found[:2] == ((EntryKind.DONE, {"id": 7}), {"state": IntentState.PRESENT})


def test_what_an_inspect_finds_counts_as_done():
    intent = Intent("a", "", "a", unknown_since=90.0)
    found = settle_move(LINE, fold_records(LINE), Act.INSPECT, "a", Done({"id": 7}), intent=intent)
    assert found.entry == (EntryKind.DONE, {"id": 7})


def test_not_yet_is_looked_at_again_and_adds_no_record():
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", NotYet(5.0, "starting"))
    assert found.entry is None
    assert found.intent["due_at"] == 106.0
    assert found.intent["attempts"] == 0
    assert found.intent["detail"] == "starting"
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", NotYet(-3.0))
    assert found.intent["due_at"] > 101.0


def test_what_is_not_due_is_left_alone_until_it_is():
    intents = intents_of("a", due_at=130.0)
    assert wakes_at(LINE, fold_records(LINE), intents) == 130.0
    assert moves(LINE, fold_records(LINE), intents, now=130.0) == [(Act.DO, "a")]


def test_the_earliest_of_several_says_when_to_wake():
    both = fold_records(PAIR, (EntryKind.DONE, "a", 101.0))
    for first, second in ((130.0, 140.0), (140.0, 130.0)):
        intents = intents_of("a", "b", "c")
        intents["b"].due_at, intents["c"].due_at = first, second
        assert wakes_at(PAIR, both, intents) == 130.0


def test_unavailable_is_tried_again_later_and_later():
    intent = Intent("a", "", "a", attempts=3, unknown_since=101.0)
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", Unavailable("busy"), intent=intent)
    assert found.entry is None
    assert found.intent["attempts"] == 4
    assert found.intent["due_at"] == pytest.approx(101.0 + 0.2 * 8)
    assert found.intent["unknown_since"] is None


# --- outcomes nobody knows ------------------------------------------------------------------------


def test_a_lost_reply_is_no_failure_and_is_inspected_before_anything_is_repeated():
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", OutcomeUnknown("lost"))
    assert found.entry is None
    assert found.intent["unknown_since"] == 101.0
    intents = intents_of("a", unknown_since=101.0)
    assert moves(LINE, fold_records(LINE), intents) == [(Act.INSPECT, "a")]


def test_the_doubt_begins_when_the_call_ended_not_when_it_began():
    intent = Intent("a", "", "a", unknown_since=101.0)
    lost = OutcomeUnknown("lost")
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", lost, intent=intent, now=131.0)
    assert found.intent["unknown_since"] == 131.0


def test_a_step_that_can_be_repeated_is_repeated():
    plan = Plan("again", stages=[step("a", inspect=repeat)])
    assert moves(plan, fold_records(plan), intents_of("a", unknown_since=90.0)) == [(Act.DO, "a")]


@pytest.mark.parametrize("ending", [Unavailable("x"), OutcomeUnknown("x"), Rejected("x")])
def test_an_inspect_that_fails_says_nothing_of_the_do(ending):
    intent = Intent("a", "", "a", unknown_since=90.0)
    found = settle_move(LINE, fold_records(LINE), Act.INSPECT, "a", ending, intent=intent)
    assert found.entry is None
    assert found.intent["unknown_since"] == 90.0


def test_what_an_inspect_finds_absent_is_done_at_once():
    intent = Intent("a", "", "a", unknown_since=90.0, attempts=2)
    found = settle_move(LINE, fold_records(LINE), Act.INSPECT, "a", Absent(), intent=intent)
    assert found.entry is None
    said = {key: found.intent[key] for key in ("due_at", "attempts", "unknown_since")}
    assert said == {"due_at": 0.0, "attempts": 2, "unknown_since": None}


def test_absent_is_not_believed_before_the_provider_must_show_it():
    plan = Plan("slow", stages=[step("a", limits=SLOW)])
    intent = Intent("a", "", "a", unknown_since=98.0)
    found = settle_move(plan, fold_records(plan), Act.INSPECT, "a", Absent(), intent=intent)
    assert (found.intent["due_at"], found.intent["unknown_since"]) == (103.0, 98.0)
    found = settle_move(
        plan, fold_records(plan), Act.INSPECT, "a", Absent(), intent=intent, started_at=103.0
    )
    assert (found.intent["due_at"], found.intent["unknown_since"]) == (0.0, None)


def test_an_operators_word_that_came_during_the_inspect_ends_the_doubt():
    plan = Plan("slow", stages=[step("a", limits=SLOW)])
    found = settle_move(plan, fold_records(plan), Act.INSPECT, "a", Absent())
    assert (found.intent["due_at"], found.intent["unknown_since"]) == (0.0, None)


def test_a_do_that_answers_absent_is_tried_again_with_backoff():
    plan = Plan("look", stages=[step("a", inspect=repeat)])
    intent = Intent("a", "", "a", unknown_since=101.0, attempts=4)
    found = settle_move(plan, fold_records(plan), Act.DO, "a", Absent(), intent=intent)
    assert found.entry is None
    assert (found.intent["due_at"], found.intent["attempts"]) == (101.0 + 0.2 * 16, 5)


def test_a_call_that_nobody_can_tell_of_is_given_up_and_never_repeated():
    progress = fold_records(BLIND, (EntryKind.DONE, "a", 101.0))
    intents = intents_of("a") | intents_of("x", unknown_since=101.0)
    assert moves(BLIND, progress, intents) == [(Act.DECLARE_STUCK, "x")]
    found = settle_move(BLIND, progress, Act.DECLARE_STUCK, "x", Done())
    assert found.entry[0] is EntryKind.STUCK
    assert "nobody can tell whether x happened" in found.entry[1]["why"]
    stuck = fold_records(
        BLIND, (EntryKind.DONE, "a", 101.0), (EntryKind.STUCK, "x", 101.0, found.entry[1])
    )
    assert saga.state_of(BLIND, stuck, intents) is OperationState.STUCK
    assert saga.next_moves(BLIND, stuck, intents, 9e9) == Moves((), None)
    assert not is_relevant(BLIND, stuck, Act.DECLARE_STUCK, "x", Done())


# --- signals --------------------------------------------------------------------------------------


def test_waiting_parks_until_a_signal_comes_and_no_longer_than_the_deadline():
    found = settle_move(LINE, fold_records(LINE), Act.DO, "a", Waiting("go", "asked them"))
    assert found.entry is None
    assert (found.intent["due_at"], found.intent["waiting_on"]) == (None, "1:go")
    intents = intents_of("a", due_at=None, waiting_on="1:go")
    assert saga.state_of(LINE, fold_records(LINE), intents) is OperationState.WAITING
    assert wakes_at(LINE, fold_records(LINE), intents) == 160.0
    progress = fold_records(LINE, (EntryKind.SIGNALLED, "", 102.0, {"signal": "go", "payload": 5}))
    assert progress.signals == {"go": (5,)}
    assert saga.state_of(LINE, progress, intents) is OperationState.RUNNING
    assert moves(LINE, progress, intents) == [(Act.DO, "a")]


def test_a_signal_of_another_name_wakes_nobody():
    progress = fold_records(
        LINE, (EntryKind.SIGNALLED, "", 102.0, {"signal": "stop", "payload": 5})
    )
    intents = intents_of("a", due_at=None, waiting_on="1:go")
    assert wakes_at(LINE, progress, intents) == 160.0


def test_a_signal_that_came_early_is_kept_for_the_step_that_will_ask():
    progress = fold_records(
        LINE,
        (EntryKind.SIGNALLED, "", 100.5, {"signal": "go", "payload": 1}),
        (EntryKind.SIGNALLED, "", 100.6, {"signal": "go", "payload": 2}),
        (EntryKind.DONE, "a", 101.0),
    )
    assert progress.signals == {"go": (1, 2)}
    found = settle_move(LINE, progress, Act.DO, "b", Waiting("go"))
    assert found.intent["waiting_on"] == "3:go"


def test_a_signal_that_came_during_the_call_wakes_the_step_at_once():
    given_to_call = fold_records(LINE).signals
    progress = fold_records(LINE, (EntryKind.SIGNALLED, "", 101.0, {"signal": "go"}))
    found = settle_move(LINE, progress, Act.DO, "a", Waiting("go"), signals=given_to_call)
    assert found.intent["waiting_on"] == "1:go"
    intents = intents_of("a", due_at=None, waiting_on="1:go")
    assert moves(LINE, progress, intents) == [(Act.DO, "a")]


def test_a_stuck_step_that_waits_has_no_deadline_left_but_still_hears_its_signal():
    stuck = (EntryKind.STUCK, "p", 170.0, {"why": "late"})
    intents = intents_of("a") | intents_of("p", due_at=None, waiting_on="1:go")
    progress = fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0), stuck)
    assert saga.next_moves(PIVOT_PLAN, progress, intents, 9e9) == Moves((), None)
    heard = (EntryKind.SIGNALLED, "", 171.0, {"signal": "go"})
    progress = fold_records(PIVOT_PLAN, (EntryKind.DONE, "a", 101.0), stuck, heard)
    assert moves(PIVOT_PLAN, progress, intents) == [(Act.DO, "p")]


def test_an_operation_waits_only_if_every_step_of_its_stage_does():
    progress = fold_records(PAIR, (EntryKind.DONE, "a", 101.0))
    intents = intents_of("a") | intents_of("b", due_at=None, waiting_on="1:go") | intents_of("c")
    assert saga.state_of(PAIR, progress, intents) is OperationState.RUNNING
    assert saga.state_of(PAIR, progress, intents_of("a")) is OperationState.RUNNING
    progress = fold_records(PAIR, (EntryKind.DONE, "a", 101.0), (EntryKind.DONE, "c", 102.0))
    assert saga.state_of(PAIR, progress, intents) is OperationState.WAITING


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending", [NotYet(9.0), Waiting("go"), Absent(), Unavailable("x"), OutcomeUnknown("x")]
)
def test_a_deadline_passes_only_after_a_look_that_began_later(ending):
    early = settle_move(LINE, fold_records(LINE), Act.DO, "a", ending, started_at=159.9, now=170.0)
    assert early.entry is None
    late = settle_move(LINE, fold_records(LINE), Act.DO, "a", ending, started_at=160.0, now=170.0)
    kind, body = late.entry
    assert kind is EntryKind.COMPENSATING
    assert body["why"].startswith("a was not done within 60 s: ")
    assert not body["why"].endswith(": ")


def test_the_look_at_the_deadline_is_due_whatever_the_step_was_told():
    for due_at in (None, 500.0):
        intents = intents_of("a", due_at=due_at)
        assert wakes_at(LINE, fold_records(LINE), intents, now=159.0) == 160.0
        assert moves(LINE, fold_records(LINE), intents, now=160.0) == [(Act.DO, "a")]


def test_who_may_wait_for_years_may_not_fail_for_years():
    limits, kind = StepLimits(deadline_seconds=NO_DEADLINE_SECONDS), StepKind.RETRIABLE
    plan = Plan("long", stages=[step("r", kind=kind, limits=limits), step("s", kind=kind)])
    often, progress = Intent("r", "", "r", attempts=FAILURES_MAX - 1), fold_records(plan)
    for ending in (Unavailable("x"), OutcomeUnknown("x"), Rejected("x")):
        once = settle_move(plan, progress, Act.DO, "r", ending)
        assert (once.entry, once.intent["attempts"]) == (None, 1)
        found = settle_move(plan, progress, Act.DO, "r", ending, intent=often)
        assert found.entry[0] is EntryKind.STUCK
        assert "r was not done and failed 32 times in a row: " in found.entry[1]["why"]
    for wait in (NotYet(9.0), Waiting("go")):  # to wait is not to fail
        assert settle_move(plan, progress, Act.DO, "r", wait, intent=often).entry is None
    back = Plan("back", stages=[step("r", limits=limits)])
    assert (
        settle_move(back, fold_records(back), Act.DO, "r", Unavailable("x"), intent=often).entry
        is None
    )


def test_what_is_found_ready_after_the_deadline_is_done():
    found = settle_move(
        LINE, fold_records(LINE), Act.DO, "a", Done(), started_at=5_000.0, now=5_000.0
    )
    assert found.entry == (EntryKind.DONE, None)


def test_a_deadline_is_measured_from_the_intent_or_an_operators_retry():
    progress = fold_records(LINE, (EntryKind.DONE, "a", 150.0))
    assert saga.deadline_of(progress, LINE.steps["b"]) == 210.0
    progress = fold_records(LINE, (EntryKind.DONE, "a", 150.0), (EntryKind.RETRIED, "", 300.0))
    assert saga.deadline_of(progress, LINE.steps["b"]) == 360.0


def test_a_wait_for_visibility_does_not_outlast_the_deadline():
    limits = StepLimits(deadline_seconds=5, visible_seconds=60)
    plan = Plan("slow", stages=[step("a", limits=limits)])
    intent = Intent("a", "", "a", unknown_since=101.0)
    found = settle_move(plan, fold_records(plan), Act.INSPECT, "a", Absent(), intent=intent)
    intents = intents_of("a", unknown_since=101.0, due_at=found.intent["due_at"])
    assert wakes_at(plan, fold_records(plan), intents) == 105.0
    late = settle_move(
        plan, fold_records(plan), Act.INSPECT, "a", Absent(), intent=intent, started_at=105.0
    )
    assert late.entry[0] is EntryKind.COMPENSATING


def test_overdue_and_unknown_where_nobody_can_tell_is_stuck_not_undone():
    progress = fold_records(BLIND, (EntryKind.DONE, "a", 101.0))
    late = {"started_at": 161.0, "now": 161.0}
    found = settle_move(BLIND, progress, Act.DO, "x", OutcomeUnknown("lost"), **late)
    assert found.entry[0] is EntryKind.STUCK
    found = settle_move(BLIND, progress, Act.DO, "x", Unavailable("busy"), **late)
    assert found.entry[0] is EntryKind.COMPENSATING
