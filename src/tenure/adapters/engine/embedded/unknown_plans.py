"""Releases operations whose plan this release does not know, and does not claim them again.

They occur beside a newer release, whose workers claim them.  This one has called no step of them.
"""

import logging
from typing import Generic

from tenure.core.errors import PlanUnknown
from tenure.core.operation import OPERATION, IntentState, OperationState, OperationTrigger
from tenure.ports.engine import Handle, MoveExecutor
from tenure.ports.operation_rows import release_operation
from tenure.ports.store import Change, Is, LoadedOperation, Store, WakeHint

log = logging.getLogger("tenure.engine")


class UnknownPlans(Generic[Handle]):
    """The plans that this process cannot perform, found while loading operations."""

    def __init__(self, executor: MoveExecutor[Handle], store: Store) -> None:
        self._executor = executor
        self._store = store
        self.plans: list[str] = []
        """Digests of plans whose operations are left to other workers."""

    async def load(self, operation: str, token: int, worker: str) -> Handle | None:
        """Read an operation; None if it has ended, or its plan is unknown and it was released."""
        try:
            return await self._executor.load(operation, token)
        except PlanUnknown as unknown:
            if unknown.plan not in self.plans:
                self.plans.append(unknown.plan)
                log.warning(
                    "operation %s: unknown plan; all of that plan wait for a newer worker: %s",
                    operation,
                    unknown,
                )
            await self._release(operation, worker)
            return None

    async def _release(self, operation: str, worker: str) -> None:
        """Unclaim the operation; it is PENDING again if it was before the claim."""
        while True:
            loaded = await self._store.load(operation)
            if loaded is None or loaded.operation.worker != worker:
                return
            state = ""
            if _was_pending(loaded):
                state = OPERATION.after(OperationState.RUNNING, OperationTrigger.RELEASED)
            change = Change(
                "",
                (Is.of(loaded.operation, "worker", "revision"),),
                (release_operation(operation, state=state),),
                wake_hint=WakeHint(operation, unclaimed=True),
            )
            if await self._store.commit(change) is None:
                return


def _was_pending(loaded: LoadedOperation) -> bool:
    """Whether the operation was PENDING before the claim.

    A claim of a RUNNING operation marks its INTENDED intents as unknown; here none is marked.
    """
    intended = [one for one in loaded.intents if one.state == IntentState.INTENDED]
    uncalled = all(one.unknown_since is None for one in intended)
    return loaded.operation.state == OperationState.RUNNING and bool(intended) and uncalled
