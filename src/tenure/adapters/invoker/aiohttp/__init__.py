"""`AiohttpInvoker`: calls runtimes over HTTP, streaming both ways.

A new connection is checked once: the agent's own runtime must be at its other end.  The other
end cannot change later, since an agent that dies closes all of its connections.
"""

import asyncio
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from tenure.core.errors import RuntimeBroken, TenureError, Unavailable
from tenure.ports.invoker import (
    CUSTOM_HEADER_PREFIX,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    Exchange,
    ListenerCheck,
)

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 900.0
"""A runtime that sends nothing for this long counts as broken."""
LISTENER_CHECK_SECONDS = 7.0
"""How long the check of a new connection may take; less than CONNECT_SECONDS."""
CONNECTIONS_MAX, CONNECTIONS_EACH_MAX = 2_000, 256
SPACE, DELETE = 0x20, 0x7F
STATUS_MIN, STATUS_MAX = 200, 599
_listener_check: ContextVar[ListenerCheck] = ContextVar("listener_check")


class ForeignListener(Exception):
    """Another program has taken the connection; nothing was sent."""


class AiohttpInvoker:
    """Implements `tenure.ports.invoker.Invoker`; one client for all invocations."""

    def __init__(self) -> None:
        self._client: Any = None

    async def load(self) -> None:
        """Import the library, which takes a third of a second, in a thread."""
        await asyncio.to_thread(_library)

    async def invoke(
        self, address: str, exchange: Exchange, *, runtime_listens: ListenerCheck
    ) -> None:
        """Post the request to `/invocations` and pass the response on as it arrives."""
        client = self._client or await self._open()
        library = _library()
        _listener_check.set(runtime_listens)
        try:
            async with client.post(
                f"http://{address}/invocations",
                data=exchange.pieces(),
                headers=_request_headers(exchange),
                allow_redirects=False,
            ) as response:
                await _start(exchange, response)
                async for piece in response.content.iter_any():
                    await exchange.send(piece)
            await exchange.end()
        except ForeignListener as error:
            raise RuntimeBroken(f"nothing was sent: {error}") from None
        except library.ServerDisconnectedError:
            message = "the agent's runtime closed the connection without an answer (see its log)"
            raise RuntimeBroken(message) from None
        except (library.ClientError, TimeoutError, OSError, ValueError) as error:
            message = f"the agent's runtime does not answer ({type(error).__name__})"
            raise RuntimeBroken(message) from error

    async def close(self) -> None:
        """Close the client; a later invocation opens another."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _open(self) -> Any:
        await self.load()
        if self._client is None:  # another first invocation may have been faster
            library = _library()
            self._client = library.ClientSession(
                connector=_connector_type(library)(
                    limit=CONNECTIONS_MAX, limit_per_host=CONNECTIONS_EACH_MAX
                ),
                timeout=library.ClientTimeout(
                    total=None, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
                ),
                cookie_jar=library.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._client


def _library() -> Any:
    return import_module("aiohttp")


def _connector_type(library: Any) -> Any:
    class CheckedConnector(library.TCPConnector):  # type: ignore[misc]
        async def _create_connection(self, *arguments: Any) -> Any:
            connection = await super()._create_connection(*arguments)
            try:
                await _refuse_foreign_listener()
            except BaseException:
                connection.close()
                raise
            return connection

    return CheckedConnector


async def _refuse_foreign_listener() -> None:
    try:
        async with asyncio.timeout(LISTENER_CHECK_SECONDS):
            runtime_listens = await _listener_check.get()()
    except (TenureError, TimeoutError) as error:
        why = str(error) or f"its provider has not answered for {LISTENER_CHECK_SECONDS:.0f} s"
        message = f"nothing was sent: the owner of the agent's address is not known ({why})"
        raise Unavailable(f"{message}; try again") from None
    if not runtime_listens:
        raise ForeignListener("another program listens at the agent's address")


def _request_headers(exchange: Exchange) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in exchange.headers
        if name in REQUEST_HEADERS or name.startswith(CUSTOM_HEADER_PREFIX)
    ]


async def _start(exchange: Exchange, response: Any) -> None:
    headers = [
        (name.lower(), value)
        for name, value in response.raw_headers
        if name.lower() in RESPONSE_HEADERS
    ]
    is_odd = any(byte < SPACE or byte == DELETE for _, value in headers for byte in value)
    if is_odd or not STATUS_MIN <= response.status <= STATUS_MAX:
        message = "HTTP cannot pass this response on"
        raise ValueError(message)
    await exchange.start(response.status, headers)
