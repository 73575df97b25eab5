"""Claims operations one by one, for an engine without a queue (`tenure.ports.engine.Claims`).

Every claim raises the operation's token above all earlier ones, so an earlier holder can record
nothing more.  The outcome of the calls that it may have made is unknown from then on.  That does
not apply to an operation that nobody had claimed, or that was put to rest with no call running.
"""

from collections.abc import Callable

from tenure.app.operations import commands as operations
from tenure.app.operations.handle import OperationHandle, load_handle
from tenure.app.operations.plane import OperationsPlane
from tenure.core.decisions import unknown_after_claim
from tenure.core.errors import Defect, LeaseLost
from tenure.core.operation import IntentState, OperationState
from tenure.core.roles import Caller, Role
from tenure.ports.store import Below, Change, Is, Row, Set


class SingleClaims:
    """Keeps the promises of `tenure.ports.engine.Claims` on one plane, which is attached later."""

    def __init__(self, worker: str, *, resting: str) -> None:
        """Claim for `worker`; operations that are put to rest belong to `resting`."""
        self._worker = worker
        self._resting = resting
        self._plane: OperationsPlane | None = None

    def attach(self, plane: OperationsPlane) -> None:
        """Claim the operations of this plane."""
        self._plane = plane

    async def begin(
        self, operation: str, known: OperationHandle | None = None
    ) -> OperationHandle | None:
        """Claim an operation that nobody has claimed yet."""
        return await self._claim(
            operation, lambda live: live.state is OperationState.PENDING, known
        )

    async def take_over(self, operation: str) -> OperationHandle | None:
        """Claim an operation that this worker held; those of other workers are left alone."""
        ours = {"", self._worker, self._resting}
        return await self._claim(operation, lambda live: live.worker in ours)

    async def _claim(
        self,
        operation: str,
        may: Callable[[OperationHandle], bool],
        known: OperationHandle | None = None,
    ) -> OperationHandle | None:
        """Claim the operation; read it again if another process was faster."""
        plane = self._require_plane()
        while True:
            live, known = known or await self._read(operation), None
            if live.progress.end is not None:
                return None
            if not may(live):
                raise LeaseLost(operation)
            called = live.state is not OperationState.PENDING and live.worker != self._resting
            writes = _claim_writes(live, self._worker, plane.store.now(), called=called)
            guard = Is("operation", (live.id,), {"revision": live.revision, "token": live.token})
            if await plane.store.commit(Change("", (guard,), writes)) is None:
                _apply(live, writes)
                return live

    async def raise_token(
        self, live: OperationHandle, step: str, token: int
    ) -> OperationHandle | None:
        """Raise one step's token to this; its siblings go on under theirs."""
        plane = self._require_plane()
        row: Row = {"token": token}
        intent = live.intents[step]
        since = unknown_after_claim(
            intent.state, intent.unknown_since, was_called=True, now=plane.store.now()
        )
        if since != intent.unknown_since:
            row["unknown_since"] = since
        key = (live.id, step)
        guards = (
            Is("operation", (live.id,), {"token": live.token}),
            Is("intent", key, {"token": Below(token)}),
        )
        change = Change("", guards, (Set("intent", key, row),))
        if await plane.store.commit(change) is not None:
            raise LeaseLost(live.id)
        again = await self._read(live.id)
        if again.token != live.token or again.intents[step].token != token:
            raise LeaseLost(live.id)
        return again if again.progress.end is None else None

    async def rest(self, live: OperationHandle) -> bool:
        """Release the operation with no call running; False if something was recorded meanwhile."""
        columns: Row = {"revision": live.revision, "token": live.token, "worker": self._worker}
        guard = Is("operation", (live.id,), columns)
        change = Change("", (guard,), (Set("operation", (live.id,), {"worker": self._resting}),))
        return await self._require_plane().store.commit(change) is None

    async def cancel(self, operation: str) -> None:
        """Cancel the operation in the name of the engine."""
        live = await self._read(operation)
        caller = Caller(live.tenant, self._worker, Role.OPERATOR)
        await operations.cancel(self._require_plane(), caller, operation)

    async def _read(self, operation: str) -> OperationHandle:
        plane = self._require_plane()
        live = await load_handle(plane.store, plane.catalogue, plane.id, operation)
        if live is None:
            raise LeaseLost(operation)
        return live

    def _require_plane(self) -> OperationsPlane:
        if self._plane is None:
            raise Defect("operations are claimed before their plane is attached")
        return self._plane


def _claim_writes(
    live: OperationHandle, worker: str, now: float, *, called: bool
) -> tuple[Set, ...]:
    """The writes of a claim; `called`: an earlier worker may have called the intended steps."""
    open_intents = {
        name: intent for name, intent in live.intents.items() if intent.state != IntentState.BURNED
    }
    token = 1 + max([live.token, *(intent.token for intent in open_intents.values())])
    row: Row = {"worker": worker, "token": token, "revision": live.revision + 1, "updated_at": now}
    if live.state is OperationState.PENDING:
        row["state"] = OperationState.RUNNING
    writes = [Set("operation", (live.id,), row)]
    for name, intent in open_intents.items():
        since = unknown_after_claim(intent.state, intent.unknown_since, was_called=called, now=now)
        columns: Row = {"token": token}
        if since != intent.unknown_since:
            columns["unknown_since"] = since
        writes.append(Set("intent", (live.id, name), columns))
    return tuple(writes)


def _apply(live: OperationHandle, writes: tuple[Set, ...]) -> None:
    """Update the operation in memory, after the commit."""
    for write in writes:
        target = live if write.table == "operation" else live.intents[str(write.key[1])]
        for column, value in write.row.items():
            if column != "updated_at":
                setattr(target, column, value)
