"""Who runs COMMIT: the one thing that differs between production and simulation."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]


class Flush(Protocol):
    """Runs `work` once, then calls `done` on a later turn of the loop with the error, if any."""

    def __call__(self, work: Work, done: Done) -> None: ...

    def close(self) -> None:
        """Let go of what it holds; nothing is running any more."""
        ...


class InThread:
    """One thread for one file, started when first used: the loop lives while the disk is slow."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[asyncio.AbstractEventLoop, Work, Done] | None] = (
            SimpleQueue()
        )
        self._name = name
        self._thread: threading.Thread | None = None

    def __call__(self, work: Work, done: Done) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put((asyncio.get_running_loop(), work, done))

    def close(self) -> None:
        """End the thread, if one was ever needed, and wait for it."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            loop, work, done = item
            error = outcome(work)
            with suppress(RuntimeError):  # the loop has ended: nobody is left to be told
                loop.call_soon_threadsafe(done, error)


class Inline:
    """On the loop itself: no thread exists, so a seeded loop sees every step."""

    def __call__(self, work: Work, done: Done) -> None:
        asyncio.get_running_loop().call_soon(done, outcome(work))

    def close(self) -> None:
        """Nothing is held."""


def outcome(work: Work) -> BaseException | None:
    """Run it; the error it ended in, of whatever kind: no failure of COMMIT is sure to be one."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (it is handed on, and ends the committer)
        return error
    return None
