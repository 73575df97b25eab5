"""A disk that fills up: a real one, small, in memory.

Goal: new work is refused in good time, accepted work goes on within the reserve, nothing
acknowledged is lost, and everything is as before when there is room again. Method: mount a small
tmpfs, fill it with ballast beside the store, take the ballast away again.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.adapters.store import sqlite
from tenure.core.errors import CommitUnknown, StoreFull
from tenure.ports.store import Set
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.testing.contracts.store_rows import Names, StoppedClock, event, operation, record
from tests.real.support.disks import mount_disk, read_only

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

MEBIBYTE = 1024 * 1024


@pytest.fixture
def disk() -> Iterator[Path]:
    with mount_disk("96m") as folder:
        yield folder


def free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def leave(disk: Path, room: int) -> None:
    """Fill the disk but for this many bytes."""
    with (disk / "ballast").open("wb") as file:
        file.truncate(0)
        os.posix_fallocate(file.fileno(), 0, free(disk) - room)


def clear(disk: Path) -> None:
    (disk / "ballast").unlink()


def build(disk: Path) -> sqlite.SqliteStore:
    return sqlite.build(disk / "store.db", clock=StoppedClock())


def test_a_full_disk_refuses_new_work_and_goes_on_with_the_old(disk: Path) -> None:
    change = Names()

    async def scenario() -> None:
        store = build(disk)
        accepted = [
            change(operation(f"{n:03}", input="x" * 1000), event(), is_new_work=True)
            for n in range(100)
        ]
        assert await asyncio.gather(*map(store.commit, accepted)) == [None] * 100
        leave(disk, RESERVE_BYTES - MEBIBYTE)
        with pytest.raises(StoreFull, match="Free space"):
            await store.commit(change(operation("new"), event("lost"), is_new_work=True))
        assert await store.write_problem() == (
            "its disk is full; 31 MiB are free and new work needs 32 MiB"
        )
        for n in range(100):
            step = change(
                record(f"{n:03}", 1), Set("operation", (f"{n:03}",), {"revision": 1}), event()
            )
            assert await store.commit(step) is None
        clear(disk)
        assert await store.commit(change(operation("new"), event(), is_new_work=True)) is None
        await store.close()
        store = build(disk)
        assert len(await store.list_operations("north", limit=1000)) == 101
        assert [row.position for row in await store.list_events(limit=1000)] == list(range(1, 202))
        loaded = await store.load("099")
        assert loaded is not None
        assert (loaded.operation.revision, len(loaded.journal)) == (1, 1)
        await store.close()

    asyncio.run(scenario())


def test_a_read_only_file_system_takes_no_new_work_and_is_named(disk: Path) -> None:
    """Linux makes a file system read-only after an error of its disk; here one is mounted above."""
    change = Names()

    async def scenario() -> None:
        store = build(disk)
        assert await store.commit(change(operation("a"), event(), is_new_work=True)) is None
        assert await store.write_problem() == ""
        with read_only(disk):
            with pytest.raises(StoreFull):
                await store.commit(change(operation("new"), event(), is_new_work=True))
            assert await store.write_problem() == "the file system of its file is read-only"
        assert await store.commit(change(operation("new"), event(), is_new_work=True)) is None
        await store.close()

    asyncio.run(scenario())


def test_a_disk_that_fills_between_statements_keeps_nothing_of_the_batch_and_the_store_lives(
    disk: Path,
) -> None:
    """A batch larger than the cache reaches the disk before its COMMIT."""
    change = Names()

    async def scenario() -> None:
        store = build(disk)
        assert await store.commit(change(operation("a"), event())) is None
        leave(disk, 4 * MEBIBYTE)
        large = [change(operation(f"{n:03}", input="x" * 2 * MEBIBYTE), event()) for n in range(60)]
        answers = await asyncio.gather(*map(store.commit, large), return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreFull}
        assert [row.id for row in await store.list_operations("north")] == ["a"]
        assert await store.commit(change(record("a", 1), event())) is None
        clear(disk)
        assert await store.commit(change(operation("b"), event(), is_new_work=True)) is None
        assert [row.position for row in await store.list_events()] == [1, 2, 3]
        await store.close()

    asyncio.run(scenario())


def test_a_disk_without_a_byte_left_loses_nothing_that_was_acknowledged(disk: Path) -> None:
    """The reserve is gone too: COMMIT fails and the store stops, but keeps what it said it has."""
    change = Names()

    async def scenario() -> None:
        store = build(disk)
        acknowledged: list[int] = []
        leave(disk, 0)
        attempts = [change(operation(f"{n:05}", input="x" * 20_000)) for n in range(10_000)]

        async def write_until_it_fails() -> None:
            for n, attempt in enumerate(attempts):
                assert await store.commit(attempt) is None
                acknowledged.append(n)

        with pytest.raises(CommitUnknown):
            await write_until_it_fails()
        with pytest.raises(CommitUnknown):
            await store.commit(change())
        await store.close()
        store = build(disk)
        with pytest.raises(StoreFull):
            await store.commit(change(operation("new"), is_new_work=True))
        clear(disk)
        found = [int(row.id) for row in await store.list_operations("north", limit=10_000)]
        assert found[: len(acknowledged)] == acknowledged
        assert len(found) - len(acknowledged) in {0, 1}
        lost = attempts[len(acknowledged)]
        assert await store.was_committed(lost.id) == (len(found) > len(acknowledged))
        assert await store.commit(change(operation("new"), is_new_work=True)) is None
        await store.close()

    asyncio.run(scenario())
