"""Stops calls at their time limit, or when their operation is cancelled.

One timer serves all calls of the same limit: they expire in the order in which they started, so the
timer is set for the oldest.  A call costs two dictionary operations and no timer of its own.
"""

import asyncio
from typing import Any

CallTask = asyncio.Task[Any]
CANCEL_SECONDS = 1.0
"""How long a call may take to end after it was cancelled."""


class CallLimits:
    """Cancels the tasks of calls and remembers why, to tell a limit from a shutdown."""

    def __init__(self) -> None:
        self._ends: dict[float, dict[CallTask, float]] = {}
        self._timers: set[float] = set()
        self._why: dict[CallTask, tuple[str, float]] = {}
        """Why a task was stopped, and when."""

    def begin(self, task: CallTask, seconds: float) -> None:
        """Start to time a call of this task."""
        loop = task.get_loop()
        if seconds not in self._timers:
            self._timers.add(seconds)
            self._ends.setdefault(seconds, {})
            loop.call_later(seconds, self._expire, loop, seconds)
        self._ends[seconds][task] = loop.time() + seconds

    def end(self, task: CallTask, seconds: float) -> str:
        """End the timing; returns why the call was stopped, or an empty string."""
        del self._ends[seconds][task]
        return self._why.pop(task, ("", 0.0))[0] if self._why else ""

    def stop(self, task: CallTask, why: str) -> None:
        """Cancel the call of this task, unless it is being cancelled already."""
        if task not in self._why:
            self._why[task] = why, task.get_loop().time()
            task.cancel()

    def ignores_cancellation(self, task: CallTask) -> bool:
        """Whether the call still runs, although it was cancelled a while ago."""
        stopped = self._why.get(task)
        return stopped is not None and task.get_loop().time() - stopped[1] > CANCEL_SECONDS

    def _expire(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        now = loop.time()
        for task, at in self._ends[seconds].items():
            if at > now:
                loop.call_later(at - now, self._expire, loop, seconds)
                return
            self.stop(task, f"no answer within {seconds:g} s")
        self._timers.discard(seconds)
