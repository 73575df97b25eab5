"""The HTTP client for webhooks: it connects only to checked addresses, and bounds what it reads.

Imported at the first call: the library takes 390 ms to load, and most planes have no webhooks.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from ssl import SSLContext
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler

CONNECT_SECONDS: Final = 5.0
RESPONSES_MAX: Final = 16
"""Responses to one request: a few interim ones (1xx), and the final one."""
PIECE_BYTES: Final = 2_048
"""Bytes that are parsed before the number of responses is checked."""

Addresses = Callable[[str, int], Awaitable[list[str]]]


def open_session(addresses: Addresses, *, ssl_context: SSLContext | None) -> aiohttp.ClientSession:
    """Return a client without proxy, cookies and DNS cache; `WebhookBus` limits the calls."""
    connector = aiohttp.TCPConnector(
        resolver=_CheckedResolver(addresses),
        use_dns_cache=False,
        limit=0,
        ssl=ssl_context or True,
    )
    handler: Callable[..., ResponseHandler] = BoundedResponses
    loop = asyncio.get_running_loop()
    connector._factory = partial(handler, loop=loop)  # noqa: SLF001 (aiohttp has no public way)
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(connect=CONNECT_SECONDS),
    )


class BoundedResponses(ResponseHandler):
    """Parses incoming data, and closes the connection after too many responses to one request.

    Without this an endpoint that sends endless interim responses would keep the event loop busy
    with parsing, and the timeout of the call would rarely run.
    """

    _responses = 0

    def set_response_params(self, **options: Any) -> None:
        """Reset the count at the start of a request."""
        self._responses = 0
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces; drop data after too many responses."""
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            if self._responses <= RESPONSES_MAX:
                super().data_received(data[start : start + PIECE_BYTES])

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Count a parsed response."""
        self._responses += 1
        if self._responses <= RESPONSES_MAX:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            why = f"it sent more than {RESPONSES_MAX} responses to one request"
            self.set_exception(aiohttp.ClientConnectionError(why))


class _CheckedResolver(AbstractResolver):
    """Resolves a name to checked addresses only."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return all addresses, IPv4 and IPv6."""
        del family
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "proto": 0,
                "flags": 0,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
            }
            for address in await self._addresses(host, port)
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
