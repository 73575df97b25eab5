"""A TCP proxy between a client and a real server that injects network faults.

It does not interpret the bytes.  Its behaviour can be changed while it runs, for open connections
and for new ones:

    async with Proxy("127.0.0.1", 5432) as proxy:
        ...                                  # connect to 127.0.0.1:proxy.port
        proxy.behaviour = Behaviour(mute=True)   # requests arrive, responses are lost
        proxy.cut()                              # every connection ends in a reset
"""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the proxy treats bytes; `deaf` and `mute` together make a half-open connection."""

    deaf: bool = False
    """Drop the bytes of the client."""
    mute: bool = False
    """Drop the bytes of the server."""
    refuses: bool = False
    """Refuse new connections; open ones stay open."""
    delay_seconds: float = 0.0
    """Delay all bytes so long, in both directions."""
    cut_after_sent: int | None = None
    """Reset a connection after the client has sent so many more bytes; the server gets them."""
    cut_after_answered: int | None = None
    """Reset a connection after the server has sent so many more bytes; the client gets them."""


PLAIN = Behaviour()


class _Wire:
    """One connection: two sockets, and the bytes passed since the behaviour changed."""

    def __init__(self, client: asyncio.StreamWriter, upstream: asyncio.StreamWriter) -> None:
        self.client = client
        self.upstream = upstream
        self.behaviour: Behaviour | None = None
        self.sent = 0
        self.answered = 0

    def reset(self) -> None:
        """Reset both sides at once."""
        for writer in (self.client, self.upstream):
            whole: socket.socket | None = writer.get_extra_info("socket")
            if whole is not None and not writer.transport.is_closing():
                linger = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    whole.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


class Proxy:
    """Listens on loopback and forwards connections to one server, as its behaviour says."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._behaviour = PLAIN
        self._server: asyncio.Server | None = None
        self._wires: set[_Wire] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.let_in = 0
        """The number of connections forwarded so far."""

    @property
    def behaviour(self) -> Behaviour:
        """How bytes are treated from now on."""
        return self._behaviour

    @behaviour.setter
    def behaviour(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._greet, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what was reset is closed on the next turn

    def cut(self) -> None:
        """Reset every connection that is open now."""
        for wire in list(self._wires):
            wire.reset()

    def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until it ends, and close both sides."""
        upstream: asyncio.StreamWriter | None = None
        try:
            if self._behaviour.refuses:
                return
            above, upstream = await asyncio.open_connection(*self._upstream)
            self.let_in += 1
            wire = _Wire(writer, upstream)
            self._wires.add(wire)
            try:
                await asyncio.gather(
                    self._pump(wire, reader, upstream, client=True),
                    self._pump(wire, above, writer, client=False),
                )
            finally:
                self._wires.discard(wire)
                wire.reset()
        except OSError:
            pass  # the server cannot be reached
        finally:
            for one in filter(None, (writer, upstream)):
                one.transport.abort()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    async def _pump(
        self, wire: _Wire, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, client: bool
    ) -> None:
        """Forward one direction until it ends; both directions end with it."""
        try:
            while chunk := await source.read(CHUNK_BYTES):
                if self._behaviour.delay_seconds:
                    await asyncio.sleep(self._behaviour.delay_seconds)
                await self._pass_on(wire, chunk, sink, client=client)
        except OSError:
            pass
        finally:
            if not (self._behaviour.deaf or self._behaviour.mute):
                wire.reset()

    async def _pass_on(
        self, wire: _Wire, chunk: bytes, sink: asyncio.StreamWriter, *, client: bool
    ) -> None:
        behaviour = self._behaviour
        if wire.behaviour is not behaviour:
            wire.behaviour, wire.sent, wire.answered = behaviour, 0, 0
        if behaviour.deaf if client else behaviour.mute:
            return
        most = behaviour.cut_after_sent if client else behaviour.cut_after_answered
        passed = wire.sent if client else wire.answered
        room = len(chunk) if most is None else max(0, most - passed)
        sink.write(chunk[:room])
        await sink.drain()
        if client:
            wire.sent += len(chunk[:room])
        else:
            wire.answered += len(chunk[:room])
        if most is not None and passed + len(chunk) >= most:
            # Let the forwarded bytes arrive first: a reset would overtake them.
            for _ in range(3):
                await asyncio.sleep(0.001)
            wire.reset()
