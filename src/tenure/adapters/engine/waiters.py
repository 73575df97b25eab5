"""Callers that wait for an operation to settle, or for the engine to stop."""

import asyncio

from tenure.core.operation import OperationState


class Waiters:
    """The waiters of one engine; created before the engine has an event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[OperationState | None]]] = {}
        self._stop_future: asyncio.Future[None] | None = None

    # --- waiters of an operation -----------------------------------------------------------------

    def __len__(self) -> int:
        """Number of callers that wait for an operation."""
        return sum(map(len, self._waiting.values()))

    def __contains__(self, operation: str) -> bool:
        """Whether a caller waits for the operation."""
        return operation in self._waiting

    async def wait(self, operation: str, seconds: float | None) -> OperationState | None:
        """Wait for `notify` and return its state; None after `seconds`."""
        # get_running_loop costs a system call, so the stop future's loop is used if there is one.
        loop = (
            self._stop_future.get_loop()
            if self._stop_future is not None
            else asyncio.get_running_loop()
        )
        waiter: asyncio.Future[OperationState | None] = loop.create_future()
        self._waiting.setdefault(operation, []).append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _resolve, waiter, None)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            remaining = self._waiting.get(operation)
            if remaining is not None and waiter in remaining:
                remaining.remove(waiter)
                if not remaining:
                    del self._waiting[operation]

    def notify(self, operation: str, state: OperationState | None) -> None:
        """Wake the operation's waiters with its settled state; None makes them re-read it."""
        for waiter in self._waiting.pop(operation, ()):
            _resolve(waiter, state)

    # --- waiters of the engine -------------------------------------------------------------------

    @property
    def was_started(self) -> bool:
        """Whether the engine was ever started."""
        return self._stop_future is not None

    def begin(self) -> None:
        """Record that the engine starts on the running loop."""
        self._stop_future = asyncio.get_running_loop().create_future()

    async def join(self) -> None:
        """Return when the engine was stopped; if it failed, raise the failure."""
        if self._stop_future is not None:
            await asyncio.shield(self._stop_future)

    def end(self) -> None:
        """Record that the engine has stopped; waiters of operations go on waiting."""
        if self._stop_future is not None and not self._stop_future.done():
            self._stop_future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Raise the failure in every waiter; `join` raises the first failure only."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        if self._stop_future is not None and not self._stop_future.done():
            self._stop_future.set_exception(error)
            self._stop_future.exception()  # `join` may never be called


def _resolve(waiter: asyncio.Future[OperationState | None], state: OperationState | None) -> None:
    if not waiter.done():
        waiter.set_result(state)
