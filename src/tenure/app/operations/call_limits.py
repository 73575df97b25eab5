"""Ends calls from outside: at their limit, or when their operation is cancelled.

One timer serves all calls of the same limit: they end in the order in which they began, so only the
oldest is watched.  A call costs two dictionary operations, not a timer of its own.
"""

import asyncio
from typing import Any

Calling = asyncio.Task[Any]
DEAF_SECONDS = 1.0
"""How long a call that was stopped may take to end."""


class CallLimits:
    """Cancels tasks that are in a call, and remembers why: a stop is no shutdown."""

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self._ends: dict[float, dict[Calling, float]] = {}
        self._armed: set[float] = set()
        self._why: dict[Calling, tuple[str, float]] = {}
        """Why a task was stopped, and when."""

    def begin(self, task: Calling, seconds: float) -> None:
        """This task is in a call that may take so many seconds."""
        loop = task.get_loop()
        if seconds not in self._armed:
            self._armed.add(seconds)
            self._ends.setdefault(seconds, {})
            loop.call_later(seconds, self._look, loop, seconds)
        self._ends[seconds][task] = loop.time() + seconds

    def end(self, task: Calling, seconds: float) -> str:
        """The call is over; why it was stopped, if it was."""
        del self._ends[seconds][task]
        return self._why.pop(task, ("", 0.0))[0] if self._why else ""

    def stop(self, task: Calling, why: str) -> None:
        """Stop the call this task is in, unless it is being stopped already."""
        if task not in self._why:
            self._why[task] = why, task.get_loop().time()
            task.cancel()

    def ignores_cancellation(self, task: Calling) -> bool:
        """Whether the call this task is in goes on though it was stopped a while ago."""
        stopped = self._why.get(task)
        return stopped is not None and task.get_loop().time() - stopped[1] > DEAF_SECONDS

    def _look(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        now = loop.time()
        for task, at in self._ends[seconds].items():
            if at > now:
                loop.call_later(at - now, self._look, loop, seconds)
                return
            self.stop(task, f"no answer within {seconds:g} s")
        self._armed.discard(seconds)
