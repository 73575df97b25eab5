"""Resolves names that tenants have chosen; an unresponsive name server delays its tenant only.

A lookup by the system cannot be cancelled and may outlast its caller.  So a name that is being
looked up for a tenant is not looked up again for it, and the number of concurrent lookups of each
tenant is bounded.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from tenure.concurrency import cancel_and_wait

LOOKUPS_MAX: Final = 64
LOOKUPS_OF_TENANT: Final = 8
"""Concurrent lookups of one tenant."""
WAIT_SECONDS: Final = 2.0
"""How long a lookup waits for a free slot."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class LookupsBusy(Exception):
    """A name was not looked up because too many lookups are running."""


async def resolve_name(host: str, port: int) -> list[str]:
    """Every address of a name, as the system knows it.

    Each lookup has a daemon thread, which does not delay the end of the process.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def resolve(found: list[str], error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def look_up() -> None:
        found: list[str] = []
        failure: Exception | None = None
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(address[0]) for *_, address in infos))
        except (OSError, ValueError) as error:
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(resolve, found, failure)

    threading.Thread(target=look_up, name="tenure looks up a name", daemon=True).start()
    return await answer


class Lookups:
    """The lookups of one process."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._all = asyncio.Semaphore(LOOKUPS_MAX)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: dict[tuple[str, str, int], asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, tenant: str, host: str, port: int) -> Sequence[str]:
        """The addresses of a name; LookupsBusy if no slot is free in time."""
        key = (tenant, host, port)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._look_up(*key), name=f"tenure looks up {host}")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._on_end(key, done))
        return await asyncio.shield(task)

    async def _look_up(self, tenant: str, host: str, port: int) -> Sequence[str]:
        share = self._shares.setdefault(tenant, asyncio.Semaphore(LOOKUPS_OF_TENANT))
        waiting = asyncio.timeout(WAIT_SECONDS)
        try:
            async with waiting, share, self._all:
                waiting.reschedule(None)
                return await self._resolve(host, port)
        except TimeoutError:
            if not waiting.expired():
                raise
            raise LookupsBusy(
                "its name cannot be looked up now: too many others still are"
            ) from None

    def _on_end(self, key: tuple[str, str, int], task: "asyncio.Task[Sequence[str]]") -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # mark it as read; its caller may have been cancelled

    async def close(self) -> None:
        """Do not wait for running lookups."""
        await cancel_and_wait(*self._under_way.values())
