"""A backup is whole or not there, and a restore takes only one that is what its manifest says."""

import asyncio
import json
from pathlib import Path

import apsw
import pytest

from tenure.core.errors import Invalid, StoreError, StoreLocked, StoreNewer
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import SharedSettingsFile
from tenure.settings import Settings
from tenure.sqlite.location import Lock
from tenure.upkeep import backup
from tenure.upkeep.backup import MANIFEST, back_up
from tenure.upkeep.restore import hold, restore
from tenure.wiring import files_of_a_home, run_agent_plane

FILES = files_of_a_home()


def quiet(_: str) -> None:
    pass


def make_home(home: Path) -> Path:
    """A home in which a plane has run."""

    async def main():
        async with run_agent_plane(Settings(home=str(home), sandbox="off")):
            pass

    asyncio.run(main())
    return home


def backed_up(home: Path, target: Path) -> backup.Manifest:
    return back_up(home, target, FILES, release="1", now=0.0, report=quiet)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_home(tmp_path_factory.mktemp("plane") / "home")


@pytest.fixture
def copy(home, tmp_path):
    backed_up(home, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_backup_holds_every_file_and_no_secret(home, copy):
    names = {path.name for path in copy.iterdir()}
    assert names == {*(held.name for held in FILES), MANIFEST}
    assert copy.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in copy.iterdir())
    said = json.loads((copy / MANIFEST).read_text())
    assert said["plane"] == "local"
    assert (said["epoch"], said["format"]) == (1, 1)
    assert said["files"]["tenure.db"]["rows"]["plane"] == 1
    secret = (home / "identity.db.key").read_bytes()
    assert not any(secret in path.read_bytes() for path in copy.iterdir())


def test_a_backup_replaces_nothing_and_leaves_nothing_half(home, copy, tmp_path):
    with pytest.raises(Invalid, match="exists"):
        backed_up(home, copy)
    with pytest.raises(Invalid, match="has no plane"):
        backed_up(tmp_path, tmp_path / "other")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="no backup was made"):
        backed_up(home, tmp_path / "file" / "below")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "file"]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("name", [held.name for held in FILES])
def test_a_backup_that_was_changed_is_refused_before_anything_is_touched(copy, tmp_path, name):
    damage(copy / name)
    with pytest.raises(Invalid, match=rf"{name}.*SHA-256 differs"):
        restore(copy, tmp_path / "home", FILES, report=quiet)
    assert not (tmp_path / "home").exists()


def test_without_the_digest_a_changed_backup_is_not_noticed(copy, tmp_path, monkeypatch):
    """An ablation: it is the digest that notices."""
    said = json.loads((copy / MANIFEST).read_text())["files"]
    monkeypatch.setattr(backup, "digest", lambda path: said[path.name]["sha256"])
    damage(copy / "access.db")
    assert restore(copy, tmp_path / "home", FILES, report=quiet).epoch == 2


def test_a_home_that_was_open_to_others_is_for_its_owner_alone_after_a_restore(copy, tmp_path):
    home, told = tmp_path / "home", list[str]()
    home.mkdir()
    home.chmod(0o755)
    lock = Lock.take(home / "tenure.db")
    with pytest.raises(StoreLocked, match=r"Stop that process first\.$"):
        restore(copy, home, FILES, report=told.append)
    assert home.stat().st_mode & 0o777 == 0o755, "what is refused changes nothing"
    lock.release()
    restore(copy, home, FILES, report=told.append)
    assert home.stat().st_mode & 0o777 == 0o700
    assert f"{home}: mode set to 0700" in told
    assert f"backup {copy.name}: tenure.db matches its manifest" in told


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "is not a backup"),
        ("{", "is not a valid manifest"),
        ("[]", "is not a valid manifest"),
        ('{"format": 1, "made": "", "files": {}}', "is not a valid manifest"),
    ],
)
def test_a_directory_without_a_manifest_that_makes_sense_is_no_backup(copy, tmp_path, text, why):
    (copy / MANIFEST).unlink()
    if text is not None:
        (copy / MANIFEST).write_text(text)
    with pytest.raises(Invalid, match=why):
        restore(copy, tmp_path / "home", FILES, report=quiet)


def rewritten(copy: Path, **fields: object) -> None:
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps({**manifest, **fields}))


def test_a_backup_of_another_format_or_with_other_files_is_refused(copy, tmp_path):
    files = json.loads((copy / MANIFEST).read_text())["files"]
    for said, why in (
        ({"format": 2}, "has format 2"),
        ({"format": 1, "files": {**files, "../x": files["tenure.db"]}}, "other files"),
        ({"files": {"access.db": files["access.db"]}}, "other files"),
    ):
        rewritten(copy, **said)
        with pytest.raises(Invalid, match=why):
            restore(copy, tmp_path / "home", FILES, report=quiet)
    rewritten(copy, files=files)
    (copy / "access.db").unlink()
    with pytest.raises(Invalid, match="missing"):
        restore(copy, tmp_path / "home", FILES, report=quiet)


def test_a_backup_of_a_newer_release_is_refused(copy, tmp_path):
    file = apsw.Connection(str(copy / "access.db"))
    file.pragma("user_version", 99)
    file.close()
    manifest = json.loads((copy / MANIFEST).read_text())
    one = manifest["files"]["access.db"]
    one.update(sha256=backup.digest(copy / "access.db"), size=(copy / "access.db").stat().st_size)
    rewritten(copy, files=manifest["files"])
    with pytest.raises(StoreNewer):
        restore(copy, tmp_path / "home", FILES, report=quiet)


def test_nothing_is_restored_under_a_plane_that_runs(copy, tmp_path):
    async def main():
        async with run_agent_plane(Settings(home=str(tmp_path / "home"), sandbox="off")):
            with pytest.raises(StoreLocked):
                restore(copy, tmp_path / "home", FILES, report=quiet)
            with pytest.raises(StoreLocked):
                hold(tmp_path / "home", FILES)

    asyncio.run(main())
    kept = EpochFile(tmp_path / "home").read()
    assert kept is not None
    assert kept.epoch == 1


def test_each_restore_begins_a_later_epoch_and_keeps_what_was_there(copy, tmp_path):
    home = tmp_path / "home"
    first = restore(copy, home, FILES, report=quiet)
    assert (first.epoch, len(first.replaced), first.stayed) == (2, 4, [])
    second = restore(copy, home, FILES, report=quiet)
    assert (second.epoch, second.replaced) == (3, ["tenure.db"])
    assert (second.aside / "tenure.db").exists()
    assert second.stayed == ["identity.db", "access.db", "credentials.db"]
    assert hold(home, FILES) == 4


def test_a_provider_file_that_is_broken_is_restored_too(copy, tmp_path):
    home = tmp_path / "home"
    restore(copy, home, FILES, report=quiet)
    (home / "access.db").write_bytes(b"not a database at all" * 100)
    again = restore(copy, home, FILES, report=quiet)
    assert again.replaced == ["tenure.db", "access.db"]
    assert (again.aside / "access.db").read_bytes().startswith(b"not a database")


def test_of_a_plane_whose_store_is_a_server_the_home_is_backed_up_and_comes_back(tmp_path):
    home = make_home(tmp_path / "home")
    terms = SharedSettingsFile(home).read()
    assert terms is not None
    there = terms._replace(store="postgresql://tenure@db/tenure (schema tenure)")
    SharedSettingsFile(home).write(there)  # and an old tenure.db lies there still
    told: list[str] = []
    back_up(home, tmp_path / "copy", FILES, release="1", now=0.0, report=told.append)
    assert "it is postgresql://tenure@db/tenure" in told[0]
    others = {held.name for held in FILES} - {"tenure.db"}
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {*others, MANIFEST}
    # Into a home that is lost: the store knows the new one by the same name.
    new = tmp_path / "new"
    restored = restore(tmp_path / "copy", new, FILES, report=quiet)
    assert set(restored.replaced) == others
    again = SharedSettingsFile(new).read()
    assert again is not None
    assert (again.home, again.store) == (there.home, there.store)
    assert not (new / "tenure.db").exists()
    # Into the one that is there: nothing that is newer is replaced.
    stayed = restore(tmp_path / "copy", home, FILES, report=quiet)
    assert (set(stayed.stayed), stayed.replaced, stayed.epoch) == (others, [], 2)
    assert SharedSettingsFile(home).read() == there


def test_a_store_that_is_restored_into_a_home_is_there_from_then_on(copy, tmp_path):
    home = make_home(tmp_path / "home")
    terms = SharedSettingsFile(home).read()
    assert terms is not None
    SharedSettingsFile(home).write(
        terms._replace(store="postgresql://tenure@db/tenure (schema tenure)")
    )
    with pytest.raises(Invalid, match="is the home of a plane whose store is postgresql"):
        make_home(home)
    restore(copy, home, FILES, report=quiet)
    assert SharedSettingsFile(home).read() == terms
    make_home(home)


def test_a_manifest_without_a_store_that_names_none_is_refused(copy):
    said = json.loads((copy / MANIFEST).read_text())
    assert "store" not in said
    (copy / MANIFEST).write_text(json.dumps({**said, "store": "postgresql://db"}))
    with pytest.raises(Invalid, match="lists other files"):
        backup.read(copy, FILES, report=quiet)
