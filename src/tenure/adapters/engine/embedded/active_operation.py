"""The state that the embedded engine has in memory for an operation while a task executes it."""

import asyncio
from collections.abc import Sequence
from typing import Generic

from tenure.ports.engine import Handle


class ActiveOperation(Generic[Handle]):
    """An operation that a task is executing."""

    __slots__ = ("handle", "is_released", "needs_refresh", "running", "task", "token", "wake_event")

    def __init__(self, token: int, handle: Handle | None) -> None:
        """`token` is the fence token of the claim; `handle` is None until the operation is read."""
        self.token = token
        self.handle = handle
        self.task: asyncio.Task[None]
        self.running: Sequence[asyncio.Task[None]] = ()
        """The tasks of several moves at the same time."""
        self.is_released = False
        """The engine has given the operation up: its task starts no further move."""
        self.needs_refresh = False
        """Another caller has recorded something for the operation since it was last read."""
        self.wake_event: asyncio.Event | None = None
        """Set when one of several concurrent moves has ended; None while fewer than two run."""
