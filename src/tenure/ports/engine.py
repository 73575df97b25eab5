"""The engine: decides WHEN an operation moves.

What moves there are is the saga's word, how they are performed is the plan's.
"""

import asyncio
from collections.abc import Coroutine
from typing import Protocol, TypeVar

from tenure.core.moves import Move, Moves
from tenure.core.operation import State


class Live(Protocol):
    """One operation as the worker that claimed it sees it."""

    @property
    def id(self) -> str:
        """The operation's id."""
        ...

    @property
    def token(self) -> int:
        """The fence token under which this worker holds it."""
        ...

    @property
    def state(self) -> State:
        """Where it stands after the last record that this worker knows of."""
        ...


L = TypeVar("L", bound=Live)
L_contra = TypeVar("L_contra", bound=Live, contravariant=True)


class Work(Protocol[L]):
    """What the app hands to an engine: the way to move one operation."""

    async def load(self, operation: str, token: int) -> L | None:
        """Read an operation; None if it has ended.  LeaseLost if this token no longer holds it."""
        ...

    async def refresh(self, live: L) -> None:
        """Read it again in place, since something else was recorded for it.  LeaseLost as above."""
        ...

    def moves(self, live: L) -> Moves:
        """What to perform now."""
        ...

    def perform(
        self, live: L, move: Move, task: "asyncio.Task[None] | None" = None
    ) -> Coroutine[None, None, None]:
        """Perform one move and record how it ended, in one transaction; busy from the very call on.

        `task` is the one it will run in, where that is known beforehand.

        LeaseLost if someone else has taken the operation over.
        """
        ...

    def interrupt(self, live: L) -> None:
        """Stop the calls of its do's that are under way; their outcome is then unknown."""
        ...

    def is_deaf(self, task: "asyncio.Task[None]") -> bool:
        """Whether the call this task is in goes on though it was stopped a while ago."""
        ...


class Engine(Protocol[L_contra]):
    """Every promise here is a test in `tenure.testing.contracts.engine`."""

    @property
    def worker(self) -> str:
        """The worker for whom operations are accepted here; empty: whoever claims them first."""
        ...

    async def start(self) -> None:
        """Take the worker's lease and resume every open operation that nobody alive holds."""
        ...

    def take(self, live: L_contra) -> None:
        """Move an operation that was just accepted for this worker."""
        ...

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Something was recorded for this operation: look at it now.

        `interrupt` stops calls of its do's that are under way, whose outcome is then unknown.
        """
        ...

    async def wait(self, operation: str, seconds: float | None = None) -> State | None:
        """The state in which this operation ended or got stuck here; None if that took longer."""
        ...

    async def join(self) -> None:
        """Return when the engine has stopped; raise what stopped it, if nobody asked it to."""
        ...

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start nothing new, let calls under way end within the grace, give the lease back."""
        ...
