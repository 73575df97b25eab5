"""Small provider hosts for tests, and a client that speaks the protocol by hand."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from tenure.adapters.access.local import build
from tenure.adapters.clock.system import SystemClock
from tenure.adapters.provider_host import unix
from tenure.adapters.provider_host.unix import listener, open_shared_providers, wire
from tenure.adapters.provider_host.unix.wire import MessageType
from tenure.ports.access import Access
from tenure.ports.provider import Provider
from tests.contract.support.hosted_providers import Nobody

CLOCK = SystemClock()
ISSUER = "https://first.example"


def opening_access(home: Path, issuers: list[str] | None = None) -> unix.OpenProviders:
    """Opens the real access provider only; appends each issuer to `issuers`."""

    @asynccontextmanager
    async def opening(issuer: str) -> AsyncIterator[Mapping[str, Provider]]:
        if issuers is not None:
            issuers.append(issuer)
        known = Nobody()
        known.issuer = issuer or ISSUER
        access = build(home / "access.db", clock=CLOCK)
        try:
            yield cast(
                "Mapping[str, Provider]",
                {"identity": known, "access": access, "credentials": known, "runtime": known},
            )
        finally:
            await access.close()

    return opening


def holding(home: Path, access: object) -> Any:
    """A host with this object as its access provider."""

    @asynccontextmanager
    async def opening(_: str) -> AsyncIterator[Mapping[str, Provider]]:
        known = Nobody()
        named = {"identity": known, "access": access, "credentials": known, "runtime": known}
        yield cast("Mapping[str, Provider]", named)

    return open_shared_providers(home, opening, clock=CLOCK)


def run(work) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(main())


def access_of(providers: Mapping[str, Provider]) -> Access:
    return cast(Access, providers["access"])


async def connect_raw_client(home: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the host that has received its welcome."""
    reader, writer = await asyncio.open_unix_connection(sock=listener.connect(home))
    message = await wire.read(reader)
    assert message is not None
    assert message[0] == MessageType.WELCOME
    return reader, writer
