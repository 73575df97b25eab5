"""A real SQLite file under a simulated plane: batches, guards and poison as they are in production.

COMMIT runs on the loop; in a simulation it is answered late, or fails when the schedule says so.
One process at a time holds the file; a killed one leaves its log as it is.  The files are in memory
where there is such a place, since what a disk does when power fails is not the point, and each
begins as a copy of one empty store, since the migrations are the same each time.
"""

import asyncio
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import apsw

from proofs.harness.recorder import HistoryRecorder
from proofs.harness.schedule import Schedule
from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store import sqlite
from tenure.adapters.store.sqlite import SqliteStore
from tenure.ports.clock import Clock
from tenure.ports.store import Store
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.sqlite.commit_thread import Done, InlineRunner, Work, run_catching
from tenure.sqlite.queries import read_queries

NAME = "store.db"
CALM = Schedule(seed=0, requests=(), calm_at=0.0)


def observer(path: Path, clock: Clock) -> SqliteStore:
    """A connection of nobody's process that can only read."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    return SqliteStore(
        cast(Any, SimpleNamespace(reader=lambda: connection)),
        cast(Any, SimpleNamespace(commit=None)),
        read_queries(Path(sqlite.__file__).parent / "queries"),
        clock=clock,
        flush=InlineRunner(),
        read_thread=InlineRunner(),
    )


class LateFlush:
    """Runs COMMIT at once and tells of it late; the next one may fail, kept or lost."""

    def __init__(self, chance: random.Random, seconds: float) -> None:
        self.fails_kept: bool | None = None
        self._drawn = chance
        self._seconds = seconds

    def __call__(self, work: Work, on_done: Done) -> None:
        error: BaseException | None = OSError("an injected error at COMMIT")
        if self.fails_kept is None:
            error = run_catching(work)
        elif self.fails_kept:
            run_catching(work)
        delay = self._drawn.random() * self._seconds
        asyncio.get_running_loop().call_later(delay, on_done, error)

    def close(self) -> None:
        """Nothing is held."""


class SqliteDisk:
    """See `proofs.harness.simulation.FaultyDisk`; without a schedule COMMIT is answered at once."""

    def __init__(self, folder: Path, clock: Clock, schedule: Schedule | None = None) -> None:
        self._path = folder / NAME
        self._clock = clock
        self._schedule = schedule
        self._drawn = random.Random(f"disk/{(schedule or CALM).seed}")
        self._flushes: dict[int, LateFlush] = {}
        self._full = False
        self._observer: Store | None = None

    def open(self, clock: Clock) -> Store:
        if self._schedule is None:
            return sqlite.build(self._path, clock=clock, flush=InlineRunner())
        flush = LateFlush(self._drawn, self._schedule.flush_seconds)
        store = sqlite.build(self._path, clock=clock, flush=flush, free_bytes=self._room)
        self._flushes[id(store)] = flush
        return store

    def _room(self) -> int:
        return 0 if self._full else 2 * RESERVE_BYTES

    def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        with suppress(apsw.ConnectionClosedError):  # it was killed or closed before
            store._file.writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        store._file.close()

    def fail_commit(self, store: Store, *, is_applied: bool) -> None:
        self._flushes[id(store)].fails_kept = is_applied

    def fill(self, *, full: bool) -> None:
        self._full = full

    def belongs_to(self, store: Store, *, skew: float = 0.0, slow: bool = False) -> None:
        """Nothing here goes by a process's own clock."""

    def observer(self) -> Store:
        """A connection of nobody's process that can only read."""
        if self._observer is None:
            self._observer = observer(self._path, self._clock)
        return self._observer


class SqliteDisks:
    """Opens a disk of its own for each run, all below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._empty = folder / "empty.db"
        store = sqlite.build(self._empty, clock=SystemClock(), flush=InlineRunner())
        store._file.close()

    def _fresh(self) -> Path:
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        shutil.copy(self._empty, folder / NAME)
        return folder

    def for_case(self, clock: Clock) -> SqliteDisk:
        return SqliteDisk(self._fresh(), clock)

    def for_simulation(self, schedule: Schedule, clock: Clock, _: HistoryRecorder) -> SqliteDisk:
        return SqliteDisk(self._fresh(), clock, schedule)


@contextmanager
def sqlite_disks() -> Iterator[SqliteDisks]:
    """Disks in memory, removed at the end."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tenure-disks-", dir=place) as name:
        yield SqliteDisks(Path(name))
