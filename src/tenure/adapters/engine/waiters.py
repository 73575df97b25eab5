"""Who waits for an engine: for one of its operations to settle, or for it to stop."""

import asyncio

from tenure.core.operation import OperationState


class Waiters:
    """One for each engine, made before its loop is known."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[OperationState | None]]] = {}
        self._stopped: asyncio.Future[None] | None = None

    # --- for an operation ------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many wait for one."""
        return sum(map(len, self._waiting.values()))

    def __contains__(self, operation: str) -> bool:
        """Whether anybody waits for it."""
        return operation in self._waiting

    async def wait(self, operation: str, seconds: float | None) -> OperationState | None:
        """What `tell` says of it; None if that took longer."""
        # The loop is asked for once, if it can: that costs a system call each time.
        loop = self._stopped.get_loop() if self._stopped is not None else asyncio.get_running_loop()
        waiter: asyncio.Future[OperationState | None] = loop.create_future()
        self._waiting.setdefault(operation, []).append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _tell, waiter, None)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            left = self._waiting.get(operation)
            if left is not None and waiter in left:
                left.remove(waiter)
                if not left:
                    del self._waiting[operation]

    def tell(self, operation: str, state: OperationState | None) -> None:
        """It has settled so; None: look at it again."""
        for waiter in self._waiting.pop(operation, ()):
            _tell(waiter, state)

    # --- for the engine --------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether the engine was ever started."""
        return self._stopped is not None

    def begin(self) -> None:
        """The engine starts, on this loop."""
        self._stopped = asyncio.get_running_loop().create_future()

    async def join(self) -> None:
        """Return when the engine has stopped; raise what stopped it, if nobody asked it to."""
        if self._stopped is not None:
            await asyncio.shield(self._stopped)

    def end(self) -> None:
        """The engine has stopped; whoever waits for an operation goes on waiting."""
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def fail(self, error: BaseException) -> None:
        """The engine cannot go on: all who wait are told, and of its end the first word counts."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_exception(error)
            self._stopped.exception()  # `join` may never be called


def _tell(waiter: asyncio.Future[OperationState | None], state: OperationState | None) -> None:
    if not waiter.done():
        waiter.set_result(state)
