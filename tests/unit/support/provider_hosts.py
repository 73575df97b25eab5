"""What tests of the host share: small hosts, and a guest that speaks for itself."""

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


def opening_access(home: Path, opened: list[str] | None = None) -> unix.OpenProviders:
    """Opens the real provider of access, and nobody else."""

    @asynccontextmanager
    async def opening(issuer: str) -> AsyncIterator[Mapping[str, Provider]]:
        if opened is not None:
            opened.append(issuer)
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
    """A host with this in the place of access."""

    @asynccontextmanager
    async def opening(_: str) -> AsyncIterator[Mapping[str, Provider]]:
        known = Nobody()
        named = {"identity": known, "access": access, "credentials": known, "runtime": known}
        yield cast("Mapping[str, Provider]", named)

    return open_shared_providers(home, opening, clock=CLOCK)


def run(work) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(bounded())


def access_of(providers: Mapping[str, Provider]) -> Access:
    return cast(Access, providers["access"])


async def met(home: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A guest that speaks for itself, and was welcomed."""
    reader, writer = await asyncio.open_unix_connection(sock=listener.connect(home))
    message = await wire.read(reader)
    assert message is not None
    assert message[0] == MessageType.WELCOME
    return reader, writer
