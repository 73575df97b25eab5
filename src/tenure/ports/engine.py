"""The engine: decides WHEN an operation moves.

What moves there are is the saga's word, how they are performed is the plan's.
"""

import asyncio
from collections.abc import Coroutine
from typing import Protocol, TypeVar

from tenure.core.moves import Move, Moves
from tenure.core.operation import OperationState
from tenure.core.records.operation import OperationRecord


class EngineOperation(Protocol):
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
    def state(self) -> OperationState:
        """Where it stands after the last record that this worker knows of."""
        ...

    @property
    def revision(self) -> int:
        """How many records and claims that is."""
        ...

    @property
    def worker(self) -> str:
        """Who holds it; empty: nobody yet."""
        ...

    @property
    def plan_name(self) -> str:
        """The name of its plan."""
        ...

    @property
    def agent(self) -> str:
        """The agent it works on."""
        ...

    @property
    def agent_name(self) -> str:
        """What people call that agent; empty: its plan knows of no name."""
        ...

    @property
    def error(self) -> str:
        """Why it is stuck or was turned back; empty while all is well."""
        ...

    def describe_step(self, step: str) -> str:
        """How this step stands, for people: a word, and what its provider said last."""
        ...

    def token_of(self, step: str) -> int:
        """The fence token under which the end of this step may be recorded."""
        ...


L = TypeVar("L", bound=EngineOperation)
L_contra = TypeVar("L_contra", bound=EngineOperation, contravariant=True)


class MoveExecutor(Protocol[L]):
    """What the app hands to an engine: the way to move one operation."""

    async def load(self, operation: str, token: int) -> L | None:
        """Read an operation; None if it has ended.  StaleToken if this token no longer holds it.

        PlanUnknown if its plan has steps that nobody here can perform.
        """
        ...

    async def refresh(self, handle: L) -> None:
        """Read it again in place, after another process changed it.  StaleToken as for `load`."""
        ...

    def name_of(self, operation: OperationRecord) -> str:
        """What people call the thing that this operation acts on; empty: it has no name."""
        ...

    def moves(self, handle: L, at: float | None = None) -> Moves:
        """What to perform now, or what it will be then if nothing else happens."""
        ...

    def perform(
        self, handle: L, move: Move, task: "asyncio.Task[None] | None" = None
    ) -> Coroutine[None, None, None]:
        """Perform one move and record how it ended, in one transaction; busy from the very call on.

        `task` is the one it will run in, where that is known beforehand.

        StaleToken if someone else has taken the operation over.
        """
        ...

    def interrupt(self, handle: L) -> None:
        """Stop the calls of its do's that are under way; their outcome is then unknown."""
        ...

    def ignores_cancellation(self, task: "asyncio.Task[None]") -> bool:
        """Whether the call this task is in goes on though it was stopped a while ago."""
        ...


class Claims(Protocol[L]):
    """How an engine holds operations one by one, where they are not claimed from a queue.

    Any of them raises StaleToken if the operation is no longer held as it says, and PlanUnknown if
    its plan has steps that nobody here can perform.
    """

    async def begin(self, operation: str, known: L | None = None) -> L | None:
        """Claim what nobody has claimed yet; None if it has ended.  Nobody has called anything.

        It is not read if it still stands as it is `known`, which may be stale.
        """
        ...

    async def take_over(self, operation: str) -> L | None:
        """Claim it from nobody, or from whoever holds it for the same worker.

        What they may have called has an unknown outcome.
        """
        ...

    async def raise_token(self, handle: L, step: str, token: int) -> L | None:
        """Raise one step's token to this; whoever performs it under a smaller one records nothing.

        What they may have called has an unknown outcome.  StaleToken if it is not smaller now.
        """
        ...

    async def rest(self, handle: L) -> bool:
        """Let go of it with no call under way; False if something was recorded meanwhile."""
        ...

    async def cancel(self, operation: str) -> None:
        """Cancel it as a caller would, for one who asked the engine; CallerError if it cannot."""
        ...


class Engine(Protocol[L_contra]):
    """Every promise here is a test in `tenure.testing.contracts.engine`."""

    @property
    def worker(self) -> str:
        """The worker for whom operations are accepted here; empty: whoever claims them first."""
        ...

    @property
    def accepts(self) -> bool:
        """Whether what is accepted here is moved, by this process or another; not once it ended."""
        ...

    @property
    def away(self) -> str:
        """Why what is accepted waits, if what moves it cannot be reached now; empty: it can."""
        ...

    async def start(self) -> None:
        """Take the worker's lease and resume every open operation that nobody alive holds."""
        ...

    def take(self, handle: L_contra) -> None:
        """Move an operation that was just accepted here, if it is this engine's to move.

        What was accepted for nobody is claimed first.
        """
        ...

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Something was recorded for this operation: look at it now.

        `interrupt` stops calls of its do's that are under way, whose outcome is then unknown.
        """
        ...

    def on_notification(
        self, operation: str, *, interrupt: bool = False, unclaimed: bool = False
    ) -> None:
        """Re-read an operation after a notification hint of another process, as `wake` does.

        An `unclaimed` operation was accepted without a worker: any engine may claim it.
        """
        ...

    async def wait(self, operation: str, seconds: float | None = None) -> OperationState | None:
        """The state in which this operation ended or got stuck here; None if that took longer."""
        ...

    async def join(self) -> None:
        """Return when the engine has stopped; raise what stopped it, if nobody asked it to."""
        ...

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start nothing new, let calls under way end within the grace, give the lease back."""
        ...
