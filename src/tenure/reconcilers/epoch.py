"""Keeps true: every process is in the epoch that its plane is in.

Unlike the other reconcilers it runs in every process, not only in the leader: a process that does
not know of a restore would continue in the old epoch.  It also writes a watermark of the audit log
outside the store.  A store that was replaced by an older copy is recognised by that watermark.
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
"""The longest interval between two passes of a process on a shared store."""


@asynccontextmanager
async def following(plane: Plane, *, clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Run a pass at this interval until the block is left, and write a last watermark then.

    On a shared store the interval is shorter: it bounds the commits that can be lost unnoticed.
    """
    if plane.shared:
        seconds = min(seconds, SHARED_SECONDS)
    try:
        async with background(_follow(plane, clock, seconds), name="tenure epoch"):
            yield
    finally:
        try:
            await epochs.record_audit_head(plane)
        except StoreError as error:
            log.warning("the watermark of the audit log was not written: %s", error)
        except StoreRewound as error:
            await _stop(plane, error)


async def _follow(plane: Plane, clock: Clock, seconds: float) -> None:
    while True:
        await clock.sleep(seconds * (1.0 - plane.entropy.fraction() / 4.0))
        try:
            await tick(plane)
        except Exception:
            log.exception("the plane's epoch could not be checked; next attempt in %g s", seconds)


async def tick(plane: Plane) -> None:
    """Follow the plane's epoch; stop if its store went backwards; write the watermark."""
    try:
        if await epochs.follow_epoch(plane) or await epochs.pause_if_rewound(plane):
            log.critical("the plane is paused: %s", plane.pause.why)
            await plane.engine.stop()
        await epochs.record_audit_head(plane)
    except StoreRewound as error:
        await _stop(plane, error)


async def _stop(plane: Plane, rewound: StoreRewound) -> None:
    """Pause the plane from its next start on; this process no longer uses the store."""
    await epochs.pause_after_rewind(plane, str(rewound))
    log.critical("the plane is paused: %s", plane.pause.why)
    await plane.engine.stop()
