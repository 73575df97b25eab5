"""A provider as whoever opened it has it, and as a guest of the host: through the socket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.provider_host.unix import open_shared_providers
from tenure.ports.provider import Provider


class Nobody:
    """Stands where a suite asks no provider."""

    issuer = "https://nobody.example"
    zones = ("nowhere",)

    def metadata(self) -> Mapping[str, object]:
        return {}


@asynccontextmanager
async def use_directly(_: Path, **providers: Any) -> AsyncIterator[Any]:
    """This one provider itself."""
    (provider,) = providers.values()
    yield provider


@asynccontextmanager
async def use_through_host(home: Path, **providers: Any) -> AsyncIterator[Any]:
    """What a guest has in the place of these providers; of one, that one itself."""

    @asynccontextmanager
    async def opening(_: str) -> AsyncIterator[Mapping[str, Provider]]:
        names = ("identity", "access", "credentials", "runtime")
        yield {name: cast(Provider, providers.get(name, Nobody())) for name in names}

    clock = SystemClock()
    async with (
        open_shared_providers(home, opening, clock=clock) as own,
        open_shared_providers(home, opening, clock=clock) as guests,
    ):
        for name, provider in providers.items():
            assert own[name] is provider
            assert guests[name] is not provider
        found = [guests[name] for name in providers]
        yield found[0] if len(found) == 1 else found


WAYS = (use_directly, pytest.param(use_through_host, marks=pytest.mark.slow))
"""The inner loop tests the transport in tests/unit, and each provider without it."""
