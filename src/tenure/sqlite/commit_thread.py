"""Runs COMMIT and long reads: on a thread in production, on the event loop in simulations."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]


class WorkRunner(Protocol):
    """Runs `work` once, then schedules `on_done` on the event loop with its error, if any."""

    def __call__(self, work: Work, on_done: Done, /) -> None: ...

    def close(self) -> None:
        """Release resources; no work is running any more."""
        ...


class ThreadRunner:
    """One thread for each file, started at first use: a slow disk does not block the event loop."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[asyncio.AbstractEventLoop, Work, Done] | None] = (
            SimpleQueue()
        )
        self._name = name
        self._thread: threading.Thread | None = None

    def __call__(self, work: Work, on_done: Done) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put((asyncio.get_running_loop(), work, on_done))

    def close(self) -> None:
        """End the thread, if one was ever needed, and wait for it."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            loop, work, on_done = item
            error = run_catching(work)
            with suppress(RuntimeError):  # the loop has ended: no caller waits any more
                loop.call_soon_threadsafe(on_done, error)


class InlineRunner:
    """Runs on the event loop, without a thread, so that a seeded loop controls every step."""

    def __call__(self, work: Work, on_done: Done) -> None:
        asyncio.get_running_loop().call_soon(on_done, run_catching(work))

    def close(self) -> None:
        """Do nothing: there is no thread."""


def run_catching(work: Work) -> BaseException | None:
    """Run `work` and return its error, of any type; None if it succeeded."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (the committer receives it and stops)
        return error
    return None
