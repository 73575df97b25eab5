"""A plane on Temporal in a process of its own, to be killed: `temporal_worker.py ADDRESS PLACE`.

Its store is one SQLite file and its providers are shelves in a directory, so that both outlive it.
Each file counts how often it was written.  A third argument accepts so many operations and
prints their ids; SIGTERM stops the process in peace.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store import sqlite
from tenure.app.operations.admission import OperationRequest, accept
from tenure.app.start_checks import prepare
from tenure.core.errors import StoreLocked
from tenure.ports.store import Store
from tenure.testing.plans import PLANS
from tenure.testing.shelf import Shelf
from tests.real.support.temporal_planes import (
    build_temporal_plane,
    settings_for,
    with_real_time_limits,
)

NAMES = ("identity", "access", "runtime", "credentials")


class Counting(Shelf):
    """A shelf on which a file says how often it was written: effect and count are one."""

    def __init__(self, place: Path, name: str) -> None:
        super().__init__(place, name, now=SystemClock().now, slow=0.4)

    def _write(self, name: str, row: Mapping[str, object]) -> None:
        written = int(str((self._read(name) or {"written": 0})["written"]))
        super()._write(name, {**row, "written": written + 1})


async def open_store(place: Path, clock: SystemClock) -> Store:
    """The store, once the process that held it is dead."""
    while True:
        try:
            return sqlite.build(str(place / "tenure.db"), clock=clock)
        except StoreLocked:
            await asyncio.sleep(0.05)


async def main(address: str, place: Path, count: int) -> None:
    clock = SystemClock()
    store = await open_store(place, clock)
    shelves = {name: Counting(place, name) for name in NAMES}
    settings = settings_for(address, task_queue="killed")
    plane = build_temporal_plane(store, shelves, settings, [with_real_time_limits(PLANS["linear"])])
    await prepare(plane)
    await plane.engine.start()
    for _ in range(count):
        print((await accept(plane, OperationRequest("linear"))).id, flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    print("ready", flush=True)
    await stopped.wait()
    await plane.engine.stop()
    await store.close()
    print("stopped", os.getpid(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
    os._exit(0)  # as `tenure` itself leaves once it has loaded Temporal's client
