"""Claims operations one by one, for an engine that does not poll (`tenure.ports.engine.Claims`).

Every claim raises the operation's token above all earlier ones, so an earlier worker can record
nothing more.  The outcome of the calls that it may have made is unknown from then on.  That does
not apply to an operation that no worker had claimed, or that was released with no call running.
"""

from collections.abc import Callable

from tenure.app.operations import commands as operations
from tenure.app.operations.handle import OperationHandle, load_handle
from tenure.app.operations.plane import OperationsPlane
from tenure.core.decisions import unknown_after_claim
from tenure.core.errors import Defect, StaleToken
from tenure.core.operation import IntentState, OperationState
from tenure.core.roles import Caller, Role
from tenure.ports.operation_rows import claim_operation, claim_step, release_operation
from tenure.ports.store import Below, Change, Is, Row, Set


class SingleClaims:
    """Keeps the promises of `tenure.ports.engine.Claims` on one plane, which is attached later."""

    def __init__(self, worker: str, *, idle_worker: str) -> None:
        """Claim for `worker`; released operations belong to the worker `idle_worker`."""
        self._worker = worker
        self._idle_worker = idle_worker
        self._plane: OperationsPlane | None = None

    def attach(self, plane: OperationsPlane) -> None:
        """Claim the operations of this plane."""
        self._plane = plane

    async def begin(
        self, operation: str, known: OperationHandle | None = None
    ) -> OperationHandle | None:
        """Claim an operation that no worker has claimed yet."""
        return await self._claim(
            operation, lambda handle: handle.state is OperationState.PENDING, known
        )

    async def take_over(self, operation: str) -> OperationHandle | None:
        """Claim an operation of this worker again; StaleToken if another worker has it."""
        ours = {"", self._worker, self._idle_worker}
        return await self._claim(operation, lambda handle: handle.worker in ours)

    async def _claim(
        self,
        operation: str,
        may: Callable[[OperationHandle], bool],
        known: OperationHandle | None = None,
    ) -> OperationHandle | None:
        """Claim the operation; read it again if another process was faster."""
        plane = self._require_plane()
        while True:
            handle, known = known or await self._read(operation), None
            if handle.progress.end is not None:
                return None
            if not may(handle):
                raise StaleToken(operation)
            called = (
                handle.state is not OperationState.PENDING and handle.worker != self._idle_worker
            )
            writes = _claim_writes(handle, self._worker, plane.store.now(), called=called)
            guard = Is(
                "operation", (handle.id,), {"revision": handle.revision, "token": handle.token}
            )
            if await plane.store.commit(Change("", (guard,), writes)) is None:
                _apply(handle, writes)
                return handle

    async def raise_token(
        self, handle: OperationHandle, step: str, token: int
    ) -> OperationHandle | None:
        """Raise one step's token to this; its siblings go on under theirs."""
        plane = self._require_plane()
        intent = handle.intents[step]
        since = unknown_after_claim(
            intent.state, intent.unknown_since, was_called=True, now=plane.store.now()
        )
        guards = (
            Is("operation", (handle.id,), {"token": handle.token}),
            Is("intent", (handle.id, step), {"token": Below(token)}),
        )
        write = claim_step(handle.id, step, intent, token=token, unknown_since=since)
        change = Change("", guards, (write,))
        if await plane.store.commit(change) is not None:
            raise StaleToken(handle.id)
        again = await self._read(handle.id)
        if again.token != handle.token or again.intents[step].token != token:
            raise StaleToken(handle.id)
        return again if again.progress.end is None else None

    async def release_idle(self, handle: OperationHandle) -> bool:
        """Release the operation with no call running; False if something was recorded meanwhile."""
        columns: Row = {"revision": handle.revision, "token": handle.token, "worker": self._worker}
        guard = Is("operation", (handle.id,), columns)
        change = Change("", (guard,), (release_operation(handle.id, worker=self._idle_worker),))
        return await self._require_plane().store.commit(change) is None

    async def cancel(self, operation: str) -> None:
        """Cancel the operation in the name of the engine."""
        handle = await self._read(operation)
        caller = Caller(handle.tenant, self._worker, Role.OPERATOR)
        await operations.cancel(self._require_plane(), caller, operation)

    async def _read(self, operation: str) -> OperationHandle:
        plane = self._require_plane()
        handle = await load_handle(plane.store, plane.catalogue, plane.id, operation)
        if handle is None:
            raise StaleToken(operation)
        return handle

    def _require_plane(self) -> OperationsPlane:
        if self._plane is None:
            raise Defect("operations are claimed before their plane is attached")
        return self._plane


def _claim_writes(
    handle: OperationHandle, worker: str, now: float, *, called: bool
) -> tuple[Set, ...]:
    """The writes of a claim; `called`: an earlier worker may have called the intended steps."""
    open_intents = {
        name: intent
        for name, intent in handle.intents.items()
        if intent.state != IntentState.BURNED
    }
    token = 1 + max([handle.token, *(intent.token for intent in open_intents.values())])
    starts = handle.state is OperationState.PENDING
    writes = [
        claim_operation(handle.id, worker, token=token, revision=handle.revision + 1, starts=starts)
    ]
    for name, intent in open_intents.items():
        since = unknown_after_claim(intent.state, intent.unknown_since, was_called=called, now=now)
        writes.append(claim_step(handle.id, name, intent, token=token, unknown_since=since))
    return tuple(writes)


def _apply(handle: OperationHandle, writes: tuple[Set, ...]) -> None:
    """Update the operation in memory, after the commit."""
    for write in writes:
        target = handle if write.table == "operation" else handle.intents[str(write.key[1])]
        for column, value in write.row.items():
            setattr(target, column, value)
