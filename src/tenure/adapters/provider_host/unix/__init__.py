"""The embedded providers of one home, opened by one process and served to all others.

Whoever has `providers.lock` opens the providers, uses them directly and serves them on
`providers.sock`; every other process is a guest.  The kernel lets go of the lock when its holder
ends, however that is, and hangs up on every guest: each then tries for the lock, and who gets it
serves.  What a provider holds is on its disk, so there is nothing to hand over.  A holder that
stands stopped is killed by its guests after a while: see `watch`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

from tenure.adapters.provider_host.unix import listener, stopped_server
from tenure.adapters.provider_host.unix.client import Line
from tenure.adapters.provider_host.unix.marks import FileMarks
from tenure.adapters.provider_host.unix.methods import PORTS, presented
from tenure.adapters.provider_host.unix.proxy import Guest, Serving
from tenure.adapters.provider_host.unix.server import Server
from tenure.concurrency import background
from tenure.core.errors import StoreLocked, Unavailable
from tenure.home.lock_holder import holder, stopped
from tenure.ports.clock import Clock
from tenure.ports.provider import Provider
from tenure.sqlite.location import Lock

__all__ = ["FileMarks", "Providers", "shared", "unserved"]

log = logging.getLogger("tenure.house")
PAUSE_SECONDS = 0.05
"""Between two tries while nobody serves."""
AGAIN_SECONDS = 1.0
"""Before who could not open the providers tries again."""
START_SECONDS = 10.0
"""For who has the lock to open the providers, until a guest gives up its own start."""
RELEASE_SECONDS = 2.0
"""For the kernel to let go of all the files of a process that was killed."""

Providers = Mapping[str, Provider]
Open = Callable[[str], AbstractAsyncContextManager[Providers]]
"""Opens the providers and closes them again; given the issuer to keep, or "" for its own."""


@asynccontextmanager
async def shared(
    home: Path, open_providers: Open, *, clock: Clock, stopped_seconds: float = 0.0
) -> AsyncIterator[Providers]:
    """The providers of this home, until the block is left.

    Who is the first has the opened ones themselves, and pays nothing for those who may come.  Who
    serves and stands stopped for so many seconds is killed; 0: never.
    """
    async with AsyncExitStack() as stack:
        house = _House(home, open_providers, clock, stopped_seconds)
        try:
            providers = await stack.enter_async_context(house.served())
        except _Held:
            providers = await stack.enter_async_context(house.visited())
        yield providers


def unserved(providers: Providers) -> str:
    """Why none of these can be asked now; "" if they can, as far as is known."""
    return next((one.silence() for one in providers.values() if isinstance(one, Guest)), "")


class _Held(Exception):
    """Another process has the house."""


class _House:
    """This process's part in it."""

    def __init__(self, home: Path, opening: Open, clock: Clock, stopped_seconds: float) -> None:
        self._home = home
        self._open = opening
        self._clock = clock
        self._stopped_seconds = stopped_seconds

    @asynccontextmanager
    async def served(self, issuer: str = "") -> AsyncIterator[Providers]:
        """Open the providers and serve them until the block is left; _Held if another does."""
        try:
            lock = Lock.take(self._home / "providers")
        except StoreLocked:
            raise _Held from None
        async with AsyncExitStack() as stack:
            stack.callback(lock.release)
            providers = await self._opened(stack, issuer)
            server = Server(providers)
            await server.start(listener.open_door(self._home))
            stack.callback(listener.close_door, self._home)
            stack.push_async_callback(server.stop)
            yield providers

    async def _opened(self, stack: AsyncExitStack, issuer: str) -> Providers:
        """Open them, as soon as the kernel has taken their files from who was killed."""
        until = self._clock.monotonic() + RELEASE_SECONDS
        while True:
            try:
                return await stack.enter_async_context(self._open(issuer))
            except StoreLocked:
                if self._clock.monotonic() > until:
                    raise
            await self._clock.sleep(PAUSE_SECONDS)

    @asynccontextmanager
    async def visited(self) -> AsyncIterator[Providers]:
        """Be a guest until the block is left, or serve when nobody does any more."""
        serving = Serving()
        async with background(self._follow(serving), name="tenure provider client"):
            try:
                await serving.found(START_SECONDS)
            except Unavailable:
                raise self._silent(serving.why) from None
            yield {name: cast(Provider, Guest(serving, name)) for name in PORTS}

    def _silent(self, why: str) -> StoreLocked:
        """Who has the lock cannot be asked."""
        process = holder(self._home / "providers")
        if process and stopped(process) is not None:
            why = "it is stopped (SIGSTOP), and killed it loses nothing"
        return StoreLocked(
            f"{self._home / 'providers.lock'} is held by process {process or 'unknown'}, which"
            f" cannot be asked for the embedded providers: {why}. Nothing was touched."
            f" End that process: kill -9 {process or 'PID'}."
        )

    async def _follow(self, serving: Serving) -> None:
        """Be a guest of whoever serves, and serve when nobody does, for ever."""
        while True:
            await self._visit(serving)
            try:
                async with self.served(serving.issuer()) as providers:
                    log.warning("this process serves the embedded providers now")
                    serving.by(providers, presented(providers))
                    await asyncio.Event().wait()
            except _Held:
                await self._clock.sleep(PAUSE_SECONDS)
            except Exception as error:
                serving.why = str(error)
                log.exception("the embedded providers cannot be opened; it is tried again")
                await self._clock.sleep(AGAIN_SECONDS)

    async def _visit(self, serving: Serving) -> None:
        """Be the guest of who serves, if anybody does, until it is gone."""
        try:
            line = await Line.open(self._home)
        except OSError as error:
            serving.why = str(error) or "who has the lock does not answer"
            return
        serving.by(line, line.presented)
        try:
            async with background(self._watch(line, serving), name="tenure provider watch"):
                await line.ended()
        finally:
            serving.nobody("who served them is gone, and nobody else does yet")
            line.close()

    async def _watch(self, line: Line, serving: Serving) -> None:
        """Ask nothing of who serves while it stands stopped, and end it if it stays so."""
        there, is_told = stopped_server.Watch(self._home, line.process), False
        try:
            while True:
                await self._clock.sleep(stopped_server.LOOK_SECONDS)
                stood = there.stood()
                if not stood:
                    serving.by(line, line.presented)
                    is_told = False
                    continue
                ends = bool(self._stopped_seconds) and there.can_end()
                serving.nobody(self._standing(line.process, ends=ends))
                if not is_told:
                    log.warning("the embedded providers cannot be asked: %s", serving.why)
                    is_told = True
                if ends and stood >= self._stopped_seconds and there.end():
                    log.warning(
                        "process %d served the embedded providers, had stood stopped for %.0f s and"
                        " was killed, so that another can",
                        line.process,
                        stood,
                    )
                    return
        finally:
            there.close()

    def _standing(self, process: int, *, ends: bool) -> str:
        """That it does, and what becomes of it."""
        then = (
            f"if it stays so for {self._stopped_seconds:.0f} s it is killed, and another serves"
            if ends
            else f"kill -9 {process}, and another serves; kill -CONT {process}, and it goes on"
        )
        return f"process {process}, which serves them, is stopped (SIGSTOP): {then}"
