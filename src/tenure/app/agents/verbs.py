"""Admission of a verb on an agent that exists: whether it is accepted, and the rows it writes.

The commit that accepts a suspend, stop or delete closes the agent, even while another operation has
the agent's lock: that operation is cancelled, and the new one waits for the lock.  If a verb would
be refused because another operation has the lock, a caller may have it queued.  A queued verb waits
in the same column, and changes nothing until it has the lock.  It is checked again at that time.
"""

from typing import NamedTuple, cast

import msgspec

from tenure.app.agents import agent_rows, ownership
from tenure.app.agents.subject import agent_event_row, typed_input_of
from tenure.app.agents.views import holdings_of, stored_spec
from tenure.app.events import acknowledgements
from tenure.app.operations.admission import Admission, refuse_locked
from tenure.app.operations.commands import build_compensation
from tenure.app.operations.entry_change import build_entry
from tenure.app.operations.handle import encode, load_handle, stored_input_of
from tenure.app.plane import Plane
from tenure.app.tenancy import audit
from tenure.core import agent as core
from tenure.core.agent import AGENT, AgentState, AgentTrigger
from tenure.core.errors import Conflict, ConflictCode, IllegalTransition, PlanUnknown
from tenure.core.operation import SUPERSEDED, EntryKind
from tenure.core.records import AgentRecord, NamedAgentRecord, OperationRecord
from tenure.core.roles import Caller, Role
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents.inputs import (
    PlainData,
    QueuedInput,
    SpecParts,
    VerbInput,
    VerbOptions,
    plain_fields,
)
from tenure.plans.agents.lifecycle import VERBS, read_options
from tenure.ports import lock_rows, operation_rows
from tenure.ports.store import Change, Is, Put, WakeHint, Writes


async def admit_verb(
    plane: Plane,
    caller: Caller,
    verb: LifecycleVerb,
    row: NamedAgentRecord,
    options: VerbOptions,
    *,
    now: float,
    operation: str,
    queue: bool,
) -> Admission:
    """Guards and rows that accept a verb on the agent of this row; Conflict if it is refused.

    `queue`: if another operation has the agent's lock, the verb is queued and not refused.
    """
    uid, lock_holder = row.uid, row.operation
    audit_row = audit.audit_line(
        caller, verb.audit, target=uid, now=now, name=row.name, operation=operation
    )
    queued = await _queued_operation(plane, row)
    try:
        new_state = _state_after(verb, row, queued=queued)
    except Conflict as refused:
        if not queue or refused.code != ConflictCode.OPERATION_IN_PROGRESS:
            raise
        return _enqueue(caller, verb, row, options, operation=operation, audit_row=audit_row)
    generation = row.generation + 1
    start = await _start(
        plane, caller, verb, row, options, new_state=new_state, operation=operation, now=now
    )
    started = agent_rows.start_verb(
        row,
        operation,
        new_state,
        epoch=start.input.epoch,
        is_new=True,
        waits_for_lock=lock_holder is not None,
        now=now,
    )
    guards = (Is.of(row, "generation", "state", "operation", "next"), *start.guards)
    writes: Writes = (started, *start.writes, audit_row)
    superseded = [one for one in (lock_holder, queued) if one]
    for one in superseded:
        change = await _supersede(plane, one, closing_operation=operation, now=now)
        guards += change.guards
        writes += change.writes
    wake_hints = tuple(WakeHint(one, interrupt=True) for one in superseded)
    stored = plain_fields(options, start.input)
    return Admission(uid, generation, guards, writes, stored, wake_hints)


class VerbStart(NamedTuple):
    """The guards of a verb that starts, its writes to other rows, and its own input."""

    guards: tuple[Is, ...]
    writes: Writes
    input: VerbInput


async def _start(
    plane: Plane,
    caller: Caller,
    verb: LifecycleVerb,
    row: NamedAgentRecord,
    options: VerbOptions,
    *,
    new_state: AgentState,
    operation: str,
    now: float,
) -> VerbStart:
    uid, epoch = row.uid, row.epoch + 1
    guards = await ownership.require_open_owner(plane, row) if verb.needs_open_owner else ()
    values = await _read_input(plane, caller, verb, row, options, epoch=epoch)
    subscriber_rows = await acknowledgements.rows_for_subscribers(
        plane, caller.tenant, verb.name, agent=uid, operation=operation, now=now
    )
    writes: Writes = subscriber_rows.writes
    if verb.is_announced:
        event = agent_event_row(
            caller.tenant, uid, operation, new_state, name=row.name, verb=verb.name, now=now
        )
        writes = (event, *writes)
    return VerbStart((*guards, *subscriber_rows.guards), writes, values)


def _state_after(verb: LifecycleVerb, row: NamedAgentRecord, *, queued: str = "") -> AgentState:
    """The state that the verb leads to; Conflict if the agent's state or lock forbids the verb.

    A verb that closes the agent does not wait for a queued operation, but takes its place.
    """
    state = AgentState(row.state)
    if (row.next is not None and not queued) or not verb.interrupts(state):
        refuse_locked(row.operation or row.next)
    try:
        return AgentState(AGENT.after(state, cast(AgentTrigger, verb.accept_trigger)))
    except IllegalTransition:
        if row.operation is not None:
            refuse_locked(row.operation or row.next)
        verb_name = verb.name.removesuffix("_agent")
        message = f"agent {row.name} is {state}; {verb_name} is not possible in this state"
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=row.uid) from None


async def _read_input(
    plane: Plane,
    caller: Caller,
    verb: LifecycleVerb,
    row: NamedAgentRecord,
    options: VerbOptions,
    *,
    epoch: int,
) -> VerbInput:
    """The input of the verb's steps, read from the agent of this row."""
    uid, stored = row.uid, stored_spec(row)
    spec = msgspec.convert(stored.spec, SpecParts)
    drain_seconds = options.drain_seconds
    if not isinstance(drain_seconds, float | int):
        drain_seconds = spec.runtime.drain_seconds
    holds = await holdings_of(plane, caller.tenant, uid)
    values = VerbInput(
        name=row.name,
        return_state=core.state_if_undone(AgentState(row.state)),
        previous_operation=row.operation or "",
        spec=stored.spec,
        runtime=stored.runtime,
        runtimes=holds.get("runtime", []),
        drain_seconds=drain_seconds,
        retention=options.retention or spec.retention,
        principal=caller.principal,
        epoch=epoch,
    )
    if verb.drops_owner_edges is None or not verb.drops_owner_edges(options):
        return values
    owners = await ownership.edges_to(plane, uid) if row.parent else ()
    return msgspec.structs.replace(values, owners=[one.owner for one in owners])


async def _supersede(
    plane: Plane, superseded: str, *, closing_operation: str, now: float
) -> Change:
    """The change that cancels the operation with the agent's lock, or that is queued for it.

    If it can no longer be cancelled, it gets the signal that `closing_operation` closes the agent.
    """
    try:
        handle = await load_handle(plane.store, plane.catalogue, plane.id, superseded)
    except PlanUnknown as unknown:
        message = (
            f"operation {superseded} has the lock of this agent, and {unknown}; nothing was"
            " changed, send the request to a process of the newer release"
        )
        raise PlanUnknown(message, plan=unknown.plan) from None
    if handle is None or handle.progress.end is not None:
        return Change("", (), ())  # the operation has just ended: a guard on the agent's row fails
    if handle.progress.compensating_at is None:
        why = {
            "why": f"the agent was closed by operation {closing_operation}",
            "closed": closing_operation,
        }
        if (compensation := build_compensation(handle, why, now)) is not None:
            return compensation.change.expand_prepared()
    body = {"signal": SUPERSEDED, "payload": closing_operation, "by": closing_operation}
    return build_entry(handle, EntryKind.SIGNALLED, "", body, now).change.expand_prepared()


# --- a queued verb --------------------------------------------------------------------------------


async def _queued_operation(plane: Plane, row: AgentRecord) -> str:
    """The operation that is queued for the agent of this row; empty: none.

    An operation that waits for the lock because it has closed the agent is not queued.
    """
    waiting = await plane.store.find(OperationRecord, (row.next,)) if row.next else None
    return waiting.id if waiting is not None and typed_input_of(waiting).queued else ""


def _enqueue(
    caller: Caller,
    verb: LifecycleVerb,
    row: NamedAgentRecord,
    options: VerbOptions,
    *,
    operation: str,
    audit_row: Put,
) -> Admission:
    """Take the one place behind the operation with the agent's lock; the agent stays as it is."""
    uid, lock_holder, generation = row.uid, row.operation, row.generation + 1
    if row.next is not None:
        message = f"operation {row.next} waits for this agent already, and only one can wait"
        raise Conflict(message, code=ConflictCode.QUEUE_FULL, holder=row.next)
    if not verb.can_queue:
        message = (
            f"operation {lock_holder!s} works on this agent, and a"
            f" {verb.name.removesuffix('_agent')} is never queued; cancel that operation, or"
            " delete the agent"
        )
        raise Conflict(message, code=ConflictCode.OPERATION_IN_PROGRESS, holder=str(lock_holder))
    queued = QueuedInput(
        name=row.name,
        principal=caller.principal,
        return_state=core.state_if_undone(AgentState(row.state)),
        previous_operation=str(lock_holder),
    )
    guards = (Is.of(row, "generation", "operation", "next"),)
    writes = (lock_rows.wait_for_lock(uid, operation, generation=generation), audit_row)
    return Admission(uid, generation, guards, writes, plain_fields(options, queued))


async def start_queued(plane: Plane, row: NamedAgentRecord, operation: OperationRecord) -> Change:
    """The change that starts a queued verb on its agent, whose lock is free.

    The verb is checked as if it were requested at this moment: Conflict if it is refused.
    """
    verb, now = VERBS[operation.plan_name], plane.store.now()
    caller = Caller(operation.tenant, operation.principal, Role.OPERATOR)
    stored: PlainData = {
        key: value for key, value in stored_input_of(operation).items() if key != "queued"
    }
    options = read_options(verb.name, stored)
    new_state = _state_after(verb, row._replace(next=None))
    start = await _start(
        plane, caller, verb, row, options, new_state=new_state, operation=operation.id, now=now
    )
    text = encode({**stored, **plain_fields(start.input)})
    started = agent_rows.start_verb(
        row,
        operation.id,
        new_state,
        epoch=start.input.epoch,
        is_new=False,
        waits_for_lock=False,
        now=now,
    )
    return Change(
        "",
        (
            Is.of(row, "state", "operation", "next"),
            Is.of(operation, "revision"),
            *start.guards,
        ),
        (started, operation_rows.change_input(operation, text), *start.writes),
    )
