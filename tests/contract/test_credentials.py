"""Who is held to the credentials contract: the provider on a file of its own, and its guests'."""

import asyncio
from pathlib import Path

import pytest

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.credentials.local import LocalCredentials, build
from tenure.core.ids import ResourceKey
from tenure.ports.provider import Spec
from tenure.testing.contracts.credentials import (
    MAIL,
    CredentialsContract,
    Scenario,
    asked_for,
    credentials_key,
    credentials_spec,
    sized_credentials,
)
from tenure.testing.contracts.provider import ProviderCase, ProviderContract
from tests.contract.support import kill_provider
from tests.contract.support.hosted_providers import WAYS


async def on_file(path: Path, run) -> None:
    credentials = build(path, clock=SystemClock())
    try:
        await run(credentials)
    finally:
        await credentials.close()


@pytest.mark.parametrize("way", WAYS)
class TestLocalCredentials(ProviderContract):
    @pytest.fixture
    def run_scenario(self, tmp_path, way):
        def run_scenario(scenario) -> None:
            async def scenario_on_file(credentials: LocalCredentials) -> None:
                async def plant(key: ResourceKey) -> None:
                    await credentials.ensure(key._replace(plane="another"), credentials_spec(MAIL))

                async with way(tmp_path, credentials=credentials) as asked:
                    await scenario(ProviderCase(sized_credentials(asked), plant))

            asyncio.run(on_file(tmp_path / "credentials.db", scenario_on_file))

        return run_scenario


@pytest.mark.parametrize("way", WAYS)
class TestLocalRegistrations(CredentialsContract):
    @pytest.fixture
    def run_scenario(self, tmp_path, way):
        def run_scenario(scenario: Scenario) -> None:
            async def scenario_on_file(credentials: LocalCredentials) -> None:
                async with way(tmp_path, credentials=credentials) as asked:
                    await scenario(asked)

            asyncio.run(on_file(tmp_path / "credentials.db", scenario_on_file))

        return run_scenario


def test_a_closing_outlives_the_process_that_wrote_it(tmp_path):
    path = tmp_path / "credentials.db"

    async def first(credentials: LocalCredentials) -> None:
        await credentials.ensure(credentials_key(), credentials_spec(MAIL))
        await credentials.close_agent("t", "a", epoch=3)

    async def second(credentials: LocalCredentials) -> None:
        assert await asked_for(credentials) == []
        assert not await credentials.reopen_agent("t", "a", epoch=2)
        assert not await credentials.is_open("t", "a")

    asyncio.run(on_file(path, first))
    asyncio.run(on_file(path, second))
    assert path.stat().st_mode & 0o077 == 0


def test_nothing_of_a_refused_spec_is_kept(tmp_path):
    path = tmp_path / "credentials.db"

    async def ensure_odd_specs(credentials: LocalCredentials) -> None:
        odd: Spec = {"credentials": [{"audience": MAIL, "secret": "hunter2"}]}
        await asyncio.gather(credentials.ensure(credentials_key(), odd), return_exceptions=True)

    asyncio.run(on_file(path, ensure_odd_specs))
    assert all(b"hunter2" not in file.read_bytes() for file in tmp_path.iterdir())


KINDS: tuple[Spec, ...] = (
    credentials_spec(MAIL),
    credentials_spec(f"{MAIL}/a", f"{MAIL}/b", scopes=("x",), ttl_seconds=7),
    {},
)
WHOLE = """
SELECT resource.key, state, spec,
       (SELECT group_concat(audience || ' ' || scopes || ' ' || ttl_seconds, ',' ORDER BY audience)
        FROM registration WHERE registration.key = resource.key)
FROM resource
"""
STRAY = "SELECT count(*) FROM registration WHERE key NOT IN (SELECT key FROM resource)"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_leaves_whole_resources_only(tally, tmp_path):
    file = tmp_path / "credentials.db"
    report = kill_provider.run(build, file, kinds=KINDS, whole=WHOLE, stray=STRAY)
    tally.add("kills", report.kills)
    assert report.kills >= 20
    assert report.acknowledged > report.kills
    rows = {
        kill_provider.spec_text(KINDS[0]): f"{MAIL} [] 60",
        kill_provider.spec_text(KINDS[1]): f'{MAIL}/a ["x"] 7,{MAIL}/b ["x"] 7',
        kill_provider.spec_text(KINDS[2]): None,
    }
    assert report.odd(rows) == []
    assert report.lost == []
    assert report.strays == 0
