"""Decides what an operation does next, in every create, delete and recovery; pure functions.

`after` applies one journal entry to a `Progress`.  `next_moves` returns the moves to perform now,
or the time to check again.  `decide_outcome` returns what to write when a move has ended.  Together
with `tenure.core.decisions` they are all of the saga's rules:

- The entry that completes a stage is committed with the intents of the next stage.  So the intent
  of a step is durable before the first call of the step.
- If the outcome of a call is unknown, the step is inspected by its key before it is called again.
  A timeout means "unknown", never "failed".
- The decision to compensate is recorded before the first undo.  It covers every intended step,
  newest stage first, also a step that was refused or whose outcome is unknown.  A STUCK undo does
  not delay the undos of older stages.
- Once the pivot is intended, only one thing starts compensation: the provider refuses the pivot,
  and no earlier call of the pivot can still arrive.
- Deadlines are measured from journal entries, not in attempts.  A deadline takes effect only after
  a call or an inspect that started later than the deadline.  `Step.keeps_failing` is the exception:
  it counts the failures of a step without a deadline.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, assert_never

from tenure.core.decisions import Columns
from tenure.core.endings import Absent, Done, Ending, NotYet, Unfinished, Waiting, message_of
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import LATE_SECONDS, POLL_SECONDS_MIN
from tenure.core.moves import COUNT_UNDONE, DECLARE_STUCK, DO, INSPECT, NO_MOVES, UNDO, Move, Moves
from tenure.core.operation import (
    COMPENSATED,
    COMPENSATING,
    INTENT,
    PIVOT_NOT_FOUND,
    RUNNING,
    STUCK,
    SUCCEEDED,
    SUPERSEDED,
    WAITING,
    EntryKind,
    Intent,
    IntentState,
    IntentTrigger,
    JournalEntry,
    OperationState,
)
from tenure.core.plan import OutcomeCheck, Plan, Step, StepKind
from tenure.core.progress import NEVER, NO_STEPS, Progress, Signals

# The most frequent members, under names of their own; `tenure.core.moves` says why.
_DONE, _ADOPTED, _UNDONE = EntryKind.DONE, EntryKind.ADOPTED, EntryKind.UNDONE
_INTENDED, _REMOVING = IntentState.INTENDED, IntentState.REMOVING
_PRESENT: Columns = {"state": INTENT.after(_INTENDED, IntentTrigger.DONE)}
_BURNED: Columns = {"state": INTENT.after(_REMOVING, IntentTrigger.UNDONE)}
UNDO_SUCCEEDED = (Done, Absent)
"""The endings of an undo that has nothing more to do."""

# --- the progress of an operation -----------------------------------------------------------------


def after(plan: Plan, progress: Progress, entry: JournalEntry) -> Progress:
    """The progress after one more entry."""
    new = progress.copy()
    _, kind, step, at, body = entry
    if kind is _DONE or kind is _ADOPTED:
        done = new.done = {**new.done, step: body}
        if new.stuck:
            new.clear_stuck(new.stuck - {step})
        if new.compensating_at is None and plan.stage_names[new.stage] <= done.keys():
            new.stage += 1
            new.stage_since = at
            if new.stage == len(plan.stages):
                new.end = SUCCEEDED
    elif kind is _UNDONE:
        new.undone |= {step}
        if new.stuck:
            new.stuck -= {step}
    else:
        _apply_other(new, kind, entry)
    if (
        new.compensating_at is not None
        and new.end is None
        and next(steps_to_undo(plan, new), None) is None
    ):
        new.end = COMPENSATED
    return new


def _apply_other(new: Progress, kind: EntryKind, entry: JournalEntry) -> None:
    """Apply any entry except those that say that a step is done or undone."""
    step, body = entry.step, entry.body if isinstance(entry.body, dict) else {}
    match kind:
        case EntryKind.ACCEPTED:
            new.stage_since = entry.at
        case EntryKind.REFUSED:
            new.refused |= {step}
            if new.compensating_at is None:
                new.start_compensation(entry.at, str(body.get("why", "")))
        case EntryKind.COMPENSATING:
            new.start_compensation(entry.at, str(body.get("why", "")))
            if "closed" in body:
                new.signals = {**new.signals, SUPERSEDED: (body["closed"],)}
            if body.get("unclaimed"):
                new.end = COMPENSATED  # no step was called, so there is nothing to undo
        case EntryKind.STUCK:
            new.stuck |= {step}
            if new.compensating_at is None:
                new.cause = str(body.get("why", ""))
        case EntryKind.SIGNALLED:
            name = str(body.get("signal", ""))
            if name == PIVOT_NOT_FOUND:
                new.pivot_not_found_at = entry.at
                return
            new.signals = {**new.signals, name: (*new.signals.get(name, ()), body.get("payload"))}
        case EntryKind.RETRIED:
            new.retried_at = entry.at
            new.clear_stuck(NO_STEPS)
        case EntryKind.MARKED_ABSENT:
            new.retried_at, new.pivot_not_found_at = entry.at, NEVER
            new.clear_stuck(new.stuck - {step})
            if new.compensating_at is not None:
                new.undone |= {step}
        case EntryKind.ABANDONED:
            new.end = OperationState.ABANDONED
        case _:
            assert_never(kind)  # type: ignore[arg-type]  # `after` handles the others


def steps_to_undo(plan: Plan, progress: Progress) -> Iterator[Step]:
    """The steps that compensation still waits for, newest stage first.

    A step whose undo is `nothing` is among them while a call of it may still be running.
    """
    newest, undone, done, refused = progress.stage, progress.undone, progress.done, progress.refused
    for stage, step in plan.undoable:
        name = step.name
        if stage > newest or name in undone:
            continue
        if step.has_undo or not (name in done or name in refused):
            yield step


def state_of(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> OperationState:
    """The state that callers see, of an operation that a worker has claimed."""
    if progress.end is not None:
        return progress.end
    if progress.stuck:
        return STUCK
    if progress.compensating_at is not None:
        return COMPENSATING
    for step in plan.stages[progress.stage]:
        if step.name in progress.done:
            continue
        intent = intents.get(step.name)
        if intent is None or intent.waiting_on is None or progress.has_signal(intent.waiting_on):
            return RUNNING
    return WAITING


def pivot_begun(plan: Plan, progress: Progress) -> bool:
    """Whether the pivot is intended: from then on the operation cannot be cancelled."""
    return progress.stage >= plan.pivot_stage and progress.compensating_at is None


# --- what to do now -------------------------------------------------------------------------------


def next_moves(plan: Plan, progress: Progress, intents: Mapping[str, Intent], now: float) -> Moves:
    """The moves to perform now, without those that are being performed already."""
    if progress.end is not None:
        return NO_MOVES
    only_move = sole_due_move(plan, progress, intents)
    if only_move is not None:
        return only_move
    if progress.compensating_at is not None:
        return _backward(plan, progress, intents, now)
    return _forward(plan, progress, intents, now)


def sole_due_move(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> Moves | None:
    """The next move, if there is only one and it is due at once; None: `next_moves` must decide.

    Most moves are found here, and faster than by `next_moves`.
    """
    if progress.end is not None:
        return None
    if progress.compensating_at is not None:
        return _sole_due_undo(plan, progress, intents)
    single_do = plan.single_do[progress.stage]
    if single_do is not None:
        intent = intents[plan.stages[progress.stage][0].name]
        if intent.due_at == 0.0 and intent.unknown_since is None and not intent.busy:
            return single_do
    return None


def _sole_due_undo(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> Moves | None:
    step = next(steps_to_undo(plan, progress))
    undo = plan.single_undo[plan.stage_of[step.name]]
    if undo is not None and not progress.stuck:
        intent = intents[step.name]
        if intent.due_at == 0.0 and not intent.busy:
            return undo
    return None


def _forward(plan: Plan, progress: Progress, intents: Mapping[str, Intent], now: float) -> Moves:
    moves: list[Move] = []
    wake_at: float | None = None
    for step in plan.stages[progress.stage]:
        name = step.name
        if name in progress.done:
            continue
        intent = intents[name]
        if intent.busy:
            continue
        act = DO
        if intent.unknown_since is not None and step.outcome_check is not OutcomeCheck.REPEAT:
            act = INSPECT
            if step.outcome_check is OutcomeCheck.NOBODY_KNOWS:
                if name not in progress.stuck:
                    moves.append(Move(DECLARE_STUCK, step))
                continue
        at = intent.due_at
        if at is None or at > now:
            at = _earliest(progress, step, intent)
        if at is None:
            continue
        if at > now:
            wake_at = at if wake_at is None or at < wake_at else wake_at
            continue
        moves.append(Move(act, step))
    return Moves(tuple(moves), wake_at)


def _earliest(progress: Progress, step: Step, intent: Intent) -> float | None:
    """When to call a step that is not due: at once if its signal has come, else at its deadline.

    None: no time is set; only a signal or an operator continues it.  A stuck step has no deadline.
    """
    if intent.waiting_on is not None and progress.has_signal(intent.waiting_on):
        return 0.0
    if step.name in progress.stuck:
        return intent.due_at
    deadline = deadline_of(progress, step)
    return deadline if intent.due_at is None else min(intent.due_at, deadline)


def _backward(plan: Plan, progress: Progress, intents: Mapping[str, Intent], now: float) -> Moves:
    moves: list[Move] = []
    wake_at: float | None = None
    newest = 0  # the newest stage with an undo that is neither done nor stuck: older ones wait
    for step in steps_to_undo(plan, progress):
        name, stage = step.name, plan.stage_of[step.name]
        if stage < newest:
            break
        intent = intents[name]
        stuck = name in progress.stuck
        if not stuck:
            newest = stage
        if intent.busy:
            continue
        if not step.has_undo:
            if intent.unknown_since is None or step.outcome_check is not OutcomeCheck.NOBODY_KNOWS:
                moves.append(Move(COUNT_UNDONE, step))
            elif not stuck:
                moves.append(Move(DECLARE_STUCK, step))
            continue
        at = intent.due_at or 0.0
        if at > now and not stuck:
            at = min(at, undo_deadline_of(progress, step))
        if at > now:
            wake_at = at if wake_at is None or at < wake_at else wake_at
            continue
        moves.append(Move(UNDO, step))
    return Moves(tuple(moves), wake_at)


def deadline_of(progress: Progress, step: Step) -> float:
    """The deadline of a step that is not done: after it the step is compensated or STUCK."""
    return max(progress.stage_since, progress.retried_at) + step.limits.deadline_seconds


def undo_deadline_of(progress: Progress, step: Step) -> float:
    """The deadline of an undo that is not done: after it the step is STUCK."""
    began = max(progress.compensating_at or 0.0, progress.retried_at)
    return began + step.limits.undo_seconds


# --- what to write when a move has ended ----------------------------------------------------------


class MoveOutcome(NamedTuple):
    """What to write for a move that has ended; `entry` is None if only the due time changes."""

    entry: tuple[EntryKind, object] | None
    intent: Columns
    burned: tuple[tuple[str, str], ...] = ()


def is_relevant(progress: Progress, move: Move, ending: Ending) -> bool:
    """Whether to record this ending, given what was recorded while the move was performed.

    While the operation is being undone, the ending of a do is recorded only for a step that cannot
    be inspected: for any other step the undo finds out by itself.
    """
    if progress.end is not None:
        return False
    act, step = move
    compensating = progress.compensating_at is not None
    if act is DO or act is INSPECT:
        if step.name in progress.done:
            return False
        return not compensating or (
            step.outcome_check is OutcomeCheck.NOBODY_KNOWS
            and isinstance(ending, Done | Rejected | Unavailable)
        )
    if act is DECLARE_STUCK:
        return step.name not in progress.stuck and not (compensating and step.has_undo)
    return compensating and step.name not in progress.undone


def decide_outcome(
    progress: Progress,
    intent: Intent,
    move: Move,
    ending: Ending,
    *,
    started_at: float,
    now: float,
    jitter: float,
    signals: Signals,
) -> MoveOutcome:
    """What to write when `move`, which started at `started_at`, has ended with `ending`.

    `jitter` is random, in [0, 1).  `signals` are the signals that the call has seen.  If the step
    waits for a signal, one that came after the call wakes it.
    """
    act, step = move
    if act is DO or act is INSPECT:
        if progress.compensating_at is not None:
            return _outcome_of_late_do(intent, ending)
        if isinstance(ending, Done):
            result, burned = ending
            columns = _PRESENT if intent.state is _INTENDED else _after(intent, IntentTrigger.DONE)
            if intent.detail is not None:
                columns = columns | {"detail": None}  # the message of an earlier failure
            outcome = (_DONE, result), columns, burned
            return tuple.__new__(MoveOutcome, outcome)  # its own constructor takes twice as long
        refused = isinstance(ending, Rejected) and act is DO and step.kind is not StepKind.RETRIABLE
        if refused and not earlier_call_may_arrive(progress, intent, step, started_at, now):
            why = f"{step.name} was refused: {message_of(ending)}"
            return MoveOutcome(
                (EntryKind.REFUSED, {"why": why}), _after(intent, IntentTrigger.REFUSED)
            )
        retry_at = now + step.limits.retry_seconds(intent.attempts, jitter)
        return _outcome_of_do(
            progress,
            intent,
            move,
            ending,
            started_at=started_at,
            now=now,
            retry_at=retry_at,
            signals=signals,
        )
    if act is DECLARE_STUCK:
        why = f"nobody can tell whether {step.name} happened: adopt it, mark it absent, or abandon"
        columns = {"due_at": None, "unknown_since": intent.unknown_since}
        return MoveOutcome((EntryKind.STUCK, {"why": why}), columns)
    if act is COUNT_UNDONE or isinstance(ending, UNDO_SUCCEEDED):
        columns = _BURNED if intent.state is _REMOVING else _after(intent, IntentTrigger.UNDONE)
        return MoveOutcome((_UNDONE, {}), columns)
    retry_at = now + step.limits.retry_seconds(intent.attempts, jitter)
    return _outcome_of_undo(
        progress, intent, step, ending, started_at=started_at, now=now, retry_at=retry_at
    )


def _after(intent: Intent, trigger: IntentTrigger) -> Columns:
    return {"state": INTENT.after(intent.state, trigger)}


def _outcome_of_late_do(intent: Intent, ending: Ending) -> MoveOutcome:
    """What to write for a do that ended while its operation is being undone."""
    columns: Columns = {"unknown_since": None}
    if intent.state is IntentState.INTENDED:  # REMOVING, unless the step's undo is `nothing`
        trigger = IntentTrigger.DONE if isinstance(ending, Done) else IntentTrigger.REFUSED
        columns["state"] = INTENT.after(intent.state, trigger)
    if isinstance(ending, Done):
        return MoveOutcome((EntryKind.DONE, ending.result), columns)
    return MoveOutcome((EntryKind.REFUSED, {"why": message_of(ending)}), columns)


def _outcome_of_do(
    progress: Progress,
    intent: Intent,
    move: Move,
    ending: Unfinished,
    *,
    started_at: float,
    now: float,
    retry_at: float,
    signals: Signals,
) -> MoveOutcome:
    """What to write for a do or inspect that neither succeeded nor was refused."""
    step, inspected = move.step, move.act is INSPECT
    again: Columns = {
        "attempts": intent.attempts + 1,
        "due_at": retry_at,
        "unknown_since": intent.unknown_since if inspected else None,
        "waiting_on": None,
        "detail": message_of(ending),
    }
    match ending:
        case NotYet():
            due_at = now + max(ending.retry_seconds, POLL_SECONDS_MIN)
            again |= {"attempts": 0, "due_at": due_at, "unknown_since": None}
        case Waiting():
            awaited = f"{len(signals.get(ending.signal, ())) + 1}:{ending.signal}"
            again |= {"attempts": 0, "due_at": None, "unknown_since": None, "waiting_on": awaited}
        case Absent():
            visible_at = (intent.unknown_since or 0.0) + step.limits.visible_seconds
            if inspected and started_at < visible_at:
                again["due_at"] = visible_at
            elif inspected:
                again |= {"attempts": intent.attempts, "due_at": 0.0, "unknown_since": None}
                if step.kind is StepKind.PIVOT and started_at < deadline_of(progress, step):
                    return MoveOutcome((EntryKind.SIGNALLED, {"signal": PIVOT_NOT_FOUND}), again)
        case Rejected():
            # A refused inspect says nothing about the call that it looks for.  For a pivot that is
            # repeated, the outcome stays unknown: an earlier call of it may still arrive.
            if step.kind is StepKind.PIVOT and step.outcome_check is OutcomeCheck.REPEAT:
                again["unknown_since"] = intent.unknown_since
        case OutcomeUnknown():
            if not inspected:
                again["unknown_since"] = now  # until now the provider may have applied it
        case Unavailable():
            pass
        case _:
            assert_never(ending)
    late = started_at >= deadline_of(progress, step) or step.keeps_failing(again["attempts"])
    if not late or step.name in progress.stuck:
        return MoveOutcome(None, again)
    words = message_of(ending) or intent.detail or "it was not there"
    return MoveOutcome(_overdue(step, words, unknown=again["unknown_since"] is not None), again)


def earlier_call_may_arrive(
    progress: Progress, intent: Intent, step: Step, started_at: float, now: float
) -> bool:
    """Whether an earlier call of a pivot, whose outcome is unknown, may still be applied."""
    earlier = progress.pivot_not_found_at
    if intent.unknown_since is not None and intent.unknown_since < started_at:
        earlier = intent.unknown_since
    return step.kind is StepKind.PIVOT and now < earlier + LATE_SECONDS


def _overdue(step: Step, words: str, *, unknown: bool) -> tuple[EntryKind, object]:
    """The journal entry for a step that was not done at its deadline, or that keeps failing."""
    why = f"{step.name} was not done {step.limits.deadline_text}: {words}"
    if step.kind is StepKind.COMPENSATABLE and not (
        unknown and step.outcome_check is OutcomeCheck.NOBODY_KNOWS
    ):
        return EntryKind.COMPENSATING, {"why": why, "step": step.name}
    return EntryKind.STUCK, {"why": why}


def _outcome_of_undo(
    progress: Progress,
    intent: Intent,
    step: Step,
    ending: Unfinished,
    *,
    started_at: float,
    now: float,
    retry_at: float,
) -> MoveOutcome:
    """What to write for an undo that has not succeeded: retry, or STUCK after its deadline."""
    again: Columns = {
        "attempts": intent.attempts + 1,
        "due_at": retry_at,
        "detail": message_of(ending),
    }
    if isinstance(ending, NotYet):
        again |= {"attempts": 0, "due_at": now + max(ending.retry_seconds, POLL_SECONDS_MIN)}
    if started_at < undo_deadline_of(progress, step) or step.name in progress.stuck:
        return MoveOutcome(None, again)
    why = f"the undo of {step.name} still fails after {step.limits.undo_seconds:g} s: "
    return MoveOutcome(
        (EntryKind.STUCK, {"why": why + (message_of(ending) or "it is not gone yet")}), again
    )
