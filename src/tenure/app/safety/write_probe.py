"""Probes whether the store answers and accepts writes, and finds the cause if it does not.

Readiness requests need no token, so they share one probe: one empty change is committed at a time,
and its success counts for some seconds.  The store is asked for the cause only after a failure.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tenure.app.plane import Plane
from tenure.core.errors import StoreError
from tenure.core.records import PlaneRecord
from tenure.ports.plane_rows import PLANE_ROW
from tenure.ports.store import Change

FRESH_SECONDS = 5.0
"""How long an answer of the store stays valid."""
SILENT = "the store does not answer"
REFUSES = "the store answers but accepts no writes"
T = TypeVar("T")


class WriteProbe:
    """The state of the store as one process knows it."""

    def __init__(self) -> None:
        self._commit = _SharedCall[None]()
        self._cause = _SharedCall[str]()

    async def problem(self, plane: Plane, *, seconds: float) -> str:
        """What is wrong with the store, without its address; "" if it accepts writes.

        `seconds` is the timeout of each call to the store.
        """
        try:
            async with asyncio.timeout(seconds):
                await until_answered(plane)
        except (TimeoutError, StoreError):
            return await self.explain(plane, SILENT, seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._commit.answer(lambda: _commit_empty_change(plane))
        except (TimeoutError, StoreError):
            return await self.explain(plane, REFUSES, seconds)
        return ""

    async def explain(self, plane: Plane, problem: str, seconds: float) -> str:
        """The problem with its cause, if the store knows it."""
        cause = ""
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(seconds):
                cause = await self._cause.answer(plane.store.write_problem)
        return f"{problem}: {cause}" if cause else f"{problem}; the log says more"


async def until_answered(plane: Plane) -> None:
    """Return once the store has answered; StoreError if it cannot."""
    await plane.store.find(PlaneRecord, PLANE_ROW)


async def _commit_empty_change(plane: Plane) -> None:
    """Commit an empty change, under the rules for requests that start new operations."""
    await plane.store.commit(Change("", (), (), is_new_work=True))


class _SharedCall(Generic[T]):
    """A call whose answer is shared while it runs and for some seconds after it.

    After a call that failed, the next request makes a new call.
    """

    def __init__(self) -> None:
        self._call: asyncio.Task[T] | None = None
        self._answered_at = 0.0

    async def answer(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer; if one waiter stops waiting, the call goes on for the others."""
        now = asyncio.get_running_loop().time()
        task = self._call
        if task is None or (task.done() and (not _is_answer(task) or self._is_old(now))):
            task = self._call = asyncio.create_task(call())
            task.add_done_callback(self._record_time)
        return await asyncio.shield(task)

    def _is_old(self, now: float) -> bool:
        return now >= self._answered_at + FRESH_SECONDS

    def _record_time(self, call: "asyncio.Task[T]") -> None:
        if _is_answer(call):
            self._answered_at = call.get_loop().time()


def _is_answer(call: "asyncio.Task[T]") -> bool:
    return not call.cancelled() and call.exception() is None
