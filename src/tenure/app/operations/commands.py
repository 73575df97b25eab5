"""Commands on an accepted operation: cancel, signal, retry, adopt, mark-absent and abandon.

Each command reads the operation, decides with the saga whether it is allowed, and commits one
change that is guarded by the revision it has read.  If another change was committed first, it reads
and decides again.  A command that is repeated under the same idempotency key is carried out once,
and answers with the present state of the operation.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tenure.app.operations import reads
from tenure.app.operations import views as operation_views
from tenure.app.operations.admission import validate_name
from tenure.app.operations.entry_change import PendingChange, build_entry, encode_stored
from tenure.app.operations.handle import OperationHandle
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest, request_under_key
from tenure.app.operations.plane import OperationsPlane
from tenure.app.operations.views import OperationView
from tenure.core import decisions, saga
from tenure.core.errors import Conflict, ConflictCode, Invalid, LimitExceeded, NotFound
from tenure.core.limits import SIGNALS_MAX
from tenure.core.operation import EntryKind, IntentState, OperationState
from tenure.core.plan import StepKind
from tenure.core.records.operation import OperationRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.operator_command import OperatorCommand
from tenure.ports.store import Change, WakeHint


class CommandRequest(NamedTuple):
    """A caller's request for a command on an operation."""

    command: str
    idempotency_key: str = ""
    arguments: Mapping[str, object] | None = None
    """The other arguments of the request: the same key with other arguments is refused."""
    checks_cancel: bool = False
    """Whether the operation's subject may refuse the command."""
    interrupt: bool = False
    """Whether running calls of the operation are interrupted."""


async def cancel(
    plane: OperationsPlane, caller: Caller, operation: str, *, idempotency_key: str = ""
) -> OperationView:
    """Undo the operation; Conflict `past_pivot` once the pivot has begun, `ended` after its end."""

    def decide(handle: OperationHandle, now: float) -> PendingChange | None:
        if handle.progress.compensating_at is not None:
            return None  # being undone already
        compensation = build_compensation(handle, {"why": f"cancelled by {caller.principal}"}, now)
        if compensation is None:
            pivot = handle.plan.stages[handle.plan.pivot_stage][0]
            which = "the pivot" if pivot.kind is StepKind.PIVOT else "which has no undo"
            message = (
                f"step `{pivot.name}`, {which}, has begun; after that an operation is no longer"
                " undone"
            )
            raise Conflict(message, code=ConflictCode.PAST_PIVOT, holder=handle.id)
        return compensation

    request = CommandRequest("cancel", idempotency_key, checks_cancel=True, interrupt=True)
    return await _carry_out(plane, caller, operation, decide, request)


def build_compensation(
    handle: OperationHandle, body: Mapping[str, object], now: float
) -> PendingChange | None:
    """The change that starts to undo the operation; None if its pivot has begun."""
    if _past_pivot(handle):
        return None
    unclaimed = handle.state is OperationState.PENDING
    entry_body = {**body, "unclaimed": True} if unclaimed else body
    return build_entry(handle, EntryKind.COMPENSATING, "", entry_body, now)


def _past_pivot(handle: OperationHandle) -> bool:
    unclaimed = handle.state is OperationState.PENDING
    return not unclaimed and saga.pivot_begun(handle.plan, handle.progress)


async def signal(
    plane: OperationsPlane,
    caller: Caller,
    operation: str,
    *,
    name: str,
    payload: object = None,
    idempotency_key: str = "",
) -> OperationView:
    """Deliver a signal to an operation; an early one is stored until a step waits for it.

    The same idempotency key and request deliver one signal for a day, also after the operation has
    ended.
    """
    validate_name("signal", name)
    if name.startswith("tenure:"):
        message = f"a signal cannot be called {name!r}: names that begin with tenure: are reserved"
        raise Invalid(message)

    def decide(handle: OperationHandle, now: float) -> PendingChange:
        count = sum(len(payloads) for payloads in handle.progress.signals.values())
        if count >= SIGNALS_MAX:
            message = f"operation {handle.id} has {count} signals already; it can have no more"
            raise LimitExceeded(message)
        body = {"signal": name, "payload": payload, "by": caller.principal}
        return build_entry(handle, EntryKind.SIGNALLED, "", body, now)

    _, plain = encode_stored(payload)
    request = CommandRequest("signal", idempotency_key, {"name": name, "payload": plain})
    return await _carry_out(plane, caller, operation, decide, request)


async def retry(
    plane: OperationsPlane, caller: Caller, operation: str, *, idempotency_key: str = ""
) -> OperationView:
    """Try the stuck steps again now, with a new deadline."""

    def decide(handle: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(handle)
        intents = decisions.retry(handle.progress)
        return build_entry(
            handle, EntryKind.RETRIED, "", {"by": caller.principal}, now, intents=intents
        )

    return await _carry_out(
        plane, caller, operation, decide, CommandRequest("retry", idempotency_key)
    )


async def adopt(
    plane: OperationsPlane,
    caller: Caller,
    operation: str,
    *,
    step: str,
    result: object = None,
    idempotency_key: str = "",
) -> OperationView:
    """Record an operator's statement that a stuck step happened: it is done, with this result."""

    def decide(handle: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(handle, step)
        if handle.progress.compensating_at is not None and handle.plan.steps[step].has_undo:
            message = f"operation {handle.id} is being undone; use mark-absent or abandon"
            raise Conflict(message, code=ConflictCode.COMPENSATING, holder=handle.id)
        intents = decisions.adopt(handle.intents[step], caller.principal)
        return build_entry(handle, EntryKind.ADOPTED, step, result, now, intents=intents)

    request = CommandRequest("adopt", idempotency_key, {"step": step, "result": result})
    return await _carry_out(plane, caller, operation, decide, request)


async def mark_absent(
    plane: OperationsPlane, caller: Caller, operation: str, *, step: str, idempotency_key: str = ""
) -> OperationView:
    """Record an operator's statement that a stuck step holds no resource.

    The step is performed again, or counts as undone if the operation is being undone.
    """

    def decide(handle: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(handle, step)
        intents = decisions.mark_absent(handle.progress, handle.intents[step], caller.principal)
        return build_entry(
            handle, EntryKind.MARKED_ABSENT, step, {"by": caller.principal}, now, intents=intents
        )

    request = CommandRequest("mark_absent", idempotency_key, {"step": step})
    return await _carry_out(plane, caller, operation, decide, request)


async def abandon(
    plane: OperationsPlane, caller: Caller, operation: str, *, idempotency_key: str = ""
) -> OperationView:
    """End a stuck operation as it is; the answer lists the resources that are left behind."""

    def decide(handle: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(handle)
        left = [
            {"step": intent.step, "key": intent.key, "state": intent.state}
            for intent in handle.intents.values()
            if intent.state is not IntentState.BURNED
        ]
        body = {"by": caller.principal, "left": left}
        return build_entry(handle, EntryKind.ABANDONED, "", body, now)

    request = CommandRequest("abandon", idempotency_key, interrupt=True)
    return await _carry_out(plane, caller, operation, decide, request)


async def _refuse_cancel(plane: OperationsPlane, tenant: str, operation: str) -> None:
    """Conflict if the subject of this operation does not allow a cancel now."""
    row = await plane.store.find(OperationRecord, (operation,))
    if row is not None and row.tenant == tenant:
        await plane.catalogue.subject_of(row.plan_name).refuse_cancel(plane.store, row)


def _must_be_stuck(handle: OperationHandle, step: str = "") -> None:
    if step and step not in handle.plan.steps:
        message = (
            f"operation {handle.id} has no step {step!r}; it has {', '.join(handle.plan.steps)}"
        )
        raise NotFound(message)
    if not handle.progress.stuck or (step and step not in handle.progress.stuck):
        stuck = ", ".join(sorted(handle.progress.stuck))
        what = f"step {step} of operation {handle.id}" if step else f"operation {handle.id}"
        can_cancel = handle.progress.compensating_at is None and not _past_pivot(handle)
        advice = "cancel it, or wait" if can_cancel else "wait for its end"
        there = f"stuck there: {stuck}" if stuck else f"it is {handle.state}; {advice}"
        message = f"{what} is not stuck: {there}"
        raise Conflict(message, code=ConflictCode.NOT_STUCK, holder=handle.id)


async def _carry_out(
    plane: OperationsPlane,
    caller: Caller,
    operation: str,
    decide: Callable[[OperationHandle, float], PendingChange | None],
    request: CommandRequest,
) -> OperationView:
    """Commit the change that `decide` returns; read and decide again if the operation changed."""
    require(caller, Role.OPERATOR)
    idempotent = _identify(caller, operation, request)
    while True:
        if idempotent.has_key and await idempotent.find_named_id(plane, plane.store.now()):
            return await reads.get_operation(plane, caller.tenant, operation)
        handle, row = await reads.read_own(plane, caller.tenant, operation)
        now = plane.store.now()
        try:
            if request.checks_cancel:
                await _refuse_cancel(plane, caller.tenant, operation)
            _refuse_ended(handle)
            pending = decide(handle, now)
        except Conflict:
            # The conflict may be with this same request, carried out since we read its key.
            if idempotent.has_key and await idempotent.find_named_id(plane, now):
                continue
            raise
        key_rows = idempotent.rows(operation, now)
        if pending is None:
            if not key_rows or await plane.store.commit(Change("", (), key_rows)) is None:
                return operation_views.view_operation(handle, row)
            continue
        command = OperatorCommand(caller, request.command, handle, pending.journal_length, now)
        writes = (*pending.change.writes, *plane.writes_for_command(command), *key_rows)
        wake_hint = WakeHint(operation, interrupt=request.interrupt)
        change = replace(pending.change, writes=writes, wake_hint=wake_hint)
        if await plane.store.commit(change) is None:
            pending.apply_to(handle)
            plane.engine.wake(operation, interrupt=request.interrupt)
            ended_at = None if handle.progress.end is None else now
            written = row._replace(updated_at=now, ended_at=ended_at)
            return operation_views.view_operation(handle, written)


def _identify(caller: Caller, operation: str, request: CommandRequest) -> IdempotentRequest:
    if not request.idempotency_key:
        return WITHOUT_KEY
    return request_under_key(
        caller.tenant,
        caller.principal,
        f"operation.{request.command}",
        request.idempotency_key,
        [operation, request.arguments],
        names_operation=True,
    )


def _refuse_ended(handle: OperationHandle) -> None:
    if handle.progress.end is not None:
        message = f"operation {handle.id} has ended as {handle.progress.end}"
        raise Conflict(message, code=ConflictCode.ENDED, holder=handle.id)
