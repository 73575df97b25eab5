"""Verbs on an accepted operation: cancel, signal, retry, adopt, mark-absent and abandon.

Each verb reads the operation, checks with the saga whether it is allowed, and commits one change
that is guarded by the revision it has read.  If another change was committed first, it reads and
decides again.  A verb that is repeated under the same idempotency key is carried out once, and
answers with the operation as it is now.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tenure.app.operations import reads
from tenure.app.operations import views as operation_views
from tenure.app.operations.admission import refuse_odd_name
from tenure.app.operations.handle import OperationHandle
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest, identify
from tenure.app.operations.plane import OperationsPlane
from tenure.app.operations.record_change import PendingChange, build_record, encode_stored
from tenure.app.operations.views import OperationView
from tenure.core import decisions, saga
from tenure.core.errors import Conflict, ConflictCode, Invalid, LimitExceeded, NotFound
from tenure.core.limits import SIGNALS_MAX
from tenure.core.operation import IntentState, OperationState, RecordKind
from tenure.core.records import OperationRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.operator_rows import OperatorVerb
from tenure.ports.store import Change, Ring


class VerbRequest(NamedTuple):
    """A caller's request for a verb on an operation."""

    verb: str
    idempotency_key: str = ""
    arguments: Mapping[str, object] | None = None
    """The other arguments of the request: the same key with other arguments is refused."""
    checks_cancel: bool = False
    """Whether the operation's subject may refuse the verb."""
    interrupt: bool = False
    """Whether running calls of the operation are interrupted."""


async def cancel(
    plane: OperationsPlane, caller: Caller, operation: str, *, idempotency_key: str = ""
) -> OperationView:
    """Undo the operation; Conflict `past_pivot` once the pivot has begun, `ended` after its end."""

    def decide(live: OperationHandle, now: float) -> PendingChange | None:
        if live.progress.compensating_at is not None:
            return None  # being undone already
        back = turn_back(live, {"why": f"cancelled by {caller.principal}"}, now)
        if back is None:
            pivot = live.plan.stages[live.plan.pivot_stage][0].name
            message = f"{pivot} is under way or done; after it the operation only goes forward"
            raise Conflict(message, code=ConflictCode.PAST_PIVOT, holder=live.id)
        return back

    request = VerbRequest("cancel", idempotency_key, checks_cancel=True, interrupt=True)
    return await _decide(plane, caller, operation, decide, request)


def turn_back(
    live: OperationHandle, body: Mapping[str, object], now: float
) -> PendingChange | None:
    """The record that the operation is undone from now on; None if it is past its pivot."""
    unclaimed = live.state is OperationState.PENDING
    if not unclaimed and saga.past_pivot(live.plan, live.progress):
        return None
    record_body = {**body, "unclaimed": True} if unclaimed else body
    return build_record(live, RecordKind.COMPENSATING, "", record_body, now)


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
    refuse_odd_name("signal", name)
    if name.startswith("tenure:"):
        message = f"a signal of a caller is not called {name!r}: what begins with tenure: is ours"
        raise Invalid(message)

    def decide(live: OperationHandle, now: float) -> PendingChange:
        count = sum(len(payloads) for payloads in live.progress.signals.values())
        if count >= SIGNALS_MAX:
            message = f"operation {live.id} has {count} signals already, which is the most it keeps"
            raise LimitExceeded(message)
        body = {"signal": name, "payload": payload, "by": caller.principal}
        return build_record(live, RecordKind.SIGNALLED, "", body, now)

    _, plain = encode_stored(payload)
    request = VerbRequest("signal", idempotency_key, {"name": name, "payload": plain})
    return await _decide(plane, caller, operation, decide, request)


async def retry(
    plane: OperationsPlane, caller: Caller, operation: str, *, idempotency_key: str = ""
) -> OperationView:
    """Try the stuck steps again now, with a new deadline."""

    def decide(live: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(live)
        intents = decisions.retry(live.progress)
        return build_record(
            live, RecordKind.RETRIED, "", {"by": caller.principal}, now, intents=intents
        )

    return await _decide(plane, caller, operation, decide, VerbRequest("retry", idempotency_key))


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

    def decide(live: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(live, step)
        if live.progress.compensating_at is not None and live.plan.steps[step].undoes:
            message = f"operation {live.id} is being undone; say mark-absent or abandon"
            raise Conflict(message, code=ConflictCode.COMPENSATING, holder=live.id)
        intents = decisions.adopt(live.intents[step], caller.principal)
        return build_record(live, RecordKind.ADOPTED, step, result, now, intents=intents)

    request = VerbRequest("adopt", idempotency_key, {"step": step, "result": result})
    return await _decide(plane, caller, operation, decide, request)


async def mark_absent(
    plane: OperationsPlane, caller: Caller, operation: str, *, step: str, idempotency_key: str = ""
) -> OperationView:
    """Record an operator's statement that a stuck step holds no resource.

    The step is performed again, or counts as undone if the operation is being undone.
    """

    def decide(live: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(live, step)
        intents = decisions.mark_absent(live.progress, live.intents[step], caller.principal)
        return build_record(
            live, RecordKind.MARKED_ABSENT, step, {"by": caller.principal}, now, intents=intents
        )

    request = VerbRequest("mark_absent", idempotency_key, {"step": step})
    return await _decide(plane, caller, operation, decide, request)


async def abandon(
    plane: OperationsPlane, caller: Caller, operation: str, *, idempotency_key: str = ""
) -> OperationView:
    """End a stuck operation as it is; the answer lists the resources that are left behind."""

    def decide(live: OperationHandle, now: float) -> PendingChange:
        _must_be_stuck(live)
        left = [
            {"step": intent.step, "key": intent.key, "state": intent.state}
            for intent in live.intents.values()
            if intent.state is not IntentState.BURNED
        ]
        body = {"by": caller.principal, "left": left}
        return build_record(live, RecordKind.ABANDONED, "", body, now)

    request = VerbRequest("abandon", idempotency_key, interrupt=True)
    return await _decide(plane, caller, operation, decide, request)


async def _refuse_cancel(plane: OperationsPlane, tenant: str, operation: str) -> None:
    """Conflict if the subject of this operation does not allow a cancel now."""
    row = await plane.store.find(OperationRecord, (operation,))
    if row is not None and row.tenant == tenant:
        await plane.catalogue.subject_of(row.kind).refuse_cancel(plane.store, row)


def _must_be_stuck(live: OperationHandle, step: str = "") -> None:
    if step and step not in live.plan.steps:
        message = f"operation {live.id} has no step {step!r}; it has {', '.join(live.plan.steps)}"
        raise NotFound(message)
    if not live.progress.stuck or (step and step not in live.progress.stuck):
        stuck = ", ".join(sorted(live.progress.stuck))
        what = f"step {step} of operation {live.id}" if step else f"operation {live.id}"
        there = f"stuck there: {stuck}" if stuck else f"it is {live.state}; cancel it, or wait"
        message = f"{what} is not stuck: {there}"
        raise Conflict(message, code=ConflictCode.NOT_STUCK, holder=live.id)


async def _decide(
    plane: OperationsPlane,
    caller: Caller,
    operation: str,
    decide: Callable[[OperationHandle, float], PendingChange | None],
    request: VerbRequest,
) -> OperationView:
    """Commit the change that `decide` returns; read and decide again if the operation changed."""
    require(caller, Role.OPERATOR)
    idempotent = _identify(caller, operation, request)
    while True:
        if idempotent.has_key and await idempotent.find_holder(plane, plane.store.now()):
            return await reads.get_operation(plane, caller.tenant, operation)
        live, row = await reads.read_own(plane, caller.tenant, operation)
        live.due_at = None  # so that it is set: a poll may have moved it, and raises no revision
        now = plane.store.now()
        try:
            if request.checks_cancel:
                await _refuse_cancel(plane, caller.tenant, operation)
            _refuse_ended(live)
            pending = decide(live, now)
        except Conflict:
            # The conflict may be with this same request, carried out since we read its key.
            if idempotent.has_key and await idempotent.find_holder(plane, now):
                continue
            raise
        key_rows = idempotent.rows(operation, now)
        if pending is None:
            if not key_rows or await plane.store.commit(Change("", (), key_rows)) is None:
                return operation_views.view_operation(live, row)
            continue
        verb = OperatorVerb(caller, request.verb, live, pending.seq, now)
        writes = (*pending.change.writes, *plane.operator_rows(verb), *key_rows)
        ring = Ring(operation, interrupt=request.interrupt)
        if await plane.store.commit(replace(pending.change, writes=writes, ring=ring)) is None:
            pending.apply_to(live)
            plane.engine.wake(operation, interrupt=request.interrupt)
            ended_at = None if live.progress.end is None else now
            written = row._replace(updated_at=now, ended_at=ended_at)
            return operation_views.view_operation(live, written)


def _identify(caller: Caller, operation: str, request: VerbRequest) -> IdempotentRequest:
    if not request.idempotency_key:
        return WITHOUT_KEY
    return identify(
        caller.tenant,
        caller.principal,
        f"operation.{request.verb}",
        request.idempotency_key,
        [operation, request.arguments],
        names_operation=True,
    )


def _refuse_ended(live: OperationHandle) -> None:
    if live.progress.end is not None:
        message = f"operation {live.id} has ended as {live.progress.end}"
        raise Conflict(message, code=ConflictCode.ENDED, holder=live.id)
