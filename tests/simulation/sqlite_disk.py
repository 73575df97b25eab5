"""A real SQLite file under a simulated plane: batches, guards and poison as they are in production.

COMMIT runs on the loop and is answered late, or fails when a life says so.  One process at a time
holds the file; a killed one leaves its log as it is.
"""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import apsw

from proofs.operations.scenarios import Life
from tenure.adapters.store import sqlite
from tenure.adapters.store.sqlite import SqliteStore
from tenure.ports.clock import Clock
from tenure.ports.store import Store
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.sqlite.commit_thread import Done, Inline, Work, outcome
from tenure.sqlite.queries import read_queries


def observer(path: Path, clock: Clock) -> SqliteStore:
    """A connection of nobody's process that can only read."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    return SqliteStore(
        cast(Any, SimpleNamespace(reader=lambda: connection)),
        cast(Any, SimpleNamespace(commit=None)),
        read_queries(Path(sqlite.__file__).parent / "queries"),
        clock=clock,
        flush=Inline(),
        aside=Inline(),
    )


class LateFlush:
    """Runs COMMIT at once and tells of it late; the next one may fail, kept or lost."""

    def __init__(self, drawn: random.Random, seconds: float) -> None:
        self.fails_kept: bool | None = None
        self._drawn = drawn
        self._seconds = seconds

    def __call__(self, work: Work, done: Done) -> None:
        error: BaseException | None = OSError("an injected error at COMMIT")
        if self.fails_kept is None:
            error = outcome(work)
        elif self.fails_kept:
            outcome(work)
        delay = self._drawn.random() * self._seconds
        asyncio.get_running_loop().call_later(delay, done, error)

    def close(self) -> None:
        """Nothing is held."""


class SqliteDisk:
    """See `proofs.operations.life.Breakable`."""

    def __init__(self, folder: Path, life: Life, clock: Clock) -> None:
        self._path = folder / "store.db"
        self._clock = clock
        self._life = life
        self._drawn = random.Random(f"disk/{life.seed}")
        self._flushes: dict[int, LateFlush] = {}
        self._full = False
        self._observer: Store | None = None

    def open(self, clock: Clock) -> Store:
        flush = LateFlush(self._drawn, self._life.flush_seconds)
        store = sqlite.build(self._path, clock=clock, flush=flush, room=self._room)
        self._flushes[id(store)] = flush
        return store

    def _room(self) -> int:
        return 0 if self._full else 2 * RESERVE_BYTES

    def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        with suppress(apsw.ConnectionClosedError):  # it was killed or closed before
            store._file.writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        store._file.close()

    def fail_commit(self, store: Store, *, applied: bool) -> None:
        self._flushes[id(store)].fails_kept = applied

    def fill(self, *, full: bool) -> None:
        self._full = full

    def belongs_to(self, store: Store, *, skew: float = 0.0, slow: bool = False) -> None:
        """Nothing here goes by a process's own clock."""

    def look(self) -> Store:
        """A connection of nobody's process that can only read."""
        if self._observer is None:
            self._observer = observer(self._path, self._clock)
        return self._observer
