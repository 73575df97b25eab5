"""A guest's line to who serves: many calls under way, each answered by its number.

A call that was not begun may be sent again, to who serves next; one that was sent and not answered
may have been applied, unless it only reads.  One whose caller stops waiting is ended there too.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

import msgspec

from tenure.adapters.provider_host.unix import listener, wire
from tenure.adapters.provider_host.unix.methods import Method
from tenure.adapters.provider_host.unix.wire import Word
from tenure.core.errors import OutcomeUnknown, ProviderError, Rejected, Unavailable
from tenure.ports.identity import Refusal

CALL_SECONDS = 60.0
"""For an answer, beside what the question itself waits for."""
WELCOME_SECONDS = 5.0
DROP_SECONDS = 5.0
"""For a call that was dropped to end there, until its caller goes on without knowing."""


class NotBegun(Exception):
    """The call was not applied and never will be; seen by nobody outside this folder."""


class Line:
    """An open line; made by `open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count()
        self._waiting: dict[int, asyncio.Queue[list[Any]]] = {}
        self.presented: Mapping[str, Any] = {}
        """What the house has said of itself."""
        self.process = listener.peer_pid(writer.get_extra_info("socket"))
        """The process at its other end; 0 if it cannot be seen from here."""
        self._hearing: asyncio.Task[None] | None = None
        self._is_leaving = False

    @classmethod
    async def open(cls, home: Path) -> Self:
        """Meet who serves the house; OSError if nobody does, or nobody who could be understood."""
        reader, writer = await asyncio.open_unix_connection(sock=listener.knock(home))
        line = cls(reader, writer)
        try:
            async with asyncio.timeout(WELCOME_SECONDS):
                message = await wire.read(reader)
        except BaseException:
            writer.close()
            raise
        match message:
            case [Word.WELCOME, {"protocol": wire.PROTOCOL} as presented]:
                line.presented = presented
            case [Word.WELCOME, {"protocol": other, "process": process}]:
                writer.close()
                raise ConnectionError(
                    f"process {process} serves the providers in another way ({other}, here it is"
                    f" {wire.PROTOCOL}); start every process of this home with the same Tenure"
                )
            case _:
                writer.close()
                raise ConnectionError("who serves the providers has hung up")
        line._hearing = asyncio.create_task(line._hear(), name="house")
        return line

    async def ended(self) -> None:
        """Return when the other side is gone."""
        if self._hearing is not None:
            await asyncio.wait({self._hearing})

    def close(self) -> None:
        """Hang up."""
        if self._hearing is not None:
            self._hearing.cancel()
        self._hang_up()

    async def call(self, method: Method, arguments: dict[str, Any]) -> Any:
        """The answer, as the port gives it; NotBegun if it is to be asked elsewhere."""
        number = self._ask(method, arguments)
        try:
            return self._read(method, await self._answer(method, arguments, number))
        except asyncio.CancelledError:
            if method.reads:
                self._drop(number)
            else:
                await self._end(number)
            raise
        finally:
            self._had(number)

    async def listed(self, method: Method, arguments: dict[str, Any]) -> AsyncIterator[Any]:
        """The items, page by page."""
        number = self._ask(method, arguments)
        more = True
        try:
            while more:
                message = await self._answer(method, arguments, number)
                page = self._read(method, message)
                more = message[0] == Word.PAGE
                for item in page:
                    yield item
                if more:
                    wire.write(self._writer, wire.encode([Word.NEXT, number]))
        finally:
            if more:
                self._drop(number)
            self._had(number)

    # --------------------------------------------------------------------------------------- parts

    def _ask(self, method: Method, arguments: dict[str, Any]) -> int:
        if self._is_leaving:
            raise NotBegun
        number = next(self._numbers)
        try:
            frame = wire.encode([Word.CALL, number, method.provider, method.name, arguments])
        except wire.TooLong as error:
            raise Rejected(f"{method.provider}.{method.name} was not sent: {error}") from None
        if not wire.write(self._writer, frame):
            raise NotBegun
        self._waiting[number] = asyncio.Queue()
        return number

    def _drop(self, number: int) -> bool:
        """Nobody waits for it here any more; False if nobody can be told."""
        return wire.write(self._writer, wire.encode([Word.DROP, number]))

    async def _end(self, number: int) -> None:
        """Drop it, and go on when it has ended there: as a call that is cancelled in one process.

        Another one of this key could overtake it otherwise.
        """
        if self._drop(number):
            with suppress(TimeoutError):
                async with asyncio.timeout(DROP_SECONDS):
                    await self._waiting[number].get()

    def _had(self, number: int) -> None:
        """Wait for it no more; who serves may be waiting for us to hang up."""
        self._waiting.pop(number, None)
        if self._is_leaving and not self._waiting:
            self._writer.close()

    async def _answer(self, method: Method, arguments: dict[str, Any], number: int) -> list[Any]:
        waits = arguments.get("seconds", 0.0)
        try:
            async with asyncio.timeout(CALL_SECONDS + waits):
                return await self._waiting[number].get()
        except TimeoutError:
            self._drop(number)
            why = f"who serves the providers (process {self.process}) has not answered for"
            raise _lost(method, f"{why} {CALL_SECONDS + waits:.0f} s") from None

    def _read(self, method: Method, message: list[Any]) -> Any:
        """An answer as a value, or as what it raises."""
        try:
            match message:
                case [Word.VALUE | Word.PAGE, _, value]:
                    return msgspec.convert(value, method.answer)
                case [Word.REFUSAL, _, value]:
                    return msgspec.convert(value, Refusal)
                case [Word.ERROR, _, str(code), str(sentence)]:
                    raise wire.heard(code, sentence)
                case [Word.LEFT, _]:
                    raise NotBegun
                case _:
                    raise _lost(method, "who served the providers has gone before it answered")
        except msgspec.ValidationError as error:
            raise _lost(method, f"the answer cannot be understood ({error})") from None

    async def _hear(self) -> None:
        """Hand every answer to who waits for it; at the end tell those who wait in vain."""
        try:
            while (message := await wire.read(self._reader)) is not None:
                if message[0] == Word.LEAVING:
                    self._is_leaving = True
                    self._had(-1)
                elif len(message) > 1 and message[1] in self._waiting:
                    self._waiting[message[1]].put_nowait(message)
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        self._writer.close()
        for waiting in self._waiting.values():
            waiting.put_nowait([])


def _lost(method: Method, why: str) -> ProviderError:
    kind = Unavailable if method.reads else OutcomeUnknown
    return kind(f"{method.provider}.{method.name}: {why}")
