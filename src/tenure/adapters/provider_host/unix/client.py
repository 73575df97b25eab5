"""A client's connection to the server: many calls at once, each answered by its number.

A call that was not started may be sent again to the next server.  A call that was sent and not
answered may have been applied, unless it only reads.  If its caller is cancelled, the call is
cancelled at the server too.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

import msgspec

from tenure.adapters.provider_host.unix import listener, wire
from tenure.adapters.provider_host.unix.methods import WIRE_NAMES, Method
from tenure.adapters.provider_host.unix.wire import MessageType
from tenure.core.errors import OutcomeUnknown, ProviderError, Rejected, Unavailable
from tenure.ports.identity import OAuthRefusal

CALL_SECONDS = 60.0
"""For an answer, in addition to the time that the call itself may wait."""
WELCOME_SECONDS = 5.0
DROP_SECONDS = 5.0
"""For a dropped call to end at the server; after that its caller continues."""


class CallNotStarted(Exception):
    """The call was not applied and never will be; not seen outside this package."""


class Connection:
    """An open connection; made by `open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count()
        self._waiting: dict[int, asyncio.Queue[list[Any]]] = {}
        self.description: Mapping[str, Any] = {}
        """The attributes that the server has described."""
        self.process = listener.peer_pid(writer.get_extra_info("socket"))
        """The server's process id; 0 if it is in another pid namespace."""
        self._answers: asyncio.Task[None] | None = None
        self._is_server_stopping = False

    @classmethod
    async def open(cls, home: Path) -> Self:
        """Connect to the server of this home; OSError if none speaks this protocol."""
        reader, writer = await asyncio.open_unix_connection(sock=listener.connect(home))
        connection = cls(reader, writer)
        try:
            async with asyncio.timeout(WELCOME_SECONDS):
                message = await wire.read(reader)
        except BaseException:
            writer.close()
            raise
        match message:
            case [MessageType.WELCOME, {"protocol": wire.PROTOCOL} as description]:
                connection.description = description
            case [MessageType.WELCOME, {"protocol": other, "process": process}]:
                writer.close()
                raise ConnectionError(
                    f"process {process} serves the providers in another way ({other}, here it is"
                    f" {wire.PROTOCOL}); start every process of this home with the same Tenure"
                )
            case _:
                writer.close()
                raise ConnectionError("the process that serves the providers closed the connection")
        connection._answers = asyncio.create_task(
            connection._read_answers(), name="tenure provider answers"
        )
        return connection

    async def wait_closed(self) -> None:
        """Return when the connection is closed."""
        if self._answers is not None:
            await asyncio.wait({self._answers})

    def close(self) -> None:
        """Close the connection."""
        if self._answers is not None:
            self._answers.cancel()
        self._close_writer()

    async def call(self, method: Method, arguments: dict[str, Any]) -> Any:
        """Return the answer; CallNotStarted if the next server has to be called."""
        number = self._send_call(method, arguments)
        try:
            return self._read(method, await self._answer(method, arguments, number))
        except asyncio.CancelledError:
            if method.reads:
                self._drop(number)
            else:
                await self._drop_and_wait(number)
            raise
        finally:
            self._forget(number)

    async def list_items(self, method: Method, arguments: dict[str, Any]) -> AsyncIterator[Any]:
        """Yield the items, page by page."""
        number = self._send_call(method, arguments)
        more = True
        try:
            while more:
                message = await self._answer(method, arguments, number)
                page = self._read(method, message)
                more = message[0] == MessageType.PAGE
                for item in page:
                    yield item
                if more:
                    wire.write(self._writer, wire.encode([MessageType.NEXT, number]))
        finally:
            if more:
                self._drop(number)
            self._forget(number)

    # --------------------------------------------------------------------------------------- parts

    def _send_call(self, method: Method, arguments: dict[str, Any]) -> int:
        if self._is_server_stopping:
            raise CallNotStarted
        number = next(self._numbers)
        try:
            name = WIRE_NAMES.get(method.name, method.name)
            frame = wire.encode([MessageType.CALL, number, method.provider, name, arguments])
        except wire.MessageTooLong as error:
            raise Rejected(f"{method.provider}.{method.name} was not sent: {error}") from None
        if not wire.write(self._writer, frame):
            raise CallNotStarted
        self._waiting[number] = asyncio.Queue()
        return number

    def _drop(self, number: int) -> bool:
        """Tell the server that no one waits for this call; False if the connection is closed."""
        return wire.write(self._writer, wire.encode([MessageType.DROP, number]))

    async def _drop_and_wait(self, number: int) -> None:
        """Drop the call and return when it has ended at the server, as a cancelled call does.

        Otherwise a later call of the same key could overtake it.
        """
        if self._drop(number):
            with suppress(TimeoutError):
                async with asyncio.timeout(DROP_SECONDS):
                    await self._waiting[number].get()

    def _forget(self, number: int) -> None:
        """Stop waiting for this call; a stopping server may be waiting for us to disconnect."""
        self._waiting.pop(number, None)
        if self._is_server_stopping and not self._waiting:
            self._writer.close()

    async def _answer(self, method: Method, arguments: dict[str, Any], number: int) -> list[Any]:
        waits = arguments.get("seconds", 0.0)
        try:
            async with asyncio.timeout(CALL_SECONDS + waits):
                return await self._waiting[number].get()
        except TimeoutError:
            self._drop(number)
            why = f"the process that serves the providers ({self.process}) has not answered for"
            raise _lost_call(method, f"{why} {CALL_SECONDS + waits:.0f} s") from None

    def _read(self, method: Method, message: list[Any]) -> Any:
        """Return the value of an answer, or raise its error."""
        try:
            match message:
                case [MessageType.VALUE | MessageType.PAGE, _, value]:
                    return msgspec.convert(value, method.answer)
                case [MessageType.REFUSAL, _, value]:
                    return msgspec.convert(value, OAuthRefusal)
                case [MessageType.ERROR, _, str(code), str(sentence)]:
                    raise wire.decode_error(code, sentence)
                case [MessageType.LEFT, _]:
                    raise CallNotStarted
                case _:
                    raise _lost_call(
                        method, "the process that served the providers ended before it answered"
                    )
        except msgspec.ValidationError as error:
            raise _lost_call(method, f"the answer cannot be understood ({error})") from None

    async def _read_answers(self) -> None:
        """Pass every answer to the call that waits for it; at the end fail those left."""
        try:
            while (message := await wire.read(self._reader)) is not None:
                if message[0] == MessageType.LEAVING:
                    self._is_server_stopping = True
                    self._forget(-1)
                elif len(message) > 1 and message[1] in self._waiting:
                    self._waiting[message[1]].put_nowait(message)
        finally:
            self._close_writer()

    def _close_writer(self) -> None:
        self._writer.close()
        for waiting in self._waiting.values():
            waiting.put_nowait([])


def _lost_call(method: Method, why: str) -> ProviderError:
    kind = Unavailable if method.reads else OutcomeUnknown
    return kind(f"{method.provider}.{method.name}: {why}")
