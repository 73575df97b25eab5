"""What the engine remembers of an operation while a task moves it."""

import asyncio
from collections.abc import Sequence
from typing import Generic

from tenure.ports.engine import L


class ActiveOperation(Generic[L]):
    """An operation that a task is moving."""

    __slots__ = ("dropped", "live", "pulse", "running", "task", "token", "woken")

    def __init__(self, token: int, live: L | None) -> None:
        """Held under this token; `live` is None until it is read."""
        self.token = token
        self.live = live
        self.task: asyncio.Task[None]
        self.running: Sequence[asyncio.Task[None]] = ()
        """The tasks of several moves at the same time."""
        self.dropped = False
        """This engine has let go of its task: it begins nothing more."""
        self.woken = False
        """Something was recorded for it by others since it was read."""
        self.pulse: asyncio.Event | None = None
        """Set when one of several moves has ended; there only while several run."""
