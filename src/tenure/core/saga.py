"""The orchestrator without I/O: all saga semantics live here and in `tenure.core.decisions`.

`after` folds one journal record into a `Progress`.  `next_moves` says what to perform now, or when
to check again.  `settle` says what to write when a performed move has ended.  All three are pure.

The rules they hold:
- A stage is intended by the record that completes the one before it, so an intent is durable before
  its call leaves.
- A call whose end we do not know is inspected by key before anything is repeated; a timeout is
  never a failure.
- The decision to compensate is a record made before the first undo.  It covers every intended step,
  newest stage first, also one that was refused or whose outcome is unknown.  A STUCK undo does not
  hold up the older ones.
- Once the pivot is intended nothing turns back but the pivot's own refusal, and that only when no
  earlier call of it can still arrive.
- Deadlines are measured from records, not in attempts.  A deadline takes effect only after a call
  or an inspect that started later than the deadline.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, assert_never

from tenure.core.decisions import Columns
from tenure.core.endings import Absent, Done, Ending, NotYet, Unfinished, Waiting, message_of
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import LATE_SECONDS, POLL_SECONDS_MIN
from tenure.core.moves import AT_REST, DO, FORGET, GIVE_UP, INSPECT, UNDO, Move, Moves
from tenure.core.operation import (
    CLOSED,
    COMPENSATED,
    COMPENSATING,
    DOUBTED,
    INTENT,
    RUNNING,
    STUCK,
    SUCCEEDED,
    WAITING,
    Intent,
    IntentState,
    IntentTrigger,
    OperationState,
    Record,
    RecordKind,
)
from tenure.core.plan import Inquiry, Plan, Step, StepKind
from tenure.core.progress import NEVER, NO_STEPS, Progress, Signals

# The most frequent members, under names of their own; `tenure.core.moves` says why.
_DONE, _ADOPTED, _UNDONE = RecordKind.DONE, RecordKind.ADOPTED, RecordKind.UNDONE
_INTENDED, _REMOVING = IntentState.INTENDED, IntentState.REMOVING
_PRESENT: Columns = {"state": INTENT.after(_INTENDED, IntentTrigger.DONE)}
_BURNED: Columns = {"state": INTENT.after(_REMOVING, IntentTrigger.UNDONE)}
UNDO_SUCCEEDED = (Done, Absent)
"""The endings of an undo that has nothing more to do."""

# --- where an operation stands --------------------------------------------------------------------


def fold(plan: Plan, journal: list[Record]) -> Progress:
    """Where an operation stands after its whole journal."""
    progress = Progress()
    for record in journal:
        progress = after(plan, progress, record)
    return progress


def after(plan: Plan, progress: Progress, record: Record) -> Progress:
    """Where an operation stands after one more record."""
    new = progress.copy()
    _, kind, step, at, body = record
    if kind is _DONE or kind is _ADOPTED:
        done = new.done = {**new.done, step: body}
        if new.stuck:
            new.free(new.stuck - {step})
        if new.compensating_at is None and plan.names[new.stage] <= done.keys():
            new.stage += 1
            new.since = at
            if new.stage == len(plan.stages):
                new.end = SUCCEEDED
    elif kind is _UNDONE:
        new.undone |= {step}
        if new.stuck:
            new.stuck -= {step}
    else:
        _note(new, kind, record)
    if (
        new.compensating_at is not None
        and new.end is None
        and next(steps_to_undo(plan, new), None) is None
    ):
        new.end = COMPENSATED
    return new


def _note(new: Progress, kind: RecordKind, record: Record) -> None:
    """Fold any record except those that say that a step is done or undone."""
    step, body = record.step, record.body if isinstance(record.body, dict) else {}
    match kind:
        case RecordKind.ACCEPTED:
            new.since = record.at
        case RecordKind.REFUSED:
            new.refused |= {step}
            if new.compensating_at is None:
                new.turn_back(record.at, str(body.get("why", "")))
        case RecordKind.COMPENSATING:
            new.turn_back(record.at, str(body.get("why", "")))
            if "closed" in body:
                new.signals = {**new.signals, CLOSED: (body["closed"],)}
            if body.get("unclaimed"):
                new.end = COMPENSATED  # nobody has called anything
        case RecordKind.STUCK:
            new.stuck |= {step}
            if new.compensating_at is None:
                new.cause = str(body.get("why", ""))
        case RecordKind.SIGNALLED:
            name = str(body.get("signal", ""))
            if name == DOUBTED:
                new.doubted_at = record.at
                return
            new.signals = {**new.signals, name: (*new.signals.get(name, ()), body.get("payload"))}
        case RecordKind.RETRIED:
            new.retried_at = record.at
            new.free(NO_STEPS)
        case RecordKind.MARKED_ABSENT:
            new.retried_at, new.doubted_at = record.at, NEVER
            new.free(new.stuck - {step})
            if new.compensating_at is not None:
                new.undone |= {step}
        case RecordKind.ABANDONED:
            new.end = OperationState.ABANDONED
        case _:
            assert_never(kind)  # type: ignore[arg-type]  # `after` handles the others


def steps_to_undo(plan: Plan, progress: Progress) -> Iterator[Step]:
    """The steps that compensation still waits for, newest stage first.

    A step whose undo is `nothing` is among them until it is certain that no call of it is running.
    """
    newest, undone, done, refused = progress.stage, progress.undone, progress.done, progress.refused
    for stage, step in plan.undoable:
        name = step.name
        if stage > newest or name in undone:
            continue
        if step.undoes or not (name in done or name in refused):
            yield step


def state_of(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> OperationState:
    """The state of an operation that has been claimed, as its caller sees it."""
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


def past_pivot(plan: Plan, progress: Progress) -> bool:
    """Whether the pivot is intended, so that a cancel comes too late."""
    return progress.stage >= plan.pivot_stage and progress.compensating_at is None


# --- what to do now -------------------------------------------------------------------------------


def next_moves(plan: Plan, progress: Progress, intents: Mapping[str, Intent], now: float) -> Moves:
    """What to perform now.  Steps that are being performed are left alone."""
    if progress.end is not None:
        return AT_REST
    straight = sole_due_move(plan, progress, intents)
    if straight is not None:
        return straight
    if progress.compensating_at is not None:
        return _backward(plan, progress, intents, now)
    return _forward(plan, progress, intents, now)


def sole_due_move(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> Moves | None:
    """The next move, if it is the only one and due at once; None: `next_moves` must decide.

    This is the short way for most moves.
    """
    if progress.end is not None:
        return None
    if progress.compensating_at is not None:
        return _straight_back(plan, progress, intents)
    alone = plan.alone[progress.stage]
    if alone is not None:
        intent = intents[plan.stages[progress.stage][0].name]
        if intent.due_at == 0.0 and intent.unknown_since is None and not intent.busy:
            return alone
    return None


def _straight_back(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> Moves | None:
    step = next(steps_to_undo(plan, progress))
    back = plan.back[plan.stage_of[step.name]]
    if back is not None and not progress.stuck:
        intent = intents[step.name]
        if intent.due_at == 0.0 and not intent.busy:
            return back
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
        if intent.unknown_since is not None and step.inquiry is not Inquiry.REPEAT:
            act = INSPECT
            if step.inquiry is Inquiry.NOBODY_KNOWS:
                if name not in progress.stuck:
                    moves.append(Move(GIVE_UP, step))
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
    """When a step that is not due is called: at once if its signal has come, else at its deadline.

    None: not by time.  A step that is stuck has no deadline any more.
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
        if not step.undoes:
            if intent.unknown_since is None or step.inquiry is not Inquiry.NOBODY_KNOWS:
                moves.append(Move(FORGET, step))
            elif not stuck:
                moves.append(Move(GIVE_UP, step))
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
    return max(progress.since, progress.retried_at) + step.limits.deadline_seconds


def undo_deadline_of(progress: Progress, step: Step) -> float:
    """The deadline of an undo that is not done: after it the step is STUCK."""
    began = max(progress.compensating_at or 0.0, progress.retried_at)
    return began + step.limits.undo_seconds


# --- what to write when a move has ended ----------------------------------------------------------


class MoveOutcome(NamedTuple):
    """What an ended move changes: columns of its intent, and one record unless it was a poll."""

    record: tuple[RecordKind, object] | None
    intent: Columns
    burned: tuple[tuple[str, str], ...] = ()


def is_relevant(progress: Progress, move: Move, ending: Ending) -> bool:
    """Whether this end of the move is still recorded, after what others have recorded meanwhile.

    The end of a do whose operation is being undone counts only if no inspect could find it out.
    """
    if progress.end is not None:
        return False
    act, step = move
    back = progress.compensating_at is not None
    if act is DO or act is INSPECT:
        if step.name in progress.done:
            return False
        return not back or (
            step.inquiry is Inquiry.NOBODY_KNOWS
            and isinstance(ending, Done | Rejected | Unavailable)
        )
    if act is GIVE_UP:
        return step.name not in progress.stuck and not (back and step.undoes)
    return back and step.name not in progress.undone


def settle(
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
    """What to write when `move`, which started at `started_at`, has ended like this.

    `jitter` is in [0, 1).  `signals` are those that the call could see: a signal that came later
    wakes the step if it waits for one.
    """
    act, step = move
    if act is DO or act is INSPECT:
        if progress.compensating_at is not None:
            return _settle_late(intent, ending)
        if isinstance(ending, Done):
            result, burned = ending
            columns = _PRESENT if intent.state is _INTENDED else _after(intent, IntentTrigger.DONE)
            if intent.detail is not None:
                columns = columns | {"detail": None}  # the earlier trouble is over
            outcome = (_DONE, result), columns, burned
            return tuple.__new__(MoveOutcome, outcome)  # its own constructor takes twice as long
        refused = isinstance(ending, Rejected) and act is DO and step.kind is not StepKind.RETRIABLE
        if refused and not may_arrive(progress, intent, step, started_at, now):
            why = f"{step.name} was refused: {message_of(ending)}"
            return MoveOutcome(
                (RecordKind.REFUSED, {"why": why}), _after(intent, IntentTrigger.REFUSED)
            )
        retry_at = now + step.limits.retry_seconds(intent.attempts, jitter)
        return _settle_do(
            progress,
            intent,
            move,
            ending,
            started_at=started_at,
            now=now,
            retry_at=retry_at,
            signals=signals,
        )
    if act is GIVE_UP:
        why = f"nobody can tell whether {step.name} happened: adopt it, mark it absent, or abandon"
        parked: Columns = {"due_at": None, "unknown_since": intent.unknown_since}
        return MoveOutcome((RecordKind.STUCK, {"why": why}), parked)
    if act is FORGET or isinstance(ending, UNDO_SUCCEEDED):
        columns = _BURNED if intent.state is _REMOVING else _after(intent, IntentTrigger.UNDONE)
        return MoveOutcome((_UNDONE, {}), columns)
    retry_at = now + step.limits.retry_seconds(intent.attempts, jitter)
    return _settle_undo(
        progress, intent, step, ending, started_at=started_at, now=now, retry_at=retry_at
    )


def _after(intent: Intent, fate: IntentTrigger) -> Columns:
    return {"state": INTENT.after(intent.state, fate)}


def _settle_late(intent: Intent, ending: Ending) -> MoveOutcome:
    """What to write for a do that ended while its operation is being undone."""
    columns: Columns = {"unknown_since": None}
    if (
        intent.state is IntentState.INTENDED
    ):  # its undo is `nothing`; else it is being removed already
        fate = IntentTrigger.DONE if isinstance(ending, Done) else IntentTrigger.REFUSED
        columns["state"] = INTENT.after(intent.state, fate)
    if isinstance(ending, Done):
        return MoveOutcome((RecordKind.DONE, ending.result), columns)
    return MoveOutcome((RecordKind.REFUSED, {"why": message_of(ending)}), columns)


def _settle_do(
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
    """What to write for a step that is neither done nor refused: it is due again, or overdue."""
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
                    return MoveOutcome((RecordKind.SIGNALLED, {"signal": DOUBTED}), again)
        case Rejected():
            # An inspect that is refused says nothing about the call it asks for.  A pivot's
            # earlier call may still arrive.
            if step.kind is StepKind.PIVOT and step.inquiry is Inquiry.REPEAT:
                again["unknown_since"] = intent.unknown_since
        case OutcomeUnknown():
            if not inspected:
                again["unknown_since"] = now  # it may have been applied up to this moment
        case Unavailable():
            pass
        case _:
            assert_never(ending)
    late = started_at >= deadline_of(progress, step) or step.fails_on(again["attempts"])
    if not late or step.name in progress.stuck:
        return MoveOutcome(None, again)
    words = message_of(ending) or intent.detail or "it was not there"
    return MoveOutcome(_overdue(step, words, unknown=again["unknown_since"] is not None), again)


def may_arrive(
    progress: Progress, intent: Intent, step: Step, started_at: float, now: float
) -> bool:
    """Whether an earlier call of a pivot, whose outcome is unknown, may still be applied."""
    earlier = progress.doubted_at
    if intent.unknown_since is not None and intent.unknown_since < started_at:
        earlier = intent.unknown_since
    return step.kind is StepKind.PIVOT and now < earlier + LATE_SECONDS


def _overdue(step: Step, words: str, *, unknown: bool) -> tuple[RecordKind, object]:
    """The record for a step that was not done at its deadline, or that only fails."""
    why = f"{step.name} was not done {step.limits.within}: {words}"
    if step.kind is StepKind.COMPENSATABLE and not (
        unknown and step.inquiry is Inquiry.NOBODY_KNOWS
    ):
        return RecordKind.COMPENSATING, {"why": why, "step": step.name}
    return RecordKind.STUCK, {"why": why}


def _settle_undo(
    progress: Progress,
    intent: Intent,
    step: Step,
    ending: Unfinished,
    *,
    started_at: float,
    now: float,
    retry_at: float,
) -> MoveOutcome:
    """What to write for an undo that is not done: it is due again, and STUCK past its deadline."""
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
        (RecordKind.STUCK, {"why": why + (message_of(ending) or "it is not gone yet")}), again
    )
