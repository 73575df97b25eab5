"""Every process is in the epoch that its plane is in.

Unlike the other reconcilers it runs in every process, whoever leads: one that has not learned of a
restore would go on where the plane was.  What it remembers of the audit log outside the store is
what a store that was put back by hand is known by.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.app.plane import Plane
from tenure.app.safety import epochs
from tenure.concurrency import background
from tenure.core.errors import StoreError, StoreRewound
from tenure.ports.clock import Clock

log = logging.getLogger("tenure.reconcilers")
SENTENCE = "Every process is in the epoch that its plane is in."
SHARED_SECONDS = 5.0
"""Between two watermarks of one process."""


@asynccontextmanager
async def following(plane: Plane, *, clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Look every so many seconds until the block is left, and remember once more then.

    On a shared store it is looked at more often: that bounds what can be lost unnoticed.
    """
    if plane.shared:
        seconds = min(seconds, SHARED_SECONDS)
    try:
        async with background(_follow(plane, clock, seconds), name="tenure epoch"):
            yield
    finally:
        try:
            await epochs.note(plane)
        except StoreError as error:
            log.warning("the end of the audit log is not remembered: %s", error)
        except StoreRewound as error:
            await _stop(plane, error)


async def _follow(plane: Plane, clock: Clock, seconds: float) -> None:
    while True:
        await clock.sleep(seconds * (1.0 - plane.entropy.fraction() / 4.0))
        try:
            await tick(plane)
        except Exception:
            log.exception("the plane's epoch was not looked at; again in %g s", seconds)


async def tick(plane: Plane) -> None:
    """Follow the plane; stop if its store went backwards; remember how far its audit log goes."""
    try:
        if await epochs.follow(plane) or await epochs.pause_if_rewound(plane):
            log.critical("the plane is held: %s", plane.pause.why)
            await plane.engine.stop()
        await epochs.note(plane)
    except StoreRewound as error:
        await _stop(plane, error)


async def _stop(plane: Plane, rewound: StoreRewound) -> None:
    """Have the next start pause the plane; the store reads and writes nothing more here."""
    await epochs.pause_after_rewind(plane, str(rewound))
    log.critical("the plane is held: %s", plane.pause.why)
    await plane.engine.stop()
