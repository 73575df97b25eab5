"""Waits in virtual time until no operation of a cluster can move any more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from proofs.harness.cluster import Cluster
from proofs.harness.snapshot import TENANT
from tenure.core.operation import OPERATION, OperationState
from tenure.core.records import OperationRecord

Waits = Callable[[OperationRecord], Awaitable[bool]]
"""Whether an open operation stands still because it waits for another operation."""
Attend = Callable[[OperationRecord, float], Awaitable[bool]]
"""Asked of an operation that stands still for so many seconds: whether it may still move.

An operator of the run may act on it here."""


class Patience(NamedTuple):
    """How long a run waits for rest."""

    total_seconds: float
    """A run that is not at rest by then has failed."""
    stuck_seconds: float
    """An operation that stands still for so long stands still for good."""
    poll_seconds: float


async def _never(_: OperationRecord) -> bool:
    return False


async def until_at_rest(
    cluster: Cluster,
    patience: Patience,
    *,
    until: float,
    is_busy: Callable[[], bool] = lambda: False,
    waits: Waits = _never,
    attend: Attend | None = None,
) -> list[str]:
    """Return when every operation has ended, or is stuck and cannot move by itself.

    While `is_busy` the cluster is not at rest; at `until` the wait has failed.
    """
    loop, store = cluster.loop, cluster.disk.observer()
    since: dict[str, float] = {}
    while loop.time() < until:
        moving, stuck = is_busy(), False
        for row in await store.list_operations(TENANT, limit=1_000):
            name, state = row.id, OperationState(str(row.state))
            if state in OPERATION.final:
                since.pop(name, None)
                continue
            stuck = stuck or state is OperationState.STUCK
            if state is not OperationState.STUCK and not await waits(row):
                since.pop(name, None)
                moving = True
                continue
            seconds = loop.time() - since.setdefault(name, loop.time())
            may_move = seconds < patience.stuck_seconds
            moving = (await attend(row, seconds) if attend else may_move) or moving
        if not moving and (stuck or not since):
            return []
        await asyncio.sleep(patience.poll_seconds)
    return [f"all_is_at_rest: not after {patience.total_seconds:g} s"]
