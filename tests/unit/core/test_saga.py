"""The saga, rule by rule: one small situation each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import saga
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import StepLimits
from tenure.core.operation import Hold, Intent, Noted, Record, State
from tenure.core.plan import Kind, Plan, nobody_knows, nothing, repeat
from tenure.core.saga import Act, Move, Moves
from tests.unit.core.world import SLOW, step

LINE = Plan("line", stages=[step("a"), step("b"), step("c")])
PAIR = Plan("pair", stages=[step("a"), [step("b"), step("c")]])
TURN = Plan("turn", stages=[step("a"), step("p", kind=Kind.PIVOT), step("r", kind=Kind.RETRIABLE)])
BLIND = Plan("blind", stages=[step("a"), step("x", inspect=nobody_knows, undo=nothing)])
ACCEPTED: tuple[object, ...] = (Noted.ACCEPTED, "", 100.0, {})


def folded(plan, *records):
    """Where an operation stands after these records, the first accepted at 100."""
    rows: list[Any] = [ACCEPTED, *((*row, {}) if len(row) == 3 else row for row in records)]
    return saga.fold(plan, [Record(n, *row) for n, row in enumerate(rows, 1)])


def held(*names, **columns):
    return {name: Intent(name, "", name, **columns) for name in names}


def moves(plan, progress, intents, now=101.0):
    found = saga.next_moves(plan, progress, intents, now)
    return [(move.act, move.step.name) for move in found.now]


def wakes_at(plan, progress, intents, now=101.0):
    found = saga.next_moves(plan, progress, intents, now)
    assert not found.now
    return found.wake_at


def settled(plan, progress, act, name, ending, **said):
    """What is written when this move ends at 101, having begun then, unless told otherwise."""
    intent = said.pop("intent", None) or Intent(name, "", name)
    said = {"started_at": 101.0, "now": 101.0, "jitter": 0.0, "signals": progress.signals, **said}
    return saga.settle(progress, intent, Move(act, plan.steps[name]), ending, **said)


def is_wanted(plan, progress, act, name, ending):
    return saga.wanted(progress, Move(act, plan.steps[name]), ending)


# --- going forward --------------------------------------------------------------------------------


def test_the_first_stage_is_done_first_and_the_next_only_after_its_record():
    start = folded(LINE)
    assert moves(LINE, start, held("a")) == [(Act.DO, "a")]
    then = folded(LINE, (Noted.DONE, "a", 101.0, {"id": 7}))
    assert (then.stage, then.since, then.done) == (1, 101.0, {"a": {"id": 7}})
    assert moves(LINE, then, held("a", "b")) == [(Act.DO, "b")]


def test_steps_of_one_stage_run_at_the_same_time_and_the_later_completes_it():
    both = folded(PAIR, (Noted.DONE, "a", 101.0))
    intents = held("a", "b", "c")
    assert moves(PAIR, both, intents) == [(Act.DO, "b"), (Act.DO, "c")]
    intents["b"].busy = True
    assert moves(PAIR, both, intents) == [(Act.DO, "c")]
    one = folded(PAIR, (Noted.DONE, "a", 101.0), (Noted.DONE, "c", 102.0))
    assert (one.stage, one.end) == (1, None)
    assert moves(PAIR, one, held("a", "b", "c")) == [(Act.DO, "b")]
    all_done = folded(PAIR, *[(Noted.DONE, name, 103.0) for name in "acb"])
    assert (all_done.stage, all_done.end) == (2, State.SUCCEEDED)


def test_an_ended_operation_has_no_moves():
    ended = folded(LINE, *[(Noted.DONE, name, 101.0) for name in "abc"])
    assert saga.next_moves(LINE, ended, held("a", "b", "c"), 101.0) == Moves((), None)
    assert saga.state_of(LINE, ended, {}) is State.SUCCEEDED
    assert not is_wanted(LINE, ended, Act.DO, "c", Done())


def test_after_changes_nothing_of_what_it_was_given():
    before = folded(LINE)
    saga.after(LINE, before, Record(2, Noted.DONE, "a", 101.0, {}))
    saga.after(LINE, before, Record(2, Noted.REFUSED, "a", 101.0, {}))
    saga.after(LINE, before, Record(2, Noted.SIGNALLED, "", 101.0, {"signal": "go"}))
    fresh = folded(LINE)
    assert all(getattr(before, slot) == getattr(fresh, slot) for slot in before.__slots__)


def test_done_is_a_record_with_the_result():
    found = settled(LINE, folded(LINE), Act.DO, "a", Done({"id": 7}))
    assert found == ((Noted.DONE, {"id": 7}), {"state": Hold.PRESENT})


def test_what_an_inspect_finds_counts_as_done():
    intent = Intent("a", "", "a", unknown_since=90.0)
    found = settled(LINE, folded(LINE), Act.INSPECT, "a", Done({"id": 7}), intent=intent)
    assert found.record == (Noted.DONE, {"id": 7})


def test_not_yet_is_looked_at_again_and_adds_no_record():
    found = settled(LINE, folded(LINE), Act.DO, "a", NotYet(5.0, "starting"))
    assert found.record is None
    assert found.intent["due_at"] == 106.0
    assert found.intent["attempts"] == 0
    assert found.intent["detail"] == "starting"
    found = settled(LINE, folded(LINE), Act.DO, "a", NotYet(-3.0))
    assert found.intent["due_at"] > 101.0


def test_what_is_not_due_is_left_alone_until_it_is():
    intents = held("a", due_at=130.0)
    assert wakes_at(LINE, folded(LINE), intents) == 130.0
    assert moves(LINE, folded(LINE), intents, now=130.0) == [(Act.DO, "a")]


def test_the_earliest_of_several_says_when_to_wake():
    both = folded(PAIR, (Noted.DONE, "a", 101.0))
    for first, second in ((130.0, 140.0), (140.0, 130.0)):
        intents = held("a", "b", "c")
        intents["b"].due_at, intents["c"].due_at = first, second
        assert wakes_at(PAIR, both, intents) == 130.0


def test_unavailable_is_tried_again_later_and_later():
    intent = Intent("a", "", "a", attempts=3, unknown_since=101.0)
    found = settled(LINE, folded(LINE), Act.DO, "a", Unavailable("busy"), intent=intent)
    assert found.record is None
    assert found.intent["attempts"] == 4
    assert found.intent["due_at"] == pytest.approx(101.0 + 0.2 * 8)
    assert found.intent["unknown_since"] is None


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_doubles_up_to_the_cap_and_jitter_takes_at_most_half(attempts, jitter):
    limits = StepLimits(retry_first_seconds=0.5, retry_cap_seconds=60.0)
    full = min(60.0, 0.5 * 2 ** min(attempts, 30))
    assert saga.backoff(limits, attempts, 0.0) == full
    assert full / 2 <= saga.backoff(limits, attempts, jitter) <= full


# --- outcomes nobody knows ------------------------------------------------------------------------


def test_a_lost_reply_is_no_failure_and_is_inspected_before_anything_is_repeated():
    found = settled(LINE, folded(LINE), Act.DO, "a", OutcomeUnknown("lost"))
    assert found.record is None
    assert found.intent["unknown_since"] == 101.0
    intents = held("a", unknown_since=101.0)
    assert moves(LINE, folded(LINE), intents) == [(Act.INSPECT, "a")]


def test_the_doubt_begins_when_the_call_ended_not_when_it_began():
    intent = Intent("a", "", "a", unknown_since=101.0)
    lost = OutcomeUnknown("lost")
    found = settled(LINE, folded(LINE), Act.DO, "a", lost, intent=intent, now=131.0)
    assert found.intent["unknown_since"] == 131.0


def test_a_step_that_can_be_repeated_is_repeated():
    plan = Plan("again", stages=[step("a", inspect=repeat)])
    assert moves(plan, folded(plan), held("a", unknown_since=90.0)) == [(Act.DO, "a")]


@pytest.mark.parametrize("ending", [Unavailable("x"), OutcomeUnknown("x"), Rejected("x")])
def test_an_inspect_that_fails_says_nothing_of_the_do(ending):
    intent = Intent("a", "", "a", unknown_since=90.0)
    found = settled(LINE, folded(LINE), Act.INSPECT, "a", ending, intent=intent)
    assert found.record is None
    assert found.intent["unknown_since"] == 90.0


def test_what_an_inspect_finds_absent_is_done_at_once():
    intent = Intent("a", "", "a", unknown_since=90.0, attempts=2)
    found = settled(LINE, folded(LINE), Act.INSPECT, "a", Absent(), intent=intent)
    assert found.record is None
    said = {key: found.intent[key] for key in ("due_at", "attempts", "unknown_since")}
    assert said == {"due_at": 0.0, "attempts": 2, "unknown_since": None}


def test_absent_is_not_believed_before_the_provider_must_show_it():
    plan = Plan("slow", stages=[step("a", limits=SLOW)])
    intent = Intent("a", "", "a", unknown_since=98.0)
    found = settled(plan, folded(plan), Act.INSPECT, "a", Absent(), intent=intent)
    assert (found.intent["due_at"], found.intent["unknown_since"]) == (103.0, 98.0)
    found = settled(plan, folded(plan), Act.INSPECT, "a", Absent(), intent=intent, started_at=103.0)
    assert (found.intent["due_at"], found.intent["unknown_since"]) == (0.0, None)


def test_an_operators_word_that_came_during_the_inspect_ends_the_doubt():
    plan = Plan("slow", stages=[step("a", limits=SLOW)])
    found = settled(plan, folded(plan), Act.INSPECT, "a", Absent())
    assert (found.intent["due_at"], found.intent["unknown_since"]) == (0.0, None)


def test_a_do_that_answers_absent_is_tried_again_with_backoff():
    plan = Plan("look", stages=[step("a", inspect=repeat)])
    intent = Intent("a", "", "a", unknown_since=101.0, attempts=4)
    found = settled(plan, folded(plan), Act.DO, "a", Absent(), intent=intent)
    assert found.record is None
    assert (found.intent["due_at"], found.intent["attempts"]) == (101.0 + 0.2 * 16, 5)


def test_a_call_that_nobody_can_tell_of_is_given_up_and_never_repeated():
    progress = folded(BLIND, (Noted.DONE, "a", 101.0))
    intents = held("a") | held("x", unknown_since=101.0)
    assert moves(BLIND, progress, intents) == [(Act.GIVE_UP, "x")]
    found = settled(BLIND, progress, Act.GIVE_UP, "x", Done())
    assert found.record[0] is Noted.STUCK
    assert "nobody can tell whether x happened" in found.record[1]["why"]
    stuck = folded(BLIND, (Noted.DONE, "a", 101.0), (Noted.STUCK, "x", 101.0, found.record[1]))
    assert saga.state_of(BLIND, stuck, intents) is State.STUCK
    assert saga.next_moves(BLIND, stuck, intents, 9e9) == Moves((), None)
    assert not is_wanted(BLIND, stuck, Act.GIVE_UP, "x", Done())


# --- signals --------------------------------------------------------------------------------------


def test_waiting_parks_until_a_signal_comes_and_no_longer_than_the_deadline():
    found = settled(LINE, folded(LINE), Act.DO, "a", Waiting("go", "asked them"))
    assert found.record is None
    assert (found.intent["due_at"], found.intent["waiting_on"]) == (None, "1:go")
    intents = held("a", due_at=None, waiting_on="1:go")
    assert saga.state_of(LINE, folded(LINE), intents) is State.WAITING
    assert wakes_at(LINE, folded(LINE), intents) == 160.0
    progress = folded(LINE, (Noted.SIGNALLED, "", 102.0, {"signal": "go", "payload": 5}))
    assert progress.signals == {"go": (5,)}
    assert saga.state_of(LINE, progress, intents) is State.RUNNING
    assert moves(LINE, progress, intents) == [(Act.DO, "a")]


def test_a_signal_of_another_name_wakes_nobody():
    progress = folded(LINE, (Noted.SIGNALLED, "", 102.0, {"signal": "stop", "payload": 5}))
    intents = held("a", due_at=None, waiting_on="1:go")
    assert wakes_at(LINE, progress, intents) == 160.0


def test_a_signal_that_came_early_is_kept_for_the_step_that_will_ask():
    progress = folded(
        LINE,
        (Noted.SIGNALLED, "", 100.5, {"signal": "go", "payload": 1}),
        (Noted.SIGNALLED, "", 100.6, {"signal": "go", "payload": 2}),
        (Noted.DONE, "a", 101.0),
    )
    assert progress.signals == {"go": (1, 2)}
    found = settled(LINE, progress, Act.DO, "b", Waiting("go"))
    assert found.intent["waiting_on"] == "3:go"


def test_a_signal_that_came_during_the_call_wakes_the_step_at_once():
    given_to_call = folded(LINE).signals
    progress = folded(LINE, (Noted.SIGNALLED, "", 101.0, {"signal": "go"}))
    found = settled(LINE, progress, Act.DO, "a", Waiting("go"), signals=given_to_call)
    assert found.intent["waiting_on"] == "1:go"
    intents = held("a", due_at=None, waiting_on="1:go")
    assert moves(LINE, progress, intents) == [(Act.DO, "a")]


def test_a_stuck_step_that_waits_has_no_deadline_left_but_still_hears_its_signal():
    stuck = (Noted.STUCK, "p", 170.0, {"why": "late"})
    intents = held("a") | held("p", due_at=None, waiting_on="1:go")
    progress = folded(TURN, (Noted.DONE, "a", 101.0), stuck)
    assert saga.next_moves(TURN, progress, intents, 9e9) == Moves((), None)
    heard = (Noted.SIGNALLED, "", 171.0, {"signal": "go"})
    progress = folded(TURN, (Noted.DONE, "a", 101.0), stuck, heard)
    assert moves(TURN, progress, intents) == [(Act.DO, "p")]


def test_an_operation_waits_only_if_every_step_of_its_stage_does():
    progress = folded(PAIR, (Noted.DONE, "a", 101.0))
    intents = held("a") | held("b", due_at=None, waiting_on="1:go") | held("c")
    assert saga.state_of(PAIR, progress, intents) is State.RUNNING
    assert saga.state_of(PAIR, progress, held("a")) is State.RUNNING
    progress = folded(PAIR, (Noted.DONE, "a", 101.0), (Noted.DONE, "c", 102.0))
    assert saga.state_of(PAIR, progress, intents) is State.WAITING


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending", [NotYet(9.0), Waiting("go"), Absent(), Unavailable("x"), OutcomeUnknown("x")]
)
def test_a_deadline_passes_only_after_a_look_that_began_later(ending):
    early = settled(LINE, folded(LINE), Act.DO, "a", ending, started_at=159.9, now=170.0)
    assert early.record is None
    late = settled(LINE, folded(LINE), Act.DO, "a", ending, started_at=160.0, now=170.0)
    kind, body = late.record
    assert kind is Noted.COMPENSATING
    assert body["why"].startswith("a was not done within 60 s: ")
    assert not body["why"].endswith(": ")


def test_the_look_at_the_deadline_is_due_whatever_the_step_was_told():
    for due_at in (None, 500.0):
        intents = held("a", due_at=due_at)
        assert wakes_at(LINE, folded(LINE), intents, now=159.0) == 160.0
        assert moves(LINE, folded(LINE), intents, now=160.0) == [(Act.DO, "a")]


def test_what_is_found_ready_after_the_deadline_is_done():
    found = settled(LINE, folded(LINE), Act.DO, "a", Done(), started_at=5_000.0, now=5_000.0)
    assert found.record == (Noted.DONE, None)


def test_a_deadline_is_measured_from_the_intent_or_an_operators_retry():
    progress = folded(LINE, (Noted.DONE, "a", 150.0))
    assert saga.deadline_of(progress, LINE.steps["b"]) == 210.0
    progress = folded(LINE, (Noted.DONE, "a", 150.0), (Noted.RETRIED, "", 300.0))
    assert saga.deadline_of(progress, LINE.steps["b"]) == 360.0


def test_a_wait_for_visibility_does_not_outlast_the_deadline():
    limits = StepLimits(deadline_seconds=5, visible_seconds=60)
    plan = Plan("slow", stages=[step("a", limits=limits)])
    intent = Intent("a", "", "a", unknown_since=101.0)
    found = settled(plan, folded(plan), Act.INSPECT, "a", Absent(), intent=intent)
    intents = held("a", unknown_since=101.0, due_at=found.intent["due_at"])
    assert wakes_at(plan, folded(plan), intents) == 105.0
    late = settled(
        plan, folded(plan), Act.INSPECT, "a", Absent(), intent=intent, started_at=105.0
    )
    assert late.record[0] is Noted.COMPENSATING


def test_overdue_and_unknown_where_nobody_can_tell_is_stuck_not_undone():
    progress = folded(BLIND, (Noted.DONE, "a", 101.0))
    late = {"started_at": 161.0, "now": 161.0}
    found = settled(BLIND, progress, Act.DO, "x", OutcomeUnknown("lost"), **late)
    assert found.record[0] is Noted.STUCK
    found = settled(BLIND, progress, Act.DO, "x", Unavailable("busy"), **late)
    assert found.record[0] is Noted.COMPENSATING


# --- turning back ---------------------------------------------------------------------------------


def test_a_refusal_turns_back_and_names_step_and_reason():
    kind, body = settled(LINE, folded(LINE), Act.DO, "a", Rejected("no room")).record
    assert (kind, body) == (Noted.REFUSED, {"why": "a was refused: no room"})
    progress = folded(LINE, (Noted.REFUSED, "a", 105.0, body))
    assert (progress.compensating_at, progress.cause) == (105.0, "a was refused: no room")
    assert saga.state_of(LINE, progress, held("a")) is State.COMPENSATING


def test_undo_covers_every_intended_step_newest_stage_first_the_refused_and_unknown_included():
    progress = folded(PAIR, (Noted.DONE, "a", 101.0), (Noted.REFUSED, "c", 102.0))
    intents = held("a", "c") | held("b", unknown_since=101.0)
    assert [one.name for one in saga.owed(PAIR, progress)] == ["b", "c", "a"]
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "b"), (Act.UNDO, "c")]
    progress = folded(
        PAIR, (Noted.DONE, "a", 101.0), (Noted.REFUSED, "c", 102.0), (Noted.UNDONE, "b", 103.0)
    )
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "c")]


def test_a_step_that_was_never_intended_is_not_undone():
    progress = folded(LINE, (Noted.DONE, "a", 101.0), (Noted.COMPENSATING, "", 102.0))
    assert [one.name for one in saga.owed(LINE, progress)] == ["b", "a"]


def test_no_undo_while_a_call_of_its_do_is_out():
    progress = folded(PAIR, (Noted.DONE, "a", 101.0), (Noted.REFUSED, "c", 102.0))
    intents = held("a", "b", "c")
    intents["b"].busy = True
    assert moves(PAIR, progress, intents) == [(Act.UNDO, "c")]


def test_the_last_undo_ends_the_operation():
    records = [(Noted.DONE, "a", 101.0), (Noted.REFUSED, "b", 102.0, {"why": "no"})]
    progress = folded(LINE, *records, (Noted.UNDONE, "b", 103.0))
    assert progress.end is None
    progress = folded(LINE, *records, (Noted.UNDONE, "b", 103.0), (Noted.UNDONE, "a", 104.0))
    assert (progress.end, progress.cause) == (State.COMPENSATED, "no")


def test_turning_back_with_nothing_to_undo_ends_at_once():
    plan = Plan("look", stages=[step("a", undo=nothing, inspect=repeat)])
    assert folded(plan, (Noted.COMPENSATING, "", 101.0)).end is State.COMPENSATED


def test_an_operation_that_nobody_claimed_is_cancelled_without_undos():
    progress = folded(LINE, (Noted.COMPENSATING, "", 101.0, {"why": "x", "unclaimed": True}))
    assert progress.end is State.COMPENSATED


@pytest.mark.parametrize("ending", [Done(), Absent()])
def test_gone_is_gone(ending):
    intent = Intent("a", "", "a", state=Hold.REMOVING)
    progress = folded(LINE, (Noted.COMPENSATING, "", 101.0))
    found = settled(LINE, progress, Act.UNDO, "a", ending, intent=intent)
    assert found == ((Noted.UNDONE, {}), {"state": Hold.BURNED})


@pytest.mark.parametrize(
    "ending",
    [Rejected("no"), Unavailable("x"), OutcomeUnknown("x"), Waiting("go"), NotYet(0.2)],
)
def test_an_undo_that_fails_is_tried_again_and_stuck_after_its_time(ending):
    progress = folded(LINE, (Noted.COMPENSATING, "", 101.0, {"why": "cancelled"}))
    intent = Intent("a", "", "a", state=Hold.REMOVING)
    early = settled(LINE, progress, Act.UNDO, "a", ending, intent=intent, now=170.0)
    assert early.record is None
    assert early.intent["due_at"] == pytest.approx(170.2)
    late = {"intent": intent, "started_at": 161.0, "now": 161.0}
    kind, body = settled(LINE, progress, Act.UNDO, "a", ending, **late).record
    assert kind is Noted.STUCK
    assert body["why"].startswith("the undo of a still fails after 60 s: ")
    stuck = saga.after(LINE, progress, Record(9, kind, "a", 161.0, body))
    assert stuck.cause == "cancelled"
    assert settled(LINE, stuck, Act.UNDO, "a", ending, **late).record is None
    assert moves(LINE, stuck, held("a", state=Hold.REMOVING, due_at=160.0), now=162.0)


def test_a_stuck_undo_does_not_hold_up_the_older_ones():
    progress = folded(
        LINE,
        (Noted.DONE, "a", 101.0),
        (Noted.REFUSED, "b", 102.0, {"why": "no"}),
        (Noted.STUCK, "b", 170.0, {"why": "still there"}),
    )
    intents = held("a") | held("b", due_at=190.0)
    assert saga.state_of(LINE, progress, intents) is State.STUCK
    assert moves(LINE, progress, intents, now=171.0) == [(Act.UNDO, "a")]
    assert moves(LINE, progress, intents, now=190.0) == [(Act.UNDO, "b"), (Act.UNDO, "a")]
    both = held("a", due_at=195.0) | held("b", due_at=190.0)
    late = moves(LINE, progress, both, now=171.0)
    assert late == [(Act.UNDO, "a")], "past its time it is looked at whatever it was told"
    gone = saga.after(LINE, progress, Record(9, Noted.UNDONE, "b", 191.0, {}))
    assert saga.state_of(LINE, gone, intents) is State.COMPENSATING


def test_a_do_that_ends_while_its_operation_is_undone_says_nothing():
    progress = folded(LINE, (Noted.COMPENSATING, "", 101.0))
    for ending in (Done(), Rejected("no"), NotYet()):
        assert not is_wanted(LINE, progress, Act.DO, "a", ending)


def test_an_undo_counts_once_and_only_while_turning_back():
    assert not is_wanted(LINE, folded(LINE), Act.UNDO, "a", Done())
    back = folded(LINE, (Noted.DONE, "a", 101.0), (Noted.COMPENSATING, "", 102.0))
    assert is_wanted(LINE, back, Act.UNDO, "b", Done())
    again = saga.after(LINE, back, Record(9, Noted.UNDONE, "b", 103.0, {}))
    assert not is_wanted(LINE, again, Act.UNDO, "b", Done())


def test_a_step_is_done_only_once_however_many_say_so():
    assert is_wanted(LINE, folded(LINE), Act.DO, "a", Done())
    assert not is_wanted(LINE, folded(LINE, (Noted.ADOPTED, "a", 101.0)), Act.DO, "a", Done())


# --- turning back where nobody can tell -----------------------------------------------------------


def test_turning_back_over_a_blind_step_needs_a_word_only_if_a_call_is_out():
    progress = folded(BLIND, (Noted.DONE, "a", 101.0), (Noted.COMPENSATING, "", 102.0))
    assert [one.name for one in saga.owed(BLIND, progress)] == ["x", "a"]
    assert moves(BLIND, progress, held("a", "x")) == [(Act.FORGET, "x")]
    found = settled(BLIND, progress, Act.FORGET, "x", Done())
    assert found == ((Noted.UNDONE, {}), {"state": Hold.BURNED})
    unknown = held("a") | held("x", unknown_since=101.0)
    assert moves(BLIND, progress, unknown) == [(Act.GIVE_UP, "x")]
    stuck = saga.after(BLIND, progress, Record(9, Noted.STUCK, "x", 103.0, {"why": "?"}))
    assert moves(BLIND, stuck, unknown) == [(Act.UNDO, "a")]


def test_giving_up_is_dropped_if_the_operation_turned_back_to_undo_the_step():
    plan = Plan("blind", stages=[step("x", inspect=nobody_knows)])
    assert is_wanted(plan, folded(plan), Act.GIVE_UP, "x", Done())
    assert not is_wanted(
        plan, folded(plan, (Noted.COMPENSATING, "", 101.0)), Act.GIVE_UP, "x", Done()
    )
    back = folded(BLIND, (Noted.DONE, "a", 101.0), (Noted.COMPENSATING, "", 102.0))
    assert is_wanted(BLIND, back, Act.GIVE_UP, "x", Done())


def test_a_late_end_is_kept_where_nobody_else_could_tell():
    back = folded(BLIND, (Noted.DONE, "a", 101.0), (Noted.COMPENSATING, "", 102.0))
    for ending, record, state in (
        (Done({"id": 7}), (Noted.DONE, {"id": 7}), Hold.PRESENT),
        (Rejected("no"), (Noted.REFUSED, {"why": "no"}), Hold.REFUSED),
        (Unavailable("busy"), (Noted.REFUSED, {"why": "busy"}), Hold.REFUSED),
    ):
        assert is_wanted(BLIND, back, Act.DO, "x", ending)
        found = settled(BLIND, back, Act.DO, "x", ending)
        assert found == (record, {"unknown_since": None, "state": state})
        then = saga.after(BLIND, back, Record(9, record[0], "x", 103.0, record[1]))
        assert [one.name for one in saga.owed(BLIND, then)] == ["a"]
        assert then.compensating_at == 102.0
    for unclear in (NotYet(), Waiting("go"), OutcomeUnknown("lost")):
        assert not is_wanted(BLIND, back, Act.DO, "x", unclear)


def test_a_late_end_of_what_is_being_removed_leaves_its_state_alone():
    intent = Intent("x", "", "x", state=Hold.REMOVING)
    back = folded(BLIND, (Noted.DONE, "a", 101.0), (Noted.COMPENSATING, "", 102.0))
    found = settled(BLIND, back, Act.DO, "x", Done(), intent=intent)
    assert found.intent == {"unknown_since": None}


# --- the pivot ------------------------------------------------------------------------------------


def test_there_is_a_way_back_until_the_pivot_is_intended():
    assert not saga.past_pivot(TURN, folded(TURN))
    assert saga.past_pivot(TURN, folded(TURN, (Noted.DONE, "a", 101.0)))
    assert not saga.past_pivot(LINE, folded(LINE, (Noted.DONE, "a", 101.0)))
    refused = folded(TURN, (Noted.DONE, "a", 101.0), (Noted.REFUSED, "p", 102.0))
    assert not saga.past_pivot(TURN, refused)


def test_a_plan_that_only_goes_forward_has_no_way_back_at_all():
    plan = Plan("forward", stages=[step("r", kind=Kind.RETRIABLE)])
    assert saga.past_pivot(plan, folded(plan))


def test_a_refused_pivot_turns_back_and_is_not_undone_itself():
    progress = folded(TURN, (Noted.DONE, "a", 101.0))
    assert settled(TURN, progress, Act.DO, "p", Rejected("no")).record[0] is Noted.REFUSED
    back = folded(TURN, (Noted.DONE, "a", 101.0), (Noted.REFUSED, "p", 102.0))
    assert [one.name for one in saga.owed(TURN, back)] == ["a"]


def test_an_unknown_pivot_is_inspected_then_stuck_and_never_turned_back():
    progress = folded(TURN, (Noted.DONE, "a", 101.0))
    intents = held("a") | held("p", unknown_since=101.0)
    assert moves(TURN, progress, intents) == [(Act.INSPECT, "p")]
    late = {"intent": intents["p"], "started_at": 161.0, "now": 161.0}
    for ending in (Unavailable("x"), OutcomeUnknown("x"), Rejected("x"), Absent(), NotYet(1.0)):
        found = settled(TURN, progress, Act.INSPECT, "p", ending, **late)
        assert found.record[0] is Noted.STUCK
    stuck = folded(TURN, (Noted.DONE, "a", 101.0), (Noted.STUCK, "p", 161.0, {"why": "late"}))
    assert moves(TURN, stuck, intents, now=500.0) == [(Act.INSPECT, "p")]
    assert settled(TURN, stuck, Act.INSPECT, "p", Unavailable("x"), **late).record is None


def test_after_the_pivot_a_refusal_is_retried_then_stuck_and_not_passed():
    progress = folded(TURN, (Noted.DONE, "a", 101.0), (Noted.DONE, "p", 102.0))
    found = settled(TURN, progress, Act.DO, "r", Rejected("no"))
    assert found.record is None
    late = settled(TURN, progress, Act.DO, "r", Rejected("no"), started_at=162.0, now=162.0)
    assert late.record[0] is Noted.STUCK
    stuck = saga.after(TURN, progress, Record(9, late.record[0], "r", 162.0, late.record[1]))
    assert stuck.end is None
    assert moves(TURN, stuck, held("a", "p", "r")) == [(Act.DO, "r")]
    assert saga.state_of(TURN, stuck, {}) is State.STUCK


# --- an operator's words --------------------------------------------------------------------------

LATE = [(Noted.DONE, "a", 101.0), (Noted.STUCK, "p", 170.0, {"why": "late"})]


def test_a_stuck_operation_says_why_and_forgets_it_when_it_moves_again():
    assert folded(TURN, *LATE).cause == "late"
    for word in (Noted.DONE, Noted.ADOPTED, Noted.RETRIED, Noted.MARKED_ABSENT):
        freed = folded(TURN, *LATE, (word, "p", 180.0))
        assert (freed.cause, freed.stuck) == ("", frozenset())


def test_one_step_that_moves_again_does_not_free_its_sibling():
    records = [(Noted.DONE, "a", 101.0), (Noted.STUCK, "b", 170.0, {"why": "b"})]
    records += [(Noted.STUCK, "c", 171.0, {"why": "c"}), (Noted.DONE, "b", 172.0)]
    progress = folded(PAIR, *records)
    assert (progress.cause, progress.stuck) == ("c", {"c"})


def test_adopt_counts_as_done():
    progress = folded(TURN, *LATE, (Noted.ADOPTED, "p", 180.0, {"id": 9}))
    assert (progress.stage, progress.done["p"]) == (2, {"id": 9})


def test_retry_and_mark_absent_start_the_clock_anew():
    for word in (Noted.RETRIED, Noted.MARKED_ABSENT):
        progress = folded(TURN, *LATE, (word, "p", 180.0))
        assert saga.deadline_of(progress, TURN.steps["p"]) == 240.0
        assert moves(TURN, progress, held("a", "p")) == [(Act.DO, "p")]


BACK = [
    (Noted.DONE, "a", 101.0),
    (Noted.REFUSED, "b", 102.0, {"why": "no"}),
    (Noted.STUCK, "b", 170.0, {"why": "still there"}),
]


def test_a_retry_while_turning_back_tries_the_newest_first_again_on_a_new_clock():
    progress = folded(LINE, *BACK, (Noted.RETRIED, "", 300.0))
    assert (progress.cause, progress.stuck) == ("no", frozenset())
    assert moves(LINE, progress, held("a", "b"), now=301.0) == [(Act.UNDO, "b")]
    intent = Intent("b", "", "b", state=Hold.REMOVING)
    times = {"intent": intent, "started_at": 359.0, "now": 359.0}
    assert settled(LINE, progress, Act.UNDO, "b", Unavailable("x"), **times).record is None


def test_mark_absent_while_turning_back_counts_as_undone():
    progress = folded(LINE, *BACK, (Noted.MARKED_ABSENT, "b", 300.0))
    assert (progress.undone, progress.end, progress.cause) == ({"b"}, None, "no")
    progress = folded(LINE, *BACK, (Noted.UNDONE, "a", 299.0), (Noted.MARKED_ABSENT, "b", 300.0))
    assert progress.end is State.COMPENSATED


def test_abandon_ends_it_as_it_stands():
    assert folded(LINE, *BACK, (Noted.ABANDONED, "", 300.0)).end is State.ABANDONED
    assert folded(TURN, *LATE, (Noted.ABANDONED, "", 300.0)).end is State.ABANDONED


def test_a_record_whose_body_is_no_object_is_read_as_an_empty_one():
    progress = folded(LINE, (Noted.SIGNALLED, "", 101.0, None), (Noted.REFUSED, "a", 102.0, None))
    assert (progress.signals, progress.cause) == ({"": (None,)}, "")
