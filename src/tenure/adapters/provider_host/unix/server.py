"""The server of the providers: every call runs in its own task and is answered by its number.

A client that does not read, or stops in the middle of a message, delays no other.  A call that its
client drops is cancelled, as it would be within one process.  A call whose client has disconnected
continues: it may be half applied.
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
from tenure.adapters.provider_host.unix.methods import METHODS, PORT_NAMES, describe
from tenure.adapters.provider_host.unix.wire import MessageType
from tenure.concurrency import cancel_and_wait
from tenure.core.errors import Rejected, Unavailable
from tenure.ports.identity import OAuthRefusal
from tenure.ports.provider import Provider

log = logging.getLogger("tenure.provider_host")
CALLS_MAX = 4_096
"""Concurrent calls of one client; no more is read from it while it has this many."""
LEAVE_SECONDS = 5.0
"""How long a stopping server waits for its clients to disconnect."""


class Server:
    """Serves these providers to processes of the same user."""

    def __init__(self, providers: Mapping[str, Provider], *, uid: int | None = None) -> None:
        self._providers = providers
        self._uid = os.geteuid() if uid is None else uid
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self.is_stopping = False

    async def start(self, listener: socket.socket) -> None:
        """Accept clients on this socket."""
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)

    async def stop(self) -> None:
        """Accept no client and start no call; return when every client has disconnected or is late.

        A client disconnects when all its calls are answered, so no answer is lost.
        """
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        for client in self._clients.values():
            wire.write(client, wire.encode([MessageType.LEAVING]))
        if under_way := {*self._clients, *self._calls}:
            await asyncio.wait(under_way, timeout=LEAVE_SECONDS)
        late = [*self._clients, *self._calls]
        for client in self._clients.values():
            client.transport.abort()
        await cancel_and_wait(*late)

    def start_call(self, work: Any) -> asyncio.Task[None]:
        """Run a call to its end, even if its client disconnects."""
        call: asyncio.Task[None] = asyncio.create_task(work)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def provider(self, name: str) -> Provider:
        """Return one of the served providers."""
        return self._providers[name]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
            if uid != self._uid:
                log.warning(
                    "refused a client of user %d: providers are for user %d", uid, self._uid
                )
                return
            if task is None or self.is_stopping:
                return
            self._clients[task] = writer
            description: dict[str, object] = {"protocol": wire.PROTOCOL, "process": os.getpid()}
            description |= describe(self._providers)
            wire.write(writer, wire.encode([MessageType.WELCOME, description]))
            await _ClientSession(self, reader, writer).serve()
        except (OSError, asyncio.CancelledError):
            pass  # the client has disconnected, or this server stops
        finally:
            self._clients.pop(cast("asyncio.Task[Any]", task), None)
            writer.close()


class _ClientSession:
    """One connected client: its calls, and the way back."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._page_requests: dict[int, asyncio.Semaphore] = {}
        """The listings in progress: each continues when its next page is requested."""
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Take calls until the client disconnects."""
        try:
            while (message := await wire.read(self._reader)) is not None:
                match message:
                    case [MessageType.CALL, int(number), str(provider), str(name), dict(arguments)]:
                        await self._room.acquire()
                        self._begin(number, provider, name, arguments)
                    case [MessageType.NEXT, int(number)]:
                        if number in self._page_requests:
                            self._page_requests[number].release()
                    case [MessageType.DROP, int(number)]:
                        if number in self._calls:
                            self._calls[number].cancel()
                    case _:
                        log.warning("a client sent an unknown message and is disconnected")
                        return
        finally:
            for number in [*self._page_requests]:
                self._calls[number].cancel()

    def _begin(self, number: int, provider: str, name: str, arguments: dict[str, Any]) -> None:
        name = PORT_NAMES.get(name, name)
        call = self._server.start_call(self._answer(number, provider, name, arguments))
        call.add_done_callback(lambda done: self._on_ended(number, done))
        self._calls[number] = call
        if (method := METHODS.get(provider, {}).get(name)) is not None and method.is_listing:
            self._page_requests[number] = asyncio.Semaphore(0)

    async def _answer(
        self, number: int, provider: str, name: str, arguments: dict[str, Any]
    ) -> None:
        try:
            answer = await self._perform(number, provider, name, arguments)
        except Exception as error:  # the client gets every error
            answer = [MessageType.ERROR, number, *wire.encode_error(error)]
            if not wire.is_transmitted(error):
                log.exception("%s.%s failed", provider, name)
        self._forget(number)
        await self._send(answer)

    def _on_ended(self, number: int, call: "asyncio.Task[None]") -> None:
        """Tell a client that dropped this call that it has ended, even if it never started."""
        self._room.release()
        if call.cancelled() and number in self._calls:
            wire.write(self._writer, wire.encode([MessageType.ENDED, number]))
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._page_requests.pop(number, None)
        self._calls.pop(number, None)

    async def _perform(
        self, number: int, provider: str, name: str, arguments: dict[str, Any]
    ) -> list[Any]:
        method = METHODS.get(provider, {}).get(name)
        if method is None:
            raise Unavailable(f"the process that serves the providers has no {provider}.{name}")
        if self._server.is_stopping:
            return [MessageType.LEFT, number]
        try:
            arguments_of_call = method.decode(arguments)
        except msgspec.ValidationError as error:
            raise Rejected(f"{provider}.{name}: {error}") from None
        question = getattr(self._server.provider(provider), name)
        if method.is_listing:
            return await self._list(number, question(**arguments_of_call))
        value = await question(**arguments_of_call)
        return [
            MessageType.REFUSAL if isinstance(value, OAuthRefusal) else MessageType.VALUE,
            number,
            value,
        ]

    async def _list(self, number: int, items: AsyncIterator[object]) -> list[Any]:
        """Send each page when it is requested; the last one is the answer."""
        page: list[object] = []
        async for item in items:
            if len(page) == wire.PAGE:
                await self._send([MessageType.PAGE, number, page])
                await self._page_requests[number].acquire()
                page = []
            page.append(item)
        return [MessageType.VALUE, number, page]

    async def _send(self, message: list[Any]) -> None:
        try:
            frame = wire.encode(message)
        except wire.MessageTooLong as error:
            frame = wire.encode([MessageType.ERROR, message[1], *wire.encode_error(error)])
        with suppress(OSError):
            if wire.write(self._writer, frame):
                await self._writer.drain()
