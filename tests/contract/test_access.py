"""Who is held to the access contract: the provider on a file of its own, and its guests'."""

import asyncio
from pathlib import Path

import apsw
import pytest

from tenure.adapters.access.local import LocalAccess, build
from tenure.adapters.clock.system import SystemClock
from tenure.core.ids import ResourceKey
from tenure.ports.provider import Presence, Spec
from tenure.testing.contracts.access import (
    AccessContract,
    Scenario,
    access_key,
    access_spec,
    sized_access,
)
from tenure.testing.contracts.provider import ProviderCase, ProviderContract
from tests.contract.support import kill_provider
from tests.contract.support.hosted_providers import WAYS


async def on_file(path: Path, run) -> None:
    access = build(path, clock=SystemClock())
    try:
        await run(access)
    finally:
        await access.close()


@pytest.mark.parametrize("way", WAYS)
class TestLocalAccess(ProviderContract):
    @pytest.fixture
    def run_scenario(self, tmp_path, way):
        def run_scenario(scenario) -> None:
            async def scenario_on_file(access: LocalAccess) -> None:
                async def plant(key: ResourceKey) -> None:
                    await access.ensure(key._replace(plane="another"), access_spec("reader"))

                async with way(tmp_path, access=access) as asked:
                    await scenario(ProviderCase(sized_access(asked), plant))

            asyncio.run(on_file(tmp_path / "access.db", scenario_on_file))

        return run_scenario


@pytest.mark.parametrize("way", WAYS)
class TestLocalGrants(AccessContract):
    @pytest.fixture
    def run_scenario(self, tmp_path, way):
        def run_scenario(scenario: Scenario) -> None:
            async def scenario_on_file(access: LocalAccess) -> None:
                async with way(tmp_path, access=access) as asked:
                    await scenario(asked)

            asyncio.run(on_file(tmp_path / "access.db", scenario_on_file))

        return run_scenario


def test_grants_outlive_the_process_that_made_them(tmp_path):
    path = tmp_path / "access.db"

    async def first(access: LocalAccess) -> None:
        await access.ensure(access_key(), access_spec("reader", teams=("ops",)))
        await access.grant_team_role("t", "ops", role="pager")

    async def second(access: LocalAccess) -> None:
        assert await access.check("t", "a", role="reader")
        assert await access.check("t", "a", role="pager")

    asyncio.run(on_file(path, first))
    asyncio.run(on_file(path, second))
    assert path.stat().st_mode & 0o077 == 0


def test_of_what_was_revoked_and_removed_only_the_burned_key_is_kept(tmp_path):
    path = tmp_path / "access.db"

    async def revoke_and_remove(access: LocalAccess) -> None:
        await access.ensure(access_key(), access_spec("reader"))
        await access.revoke_subject("t", "a")
        await access.remove(access_key())

    asyncio.run(on_file(path, revoke_and_remove))
    file = apsw.Connection(str(path))
    counts = [
        file.execute(f"SELECT count(*) FROM {table}").get
        for table in ("resource", "grant", "revoked")
    ]
    file.close()
    assert counts == [1, 0, 0]


def test_grants_that_lost_their_resource_are_found_and_made_whole(tmp_path):
    path = tmp_path / "access.db"

    async def grant(access: LocalAccess) -> None:
        await access.ensure(access_key(), access_spec("reader", "writer"))

    async def again(access: LocalAccess) -> None:
        assert (await access.inspect(access_key())).presence is Presence.ABSENT
        await access.ensure(access_key(), access_spec("reader"))
        assert (await access.inspect(access_key())).presence is Presence.READY
        assert await access.check("t", "a", role="reader")
        assert not await access.check("t", "a", role="writer")

    asyncio.run(on_file(path, grant))
    file = apsw.Connection(str(path))
    file.execute("DELETE FROM resource")
    file.close()
    asyncio.run(on_file(path, again))


KINDS: tuple[Spec, ...] = (
    access_spec("reader"),
    access_spec("reader", "writer", teams=("ops",), by="bob"),
    {},
)
WHOLE = """
SELECT resource.key, state, spec,
       (SELECT group_concat(kind || ':' || name || ':' || granted_by, ' ' ORDER BY kind, name)
        FROM grant WHERE grant.key = resource.key)
FROM resource
"""
STRAY = "SELECT count(*) FROM grant WHERE key NOT IN (SELECT key FROM resource)"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_leaves_whole_resources_only(tally, tmp_path):
    report = kill_provider.run(build, tmp_path / "access.db", kinds=KINDS, whole=WHOLE, stray=STRAY)
    tally.add("kills", report.kills)
    assert report.kills >= 20
    assert report.acknowledged > report.kills
    rows = {
        kill_provider.spec_text(KINDS[0]): "role:reader:ann",
        kill_provider.spec_text(KINDS[1]): "role:reader:bob role:writer:bob team:ops:bob",
        kill_provider.spec_text(KINDS[2]): None,
    }
    assert report.odd(rows) == []
    assert report.lost == []
    assert report.strays == 0
