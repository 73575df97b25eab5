"""The client that calls webhooks: it connects to what was looked at, and reads what it must.

Imported at the first call: the library takes 390 ms to load, and most planes call nobody.
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
HEADS_MAX: Final = 16
"""Heads of answers to one request: a few interim ones, and the answer."""
PIECE_BYTES: Final = 2_048
"""How much is parsed before it is asked whether that was enough."""

Addresses = Callable[[str, int], Awaitable[list[str]]]


def session(addresses: Addresses, *, ssl_context: SSLContext | None) -> aiohttp.ClientSession:
    """No proxy, no cookies, no cache of names; how many call at once is bounded elsewhere."""
    connector = aiohttp.TCPConnector(
        resolver=_Looking(addresses),
        use_dns_cache=False,
        limit=0,
        ssl=ssl_context or True,
    )
    answers: Callable[..., ResponseHandler] = Answers
    loop = asyncio.get_running_loop()
    connector._factory = partial(answers, loop=loop)  # noqa: SLF001 (there is no other way in)
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(connect=CONNECT_SECONDS),
    )


class Answers(ResponseHandler):
    """What comes in on a connection, until there are too many answers to one request.

    Without it an endpoint that sends interim answers without end keeps the loop parsing them, and
    the timer that ends the call hardly has its turn.
    """

    _heads = 0

    def set_response_params(self, **more: Any) -> None:
        """A request begins."""
        self._heads = 0
        super().set_response_params(**more)

    def data_received(self, data: bytes) -> None:
        """Read on, in pieces; what comes after too many answers is dropped."""
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            if self._heads <= HEADS_MAX:
                super().data_received(data[start : start + PIECE_BYTES])

    def feed_data(self, data: Any, size: int = 0) -> None:
        """One more head is read."""
        self._heads += 1
        if self._heads <= HEADS_MAX:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            why = f"it sent more than {HEADS_MAX} answers to one request"
            self.set_exception(aiohttp.ClientConnectionError(why))


class _Looking(AbstractResolver):
    """Names only addresses that were looked at."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Every address, of whatever family."""
        del family
        return [
            {
                "hostname": host,
                "host": one,
                "port": port,
                "proto": 0,
                "flags": 0,
                "family": socket.AF_INET6 if ":" in one else socket.AF_INET,
            }
            for one in await self._addresses(host, port)
        ]

    async def close(self) -> None:
        """There is nothing."""
