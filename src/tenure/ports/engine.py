"""The engine: claims operations and decides when each of their moves is performed.

In a create it executes the accepted operation, after a crash it claims the open operations again.
It does not decide which moves there are (`tenure.core.saga`) nor perform them (`MoveExecutor`).
"""

import asyncio
from collections.abc import Coroutine
from typing import Protocol, TypeVar

from tenure.core.moves import Move, Moves
from tenure.core.operation import OperationState
from tenure.core.records.operation import OperationRecord


class EngineOperation(Protocol):
    """An operation in the memory of the worker that has claimed it."""

    @property
    def id(self) -> str:
        """The operation's id."""
        ...

    @property
    def token(self) -> int:
        """The fence token of this worker's claim."""
        ...

    @property
    def state(self) -> OperationState:
        """Its state after the last journal entry that this worker has read or written."""
        ...

    @property
    def revision(self) -> int:
        """The number of journal entries and claims so far."""
        ...

    @property
    def worker(self) -> str:
        """The worker that has claimed it; empty: none yet."""
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
        """The name of that agent; empty: its plan has no agent with a name."""
        ...

    @property
    def error(self) -> str:
        """Why it is or was undone, and which steps are stuck and why; empty if neither is so."""
        ...

    def describe_step(self, step: str) -> str:
        """The state of this step for people: a word, and the last message of its provider."""
        ...

    def token_of(self, step: str) -> int:
        """The fence token under which the end of this step may be recorded."""
        ...


Handle = TypeVar("Handle", bound=EngineOperation)
Handle_contra = TypeVar("Handle_contra", bound=EngineOperation, contravariant=True)


class MoveExecutor(Protocol[Handle]):
    """Performs the moves of one operation at a time for an engine; the app implements it."""

    async def load(self, operation_id: str, token: int) -> Handle | None:
        """Read an operation; None if it has ended.

        StaleToken if another worker has claimed it since.  PlanUnknown if this process cannot
        perform a step of its plan.
        """
        ...

    async def refresh(self, handle: Handle) -> None:
        """Read it again in place, after another process changed it.  StaleToken as for `load`."""
        ...

    def name_of(self, operation: OperationRecord) -> str:
        """What people call the thing that this operation acts on; empty: it has no name."""
        ...

    def moves(self, handle: Handle, at: float | None = None) -> Moves:
        """The moves to perform now, or at the time `at` if nothing else happens until then."""
        ...

    def perform(
        self, handle: Handle, move: Move, task: "asyncio.Task[None] | None" = None
    ) -> Coroutine[None, None, None]:
        """Perform one move, then write its outcome in one transaction.

        The step counts as busy from this call on, before the coroutine runs.  `task` is the task
        in which it will run, if that is known.  StaleToken if another worker has taken over.
        """
        ...

    def interrupt(self, handle: Handle) -> None:
        """Cancel the running do calls of its steps; their outcome is then unknown."""
        ...

    def ignores_cancellation(self, task: "asyncio.Task[None]") -> bool:
        """Whether the call in this task still runs, although it was cancelled a while ago."""
        ...


class Claims(Protocol[Handle]):
    """Claims operations one by one, for an engine that does not poll the store for them.

    Every method raises StaleToken if another worker has the operation, and PlanUnknown if this
    process cannot perform a step of its plan.
    """

    async def begin(self, operation: str, known: Handle | None = None) -> Handle | None:
        """Claim an operation that no worker has claimed yet; None if it has ended.

        No step of it was called before.  `known` is the operation as the engine has it in memory;
        the operation is read again only if that is out of date.
        """
        ...

    async def take_over(self, operation: str) -> Handle | None:
        """Claim an operation of this worker again, after the process that had it is gone.

        The outcome of the calls that may have been running is unknown.
        """
        ...

    async def raise_token(self, handle: Handle, step: str, token: int) -> Handle | None:
        """Raise the fence token of one step: a task with a smaller token can record nothing.

        The outcome of a call that it may have made is unknown.  StaleToken if the step's token is
        not smaller than `token`.
        """
        ...

    async def release_idle(self, handle: Handle) -> bool:
        """Release an operation with no running call; False if something was recorded meanwhile."""
        ...

    async def cancel(self, operation: str) -> None:
        """Cancel it for a person who used the engine's own tools; CallerError if it cannot be."""
        ...


class Engine(Protocol[Handle_contra]):
    """Every promise here is a test in `tenure.testing.contracts.engine`."""

    @property
    def worker(self) -> str:
        """The worker to which a new operation is assigned; empty: any worker may claim it."""
        ...

    @property
    def accepts(self) -> bool:
        """Whether new operations will be executed; False once this engine has stopped."""
        ...

    @property
    def outage(self) -> str:
        """Why new operations wait, if the server that executes them is unreachable; else empty."""
        ...

    async def start(self) -> None:
        """Take the worker's lease, and claim every open operation that no live worker has."""
        ...

    def execute(self, handle: Handle_contra) -> None:
        """Execute an operation that this process has just accepted.

        An operation that was accepted without a worker is claimed first.
        """
        ...

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Read this operation again now, because something was recorded for it.

        `interrupt` cancels its running do calls; their outcome is then unknown.
        """
        ...

    def on_notification(
        self, operation: str, *, interrupt: bool = False, unclaimed: bool = False
    ) -> None:
        """Do what `wake` does, after a wake hint of another process.

        An `unclaimed` operation was accepted without a worker: any engine may claim it.
        """
        ...

    async def wait(self, operation: str, seconds: float | None = None) -> OperationState | None:
        """Wait until this operation has ended or is stuck; None after so many seconds."""
        ...

    async def join(self) -> None:
        """Wait until the engine has stopped; raise the error that stopped it, if there was one."""
        ...

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start no new call, wait for running ones for the grace time, release the lease."""
        ...
