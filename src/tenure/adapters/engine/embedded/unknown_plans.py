"""Operations of plans that are unknown here: given back at once, and not claimed again.

Whoever runs beside a newer release meets them.  A worker of that release takes them; nothing was
called for them here.
"""

import logging
from typing import Generic

from tenure.core.errors import PlanUnknown
from tenure.core.operation import OPERATION, IntentState, OperationState, OperationTrigger
from tenure.ports.engine import L, MoveExecutor
from tenure.ports.store import Change, Is, Loaded, Ring, Row, Set, Store

log = logging.getLogger("tenure.engine")


class UnknownPlans(Generic[L]):
    """What this process has learned that it cannot perform."""

    def __init__(self, work: MoveExecutor[L], store: Store) -> None:
        self._work = work
        self._store = store
        self.plans: list[str] = []
        """Digests of plans: operations that follow them are left to others."""

    async def load(self, operation: str, token: int, worker: str) -> L | None:
        """Read an operation; None if it has ended, or is a stranger and nobody's again."""
        try:
            return await self._work.load(operation, token)
        except PlanUnknown as unknown:
            if unknown.plan not in self.plans:
                self.plans.append(unknown.plan)
                log.warning(
                    "operation %s is left to a newer worker, as all that follow its plan: %s",
                    operation,
                    unknown,
                )
            await self._give_back(operation, worker)
            return None

    async def _give_back(self, operation: str, worker: str) -> None:
        """Belong to nobody, and be PENDING again if it was: nobody has called anything then."""
        while True:
            loaded = await self._store.load(operation)
            if loaded is None or loaded.operation.worker != worker:
                return
            seen = loaded.operation
            same: Row = {"worker": seen.worker, "revision": seen.revision}
            guard = Is("operation", (operation,), same)
            row: Row = {"worker": ""}
            if _was_pending(loaded):
                row["state"] = OPERATION.after(OperationState.RUNNING, OperationTrigger.GIVEN_BACK)
            change = Change(
                "", (guard,), (Set("operation", (operation,), row),),
                ring=Ring(operation, unclaimed=True),
            )  # fmt: skip
            if await self._store.commit(change) is None:
                return


def _was_pending(claimed: Loaded) -> bool:
    """Whether the claim has found it so: else what is intended would be unknown since then."""
    intended = [one for one in claimed.intents if one.state == IntentState.INTENDED]
    uncalled = all(one.unknown_since is None for one in intended)
    return claimed.operation.state == OperationState.RUNNING and bool(intended) and uncalled
