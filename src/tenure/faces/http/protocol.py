"""Uvicorn's HTTP protocol with limits for slow clients and for the number of connections.

A client that does not finish its headers in time, or stops reading, is disconnected.  A connection
beyond the maximum gets a 503 with Retry-After.  Bodies are bounded in `tenure.faces.http.body`.
"""

import asyncio
from typing import ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenure.faces.http import problems
from tenure.faces.http.bounds import Bounds

CONNECTIONS_FULL = problems.problem(
    "too_many_connections", "the server has its maximum of connections"
)


def bounded_protocol(bounds: Bounds) -> type[HttpToolsProtocol]:
    """The protocol class with these bounds."""
    return type("ProtocolWithBounds", (BoundedProtocol,), {"bounds": bounds})


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    bounds: ClassVar[Bounds] = Bounds()
    _awaits_headers = False
    """Whether a request is expected or started, and its headers are not complete."""
    _head: asyncio.TimerHandle | None = None
    """The timer that runs until the headers are complete."""
    _unread: asyncio.TimerHandle | None = None
    """The timer that runs while the client does not read."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request, or refuse the connection."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections_max:
            transport.write(_response(CONNECTIONS_FULL))
            transport.close()
            self._cut_if_unread()
        else:
            self._awaits_headers = True
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head()
        self._stop_unread()
        super().connection_lost(exc)

    # ------------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        """Count the bytes that arrive before the headers are complete."""
        if self._head is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.bounds.head_bytes_max + len(data):
                self._stop_head()
                self.send_400_response("The headers are too large.")
                return
        super().data_received(data)
        if self._awaits_headers:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Note that a request starts, so that its headers must be complete in time."""
        super().on_message_begin()
        self._awaits_headers = True

    def on_headers_complete(self) -> None:
        """Stop the timer of the headers."""
        self._awaits_headers = False
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
        """Start the timer of the client: the buffer is full, so it has to read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.bounds.write_seconds, self._abort)

    def resume_writing(self) -> None:
        """Stop the timer of the client: it has read."""
        self._stop_unread()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Limit the time to read the rest of the response, also if the connection ends with it."""
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
    """The bytes of a whole response, sent without reading a request."""
    body = msgspec.json.encode(answer.problem)
    lines = [
        b"HTTP/1.1 %d Service Unavailable" % answer.problem.status,
        b"content-type: " + problems.MEDIA.encode(),
        b"content-length: %d" % len(body),
        b"connection: close",
        *(name + b": " + value for name, value in answer.headers),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
