"""Who keeps the store's contract: SQLite, with COMMIT in a thread and on the loop, and memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.adapters.store import sqlite
from tenure.ports.clock import Clock
from tenure.ports.store import Store
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.sqlite.commit_thread import Done, InlineRunner, ThreadRunner, Work, WorkRunner
from tenure.testing import memory_store
from tenure.testing.contracts.store import StoreContract
from tenure.testing.contracts.store_copies import CopyPromises
from tenure.testing.contracts.store_rows import Stores


class Failing:
    """Runs COMMIT as it was told to, until it is told to fail it."""

    def __init__(self, flush: WorkRunner) -> None:
        self.fails = False
        self._flush = flush
        self.close = flush.close

    def __call__(self, work: Work, on_done: Done) -> None:
        self._flush(self._fail if self.fails else work, on_done)

    def _fail(self) -> None:
        raise OSError("the disk is gone")


class SqliteStores:
    def __init__(self, folder: Path, flush: Callable[[], WorkRunner]) -> None:
        self.folder = folder
        self.flush = flush
        self.full = False
        self.flushes: dict[int, Failing] = {}

    async def open(self, clock: Clock) -> Store:
        return self._open(self.folder / "store.db", clock)

    async def open_copy(self, path: str, clock: Clock) -> Store:
        return self._open(Path(path), clock)

    def _open(self, path: Path, clock: Clock) -> Store:
        flush = Failing(self.flush())
        store = sqlite.build(
            path, clock=clock, flush=flush, read_thread=self.flush(), free_bytes=self.free_bytes
        )
        self.flushes[id(store)] = flush
        return store

    def free_bytes(self) -> int:
        return RESERVE_BYTES - 1 if self.full else RESERVE_BYTES

    def backup_path(self) -> str:
        return str(self.folder / "copy.db")

    def fill(self, *, full: bool) -> None:
        self.full = full

    def fail_commit(self, store: Store) -> None:
        self.flushes[id(store)].fails = True


class MemoryStores:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = memory_store.Tables()

    async def open(self, clock: Clock) -> Store:
        return memory_store.build(clock=clock, tables=self.tables)

    async def open_copy(self, path: str, clock: Clock) -> Store:
        return memory_store.build(clock=clock, tables=self._read(path))

    def _read(self, path: str) -> memory_store.Tables:
        return memory_store.Tables.read(Path(path).read_text("utf-8"))

    def backup_path(self) -> str:
        return str(self.folder / "copy.json")

    def fill(self, *, full: bool) -> None:
        self.tables.full = full

    def fail_commit(self, store: Store) -> None:
        assert isinstance(store, memory_store.MemoryStore)
        store.fail_commit(is_applied=self.applied)

    applied = True


class MemoryStoresThatLose(MemoryStores):
    applied = False


class TestSqliteStore(CopyPromises, StoreContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Stores:
        return SqliteStores(tmp_path, lambda: ThreadRunner("commit"))


class TestSqliteStoreOnTheLoop(CopyPromises, StoreContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Stores:
        return SqliteStores(tmp_path, InlineRunner)


class TestMemoryStore(CopyPromises, StoreContract):
    @pytest.fixture(params=[MemoryStores, MemoryStoresThatLose])
    def stores(self, tmp_path: Path, request: pytest.FixtureRequest) -> Stores:
        made: Stores = request.param(tmp_path)
        return made
