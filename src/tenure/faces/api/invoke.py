"""Invocations: a request is passed through to the agent's runtime, streaming both ways.

Only the headers named here travel, in either direction: a caller's Authorization never reaches a
runtime, and a runtime cannot set a cookie or a policy for our origin.  One task reads from the
caller and one from the runtime; when either breaks off, the other is stopped.  Nothing is said on a
connection before it is known that the agent itself is at its other end.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from tenure.core.errors import TenureError
from tenure.faces.api.state import Api
from tenure.faces.http import problems
from tenure.faces.http.endpoint import send_problem
from tenure.faces.http.table import HttpRequest, Receive, Send

log = logging.getLogger("tenure.invoke")
REQUEST_BYTES_MAX = 100 << 20
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 900.0
"""How long a runtime may say nothing before it counts as broken."""
WHOSE_SECONDS = 7.0
"""How long it may take to be told whose a new connection is; less than the connection may."""
CONNECTIONS_MAX, CONNECTIONS_EACH_MAX = 2_000, 256
AHEAD_MAX = 4
"""Pieces of a request that are read ahead of the runtime."""
CUSTOM = b"x-amzn-bedrock-agentcore-runtime-custom-"
SESSION = b"x-amzn-bedrock-agentcore-runtime-session-id"
FORWARDED = frozenset({
    b"accept", b"accept-encoding", b"accept-language", b"baggage", b"content-encoding",
    b"content-language", b"content-length", b"content-type", b"last-event-id",
    b"mcp-protocol-version", b"mcp-session-id", b"traceparent", b"tracestate", SESSION,
})  # fmt: skip
RETURNED = frozenset({
    b"cache-control", b"content-disposition", b"content-encoding", b"content-language",
    b"content-length", b"content-type", b"mcp-protocol-version", b"mcp-session-id",
    b"retry-after", SESSION,
})  # fmt: skip
SANDBOX = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox"),
]
"""What a runtime says is not ours: a browser must not run it in our name."""


IsThere = Callable[[], Awaitable[bool]]
"""Whether it is the agent's own runtime that listens at its address."""
_is_there: ContextVar[IsThere] = ContextVar("is_there")


class Stranger(Exception):
    """Who took the connection is not the agent; nothing was sent."""


class Untold(Stranger):
    """Who took it cannot be told, since the runtime's provider cannot be asked."""


def load() -> Any:  # noqa: ANN401 (the module)
    """The client library; its import takes a third of a second, so nobody waits for it at start."""
    return import_module("aiohttp")


async def _client(api: Api) -> Any:  # noqa: ANN401 (the library's own)
    if api.client is None:
        aiohttp = await asyncio.to_thread(load)
        if api.client is None:  # another first invocation may have been faster
            api.client = aiohttp.ClientSession(
                connector=_connector(aiohttp)(
                    limit=CONNECTIONS_MAX, limit_per_host=CONNECTIONS_EACH_MAX
                ),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
    return api.client


def _connector(aiohttp: Any) -> Any:  # noqa: ANN401 (the library's own)
    """Connections that are asked once, when they are new, whose they are.

    What is on the other end of one stays there: an agent that dies closes all of its own.
    """

    class Checked(aiohttp.TCPConnector):  # type: ignore[misc]
        async def _create_connection(self, *given: Any) -> Any:  # noqa: ANN401
            made = await super()._create_connection(*given)
            try:
                await _refuse_strangers()
            except BaseException:
                made.close()
                raise
            return made

    return Checked


async def _refuse_strangers() -> None:
    try:
        async with asyncio.timeout(WHOSE_SECONDS):
            mine = await _is_there.get()()
    except (TenureError, TimeoutError) as error:
        why = str(error) or f"its provider has not answered for {WHOSE_SECONDS:.0f} s"
        raise Untold(f"who listens at the agent's address cannot be told ({why})") from None
    if not mine:
        raise Stranger("somebody else listens at the agent's address")


def _what(error: Exception) -> str:
    """How a runtime broke, for whoever asked it."""
    if isinstance(error, Stranger):
        return f"nothing was sent: {error}"
    if isinstance(error, load().ServerDisconnectedError):
        return "the agent's runtime hung up without an answer (its log may say why)"
    return f"the agent's runtime does not answer ({type(error).__name__})"


def _broken(error: Exception) -> problems.Answer:
    """The same as an answer: what broke, and what becomes of it."""
    if isinstance(error, Untold):
        return problems.problem("unavailable", f"{_what(error)}; ask again")
    then = (
        "if it has ended, the agent soon has a new one, unless drift is only reported:"
        " then suspend and resume it"
    )
    return problems.problem("runtime_broken", f"{_what(error)}; {then}")


class _Upload:
    """What the caller sends, read by one task and sent on by another."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD_MAX)
        self.too_large = False

    async def pump(self) -> None:
        """Read until the caller is gone, or has sent too much."""
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            if size > REQUEST_BYTES_MAX:
                self.too_large = True
                return
            await self._pieces.put(message.get("body", b""))
            if not message.get("more_body", False):
                await self._pieces.put(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        while (piece := await self._pieces.get()) is not None:
            if piece:
                yield piece


async def forward(
    request: HttpRequest, address: str, send: Send, *, is_there: IsThere, cut: asyncio.Event
) -> int:
    """Send the answer of the runtime at this address (`host:port`); the status of it.

    `is_there` is asked of every new connection, and `cut` ends it, wherever it is.
    """
    length = request.headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > REQUEST_BYTES_MAX:
        detail = f"an invocation has at most {REQUEST_BYTES_MAX} bytes"
        return await send_problem(send, problems.problem("body_too_large", detail))
    client = await _client(request.api)
    upload = _Upload(request.receive)
    relay = _Relay(send, is_there)
    reading = asyncio.create_task(upload.pump(), name="invocation request")
    passing = asyncio.create_task(
        relay.run(client, f"http://{address}/invocations", _request_headers(request), upload),
        name="invocation answer",
    )
    cutting = asyncio.create_task(cut.wait(), name="invocation cut")
    tasks = (reading, passing, cutting)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if passing.done():
            return passing.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if cut.is_set() and not relay.status:
        detail = "the agent was closed, and the time to finish what was under way is over"
        return await send_problem(send, problems.problem("suspended", detail))
    if upload.too_large and not relay.status:
        detail = f"an invocation has at most {REQUEST_BYTES_MAX} bytes"
        return await send_problem(send, problems.problem("body_too_large", detail))
    return relay.status or 499


def _request_headers(request: HttpRequest) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in request.scope["headers"]
        if name in FORWARDED or name.startswith(CUSTOM)
    ]


SPACE, DELETE = 0x20, 0x7F
OK, LAST = 200, 599


class _Relay:
    """What the runtime answers, on its way to the caller."""

    def __init__(self, send: Send, is_there: IsThere) -> None:
        self._send = send
        self._is_there = is_there
        self.status = 0
        """The status that was sent; 0: nothing was."""

    async def run(
        self,
        client: Any,  # noqa: ANN401
        url: str,
        headers: list[tuple[str, str]],
        upload: _Upload,
    ) -> int:
        """Ask the runtime and pass its answer on; one that breaks half-way is cut off."""
        aiohttp = load()
        _is_there.set(self._is_there)
        try:
            async with client.post(
                url, data=upload.pieces(), headers=headers, allow_redirects=False
            ) as answer:
                await self._begin(answer)
                async for piece in answer.content.iter_any():
                    await self._send(
                        {"type": "http.response.body", "body": piece, "more_body": True}
                    )
            await self._send({"type": "http.response.body", "body": b""})
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, Stranger) as error:
            log.warning("the runtime at %s was not asked, or broke: %s", url, type(error).__name__)
            if not self.status:  # else the caller sees an answer that never ends: it is cut off
                with suppress(OSError):
                    self.status = await send_problem(self._send, _broken(error))
        return self.status

    async def _begin(self, answer: Any) -> None:  # noqa: ANN401 (the library's own)
        headers = [
            (name.lower(), value) for name, value in answer.raw_headers if name.lower() in RETURNED
        ]
        odd = any(byte < SPACE or byte == DELETE for _, value in headers for byte in value)
        if odd or not OK <= answer.status <= LAST:
            raise ValueError("no answer that HTTP could pass on")
        await self._send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": [*headers, *SANDBOX],
            }
        )
        self.status = answer.status
