"""Accepts operations: the first commit of every operation.

The caller of `submit` decides which row the operation locks, and which guards and rows its commit
has.  This module commits them, once for each idempotency key, and passes the operation to the
engine.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from tenure.app.operations import views as operation_views
from tenure.app.operations.entry_change import (
    PendingChange,
    encode_stored,
    event_parameters,
    intend_stage,
)
from tenure.app.operations.handle import OperationHandle
from tenure.app.operations.idempotency import IdempotentRequest, request_under_key, validate_key
from tenure.app.operations.outbox_rows import NEW_EVENT
from tenure.app.operations.plane import OperationsPlane
from tenure.app.operations.reads import get_operation
from tenure.app.operations.views import OperationView
from tenure.core.errors import (
    CommitUnknown,
    Conflict,
    ConflictCode,
    Invalid,
    LimitExceeded,
    NotFound,
)
from tenure.core.ids import uuid7
from tenure.core.limits import IDENTIFIER_CHARACTERS_MAX, INPUT_BYTES_MAX
from tenure.core.operation import EntryKind, OperationState
from tenure.core.records.operation import LockRecord
from tenure.ports.lock_rows import NEW_LOCK, take_lock
from tenure.ports.operation_rows import NEW_ENTRY, NEW_OPERATION
from tenure.ports.store import (
    Change,
    Is,
    Parameters,
    PreparedWrite,
    Put,
    WakeHint,
    Writes,
    combine_hints,
)


class OperationRequest(Struct, frozen=True):
    """A request for an operation.

    Args:
        plan: the plan's name; the newest version is used.
        target: what the caller sent to name the agent: the uid of its lock, or, for a lifecycle
            verb, a name or uid that the verb looks up.  If empty, a new agent is made.
        input: plain data for the plan's steps.
        idempotency_key: the same key and request answer with the same operation for a day.
    """

    plan: str
    target: str = ""
    input: Mapping[str, object] = field(default_factory=dict)
    tenant: str = "default"
    principal: str = "local"
    idempotency_key: str = ""
    route: str = "operations"
    """The scope of the idempotency key: another route may use the same key for another request."""


class Admission(NamedTuple):
    """What the first commit of an operation contains: the locked row, guards, further rows."""

    agent: str
    generation: int
    guards: tuple[Is, ...] = ()
    writes: Writes = ()
    input: Mapping[str, object] | None = None
    """The input of the steps, if it differs from the caller's input."""
    wake_hints: tuple[WakeHint, ...] = ()
    """Other operations that are woken once this one is on disk, in any process."""
    prepared_writes: tuple[PreparedWrite, ...] = ()
    parameters: tuple[Parameters, ...] = ()
    is_new: bool = False
    """The locked row is new, so no event of it has a number yet."""


Admit = Callable[[float, str], Awaitable[Admission]]
"""Called with the time and the new operation's id; reads rows, and raises Conflict to refuse."""


async def accept(plane: OperationsPlane, request: OperationRequest) -> OperationView:
    """Accept an operation: when this returns, it is on disk and will end."""
    validate_name("agent", request.target or "new")
    return await submit(plane, request, partial(_lock_row, plane, request))


async def submit(plane: OperationsPlane, request: OperationRequest, admit: Admit) -> OperationView:
    """Accept an operation as `admit` allows it; `admit` is called again if a guard fails."""
    plan = plane.catalogue.newest(request.plan)
    if not isinstance(request.input, dict):
        message = f"the input must be a dict of plain data, not a {type(request.input).__name__}"
        raise Invalid(message)
    text, stored = encode_stored(request.input, "the input", INPUT_BYTES_MAX)
    subject = plane.catalogue.subject_of(plan.name)
    validate_name("tenant", request.tenant)
    validate_name("principal", request.principal)
    validate_key(request.idempotency_key)
    idempotent = _identify(request) if request.idempotency_key else None
    while True:
        now = plane.store.now()
        earlier = None if idempotent is None else await idempotent.find_named_id(plane, now)
        if earlier:
            return await get_operation(plane, request.tenant, earlier)
        operation = uuid7(now, plane.entropy.bits())
        try:
            admission = await admit(now, operation)
        except Conflict:
            # The conflict may be with the same request, which was accepted since we read its key.
            equal_request = (
                None if idempotent is None else await idempotent.find_named_id(plane, now)
            )
            if not equal_request:
                raise
            return await get_operation(plane, request.tenant, equal_request)
        if admission.input is not None:
            text, stored = encode_stored(admission.input, "the input", INPUT_BYTES_MAX)
        handle = OperationHandle(
            operation,
            tenant=request.tenant,
            plan_name=plan.name,
            agent=admission.agent,
            generation=admission.generation,
            input=subject.read_input(plan.name, stored),
            plan=plan,
            plane_id=plane.id,
            subject=subject,
        )
        worker = plane.engine.worker
        if worker:  # this process executes it: it is accepted as claimed
            handle.token, handle.worker, handle.state = 1, worker, OperationState.RUNNING
        key_rows = () if idempotent is None else idempotent.rows(operation, now)
        pending = _acceptance(handle, request.principal, admission, key_rows, text=text, now=now)
        try:
            refusal = await plane.store.commit(pending.change)
        except CommitUnknown as error:
            message = f"{error} The next start shows whether operation {handle.id} was accepted."
            raise type(error)(message) from None
        if refusal is None:
            handle.progress.stage_since = now
            pending.apply_to(handle)
            for wake_hint in admission.wake_hints:
                plane.engine.wake(wake_hint.operation, interrupt=wake_hint.interrupt)
            plane.engine.execute(handle)
            return operation_views.view_accepted(handle, now)


def _acceptance(
    handle: OperationHandle,
    principal: str,
    admission: Admission,
    key_rows: tuple[Put, ...],
    *,
    text: str,
    now: float,
) -> PendingChange:
    """A new operation as it was admitted: its row, first journal entry, event and first intents."""
    prepared_writes = [*admission.prepared_writes, NEW_OPERATION, NEW_ENTRY, NEW_EVENT]
    parameters: list[Parameters] = [
        *admission.parameters,
        (handle.id, handle.tenant, principal, handle.plan_name, handle.plan.digest, handle.agent,
         handle.generation, handle.state, 1, handle.token, handle.worker, 0.0, text, now, now),
        (handle.id, 1, handle.tenant, EntryKind.ACCEPTED, "", now, "{}"),
        event_parameters(
            handle, EntryKind.ACCEPTED, "", handle.state, now=now, first=admission.is_new
        ),
    ]  # fmt: skip
    new_intents = intend_stage(handle, 0, prepared_writes, parameters)
    is_new_work = not handle.subject.is_accepted_on_full_disk(handle.plan_name)
    wake_hints = (
        admission.wake_hints
        if handle.worker
        else (WakeHint(handle.id, unclaimed=True), *admission.wake_hints)
    )
    change = Change(
        handle.id, admission.guards, key_rows, is_new_work,
        wake_hint=combine_hints(*wake_hints), prepared_writes=prepared_writes,
        parameters=parameters,
    )  # fmt: skip
    if admission.writes:  # first, so that events of the agent precede those of the operation
        change = change.expand_prepared()
        change = replace(change, writes=admission.writes + change.writes)
    return PendingChange(change, handle.progress, handle.state, 0.0, 1, {}, new_intents)


def _identify(request: OperationRequest) -> IdempotentRequest:
    fingerprint = [request.plan, request.target, request.input]
    who = request.tenant, request.principal
    return request_under_key(
        *who, request.route, request.idempotency_key, fingerprint, names_operation=True
    )


def validate_name(what: str, name: object) -> None:
    """Check that this is a usable name; Invalid or LimitExceeded if it is not."""
    if not isinstance(name, str) or not name.isprintable() or not name:
        message = f"the name of the {what} must be printable text, not {name!r}"
        raise Invalid(message)
    if len(name) > IDENTIFIER_CHARACTERS_MAX:
        message = f"the name of the {what} has at most {IDENTIFIER_CHARACTERS_MAX} characters"
        raise LimitExceeded(message)


async def _lock_row(
    plane: OperationsPlane, request: OperationRequest, now: float, operation: str
) -> Admission:
    """Lock the row that the caller names, or a new one; its generation counts the operations."""
    uid = request.target or uuid7(now, plane.entropy.bits())
    row = await plane.store.find(LockRecord, (uid,)) if request.target else None
    if row is None:
        values = (uid, request.tenant, 1, operation)
        return Admission(
            uid, 1, prepared_writes=(NEW_LOCK,), parameters=(values,), is_new=not request.target
        )
    if row.tenant != request.tenant:
        message = f"there is no agent {uid}"
        raise NotFound(message)
    refuse_locked(row.operation or row.next)
    generation = row.generation + 1
    guard = Is.of(row, "generation", "operation", "next")
    write = take_lock(uid, operation, generation=generation)
    return Admission(uid, generation, (guard,), (write,))


def refuse_locked(lock_holder: str | None) -> None:
    """Raise Conflict if this operation has the lock, or waits for it; None: there is none."""
    if lock_holder:
        message = f"operation {lock_holder} works on this agent; wait for it or cancel it"
        raise Conflict(message, code=ConflictCode.OPERATION_IN_PROGRESS, holder=lock_holder)
