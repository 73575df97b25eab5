"""Readiness of the store: whether it answers and takes records, and what is wrong if it does not.

Anybody who can reach the plane may ask, so the questions of many are one: one empty change is under
way at a time, and a change that was taken is an answer for some seconds.  Only after a failure is
the store asked for the cause.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tenure.app.plane import Plane, until_answered
from tenure.core.errors import StoreError
from tenure.ports.store import Change

FRESH_SECONDS = 5.0
"""How long an answer of the store is good for."""
SILENT = "the store does not answer"
REFUSES = "the store answers but takes no records"
T = TypeVar("T")


class WriteProbe:
    """What one process knows of its store."""

    def __init__(self) -> None:
        self._commit = _SharedCall[None]()
        self._cause = _SharedCall[str]()

    async def problem(self, plane: Plane, *, seconds: float) -> str:
        """What is wrong with the store, in words that name no address; "" if it takes records.

        The store has so many seconds for each of its answers.
        """
        try:
            async with asyncio.timeout(seconds):
                await until_answered(plane)
        except (TimeoutError, StoreError):
            return await self.explain(plane, SILENT, seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._commit.answer(lambda: _take_record(plane))
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


async def _take_record(plane: Plane) -> None:
    """Commit nothing, as a request would that brings new work."""
    await plane.store.commit(Change("", (), (), admits=True))


class _SharedCall(Generic[T]):
    """A call that all who want its answer share, while it runs and for some seconds after it.

    A call that fails is made again for whoever asks next.
    """

    def __init__(self) -> None:
        self._call: asyncio.Task[T] | None = None
        self._answered_at = 0.0

    async def answer(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Its answer; a caller who stops waiting leaves the call to the others."""
        now = asyncio.get_running_loop().time()
        known = self._call
        if known is None or (known.done() and (not _is_answer(known) or self._is_old(now))):
            known = self._call = asyncio.create_task(call())
            known.add_done_callback(self._note)
        return await asyncio.shield(known)

    def _is_old(self, now: float) -> bool:
        return now >= self._answered_at + FRESH_SECONDS

    def _note(self, call: "asyncio.Task[T]") -> None:
        if _is_answer(call):
            self._answered_at = call.get_loop().time()


def _is_answer(call: "asyncio.Task[T]") -> bool:
    return not call.cancelled() and call.exception() is None
