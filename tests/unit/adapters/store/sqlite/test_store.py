"""What is read aside: the loop goes on meanwhile, and an answer comes whatever happens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store import sqlite
from tenure.core.errors import StoreClosed, StoreError
from tenure.sqlite.commit_thread import WorkRunner
from tenure.testing.contracts.store_rows import scenario
from tests.unit.support.small_file import PausedFlush, run_ready_tasks

OWNERS = [("a" * 32, 1)]


@asynccontextmanager
async def open_store(
    path: Path, read_thread: WorkRunner | None = None
) -> AsyncIterator[sqlite.SqliteStore]:
    store = sqlite.build(path, clock=SystemClock(), read_thread=read_thread)
    try:
        yield store
    finally:
        await store.close()


@scenario
async def test_the_loop_goes_on_while_it_is_read(path: Path, paused_flush: PausedFlush) -> None:
    async with open_store(path, paused_flush) as store:
        asked = asyncio.ensure_future(store.list_living("runtime", OWNERS, gone="DELETED"))
        await run_ready_tasks()
        assert not asked.done()
        paused_flush.let_go()
        assert await asked == frozenset()


@scenario
async def test_who_stops_waiting_leaves_the_next_one_an_answer(
    path: Path, paused_flush: PausedFlush
) -> None:
    async with open_store(path, paused_flush) as store:
        first, second = (
            asyncio.ensure_future(store.list_living("runtime", OWNERS, gone="DELETED"))
            for _ in range(2)
        )
        await run_ready_tasks()
        first.cancel()
        await run_ready_tasks()
        paused_flush.let_go()
        paused_flush.let_go()
        assert await second == frozenset()


@scenario
async def test_by_default_a_thread_answers_as_many_as_ask(path: Path) -> None:
    async with open_store(path) as store:
        answers = await asyncio.gather(
            *(store.list_living("runtime", OWNERS, gone="DELETED") for _ in range(20))
        )
        assert set(answers) == {frozenset()}


@scenario
async def test_what_cannot_be_read_is_said(path: Path) -> None:
    async with open_store(path) as store:
        store._file.writer.execute("DROP TABLE intent")
        with pytest.raises(StoreError, match=r"cannot be read \(.*\): nothing was changed"):
            await store.list_living("runtime", OWNERS, gone="DELETED")


@scenario
async def test_a_closed_store_says_so_and_nobody_waits(path: Path) -> None:
    async with open_store(path) as store:
        await store.list_living("runtime", OWNERS, gone="DELETED")
    with pytest.raises(StoreClosed):
        await store.list_living("runtime", OWNERS, gone="DELETED")
