"""Who is held to the contracts of identity: the server in one file, here and as a guest has it."""

import asyncio
from collections.abc import Mapping

import pytest

from tenure.adapters.identity.local import APPLICATION_ID, LocalIdentity, build
from tenure.core.ids import ResourceKey
from tenure.ports.provider import Spec
from tenure.sqlite.commit_thread import InlineRunner
from tenure.testing.contracts import identity, provider
from tenure.testing.contracts.identity_client import START, IdentityCase, Scenario
from tenure.testing.contracts.store_rows import StoppedClock
from tests.contract.support.hosted_providers import WAYS
from tests.unit.support.foreign_identity import plant

ISSUER = "https://tenure.example"


class SizedIdentity:
    """The provider, for a suite whose specs say `size`: here that is the client's name."""

    def __init__(self, inner: LocalIdentity) -> None:
        self._inner = inner
        self.inspect = inner.inspect
        self.remove = inner.remove
        self.list_owned = inner.list_owned

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        return await self._inner.ensure(key, {"name": f"of size {spec.get('size', 0)}"})


@pytest.mark.parametrize("way", WAYS)
class TestLocalIdentityAsProvider(provider.ProviderContract):
    @pytest.fixture
    def run_scenario(self, tmp_path, way):
        def run_scenario(scenario: provider.Scenario) -> None:
            async def main() -> None:
                local = build(tmp_path / "identity.db", issuer=ISSUER, clock=StoppedClock(START))

                async def plant_foreign(key: ResourceKey) -> None:
                    await plant(local, key)

                async with way(tmp_path, identity=local) as asked:
                    await scenario(provider.ProviderCase(SizedIdentity(asked), plant_foreign))
                await local.close()

            asyncio.run(main())

        return run_scenario


@pytest.mark.parametrize("way", WAYS)
class TestLocalIdentity(identity.IdentityContract):
    @pytest.fixture
    def run_scenario(self, tmp_path, way):
        def run_scenario(scenario: Scenario) -> None:
            async def main() -> None:
                clock = StoppedClock(START)
                path = tmp_path / "identity.db"
                local = build(path, issuer=ISSUER, clock=clock, flush=InlineRunner())
                async with way(tmp_path, identity=local) as asked:
                    await scenario(IdentityCase(asked, clock))
                await local.close()

            asyncio.run(main())

        return run_scenario


def test_the_file_says_whose_it_is(tmp_path):
    async def main() -> None:
        local = build(tmp_path / "identity.db", issuer=ISSUER, clock=StoppedClock(START))
        await local.close()

    asyncio.run(main())
    header = (tmp_path / "identity.db").read_bytes()[68:72]
    assert int.from_bytes(header, "big") == APPLICATION_ID
