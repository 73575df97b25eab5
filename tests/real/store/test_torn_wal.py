"""A log that was cut off anywhere.

Goal: whatever part of the log survives, the file opens, is sound, and holds a prefix of the
acknowledged commits: all those whose log had reached the disk, and none that came after a missing
one. Method: make commits, noting how long the log is at each acknowledgement; then copy the file,
cut the copy's log at every frame's edge, inside every frame's header and inside its page (and
damage it there instead), open it and look.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.adapters.store import sqlite
from tenure.ports.store import Change, Drop, Put, Set
from tenure.sqlite import durable_file
from tenure.sqlite.commit_thread import InlineRunner
from tenure.sqlite.migrations import read_migrations
from tenure.testing.contracts.store_rows import StoppedClock, event, operation, record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMITS = 125
PARTS = 4
"""Cuts are shared out to so many tests."""
HEADER, FRAME_HEADER, PAGE = 32, 24, durable_file.PAGE_BYTES
FRAME = FRAME_HEADER + PAGE
MIGRATIONS = read_migrations(Path(sqlite.__file__).parent / "migrations")


class CrashedFile(NamedTuple):
    """A store as a crash finds it, and how long its log was at each acknowledgement."""

    folder: Path
    log: bytes
    sizes: list[int]


@pytest.fixture(scope="module")
def crashed_file() -> Iterator[CrashedFile]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        sizes = asyncio.run(write(folder))
        yield CrashedFile(folder, (folder / "crashed-wal").read_bytes(), sizes)


async def write(folder: Path) -> list[int]:
    """Commit one after the other, then copy what is on the disk while the store is still open."""
    store = sqlite.build(folder / "live", clock=StoppedClock(), flush=InlineRunner())
    log = folder / "live-wal"
    sizes = []
    for n in range(1, COMMITS + 1):
        writes: list[Put | Set | Drop] = [operation(f"{n:05}"), event(f"{n}"), record(f"{n:05}", 1)]
        if n > 1:
            writes.append(Set("operation", (f"{n - 1:05}",), {"token": n}))
        assert await store.commit(Change(f"id{n}", (), tuple(writes))) is None
        sizes.append(log.stat().st_size)
    shutil.copy(folder / "live", folder / "crashed")
    shutil.copy(log, folder / "crashed-wal")
    await store.close()
    return sizes


def commits_after(crashed_file: CrashedFile, log: bytes) -> int:
    """Open a copy with this log; how many commits it holds, which must be the first ones."""
    path = crashed_file.folder / "cut"
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.copy(crashed_file.folder / "crashed", path)
    Path(f"{path}-wal").write_bytes(log)
    file = durable_file.open_file(path, MIGRATIONS)
    try:
        read = file.reader()
        assert read.pragma("integrity_check") == "ok"
        count = int(read.execute("SELECT count(*) FROM operation").get)
        names = [f"{n:05}" for n in range(1, count + 1)]
        assert [name for (name,) in read.execute("SELECT id FROM operation ORDER BY id")] == names
        journal = read.execute("SELECT operation FROM journal ORDER BY operation")
        assert [name for (name,) in journal] == names
        found = read.execute("SELECT position, type FROM outbox ORDER BY position").fetchall()
        assert found == [(n, f"{n}") for n in range(1, count + 1)]
        assert (read.execute("SELECT value FROM counter").get or 0) == count
        tokens = [token for (token,) in read.execute("SELECT token FROM operation ORDER BY id")]
        assert tokens[:-1] == list(range(2, count + 1))
        batches = [
            changes for (changes,) in read.execute("SELECT changes FROM batch ORDER BY number")
        ]
        assert batches == [f"id{n}" for n in range(1, count + 1)]
    finally:
        file.close()
    return count


def places(crashed_file: CrashedFile) -> list[int]:
    """Every frame's edge, the middle of its header and of its page; some of the log's header."""
    found = [0, 1, HEADER // 2, HEADER - 1]
    for start in range(HEADER, len(crashed_file.log), FRAME):
        found += [start, start + FRAME_HEADER // 2, start + FRAME_HEADER + PAGE // 2]
    return [*found, len(crashed_file.log)]


@pytest.mark.parametrize("part", range(PARTS))
def test_a_cut_log_leaves_exactly_the_commits_that_it_holds(
    crashed_file: CrashedFile, tally, part: int
) -> None:
    assert len(places(crashed_file)) >= 3000
    cuts = places(crashed_file)[part::PARTS]
    for cut in cuts:
        durable = sum(size <= cut for size in crashed_file.sizes)
        assert commits_after(crashed_file, crashed_file.log[:cut]) == durable, f"cut at byte {cut}"
    tally.add("torn_logs", len(cuts))


def test_a_damaged_log_leaves_the_commits_before_the_damage(
    crashed_file: CrashedFile, tally
) -> None:
    spots = places(crashed_file)[5:-1:4]
    for spot in spots:
        log = bytearray(crashed_file.log)
        log[spot] ^= 0x40
        durable = sum(size <= spot for size in crashed_file.sizes)
        assert commits_after(crashed_file, bytes(log)) == durable, f"damaged at byte {spot}"
    tally.add("torn_logs", len(spots))
