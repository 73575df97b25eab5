"""Drives the reconcilers: how often they look, and what happens when one of them fails.

One that fails is tried again at its next turn; what it did before that stays, since each step of a
reconciler stands for itself.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.app import epochs
from tenure.app.plane import Plane
from tenure.ports.clock import Clock
from tenure.reconcilers import late

log = logging.getLogger("tenure.reconcilers")


@asynccontextmanager
async def reconciling(plane: Plane, *, clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Look every so many seconds, less up to a quarter by chance, until the block is left."""
    task = asyncio.ensure_future(_drive(plane, clock, seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _drive(plane: Plane, clock: Clock, seconds: float) -> None:
    while True:
        await clock.sleep(seconds * (1.0 - plane.entropy.fraction() / 4.0))
        try:
            if await epochs.follow(plane):
                log.critical("the plane is held: %s", plane.hold.why)
                await plane.engine.stop()
            await epochs.note(plane)
            await late.tick(plane)
        except Exception:
            log.exception("late arrivals were not looked for; again in %g s", seconds)
