"""A plane as its host sees it: how it starts, how it is left, and what it does when a disk fails.

A bound on the size of files (RLIMIT_FSIZE) stands for a disk that takes no more: a longer write
fails.
"""

import asyncio
import os
import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.core.endings import Done, Ending, Waiting
from tenure.core.errors import CommitUnknown, Invalid, StoreError, StoreLocked
from tenure.core.operation import EntryKind, IntentState, OperationState
from tenure.core.plan import Plan, Step, nothing, repeat
from tenure.plans.steps import provided
from tenure.ports.provider import Call
from tenure.settings import Settings
from tenure.testing.operators import by
from tenure.testing.shelf import Shelf
from tenure.wiring import run_plane

pytestmark = pytest.mark.timeout(300)

TENANT = "default"


async def approve(call: Call) -> Ending:
    return Done() if call.signals.get("approved") else Waiting("approved", "someone has to approve")


MADE = provided("identity", "identity")
WAITS = Plan("waits", stages=(MADE, Step("approval", approve, nothing, repeat)))
OTHER = Plan("other", stages=(MADE,))


def plane_in(directory: Path, *plans: Plan, slow: float = 0.0, lease_seconds: float = 60.0):
    settings = Settings(store=str(directory / "tenure.db"), lease_ttl_seconds=lease_seconds)
    shelf = Shelf(directory, "identity", now=time.time, slow=slow)
    return run_plane(settings, plans=plans or (WAITS, OTHER), providers={"identity": shelf})


def rows_of(directory: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    base = apsw.Connection(str(directory / "tenure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    names = base.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    rows = {str(name): base.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names}
    base.close()
    return rows


async def waiting(plane) -> str:
    """An operation that has done one step and waits for a signal."""
    name = (await admission.accept(plane, OperationRequest("waits"))).id
    async with asyncio.timeout(120):
        while (await reads.get_operation(plane, TENANT, name)).state is not OperationState.WAITING:
            await plane.engine.wait(name, 0.01)
    return name


def test_a_second_plane_on_the_same_file_is_refused_by_the_name_of_the_first(tmp_path):
    async def main() -> None:
        async with plane_in(tmp_path) as plane:
            with pytest.raises(StoreLocked, match=rf"in use by process {os.getpid()}\b"):
                await plane_in(tmp_path).__aenter__()
            done = await admission.accept(plane, OperationRequest("other"))
            assert (await reads.wait(plane, TENANT, done.id)).state is OperationState.SUCCEEDED

    asyncio.run(main())


def test_a_plane_that_does_not_know_an_open_operation_is_refused_and_changes_nothing(tmp_path):
    new = Plan("waits", stages=(provided("renamed", "identity"),))

    async def main() -> None:
        async with plane_in(tmp_path) as plane:
            name = await waiting(plane)
        before = rows_of(tmp_path)
        with pytest.raises(Invalid) as refused:
            async with plane_in(tmp_path, new, OTHER):
                pytest.fail("it must not start")
        assert "knows how to perform waits@1/identity." in str(refused.value)
        assert "Nothing was changed" in str(refused.value)
        assert rows_of(tmp_path) == before
        async with plane_in(tmp_path) as plane:
            await operations.signal(plane, by("a friend"), name, name="approved")
            assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED

    asyncio.run(main())


def test_a_clean_shutdown_gives_the_lease_back_and_leaves_open_operations_to_the_next(tmp_path):
    async def main() -> None:
        async with plane_in(tmp_path) as plane:
            name = await waiting(plane)
            assert len(rows_of(tmp_path)["lease"]) == 1
        assert not list(tmp_path.glob("*-wal")), "the log was moved into the file"
        assert rows_of(tmp_path)["lease"] == []
        async with plane_in(tmp_path) as plane:
            seen = await reads.get_operation(plane, TENANT, name)
            assert [step.state for step in seen.steps] == [
                IntentState.PRESENT,
                IntentState.INTENDED,
            ]
            await operations.signal(plane, by("a friend"), name, name="approved")
            assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED

    asyncio.run(main())


def test_a_shutdown_lets_a_call_under_way_end_and_keeps_what_it_came_to(tmp_path):
    async def main() -> None:
        async with plane_in(tmp_path, slow=0.3) as plane:
            name = (await admission.accept(plane, OperationRequest("waits"))).id
            while not any((tmp_path / "identity").iterdir()):  # noqa: ASYNC110 (it is a shelf)
                await asyncio.sleep(0.005)
        (done,) = [row for row in rows_of(tmp_path)["journal"] if "identity" in row]
        assert EntryKind.DONE in done
        async with plane_in(tmp_path) as plane:
            await operations.cancel(plane, by("the caller"), name)
            assert (await reads.wait(plane, TENANT, name)).state is OperationState.COMPENSATED

    asyncio.run(main())


# ------------------------------------------------------------------------------- the disk refuses


@contextmanager
def no_room(directory: Path, ending: str = "-wal") -> Iterator[None]:
    """This file grows no more."""
    size = (directory / f"tenure.db{ending}").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_that_fails_ends_a_host_that_only_sleeps(tmp_path):
    async def main() -> None:
        async with plane_in(tmp_path, lease_seconds=0.6) as plane:
            name = await waiting(plane)
            with no_room(tmp_path):
                await asyncio.sleep(200)
        pytest.fail(f"nobody has noticed; {name} is stranded")

    with pytest.raises(CommitUnknown, match="Stop this process and start it again"):
        asyncio.run(main())
    assert_recovers(tmp_path)


def test_a_store_that_fails_answers_nobody_any_more(tmp_path):
    told: list[BaseException] = []

    async def main() -> None:
        async with plane_in(tmp_path, lease_seconds=0.6) as plane:
            name = await waiting(plane)
            with no_room(tmp_path):
                for _ in range(3):
                    with pytest.raises(CommitUnknown) as caught:
                        await admission.accept(plane, OperationRequest("other"))
                    told.append(caught.value)
            with pytest.raises(CommitUnknown):  # there is room again: too late
                await admission.accept(plane, OperationRequest("other"))
            assert (await reads.get_operation(plane, TENANT, name)).state is OperationState.WAITING
            await asyncio.sleep(200)

    with pytest.raises(CommitUnknown):
        asyncio.run(main())
    assert len(told) == 3
    assert_recovers(tmp_path)


def assert_recovers(directory: Path) -> None:
    """The next start finds everything that was acknowledged, and goes on."""

    async def main() -> None:
        async with plane_in(directory) as plane:
            (row,) = await reads.list_operations(plane, TENANT, states=(OperationState.WAITING,))
            name = row.id
            await operations.signal(plane, by("a friend"), name, name="approved")
            assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
            for other in await reads.list_operations(plane, TENANT):
                ended = await reads.wait(plane, TENANT, other.id)
                assert ended.state is OperationState.SUCCEEDED

    asyncio.run(main())


def test_a_start_without_room_is_refused_and_the_next_one_works(tmp_path):
    async def main() -> None:
        async with plane_in(tmp_path) as plane:
            await waiting(plane)
        with no_room(tmp_path, ".lock"), pytest.raises((StoreError, CommitUnknown)) as refused:
            async with plane_in(tmp_path):
                pytest.fail("it must not start")
        assert re.search(r"[a-z].*\.$", str(refused.value))

    asyncio.run(main())
    assert_recovers(tmp_path)


# ---------------------------------------------------------------------- leaving for other reasons


def test_a_host_that_is_cancelled_stays_cancelled_and_the_plane_is_closed(tmp_path):
    async def host() -> None:
        async with plane_in(tmp_path):
            await asyncio.sleep(200)

    async def main() -> None:
        task = asyncio.create_task(host())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with plane_in(tmp_path) as plane:
            await waiting(plane)

    asyncio.run(main())


def test_a_timeout_and_an_error_inside_the_block_are_its_own(tmp_path):
    async def main() -> None:
        async with plane_in(tmp_path) as plane:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(200)
            await waiting(plane)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert_recovers(tmp_path)
