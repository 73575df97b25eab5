"""Goal: a store that is moved to PostgreSQL is there whole, or the file is as it was.

Method: golden files, with operations in every phase, are moved to a real server by processes that
die at every page, before and after it is kept; then a plane finishes what is there, and the world
is counted.  What is changed on the way must be found by the comparison.
"""

import asyncio
import json
import subprocess
import sys
from hashlib import sha256

import apsw
import asyncpg
import pytest

from proofs.releases import any_release
from proofs.releases.any_release import PLAN, SHELVES, STORE, Unruly
from proofs.releases.upgrades import ENDED, GOLDEN, load
from tenure.adapters.store.postgres import inspect_server, server
from tenure.core.errors import Invalid, StoreError, StoreForeign, StoreLocked
from tenure.faces.cli import main as cli
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile
from tenure.settings import Settings
from tenure.sqlite.durable_file import open_file
from tenure.upkeep import move as moving
from tenure.wiring import files_of_a_home, move_store, run_plane

pytest_plugins = ["tenure.testing.server_fixtures"]
pytestmark = pytest.mark.timeout(300)
HELD = files_of_a_home()[0]
DYING = """
import asyncio, os, sys
from pathlib import Path
from tenure.adapters.store.postgres.move_target import PostgresMoveTarget
from tenure.upkeep import move
from tenure.wiring import move_store
move.PAGE, left = 7, int(sys.argv[3])
insert = PostgresMoveTarget.insert
async def dying(self, *given):
    global left
    left -= 1
    if not left:
        os._exit(9)
    await insert(self, *given)
    left -= 1
    if not left:
        os._exit(9)
PostgresMoveTarget.insert = dying
asyncio.run(move_store(Path(sys.argv[1]), sys.argv[2], report=lambda _: None))
"""


def quiet(_: str) -> None:
    pass


@pytest.fixture
def golden(tmp_path):
    load(GOLDEN / "lifecycle", tmp_path / "plane")
    (tmp_path / "plane" / any_release.UNRULY).unlink(missing_ok=True)
    return tmp_path / "plane"


def finish_operations(directory, url):
    """Let a plane on the new store finish everything; how each ended, and what there is."""

    async def main():
        shelves = {name: Unruly(directory, name) for name in SHELVES}
        settings = Settings(store=url)
        async with run_plane(settings, plans=[PLAN], providers=shelves) as plane:
            told = await any_release.all_ended(plane)
        return told, {
            n: sorted(s.agent_of(key) for key in s.list_keys()) for n, s in shelves.items()
        }

    return asyncio.run(main())


def nobody_opens(url, number):
    """Half of its records are no store, to who looks and to who starts."""
    with pytest.raises(StoreForeign, match=r"are being moved to .*: continue it with tenure"):
        asyncio.run(inspect_server(url) if number % 4 else ran_on(url))


async def ran_on(url):
    async with run_plane(Settings(store=url), plans=[PLAN], providers={}):
        pass


def test_a_move_that_is_killed_at_every_page_is_whole_in_the_end(golden, postgres_url, tally):
    file = golden / STORE
    deaths = 0
    for number in range(1, 200):
        ran = subprocess.run(
            [sys.executable, "-c", DYING, str(file), postgres_url, str(number % 4 + 1)],
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
        )
        if not ran.returncode:
            break
        assert ran.returncode == 9, ran.stderr
        open_file(file, HELD.migrations).close()  # it is still the plane's
        nobody_opens(postgres_url, number)
        deaths += 1
    assert deaths > 10
    tally.add("kills", deaths)
    with pytest.raises(StoreForeign, match="was moved to postgresql://"):
        open_file(file, HELD.migrations)
    ended, held = finish_operations(golden, postgres_url)
    assert ended == ENDED
    there = sorted(label for label, state in ENDED.items() if state == "SUCCEEDED")
    assert held == dict.fromkeys(SHELVES, there)


def test_every_row_is_compared_and_told(golden, postgres_url):
    counts = {}
    file = apsw.Connection(str(golden / STORE))
    for table in ("operation", "journal", "intent", "outbox", "agent"):
        counts[table] = file.execute(f"SELECT count(*) FROM {table}").get
    file.close()
    compared = asyncio.run(move_store(golden / STORE, postgres_url, report=quiet))
    seen = {one.table: (one.rows, one.rows_there, one.same) for one in compared}
    assert {t: seen[t] for t in counts} == {t: (n, n, True) for t, n in counts.items()}
    assert set(seen) == set(moving.MOVED_TABLES)


async def execute_sql(url, sql):
    address = server.read_address(url)
    connection = await server.connect(address, "tampering")
    try:
        await connection.execute(sql)
    except asyncpg.PostgresError as error:
        raise AssertionError(str(error)) from None
    finally:
        await connection.close()


TAMPERING = [
    "UPDATE operation SET revision = revision + 1 WHERE agent = 'stuck'",
    "UPDATE operation SET created_at = created_at + 0.000001 WHERE agent = 'stuck'",
    "DELETE FROM journal WHERE seq = 2",
    "UPDATE intent SET detail = NULL WHERE detail IS NOT NULL",
]


def tampering(monkeypatch, url, sql):
    """Change something between the last page and the comparison."""
    real = moving._compare
    done: list[None] = []

    async def compare(reader, target, table):
        if not done:
            await execute_sql(url, sql)
            done.append(None)
        return await real(reader, target, table)

    monkeypatch.setattr(moving, "_compare", compare)


@pytest.mark.parametrize("sql", TAMPERING)
def test_what_differs_there_is_found_and_the_file_stays(sql, golden, postgres_url, monkeypatch):
    tampering(monkeypatch, postgres_url, sql)
    with pytest.raises(StoreError, match=r"differs from .* in "):
        asyncio.run(move_store(golden / STORE, postgres_url, report=quiet))
    open_file(golden / STORE, HELD.migrations).close()


def test_without_the_hash_a_changed_row_is_not_noticed(golden, postgres_url, monkeypatch):
    """An ablation: it is the hash that notices."""
    tampering(monkeypatch, postgres_url, TAMPERING[0])
    monkeypatch.setattr(moving, "sha256", lambda _: sha256(b""))
    asyncio.run(move_store(golden / STORE, postgres_url, report=quiet))


def test_a_store_in_use_another_plane_and_a_second_move_are_refused(golden, postgres_url, tmp_path):
    file = golden / STORE
    held = open_file(file, HELD.migrations)
    with pytest.raises(StoreLocked):
        asyncio.run(move_store(file, postgres_url, report=quiet))
    held.close()
    with pytest.raises(Invalid, match="no store at"):
        asyncio.run(move_store(tmp_path / "none", postgres_url, report=quiet))
    asyncio.run(move_store(file, postgres_url, report=quiet))
    load(GOLDEN / "kernel", tmp_path / "other")
    with pytest.raises(StoreForeign, match="is not empty"):
        asyncio.run(move_store(tmp_path / "other" / STORE, postgres_url, report=quiet))
    # What is there is another plane's: nothing here says that it were ours to remove.
    note = tmp_path / "other" / f"{STORE}.moving"
    assert not note.exists()
    note.write_text(json.dumps({"to": "postgresql://elsewhere", "move": "m"}))
    with pytest.raises(Invalid, match="is being moved to postgresql://elsewhere"):
        asyncio.run(move_store(tmp_path / "other" / STORE, postgres_url, report=quiet))
    assert note.exists()


def test_an_upgrade_looks_at_a_store_that_was_moved_and_changes_nothing(
    golden, postgres_url, capsys, monkeypatch
):
    monkeypatch.setenv("TENURE_STORE", postgres_url)
    SharedSettingsFile(golden).write(
        SharedSettings("home", server.read_address(postgres_url).display())
    )
    asked = ["upgrade", "--check", "--home", str(golden)]
    assert cli.main(asked) == 1
    assert "has no plane" in capsys.readouterr().err
    asyncio.run(move_store(golden / STORE, postgres_url, report=quiet))
    assert cli.main([*asked, "-o", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["open_operations"], said["store"], said["can_go_back"]) == (5, "", True)
    assert "golden@1/approval" in said["missing"], "this release has no such plan"

    async def over() -> None:
        other = await server.connect(server.read_address(postgres_url), "test")
        await other.execute("UPDATE operation SET ended_at = 1.0")
        await other.execute("DELETE FROM tenure_migration WHERE number > 1")
        await other.close()

    asyncio.run(over())
    assert cli.main([*asked, "--detailed-exitcode"]) == 3
    assert "the store: 0002_" in capsys.readouterr().out
