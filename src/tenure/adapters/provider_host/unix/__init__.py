"""The embedded providers of one home, opened by one process and served to all others.

The process that holds `providers.lock` opens the providers, uses them directly and serves them on
`providers.sock`; every other process is its client.  When the holder ends, in whatever way, the
kernel releases the lock and closes the connections.  Each client then tries to take the lock, and
the one that gets it serves.  A provider keeps its state on disk, so nothing is handed over.  A
holder that is stopped (SIGSTOP) is killed by its clients after a while: see `stopped_server`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

from tenure.adapters.provider_host.unix import listener, stopped_server
from tenure.adapters.provider_host.unix.client import Connection
from tenure.adapters.provider_host.unix.marks import FileMarks
from tenure.adapters.provider_host.unix.methods import PORTS, describe
from tenure.adapters.provider_host.unix.proxy import CurrentServer, ProviderProxy
from tenure.adapters.provider_host.unix.server import Server
from tenure.concurrency import background
from tenure.core.errors import StoreLocked, Unavailable
from tenure.home.lock_holder import current_holder, stopped_mark
from tenure.ports.clock import Clock
from tenure.ports.provider import Provider
from tenure.sqlite.location import Lock

__all__ = ["FileMarks", "Providers", "open_shared_providers", "outage_of"]

log = logging.getLogger("tenure.provider_host")
PAUSE_SECONDS = 0.05
"""Between two attempts to connect while no process serves."""
AGAIN_SECONDS = 1.0
"""Before another attempt of a process that could not open the providers."""
START_SECONDS = 10.0
"""How long a starting client waits for the holder of the lock to open the providers."""
RELEASE_SECONDS = 2.0
"""How long the kernel may take to release the files of a process that was killed."""

Providers = Mapping[str, Provider]
OpenProviders = Callable[[str], AbstractAsyncContextManager[Providers]]
"""Opens the providers and closes them again; takes the issuer to keep, or "" for its own."""


@asynccontextmanager
async def open_shared_providers(
    home: Path, open_providers: OpenProviders, *, clock: Clock, stopped_seconds: float = 0.0
) -> AsyncIterator[Providers]:
    """Yield the providers of this home until the block ends.

    The first process gets the providers themselves, and pays nothing for later clients.  A server
    that is stopped for `stopped_seconds` is killed; 0: never.
    """
    async with AsyncExitStack() as stack:
        host = _ProviderHost(home, open_providers, clock, stopped_seconds)
        try:
            providers = await stack.enter_async_context(host.serve())
        except _ServedElsewhere:
            providers = await stack.enter_async_context(host.connect())
        yield providers


def outage_of(providers: Providers) -> str:
    """Return why these providers do not answer now; "" if they do, as far as is known."""
    return next((one.outage() for one in providers.values() if isinstance(one, ProviderProxy)), "")


class _ServedElsewhere(Exception):
    """Another process holds the lock and serves the providers."""


class _ProviderHost:
    """Serves the providers of a home, or uses the process that does."""

    def __init__(
        self, home: Path, opening: OpenProviders, clock: Clock, stopped_seconds: float
    ) -> None:
        self._home = home
        self._open = opening
        self._clock = clock
        self._stopped_seconds = stopped_seconds

    @asynccontextmanager
    async def serve(self, issuer: str = "") -> AsyncIterator[Providers]:
        """Open and serve the providers until the block ends; _ServedElsewhere if another does."""
        try:
            lock = Lock.take(self._home / "providers")
        except StoreLocked:
            raise _ServedElsewhere from None
        async with AsyncExitStack() as stack:
            stack.callback(lock.release)
            providers = await self._open_when_released(stack, issuer)
            server = Server(providers)
            await server.start(listener.listen(self._home))
            stack.callback(listener.remove_socket, self._home)
            stack.push_async_callback(server.stop)
            yield providers

    async def _open_when_released(self, stack: AsyncExitStack, issuer: str) -> Providers:
        """Open the providers once the kernel has released the files of a killed process."""
        until = self._clock.monotonic() + RELEASE_SECONDS
        while True:
            try:
                return await stack.enter_async_context(self._open(issuer))
            except StoreLocked:
                if self._clock.monotonic() > until:
                    raise
            await self._clock.sleep(PAUSE_SECONDS)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Providers]:
        """Be a client until the block ends; serve if no process does any more."""
        server = CurrentServer()
        async with background(self._follow_server(server), name="tenure provider client"):
            try:
                await server.wait(START_SECONDS)
            except Unavailable:
                raise self._no_answer(server.why) from None
            yield {name: cast(Provider, ProviderProxy(server, name)) for name in PORTS}

    def _no_answer(self, why: str) -> StoreLocked:
        """The error of a start at which the holder of the lock does not answer."""
        process = current_holder(self._home / "providers")
        if process and stopped_mark(process) is not None:
            why = "it is stopped (SIGSTOP), and killed it loses nothing"
        return StoreLocked(
            f"{self._home / 'providers.lock'} is held by process {process or 'unknown'}, which"
            f" cannot be asked for the embedded providers: {why}. Nothing was touched."
            f" End that process: kill -9 {process or 'PID'}."
        )

    async def _follow_server(self, server: CurrentServer) -> None:
        """Use the server while there is one, and become it when there is none; never returns."""
        while True:
            await self._use_server(server)
            try:
                async with self.serve(server.issuer()) as providers:
                    log.warning("this process serves the embedded providers now")
                    server.set(providers, describe(providers))
                    await asyncio.Event().wait()
            except _ServedElsewhere:
                await self._clock.sleep(PAUSE_SECONDS)
            except Exception as error:
                server.why = str(error)
                log.exception(
                    "cannot open the embedded providers; next attempt in %g s", AGAIN_SECONDS
                )
                await self._clock.sleep(AGAIN_SECONDS)

    async def _use_server(self, server: CurrentServer) -> None:
        """Use the server, if there is one, until its connection closes."""
        try:
            connection = await Connection.open(self._home)
        except OSError as error:
            server.why = str(error) or "the process that holds the lock does not answer"
            return
        server.set(connection, connection.description)
        try:
            async with background(
                self._watch_server(connection, server), name="tenure provider watch"
            ):
                await connection.wait_closed()
        finally:
            server.clear("the process that served them has ended, and no other serves yet")
            connection.close()

    async def _watch_server(self, connection: Connection, server: CurrentServer) -> None:
        """Send nothing to a server that is stopped, and kill it if it stays stopped."""
        watch, is_reported = stopped_server.ServerWatch(self._home, connection.process), False
        try:
            while True:
                await self._clock.sleep(stopped_server.POLL_SECONDS)
                seconds = watch.stopped_for()
                if not seconds:
                    server.set(connection, connection.description)
                    is_reported = False
                    continue
                ends = bool(self._stopped_seconds) and watch.can_kill()
                server.clear(self._stopped_reason(connection.process, ends=ends))
                if not is_reported:
                    log.warning("the embedded providers cannot be asked: %s", server.why)
                    is_reported = True
                if ends and seconds >= self._stopped_seconds and watch.kill():
                    log.warning(
                        "process %d served the embedded providers, was stopped for %.0f s and was"
                        " killed; another process serves them now",
                        connection.process,
                        seconds,
                    )
                    return
        finally:
            watch.close()

    def _stopped_reason(self, process: int, *, ends: bool) -> str:
        """Say that the server is stopped, and what follows."""
        then = (
            f"if it stays so for {self._stopped_seconds:.0f} s it is killed, and another serves"
            if ends
            else f"kill -9 {process}, and another serves; kill -CONT {process}, and it goes on"
        )
        return f"process {process}, which serves them, is stopped (SIGSTOP): {then}"
