"""A provider of the house, as a process has it that did not serve from the start.

It has the ports' methods, made from their table.  A call goes to who serves, wherever that is now:
over the line, or straight to the provider once this process serves itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from tenure.adapters.provider_host.unix.client import Line, NotBegun
from tenure.adapters.provider_host.unix.methods import TABLE, Method
from tenure.core.errors import Unavailable
from tenure.ports.provider import Provider

PATIENCE_SECONDS = 5.0
"""How long a call waits for somebody to serve."""
Served = Line | Mapping[str, Provider]
"""Who serves: somebody at the end of a line, or this process."""


class Serving:
    """Who serves now, for those who wait for somebody."""

    def __init__(self) -> None:
        self._by: Served | None = None
        self._somebody = asyncio.Event()
        self.presented: Mapping[str, Any] = {}
        """What the house said of itself last."""
        self.why = "nobody serves them"
        """Why nobody does, for people."""

    def by(self, served: Served, presented: Mapping[str, Any]) -> None:
        """From now on it is this one."""
        self._by, self.presented = served, presented
        self._somebody.set()

    def nobody(self, why: str) -> None:
        """From now on nobody does."""
        self._by, self.why = None, why
        self._somebody.clear()

    def silence(self) -> str:
        """Why nobody can be asked now; "" if somebody can."""
        return self.why if self._by is None else ""

    def issuer(self) -> str:
        """The issuer that who serves next has to keep; "" if there was none."""
        return str(self.presented["identity"]["issuer"]) if self.presented else ""

    async def found(self, seconds: float) -> Served:
        """Who serves, as soon as somebody does; Unavailable if nobody does for so long."""
        try:
            async with asyncio.timeout(seconds):
                while self._by is None:
                    await self._somebody.wait()
        except TimeoutError:
            raise Unavailable(
                f"The embedded providers cannot be asked: {self.why}. Nothing was sent."
            ) from None
        return self._by


class Guest:
    """One provider, with every method of its ports."""

    def __init__(self, serving: Serving, provider: str) -> None:
        self._serving = serving
        self.silence = serving.silence
        self._provider = provider
        for method in TABLE[provider].values():
            asked: Callable[..., Any] = self._list if method.is_listing else self._call
            setattr(self, method.name, partial(asked, method))

    async def _call(self, method: Method, *arguments: object, **named: object) -> object:
        while True:
            served = await self._serving.found(PATIENCE_SECONDS)
            if not isinstance(served, Line):
                question: Callable[..., Awaitable[object]]
                question = getattr(served[self._provider], method.name)
                return await question(*arguments, **named)
            try:
                return await served.call(method, method.named(arguments, named))
            except NotBegun:
                await served.ended()

    async def _list(
        self, method: Method, *arguments: object, **named: object
    ) -> AsyncIterator[object]:
        while True:
            served = await self._serving.found(PATIENCE_SECONDS)
            if isinstance(served, Line):
                items = served.listed(method, method.named(arguments, named))
            else:
                items = getattr(served[self._provider], method.name)(*arguments, **named)
            try:
                async for item in items:
                    yield item
            except NotBegun:  # so there was no item yet
                await cast(Line, served).ended()
            else:
                return

    @property
    def issuer(self) -> str:
        """As the authorization server has it."""
        return str(self._serving.presented["identity"]["issuer"])

    def metadata(self) -> Mapping[str, object]:
        """As the authorization server gives them."""
        said: Mapping[str, object] = self._serving.presented["identity"]["metadata"]
        return said

    @property
    def zones(self) -> tuple[str, ...]:
        """As the runtime has them."""
        return tuple(self._serving.presented["runtime"]["zones"])
