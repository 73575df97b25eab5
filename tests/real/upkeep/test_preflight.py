"""Goal: a start that cannot be right leaves home and store as they were, and says what is wrong.

Method: homes and stores of different planes are put together on a real server, or an engine is
away; then the home's files and the server's schemas are as before, and the right start goes on.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenure.adapters.store.postgres.server import read_address
from tenure.core.errors import EngineError, Invalid
from tenure.home.shared_settings import SharedSettingsFile
from tenure.settings import Settings
from tenure.testing.servers import lasting_port
from tenure.upkeep.restore import hold
from tenure.wiring import files_of_a_home, move_store, run_agent_plane, run_plane

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    """A plane whose store is in its home."""
    return Settings(home=str(tmp_path / "home"), sandbox="off")


@pytest.fixture
def shared_settings(own: Settings, postgres_url: str) -> Settings:
    """The same home, and a store that is shared."""
    return replace(own, store=postgres_url)


@pytest.fixture
def elsewhere(shared_settings: Settings) -> Settings:
    """A store that nobody has used, as of who forgot a part of the address."""
    return replace(shared_settings, store=f"{shared_settings.store}_other")


def start(settings: Settings) -> str:
    """Start and stop a plane; why it was held."""

    async def main() -> str:
        async with run_agent_plane(settings) as plane:
            return plane.pause.why

    return asyncio.run(main())


def schemas(url: str) -> int:
    """How many schemas of this name and of names that begin so the server has."""

    async def main() -> Any:
        connection = await asyncpg.connect(read_address(url).url)
        try:
            named = f"{read_address(url).schema}%"
            asked = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE $1"
            return await connection.fetchval(asked, named)
        finally:
            await connection.close()

    return int(asyncio.run(main()))


def files(home: str) -> Iterator[tuple[str, bytes]]:
    """The files of a home, whole."""
    for path in sorted(Path(home).rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()


def assert_refused(settings: Settings, words: str, kind: type[Exception] = Invalid) -> None:
    """It does not start, and the home is as it was."""
    before = dict(files(settings.home))
    with pytest.raises(kind, match=words):
        start(settings)
    assert dict(files(settings.home)) == before


def test_a_home_whose_store_is_shared_starts_with_that_one_alone(
    own: Settings, shared_settings: Settings, elsewhere: Settings
) -> None:
    assert start(shared_settings) == ""
    assert_refused(own, "is the home of a plane whose store is postgresql://")
    assert_refused(
        elsewhere, r"has no record of it: name the right one, by --store or TENURE_STORE"
    )
    assert_refused(replace(elsewhere, is_worker=True), "has no record of it")
    assert_refused(replace(elsewhere, new_home=True), "has no record of it")
    assert schemas(shared_settings.store) == 1
    assert start(shared_settings) == ""  # not held


def test_while_its_plane_runs_too(own: Settings, shared_settings: Settings) -> None:
    async def main() -> None:
        async with run_agent_plane(shared_settings):
            with pytest.raises(Invalid, match="is the home of a plane whose store is"):
                async with run_agent_plane(own):
                    pass

    asyncio.run(main())
    assert start(shared_settings) == ""


def test_a_home_with_records_of_its_own_takes_another_store_only_after_they_were_moved(
    own: Settings, shared_settings: Settings
) -> None:
    assert start(own) == ""
    assert_refused(shared_settings, "tenure migrate-store --to URL moves them there")
    assert schemas(shared_settings.store) == 0
    assert start(own) == ""
    asyncio.run(
        move_store(Path(own.home) / "tenure.db", shared_settings.store, report=lambda _: None)
    )
    assert_refused(
        replace(shared_settings, home=f"{own.home}-other"), "belongs to a plane with another home"
    )
    assert start(replace(shared_settings, is_worker=True)) == ""
    assert start(shared_settings) == ""
    assert_refused(own, "is the home of a plane whose store is postgresql://")


def test_a_store_that_knows_its_home_goes_on_there_whatever_lies_beside(
    own: Settings, shared_settings: Settings
) -> None:
    """As an earlier release left it, when the store was not named once."""
    assert start(shared_settings) == ""
    file = SharedSettingsFile(Path(own.home))
    terms = file.read()
    assert terms is not None
    beside = replace(own, home=f"{own.home}-beside")
    start(beside)
    (Path(beside.home) / "tenure.db").rename(Path(own.home) / "tenure.db")
    file.write(terms._replace(store=""))
    assert start(shared_settings) == ""
    assert file.read() == terms


def test_a_second_home_is_refused_before_it_is_made(
    own: Settings, shared_settings: Settings
) -> None:
    assert start(shared_settings) == ""
    second = replace(shared_settings, home=f"{own.home}-second")
    assert_refused(second, "belongs to a plane with another home")
    assert not Path(second.home).exists()
    assert start(replace(second, new_home=True)) == ""


def test_without_its_engine_nothing_is_made(own: Settings, shared_settings: Settings) -> None:
    away = replace(
        shared_settings, engine="temporal", temporal_address=f"127.0.0.1:{lasting_port()}"
    )
    assert_refused(away, "cannot be reached: .* Nothing was changed", EngineError)
    assert not Path(own.home).exists()

    async def main() -> None:
        async with run_plane(away, plans=[], providers={}):
            pass

    with pytest.raises(EngineError, match="Nothing was changed"):
        asyncio.run(main())
    assert schemas(shared_settings.store) == 0
    assert start(shared_settings) == ""
    hold(Path(own.home), files_of_a_home())
    assert start(away) == "its store was restored by other means"  # it moves nothing
