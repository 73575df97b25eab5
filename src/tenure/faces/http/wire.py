"""The wire: uvicorn's HTTP protocol, with an end to the patience for slow clients.

A client that does not finish its headers, or that stops reading, is cut off, and beyond so many
connections a new one is told to come again.  Bodies are bounded where they are read.
"""

import asyncio
from typing import ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenure.faces.http import problems
from tenure.faces.http.bounds import Bounds

FULL = problems.problem("too_many_connections", "every connection that can be served is taken")


def wire(bounds: Bounds) -> type[HttpToolsProtocol]:
    """The protocol, held to these bounds."""
    return type("BoundedWire", (Wire,), {"bounds": bounds})


class Wire(HttpToolsProtocol):
    """One connection."""

    bounds: ClassVar[Bounds] = Bounds()
    _begun = False
    """Whether a request is expected whose headers are not complete."""
    _head: asyncio.TimerHandle | None = None
    """Runs while headers are waited for."""
    _unread: asyncio.TimerHandle | None = None
    """Runs while nothing more can be written."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request, or refuse the connection."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections_max:
            transport.write(_response(FULL))
            transport.close()
            self._cut_if_unread()
        else:
            self._begun = True
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_head()
        self._stop_unread()
        super().connection_lost(exc)

    # ------------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        """Count what comes before the headers are complete."""
        if self._head is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.bounds.head_bytes_max + len(data):
                self._stop_head()
                self.send_400_response("The headers are too large.")
                return
        super().data_received(data)
        if self._begun:
            self._expect_head()

    def on_message_begin(self) -> None:
        """A request begins: its headers have to end in time."""
        super().on_message_begin()
        self._begun = True

    def on_headers_complete(self) -> None:
        """In time."""
        self._begun = False
        self._stop_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        if self._head is None:
            self._head_bytes = 0
            self._head = self.loop.call_later(self.bounds.head_seconds, self._abort)

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    # ------------------------------------------------------------------------------------- writing

    def pause_writing(self) -> None:
        """Nothing more fits: the client has to read on."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.bounds.write_seconds, self._abort)

    def resume_writing(self) -> None:
        """It does."""
        self._stop_unread()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """What is left of an answer must be read too, also when the connection ends with it."""
        super().on_response_complete()
        self._cut_if_unread()

    def _cut_if_unread(self) -> None:
        if self._unread is None and self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(self.bounds.write_seconds, self._still_unread)

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _still_unread(self) -> None:
        self._unread = None
        if self.transport.get_write_buffer_size():
            self._abort()

    def _abort(self) -> None:
        self.transport.abort()


def _response(answer: problems.ProblemAnswer) -> bytes:
    """A whole response, where no request was read."""
    body = msgspec.json.encode(answer.problem)
    lines = [
        b"HTTP/1.1 %d Service Unavailable" % answer.problem.status,
        b"content-type: " + problems.MEDIA.encode(),
        b"content-length: %d" % len(body),
        b"connection: close",
        *(name + b": " + value for name, value in answer.headers),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
