"""The house as guests are served: every call in a task of its own, answered by its number.

Who does not read, or stops in the middle of a message, holds up nobody else.  A call that its guest
drops is cancelled, as it would be in one process.  It goes on when its guest is gone: it may be
half applied.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from tenure.adapters.provider_host.unix import wire
from tenure.adapters.provider_host.unix.listener import peer_uid
from tenure.adapters.provider_host.unix.methods import TABLE, presented
from tenure.adapters.provider_host.unix.wire import Word
from tenure.concurrency import cancel_and_wait
from tenure.core.errors import Rejected, Unavailable
from tenure.ports.identity import Refusal
from tenure.ports.provider import Provider

log = logging.getLogger("tenure.house")
CALLS_MAX = 4_096
"""Under way for one guest; it is not read from while there are more."""
LEAVE_SECONDS = 5.0
"""How long who leaves waits for its guests to hang up."""


class Server:
    """Serves these providers to who has the same user as this process."""

    def __init__(self, providers: Mapping[str, Provider], *, uid: int | None = None) -> None:
        self._providers = providers
        self._uid = os.geteuid() if uid is None else uid
        self._server: asyncio.Server | None = None
        self._guests: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self.is_leaving = False

    async def start(self, listener: socket.socket) -> None:
        """Serve who comes by this socket."""
        self._server = await asyncio.start_unix_server(self._welcome, sock=listener)

    async def stop(self) -> None:
        """Let nobody in and begin nothing; let go when every guest has, or has had the time to.

        A guest hangs up when all it had under way is answered; so nothing is lost on the way.
        """
        self.is_leaving = True
        if self._server is not None:
            self._server.close()
        for guest in self._guests.values():
            wire.write(guest, wire.encode([Word.LEAVING]))
        if under_way := {*self._guests, *self._calls}:
            await asyncio.wait(under_way, timeout=LEAVE_SECONDS)
        late = [*self._guests, *self._calls]
        for guest in self._guests.values():
            guest.transport.abort()
        await cancel_and_wait(*late)

    def answering(self, work: Any) -> asyncio.Task[None]:
        """Have a call done, whatever becomes of its guest."""
        call: asyncio.Task[None] = asyncio.create_task(work)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def provider(self, name: str) -> Provider:
        """One of those that are served."""
        return self._providers[name]

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
            if uid != self._uid:
                log.warning("user %d is not served: the house is for user %d", uid, self._uid)
                return
            if visit is None or self.is_leaving:
                return
            self._guests[visit] = writer
            said: dict[str, object] = {"protocol": wire.PROTOCOL, "process": os.getpid()}
            said |= presented(self._providers)
            wire.write(writer, wire.encode([Word.WELCOME, said]))
            await _Guest(self, reader, writer).serve()
        except (OSError, asyncio.CancelledError):
            pass  # it is gone, or we go
        finally:
            self._guests.pop(cast("asyncio.Task[Any]", visit), None)
            writer.close()


class _Guest:
    """One that has come: what it asks, and the way back."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._turns: dict[int, asyncio.Semaphore] = {}
        """The listings under way: each goes on when it is asked for more."""
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Take its calls until it is gone."""
        try:
            while (message := await wire.read(self._reader)) is not None:
                match message:
                    case [Word.CALL, int(number), str(provider), str(name), dict(arguments)]:
                        await self._room.acquire()
                        self._begin(number, provider, name, arguments)
                    case [Word.NEXT, int(number)]:
                        if number in self._turns:
                            self._turns[number].release()
                    case [Word.DROP, int(number)]:
                        if number in self._calls:
                            self._calls[number].cancel()
                    case _:
                        log.warning("a guest does not speak as it should, and is let go")
                        return
        finally:
            for number in [*self._turns]:
                self._calls[number].cancel()

    def _begin(self, number: int, provider: str, name: str, arguments: dict[str, Any]) -> None:
        call = self._server.answering(self._answer(number, provider, name, arguments))
        call.add_done_callback(lambda done: self._ended(number, done))
        self._calls[number] = call
        if (method := TABLE.get(provider, {}).get(name)) is not None and method.is_listing:
            self._turns[number] = asyncio.Semaphore(0)

    async def _answer(
        self, number: int, provider: str, name: str, arguments: dict[str, Any]
    ) -> None:
        try:
            answer = await self._done(number, provider, name, arguments)
        except Exception as error:  # whatever it is, the guest is told
            answer = [Word.ERROR, number, *wire.told(error)]
            if not wire.travels(error):
                log.exception("%s.%s failed", provider, name)
        self._forget(number)
        await self._send(answer)

    def _ended(self, number: int, call: "asyncio.Task[None]") -> None:
        """Whoever dropped it is told that it has ended, also if it had not even begun."""
        self._room.release()
        if call.cancelled() and number in self._calls:
            wire.write(self._writer, wire.encode([Word.ENDED, number]))
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._turns.pop(number, None)
        self._calls.pop(number, None)

    async def _done(
        self, number: int, provider: str, name: str, arguments: dict[str, Any]
    ) -> list[Any]:
        method = TABLE.get(provider, {}).get(name)
        if method is None:
            raise Unavailable(f"who serves the providers knows no {provider}.{name}")
        if self._server.is_leaving:
            return [Word.LEFT, number]
        try:
            asked = method.restored(arguments)
        except msgspec.ValidationError as error:
            raise Rejected(f"{provider}.{name}: {error}") from None
        question = getattr(self._server.provider(provider), name)
        if method.is_listing:
            return await self._list(number, question(**asked))
        value = await question(**asked)
        return [Word.REFUSAL if isinstance(value, Refusal) else Word.VALUE, number, value]

    async def _list(self, number: int, items: AsyncIterator[object]) -> list[Any]:
        """Send page after page as they are asked for; the last one is the answer."""
        page: list[object] = []
        async for item in items:
            if len(page) == wire.PAGE:
                await self._send([Word.PAGE, number, page])
                await self._turns[number].acquire()
                page = []
            page.append(item)
        return [Word.VALUE, number, page]

    async def _send(self, message: list[Any]) -> None:
        try:
            frame = wire.encode(message)
        except wire.TooLong as error:
            frame = wire.encode([Word.ERROR, message[1], *wire.told(error)])
        with suppress(OSError):
            if wire.write(self._writer, frame):
                await self._writer.drain()
