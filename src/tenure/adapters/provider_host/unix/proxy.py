"""A provider of the host, as a process has it that did not serve from the start.

It has the methods of its ports, made from their table.  A call goes to the process that serves at
that time: over the connection, or directly to the provider once this process serves itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from tenure.adapters.provider_host.unix.client import CallNotStarted, Connection
from tenure.adapters.provider_host.unix.methods import METHODS, Method
from tenure.core.errors import Unavailable
from tenure.ports.provider import Provider

PATIENCE_SECONDS = 5.0
"""How long a call waits for a process that serves."""
ServedBy = Connection | Mapping[str, Provider]
"""A connection to the process that serves, or the providers if it is this one."""


class CurrentServer:
    """The process that serves now, or why none does."""

    def __init__(self) -> None:
        self._server: ServedBy | None = None
        self._is_set = asyncio.Event()
        self.description: Mapping[str, Any] = {}
        """The attributes that the last server has described."""
        self.why = "no process serves them"
        """Why none serves, for people."""

    def set(self, server: ServedBy, description: Mapping[str, Any]) -> None:
        """Use this server from now on."""
        self._server, self.description = server, description
        self._is_set.set()

    def clear(self, why: str) -> None:
        """There is no server from now on."""
        self._server, self.why = None, why
        self._is_set.clear()

    def outage(self) -> str:
        """Return why no call can be made now; "" if one can."""
        return self.why if self._server is None else ""

    def issuer(self) -> str:
        """Return the issuer that the next server has to keep; "" if there was none."""
        return str(self.description["identity"]["issuer"]) if self.description else ""

    async def wait(self, seconds: float) -> ServedBy:
        """Return the server as soon as there is one; Unavailable if there is none for so long."""
        try:
            async with asyncio.timeout(seconds):
                while self._server is None:
                    await self._is_set.wait()
        except TimeoutError:
            raise Unavailable(
                f"The embedded providers cannot be asked: {self.why}. Nothing was sent."
            ) from None
        return self._server


class ProviderProxy:
    """One provider, with every method of its ports."""

    def __init__(self, server: CurrentServer, provider: str) -> None:
        self._current = server
        self.outage = server.outage
        self._provider = provider
        for method in METHODS[provider].values():
            call: Callable[..., Any] = self._list if method.is_listing else self._call
            setattr(self, method.name, partial(call, method))

    async def _call(self, method: Method, *arguments: object, **keywords: object) -> object:
        while True:
            server = await self._current.wait(PATIENCE_SECONDS)
            if not isinstance(server, Connection):
                question: Callable[..., Awaitable[object]]
                question = getattr(server[self._provider], method.name)
                return await question(*arguments, **keywords)
            try:
                return await server.call(method, method.bind(arguments, keywords))
            except CallNotStarted:
                await server.wait_closed()

    async def _list(
        self, method: Method, *arguments: object, **keywords: object
    ) -> AsyncIterator[object]:
        while True:
            server = await self._current.wait(PATIENCE_SECONDS)
            if isinstance(server, Connection):
                items = server.list_items(method, method.bind(arguments, keywords))
            else:
                items = getattr(server[self._provider], method.name)(*arguments, **keywords)
            try:
                async for item in items:
                    yield item
            except CallNotStarted:  # no item was returned yet
                await cast(Connection, server).wait_closed()
            else:
                return

    @property
    def issuer(self) -> str:
        """The issuer of the authorization server."""
        return str(self._current.description["identity"]["issuer"])

    def metadata(self) -> Mapping[str, object]:
        """The metadata of the authorization server."""
        metadata: Mapping[str, object] = self._current.description["identity"]["metadata"]
        return metadata

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the runtime."""
        return tuple(self._current.description["runtime"]["zones"])
