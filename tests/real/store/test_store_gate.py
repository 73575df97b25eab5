"""`durable_file` on real files, real locks and a real read-only disk.

Goal: every file that must not be used is refused with a sentence, and not one byte of it changes.
Method: make such a file, remember every byte beside it, try to open it, compare.
"""

import asyncio
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tenure.adapters.store import sqlite
from tenure.core.errors import (
    StoreError,
    StoreForeign,
    StoreLocked,
    StoreNewer,
    StoreUnsafe,
)
from tenure.core.records import LeaseRecord
from tenure.ports.store import Change, Put, Row
from tenure.sqlite import durable_file, location
from tenure.sqlite.migrations import Migration
from tenure.testing.contracts.store_rows import StoppedClock
from tests.real.support.disks import mount_disk

pytestmark = pytest.mark.timeout(300)

FIRST = Migration(1, "0001_pre_first", "CREATE TABLE thing (name TEXT PRIMARY KEY)")
SECOND = Migration(2, "0002_pre_second", "CREATE TABLE more (name TEXT PRIMARY KEY)")


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file there but what holds no record: locks, an empty log, shared memory."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {
        name: content
        for name, content in found.items()
        if not name.endswith((".lock", "-shm")) and (content or not name.endswith("-wal"))
    }


def refuse(
    path: Path, error: type[StoreError], *words: str, migrations: tuple[Migration, ...] = (FIRST,)
) -> None:
    """Open it, and see that it is refused with these words and nothing is touched."""
    before = bytes_of(path.parent)
    with pytest.raises(error) as caught:
        durable_file.open_file(path, list(migrations))
    assert type(caught.value) is error
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert bytes_of(path.parent) == before


def make(path: Path, *migrations: Migration) -> None:
    durable_file.open_file(path, list(migrations)).close()


@pytest.mark.parametrize(
    "content",
    [b"x", b"hello, world\n" * 100, location.MAGIC, b"\0" * 4096, location.MAGIC + b"\0" * 83],
)
def test_what_is_no_sqlite_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.db").write_bytes(content)
    refuse(tmp_path / "a.db", StoreForeign, "is not an SQLite file", "nothing was touched")
    assert not (tmp_path / "a.db.lock").exists()


@pytest.mark.parametrize("application_id", [0, 7, 0x7FFF_FFFF])
def test_a_file_of_another_program_is_refused(tmp_path: Path, application_id: int) -> None:
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.pragma("application_id", application_id)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    refuse(tmp_path / "a.db", StoreForeign, "belongs to another program", f"{application_id:#010x}")
    assert not (tmp_path / "a.db.lock").exists()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a.db", FIRST, SECOND)
    refuse(tmp_path / "a.db", StoreNewer, "version 2", "knows 1", "Start the newer Tenure")


def test_a_newer_version_that_is_still_in_the_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "crashed").mkdir()
    make(tmp_path / "live" / "a.db", FIRST)
    newer = apsw.Connection(str(tmp_path / "live" / "a.db"))
    newer.execute(f"BEGIN; {SECOND.sql}; PRAGMA user_version = 2; COMMIT")
    for path in (tmp_path / "live").iterdir():
        shutil.copy(path, tmp_path / "crashed")
    newer.close()
    assert location.read_header(tmp_path / "crashed" / "a.db") == (durable_file.APPLICATION_ID, 1)
    refuse(tmp_path / "crashed" / "a.db", StoreNewer, "version 2")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a.db", FIRST)
    content = bytearray((tmp_path / "a.db").read_bytes())
    content[100:4096] = b"\xff" * 3996
    (tmp_path / "a.db").write_bytes(content)
    refuse(
        tmp_path / "a.db",
        StoreError,
        "cannot be opened",
        "no record was changed",
        migrations=(FIRST, SECOND),
    )


def test_a_missing_folder_and_a_folder_in_place_of_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no folder"):
        durable_file.open_file(tmp_path / "missing" / "a.db", [FIRST])
    (tmp_path / "a.db").mkdir()
    refuse(tmp_path / "a.db", StoreForeign, "is not a file")
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of its own that can be made read-only."""
    with mount_disk("4m") as folder:
        yield folder


def test_a_read_only_disk_is_refused(disk: Path) -> None:
    make(disk / "a.db", FIRST)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refuse(disk / "a.db", StoreUnsafe, "the disk is read-only", "nothing was touched")
    refuse(disk / "new.db", StoreUnsafe, "the disk is read-only")


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may write anywhere, so be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder that everybody may look into."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_or_file_without_permission_is_refused(plain_user: Path) -> None:
    make(plain_user / "a.db", FIRST)
    (plain_user / "a.db.lock").unlink()
    (plain_user / "a.db").chmod(0o444)
    plain_user.chmod(0o777)
    with somebody_else():
        refuse(plain_user / "a.db", StoreUnsafe, "permission denied", "nothing was touched")
    plain_user.chmod(0o555)
    with somebody_else():
        refuse(plain_user / "new.db", StoreUnsafe, "permission denied")


def test_a_lock_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db.lock").mkdir()
    refuse(tmp_path / "a.db", StoreUnsafe, "a.db.lock cannot be created")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "9p", "fuse", "fuse.sshfs", "fuseblk", "ceph"]
)
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 0:1 / / rw - ext4 /dev/vda rw\n30 22 0:2 / {tmp_path} rw - {kind} there rw\n"
    )
    with pytest.raises(StoreUnsafe, match=f"network file system .{kind}"):
        durable_file.open_file(tmp_path / "a.db", [FIRST], mounts=mounts)
    assert [path.name for path in tmp_path.iterdir()] == ["mountinfo"]


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.0", "3.51.2"])
def test_a_library_that_loses_commits_is_refused(version: str) -> None:
    with pytest.raises(StoreUnsafe, match=version):
        durable_file.check_library(version)


@pytest.mark.parametrize("version", ["3.6.23", "3.51.3", "3.52.0", "4.0.0"])
def test_other_libraries_pass(version: str) -> None:
    durable_file.check_library(version)


class Deaf:
    """A connection that says it keeps other settings than it was given."""

    def __init__(self, **says: object) -> None:
        self._says = says

    def pragma(self, name: str, *_value: object) -> object:
        return self._says.get(name)

    def set_busy_timeout(self, _milliseconds: int) -> None: ...


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"journal_mode": "delete"}, "journal mode 'delete' instead of WAL"),
        ({"journal_mode": "wal", "synchronous": 1}, "synchronous=1 instead of FULL"),
    ],
)
def test_settings_are_believed_only_when_read_back(says: dict[str, object], words: str) -> None:
    with pytest.raises(StoreUnsafe, match=words):
        durable_file.configure(Deaf(**says))  # type: ignore[arg-type]
    memory = apsw.Connection(":memory:")
    with pytest.raises(StoreUnsafe, match="journal mode 'memory'"):
        durable_file.configure(memory)
    memory.close()


# --------------------------------------------------------------------------------- what is opened

HOLDER = """
import sys, time
from tenure.sqlite import durable_file
from tenure.sqlite.migrations import Migration
first = Migration(1, "0001_pre_first", "CREATE TABLE thing (name TEXT PRIMARY KEY)")
file = durable_file.open_file(sys.argv[1], [first])
file.writer.execute("INSERT INTO thing VALUES ('held')")
print("open", flush=True)
time.sleep(60)
"""


def test_a_file_that_another_process_holds_is_refused_until_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        refuse(path, StoreLocked, f"process {holder.pid}", "Stop that process")
        (tmp_path / "link.db").symlink_to(path)
        with pytest.raises(StoreLocked):
            durable_file.open_file(tmp_path / "link.db", [FIRST])
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    file = durable_file.open_file(path, [FIRST])
    assert file.writer.execute("SELECT name FROM thing").fetchall() == [("held",)]
    file.close()


def test_a_file_is_refused_to_a_second_opener_in_the_same_process(tmp_path: Path) -> None:
    file = durable_file.open_file(tmp_path / "a.db", [FIRST])
    refuse(tmp_path / "a.db", StoreLocked, f"process {os.getpid()}")
    file.close()
    make(tmp_path / "a.db", FIRST)


def test_a_new_file_is_ours_and_for_our_eyes(tmp_path: Path) -> None:
    file = durable_file.open_file(tmp_path / "a.db", [FIRST, SECOND])
    # Read from the main file while it is open: the next start looks there.
    content = (tmp_path / "a.db").read_bytes()
    assert struct.unpack(">I", content[68:72]) == (durable_file.APPLICATION_ID,)
    assert location.read_header(tmp_path / "a.db") == (durable_file.APPLICATION_ID, 2)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert file.writer.pragma("journal_mode") == "wal"
    assert file.writer.pragma("synchronous") == 2
    assert file.free_bytes() > 0
    file.close()
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "a.db.lock"]


def test_an_empty_file_is_made_ours(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    make(tmp_path / "a.db", FIRST)
    assert location.read_header(tmp_path / "a.db") == (durable_file.APPLICATION_ID, 1)


def test_a_full_disk_is_refused_until_there_is_room(disk: Path) -> None:
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        room = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
    with pytest.raises(StoreError, match="Make room"):
        durable_file.open_file(disk / "a.db", [FIRST])
    os.truncate(ballast, ballast.stat().st_size - 4096)
    with pytest.raises(StoreError, match=r"cannot be opened .*full"):
        durable_file.open_file(disk / "a.db", [FIRST])
    ballast.unlink()
    make(disk / "a.db", FIRST)


def test_a_file_that_the_system_does_not_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(*_args: object) -> None:
        raise OSError(24, "Too many open files")

    make(tmp_path / "a.db", FIRST)
    monkeypatch.setattr(durable_file, "connect", no_more)
    refuse(tmp_path / "a.db", StoreError, "cannot be opened (Too many open files)")


def test_an_older_file_is_brought_forward(tmp_path: Path) -> None:
    make(tmp_path / "a.db", FIRST)
    make(tmp_path / "a.db", FIRST, SECOND)
    assert location.read_header(tmp_path / "a.db") == (durable_file.APPLICATION_ID, 2)


def test_a_migration_that_fails_refuses_the_file_and_keeps_its_records(tmp_path: Path) -> None:
    make(tmp_path / "a.db", FIRST)
    refuse(
        tmp_path / "a.db",
        StoreError,
        "cannot be opened",
        migrations=(FIRST, Migration(2, "bad", "CREATE TABLE thing (x)")),
    )
    make(tmp_path / "a.db", FIRST)


def test_a_reader_sees_what_is_committed_and_can_write_nothing(tmp_path: Path) -> None:
    file = durable_file.open_file(tmp_path / "a.db", [FIRST])
    reader = file.reader()
    file.writer.execute("BEGIN; INSERT INTO thing VALUES ('a')")
    assert reader.execute("SELECT count(*) FROM thing").get == 0
    file.writer.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM thing").get == 1
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM thing")
    file.close()


def test_an_interrupt_while_opening_lets_go_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(durable_file, "configure", interrupt)
    with pytest.raises(KeyboardInterrupt):
        durable_file.open_file(tmp_path / "a.db", [FIRST])
    monkeypatch.undo()
    make(tmp_path / "a.db", FIRST)


# -------------------------------------------------------------------------------------- the store


def test_opening_the_store_drops_the_leases_of_dead_workers_and_no_others(tmp_path: Path) -> None:
    names = ["worker/a", "worker/", "worker/zz", "worker", "workers/a", "leader"]

    async def life() -> list[str]:
        store = sqlite.build(tmp_path / "a.db", clock=StoppedClock())
        left = [name for name in names if await store.find(LeaseRecord, (name,)) is not None]
        row: Row = {"holder": "h", "token": 1, "until": 9e9}
        await store.commit(Change("id", (), tuple(Put("lease", (name,), row) for name in names)))
        await store.close()
        return left

    assert asyncio.run(life()) == []
    assert asyncio.run(life()) == ["worker", "workers/a", "leader"]


def test_a_store_whose_tables_are_gone_is_refused_and_let_go(tmp_path: Path) -> None:
    async def make_store() -> None:
        await sqlite.build(tmp_path / "a.db", clock=StoppedClock()).close()

    asyncio.run(make_store())
    thief = apsw.Connection(str(tmp_path / "a.db"))
    thief.execute("DROP TABLE lease")
    thief.close()
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be used"):
            sqlite.build(tmp_path / "a.db", clock=StoppedClock())


def test_a_store_that_cannot_be_built_lets_go_of_its_file(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(AttributeError):
            sqlite.build(tmp_path / "a.db", clock=None)  # type: ignore[arg-type]
