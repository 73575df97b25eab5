"""Tools of the store's contract: rows, a clock that stands still, a way to open the store."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tenure.core.records import RECORD_NAMED, TABLES, table_of
from tenure.ports.clock import Clock
from tenure.ports.store import Change, Drop, Generated, Is, Next, Put, Row, Set, Store, Value


class Stores(Protocol):
    """Opens the store under test and controls the disk below it."""

    async def open(self, clock: Clock) -> Store:
        """Open the store of this test; opened again, it has the same rows."""
        ...

    def fill(self, *, full: bool) -> None:
        """Make the disk full, or free again."""
        ...

    def fail_commit(self, store: Store) -> None:
        """Make the next COMMIT of this store fail."""
        ...


class StoppedClock:
    """A clock that moves only when the test sets it."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


_running: list[asyncio.Runner] = []


@contextmanager
def one_loop() -> Iterator[asyncio.Runner]:
    """One event loop for a test and its fixtures."""
    with asyncio.Runner() as runner:
        _running.append(runner)
        try:
            yield runner
        finally:
            _running.remove(runner)


def scenario(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine: run on the test's loop or its own; no plugin is needed."""

    @functools.wraps(test)
    def plain(*args: object, **kwargs: object) -> None:
        run = _running[-1].run if _running else asyncio.run
        run(test(*args, **kwargs))

    return plain


def operation(name: str, **columns: Value) -> Put:
    """A new operation; a column that is not passed has a default value."""
    row: Row = {
        "tenant": "north",
        "principal": "ann",
        "kind": "create",
        "plan": "digest",
        "agent": f"agent-{name}",
        "generation": 1,
        "state": "PENDING",
        "revision": 0,
        "token": 0,
        "worker": "",
        "due_at": None,
        "input": "{}",
        "error": None,
        "created_at": 1.0,
        "updated_at": 1.0,
        "ended_at": None,
    }
    return Put("operation", (name,), row | columns)


def intent(name: str, step: str, **columns: Value) -> Put:
    """A new intent of one step."""
    row: Row = {
        "tenant": "north",
        "slot": "runtime",
        "key": f"key-{name}-{step}",
        "state": "INTENDED",
        "token": 0,
        "attempts": 0,
        "due_at": None,
        "unknown_since": None,
        "waiting_on": None,
        "detail": None,
    }
    return Put("intent", (name, step), row | columns)


def record(name: str, seq: int, kind: str = "done", *, step: str = "runtime") -> Put:
    """A new line of a journal."""
    row: dict[str, Value | Generated] = {
        "tenant": "north",
        "kind": kind,
        "step": step,
        "at": 2.0,
        "body": "{}",
    }
    return Put("journal", (name, seq), row)


def event(kind: str = "step.done", *, counter: str = "outbox") -> Put:
    """A new event, numbered by the store."""
    row: dict[str, Value | Generated] = {
        "tenant": "north",
        "agent": "agent",
        "operation": "operation",
        "type": kind,
        "at": 3.0,
        "body": "{}",
    }
    return Put("outbox", (Next(counter),), row)


def lease(worker: str, until: float) -> Put:
    """A worker's lease."""
    return Put("lease", (f"worker/{worker}",), {"holder": worker, "token": 1, "until": until})


def stored_record(put: Put) -> Any:
    """The record of the row that a `Put` without `Next` leaves."""
    record = RECORD_NAMED[put.table]
    row = stored_row(put)
    return tuple.__new__(record, [row.get(name) for name in table_of(record).all_columns])


def stored_row(put: Put) -> Row:
    """The row that a `Put` without `Next` leaves."""
    key = dict(zip(TABLES[put.table].key, put.key, strict=True))
    return {**key, **put.row}  # type: ignore[dict-item]


class Names:
    """Makes changes, each with a new id."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(
        self, *writes: Put | Set | Drop, guards: tuple[Is, ...] = (), is_new_work: bool = False
    ) -> Change:
        self.count += 1
        return Change(f"change-{self.count}", guards, writes, is_new_work)
