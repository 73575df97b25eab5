"""Invocations over HTTP: the request of a caller, and the response that is sent to it.

Every face that takes invocations serves them by `serve`.  The rules of an invocation are in
`tenure.app.agents.invocations`; this module adapts them to ASGI.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress

from tenure.app.agents.invocations import Invocation
from tenure.core.errors import TenureError
from tenure.faces.http import problems
from tenure.faces.http.endpoint import send_problem
from tenure.faces.http.route_table import HttpRequest, Send
from tenure.ports.invoker import Headers

REQUEST_BYTES_MAX = 100 << 20
PIECES_AHEAD_MAX = 4
"""How many pieces of a request are buffered for the runtime."""
CALLER_GONE = 499
"""The status that is counted for a caller who left before the response started."""
SANDBOX = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox"),
]
"""The response comes from an agent's runtime: a browser must not run it under our origin."""


async def serve(request: HttpRequest, invocation: Invocation, send: Send) -> int:
    """Run the invocation for this request; return the status that was sent."""
    with invocation:
        length = request.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > REQUEST_BYTES_MAX:
            return await send_problem(send, _too_large())
        exchange = HttpExchange(request, send)
        try:
            await invocation.run(exchange)
        except TenureError as error:
            answer = problems.of_error(error)
            if answer is None:
                raise
            with suppress(OSError):
                return await send_problem(send, answer)
        if exchange.is_too_large and not exchange.status:
            return await send_problem(send, _too_large())
        return exchange.status or CALLER_GONE


def _too_large() -> problems.ProblemAnswer:
    detail = f"an invocation may have at most {REQUEST_BYTES_MAX} bytes"
    return problems.problem("body_too_large", detail)


class HttpExchange:
    """Implements `tenure.ports.invoker.Exchange` over ASGI."""

    def __init__(self, request: HttpRequest, send: Send) -> None:
        self.headers: Headers = request.scope["headers"]
        self.status = 0
        """The status of the response; 0: it has not started."""
        self.is_too_large = False
        self._receive = request.receive
        self._send = send
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_AHEAD_MAX)

    @property
    def has_started(self) -> bool:
        """Whether a status was sent."""
        return bool(self.status)

    async def watch_caller(self) -> None:
        """Read until the caller disconnects or has sent too much."""
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            if size > REQUEST_BYTES_MAX:
                self.is_too_large = True
                return
            await self._pieces.put(message.get("body", b""))
            if not message.get("more_body", False):
                await self._pieces.put(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces that were read."""
        while (piece := await self._pieces.get()) is not None:
            if piece:
                yield piece

    async def start(self, status: int, headers: Headers) -> None:
        """Send the status and the headers, with the SANDBOX headers added."""
        headers = [*headers, *SANDBOX]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.status = status

    def send(self, piece: bytes) -> Awaitable[None]:
        """Send the piece unchanged."""
        return self._send({"type": "http.response.body", "body": piece, "more_body": True})

    def end(self) -> Awaitable[None]:
        """Send the end of the response."""
        return self._send({"type": "http.response.body", "body": b""})
