"""A small SQLite file with three tables, ways to pause or fail its COMMIT, and changes for it."""

import asyncio
from pathlib import Path
from typing import Any

import apsw

from tenure.core.records.table import TableShape
from tenure.ports.store import Change, Drop, Is, Next, Put, Set
from tenure.sqlite.commit_thread import Done, InlineRunner, Work, run_catching
from tenure.sqlite.committer import Committer

TABLES = {
    "thing": TableShape(("name",), ("size", "note")),
    "part": TableShape(("thing", "number"), ("size",)),
    "list": TableShape(("number",), ("text",)),
}
SCHEMA = """
CREATE TABLE thing (
    name TEXT PRIMARY KEY, size INTEGER NOT NULL CHECK (size < 1000), note TEXT
) WITHOUT ROWID;
CREATE TABLE part (
    thing TEXT, number INTEGER, size INTEGER, PRIMARY KEY (thing, number)
) WITHOUT ROWID;
CREATE TABLE list (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE batch (number INTEGER PRIMARY KEY, changes TEXT NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class PausedFlush:
    """Pauses every COMMIT until the test releases it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Work, Done]] = []

    def __call__(self, work: Work, on_done: Done) -> None:
        self.waiting.append((work, on_done))

    def let_go(self) -> None:
        work, done = self.waiting.pop(0)
        done(run_catching(work))

    def fail(self, error: BaseException) -> None:
        _, done = self.waiting.pop(0)
        done(error)

    def close(self) -> None: ...


class CountingFlush(InlineRunner):
    def __init__(self) -> None:
        self.flushes = 0

    def __call__(self, work: Work, on_done: Done) -> None:
        self.flushes += 1
        super().__call__(work, on_done)


class FailableConnection:
    """A connection that fails the statements in `failing`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.failing: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str) -> Any:
        if sql in self.failing:
            raise self.failing[sql]
        return self._connection.execute(sql)

    def wal_checkpoint(self) -> tuple[int, int]:
        if "checkpoint" in self.failing:
            raise self.failing["checkpoint"]
        return self._connection.wal_checkpoint()


def make(connection: FailableConnection, flush: Any, **more: Any) -> Committer:
    return Committer(connection, TABLES, flush=flush, **more)  # type: ignore[arg-type]


def thing(name: str, size: Any = 1) -> Put:
    return Put("thing", (name,), {"size": size})


def part(name: str, size: Any = 1) -> Put:
    return Put("part", (name, 1), {"size": size})


def line(text: Any) -> Put:
    return Put("list", (Next("lines"),), {"text": text})


def change(
    *writes: Put | Set | Drop,
    guards: tuple[Is, ...] = (),
    name: str = "id",
    is_new_work: bool = False,
) -> Change:
    return Change(name, guards, writes, is_new_work)


def names(connection: FailableConnection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM thing ORDER BY name")]


def lines(connection: FailableConnection) -> list[tuple[int, str]]:
    found = connection.execute("SELECT number, text FROM list ORDER BY number")
    return found.fetchall()  # type: ignore[no-any-return]


def bytes_of(path: Path | str) -> bytes:
    return Path(path).read_bytes()


async def run_ready_tasks() -> None:
    """Let all ready tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)
