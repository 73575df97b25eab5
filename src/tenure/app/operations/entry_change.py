"""Builds the commit for each journal entry: entry, operation, intents, event and subject's rows.

The saga has made the decision before.  After the commit, `apply_to` updates the handle in memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from tenure.app.operations.handle import OperationHandle, decode, encode
from tenure.app.operations.outbox_rows import NEW_EVENT, POSITION
from tenure.app.operations.tombstones import tombstones
from tenure.core import decisions, saga
from tenure.core.decisions import Columns, IntentChanges
from tenure.core.errors import Defect, Invalid, LimitExceeded
from tenure.core.events import event_of
from tenure.core.limits import DEPTH_MAX, RESULT_BYTES_MAX
from tenure.core.operation import (
    OPERATION,
    PENDING,
    RUNNING,
    STUCK,
    EntryKind,
    Intent,
    IntentState,
    JournalEntry,
    OperationState,
)
from tenure.core.plain import require_plain_data
from tenure.core.plan import Step
from tenure.core.progress import Progress
from tenure.core.saga import MoveOutcome
from tenure.ports.operation_rows import (
    INTENT_UPDATES,
    NEW_ENTRY,
    NEW_INTENT,
    OPERATION_UPDATES,
    POLL,
    burn_intent,
    touch_operation,
)
from tenure.ports.store import (
    Change,
    Next,
    Parameters,
    PreparedWrite,
    Row,
    Value,
    WakeHint,
    Write,
)

IMPLIED_COLUMNS: Columns = {"state": IntentState.PRESENT}
"""Not written: the journal entry that a step is done implies it (see `OperationHandle.merge`)."""
DEPTH_CHECK_BYTES_MIN = 2 * DEPTH_MAX
"""Shorter JSON text cannot be nested too deep."""


def encode_stored(
    body: object, what: str = "a result or payload", limit: int = RESULT_BYTES_MAX
) -> tuple[str, Any]:
    """The text under which a body is stored, and the body as it is read back.

    Invalid if it is not plain data, LimitExceeded if it is too large.
    """
    try:
        packed = msgspec.json.encode(body)
        value = decode(packed)
    except (TypeError, ValueError, RecursionError) as error:
        require_plain_data(body, what)  # its message names the value
        message = f"{what} must be plain data: {error}"
        raise Invalid(message) from None
    if value != body or (
        len(packed) > DEPTH_CHECK_BYTES_MIN and packed.count(b"[") + packed.count(b"{") > DEPTH_MAX
    ):
        require_plain_data(body, what)  # a tuple is read back as a list
    if len(packed) > limit:
        message = f"{what} has at most {limit} bytes as JSON; this one has {len(packed)}"
        raise LimitExceeded(message)
    return packed.decode(), value


class PendingChange(Struct):
    """A change that is being committed, and the new values in memory after the commit."""

    change: Change
    progress: Progress
    state: OperationState
    due_at: float | None
    journal_length: int
    intents: IntentChanges
    """Columns of intents that change, by step."""
    new_intents: Sequence[Intent] = ()
    """Intents that are new."""

    def apply_to(self, handle: OperationHandle) -> None:
        """Update the operation in memory, after the commit."""
        if self.journal_length != handle.journal_length:
            handle.journal_length = self.journal_length
            handle.revision += 1
        handle.progress = self.progress
        handle.state = self.state
        handle.due_at = self.due_at
        for step, columns in self.intents.items():
            intent = handle.intents[step]
            for name, value in columns.items():
                setattr(intent, name, value)
        for intent in self.new_intents:
            handle.intents[intent.step] = intent


def build_outcome(
    handle: OperationHandle, step: Step, outcome: MoveOutcome, now: float
) -> PendingChange:
    """The change for an ended move: a journal entry, or a poll's next due time."""
    if outcome.entry is None:
        return _build_poll(handle, step, outcome, now)
    kind, body = outcome.entry
    intents = {step.name: outcome.intent}
    token = handle.intents[step.name].token
    return build_entry(
        handle, kind, step.name, body, now, intents=intents, token=token, burned=outcome.burned
    )


def build_entry(
    handle: OperationHandle,
    kind: EntryKind,
    step: str,
    body: object,
    now: float,
    *,
    intents: IntentChanges | None = None,
    token: int | None = None,
    burned: tuple[tuple[str, str], ...] = (),
) -> PendingChange:
    """The change that appends an entry, with the state, the event and the next stage's intents.

    With a `token` it is committed only while the step's intent has that token.  Without one a
    command makes the entry.
    """
    operation_id, journal_length, before = handle.id, handle.journal_length + 1, handle.progress
    text, value = encode_stored(body)  # later steps see the value as a restart would read it
    progress = saga.after(handle.plan, before, JournalEntry(journal_length, kind, step, now, value))
    state = saga.state_of(handle.plan, progress, handle.intents)
    if handle.state is PENDING and state is RUNNING:
        state = PENDING  # only a claim makes it run; a signal before the claim does not
    changes = intents or {}
    stuck = kind is EntryKind.STUCK and changes
    due_at = _due_at(handle, progress, _intents_after(handle, changes), now) if stuck else 0.0
    by_command = token is None
    columns, values = _operation_columns(
        handle, progress, state, due_at, kind=kind, by_command=by_command, now=now
    )
    guard = (handle.revision,) if token is None else (step, token, handle.revision)
    prepared_writes = [OPERATION_UPDATES[columns, by_command], NEW_ENTRY, NEW_EVENT]
    parameters: list[Parameters] = [
        (operation_id, handle.revision + 1, now, *values, *guard),
        (operation_id, journal_length, handle.tenant, kind, step, now, text),
        event_parameters(handle, kind, step, state, now=now, why=progress.cause),
    ]
    new_intents: Sequence[Intent] = ()
    end = progress.end
    if end is None and progress.stage > before.stage:
        new_intents = intend_stage(handle, progress.stage, prepared_writes, parameters)
    if progress.compensating_at is not None and before.compensating_at is None:
        changes = changes | decisions.compensate(handle.plan, progress, handle.intents)
    for one, changed in changes.items():
        if changed != IMPLIED_COLUMNS:
            prepared_writes.append(INTENT_UPDATES[tuple(changed)])
            parameters.append((operation_id, one, *changed.values()))
    writes: list[Write] = []
    if end is not None or state is not handle.state:
        writes += handle.subject.writes_for_entry(handle, progress, state, now)
    if burned:
        writes += _burn(burned, now)
    # Two processes may try for the same number: the id of the change tells them apart.
    writer_token = handle.token if token is None else token
    change_id = f"{operation_id}/{journal_length}/{writer_token}/{step or kind}"
    return PendingChange(
        Change(
            change_id,
            (),
            tuple(writes),
            wake_hint=_wake_hint(handle, state, ended=end is not None),
            prepared_writes=prepared_writes,
            parameters=parameters,
        ),
        progress,
        state,
        due_at,
        journal_length,
        changes,
        new_intents,
    )


def _wake_hint(handle: OperationHandle, state: OperationState, *, ended: bool) -> WakeHint | None:
    """Wakes other processes that may wait for the operation to end or to get stuck."""
    got_stuck = state is STUCK and handle.state is not STUCK
    return WakeHint(handle.id) if ended or got_stuck else None


def _operation_columns(
    handle: OperationHandle,
    progress: Progress,
    state: OperationState,
    due_at: float | None,
    *,
    kind: EntryKind,
    by_command: bool,
    now: float,
) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    """The columns that an entry changes in the operation's row beside its revision, and values.

    A command always writes the due time: a poll of the worker may have changed it since the
    operation was read, and a poll does not raise the revision.
    """
    old = handle.progress
    sets_due_at = by_command or due_at != handle.due_at
    if state is handle.state and not sets_due_at and progress.cause == old.cause:
        return (), ()  # the most frequent case
    row: Row = {}
    if state is not handle.state:
        if not OPERATION.permits(handle.state, state):
            message = (
                f"operation {handle.id}: {kind} leads from {handle.state} to {state}: no such row"
            )
            raise Defect(message)
        row["state"] = state
    if sets_due_at:
        row["due_at"] = due_at
    if progress.cause != old.cause:
        row["error"] = progress.cause
    if progress.end is not None:
        row["ended_at"] = now
    return tuple(row), tuple(row.values())


def _burn(burned: tuple[tuple[str, str], ...], now: float) -> list[Write]:
    """Burn the intents of other operations whose resources this operation has removed."""
    writes: list[Write] = [burn_intent(*other) for other in burned]
    writes += tombstones(burned, now)
    others = dict.fromkeys(
        other for other, _ in burned
    )  # `retention` keeps it for a while from now
    return [*writes, *(touch_operation(other, now) for other in others)]


def intend_stage(
    handle: OperationHandle,
    stage: int,
    prepared_writes: list[PreparedWrite],
    parameters: list[Parameters],
) -> list[Intent]:
    """Add an intent for every step of a stage, so that it is durable before the first call."""
    new_intents: list[Intent] = []
    for step in handle.plan.stages[stage]:
        new = Intent(step.name, step.slot, handle.new_key(step), token=handle.token)
        prepared_writes.append(NEW_INTENT)
        parameters.append(
            (handle.id, new.step, handle.tenant, new.slot, new.key, new.state, new.token, 0, 0.0)
        )
        new_intents.append(new)
    return new_intents


def event_parameters(
    handle: OperationHandle,
    kind: EntryKind,
    step: str,
    state: OperationState,
    *,
    now: float,
    why: str = "",
    first: bool = False,
) -> Parameters:
    """The event of a journal entry, as parameters of `NEW_EVENT`.

    `first`: no event of this agent was ever numbered.
    """
    key = handle.plan_name, kind, step, state
    known = _EVENTS.get(key)
    if known is None:
        data = {"kind": handle.plan_name, "record": kind, "step": step, "state": state}
        known = _EVENTS[key] = event_of(kind, state), encode(data)
    name, body = known
    if why:
        body = f'{body[:-1]},"why":{_encode_cause(why)}}}'
    event_sequence = (
        Next(handle.event_sequence.counter, begins=True) if first else handle.event_sequence
    )
    return (POSITION, handle.tenant, handle.agent, handle.id, name, now, body, event_sequence)


_encode_cause = lru_cache(1_000)(encode)
"""Every undo of an operation has the same cause."""
_EVENTS: dict[tuple[str, EntryKind, str, OperationState], tuple[str, str]] = {}
"""A cache of names and bodies of events without their cause; bounded by the steps of plans."""


def _build_poll(
    handle: OperationHandle, step: Step, outcome: MoveOutcome, now: float
) -> PendingChange:
    """The change for a poll: only the due time moves; journal and revision do not grow."""
    changes = {step.name: outcome.intent}
    intents = _intents_after(handle, changes)
    due_at = _due_at(handle, handle.progress, intents, now)
    state = saga.state_of(handle.plan, handle.progress, intents)
    token, columns = handle.intents[step.name].token, outcome.intent
    prepared_writes = (POLL, INTENT_UPDATES[tuple(columns)])
    parameters: tuple[Parameters, ...] = (
        (handle.id, due_at, state, now, step.name, token, handle.revision),
        (handle.id, step.name, *columns.values()),
    )
    change = Change("", prepared_writes=prepared_writes, parameters=parameters)
    return PendingChange(change, handle.progress, state, due_at, handle.journal_length, changes)


def _due_at(
    handle: OperationHandle, progress: Progress, intents: dict[str, Intent], now: float
) -> float | None:
    """When the operation is due with these intents; None: not by time."""
    moves = saga.next_moves(handle.plan, progress, intents, now)
    # A sibling whose call is running has no due time: after a crash it is inspected at once.
    calling = any(intent.busy for intent in intents.values())
    return 0.0 if moves.due or calling else moves.wake_at


def _intents_after(handle: OperationHandle, changes: IntentChanges) -> dict[str, Intent]:
    """The intents with these changes; a step whose move has ended is no longer busy."""
    changed = {
        name: replace(handle.intents[name], **columns, busy=False)  # type: ignore[arg-type]
        for name, columns in changes.items()
    }
    return handle.intents | changed
