"""A plane in a user's own process, on each stack: `import tenure` and nothing deeper.

Goal: an operation that was started and signalled is finished by the next process, though the first
was killed with -9 in the middle of a step; a repeated start and a repeated signal change nothing.
Method: a program of a user's own (`tests/real/support/library_program.py`) is killed once its step
has made a file and has not returned.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import tenure
from tests.real.support import library_program
from tests.real.support.runtimes import until

pytestmark = pytest.mark.timeout(300)


def test_an_operation_and_its_early_signal_survive_kill_9_of_a_users_program(
    stack, tmp_path, tally
):
    directory = tmp_path / "files"
    directory.mkdir()
    words = (stack.store, stack.temporal_address, stack.temporal_queue)
    child = subprocess.Popen(
        [sys.executable, library_program.__file__, *words, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        started = child.stdout.readline().strip()
        until(lambda: list(directory.iterdir()), 60)
    finally:
        child.kill()
        child.communicate()
    tally.add("kills")

    async def recover() -> tuple[tenure.OperationView, ...]:
        async with library_program.open_library_plane(*words, directory) as plane:
            again = await library_program.ask(plane)
            assert again.id == started
            await plane.wait(again.id, seconds=120)
            return await plane.list()

    (ended,) = asyncio.run(recover())
    assert ended.state is tenure.OperationState.SUCCEEDED
    assert ended.results["approval"] == ["eve"], "the signal was delivered once"
    assert [file.name for file in directory.iterdir()] == [ended.results["file"]]


def test_a_process_that_executes_nothing_leaves_operations_to_another(postgres_url, tmp_path):
    directory = Path(tmp_path)
    plans = [library_program.plan_of(directory)]

    async def main() -> tenure.OperationView:
        face = tenure.open_plane(postgres_url, plans=plans, execute_operations=False)
        async with face as asking, tenure.open_plane(postgres_url, plans=plans) as executing:
            started = await library_program.ask(asking)
            ended = await asking.wait(started.id, seconds=60)
            assert ended == await executing.get(started.id)
            return ended

    assert asyncio.run(main()).state is tenure.OperationState.SUCCEEDED


def test_temporal_needs_a_store_that_is_shared(tmp_path):
    async def main() -> None:
        plans = [library_program.plan_of(tmp_path)]
        file = tmp_path / "tenure.db"
        async with tenure.open_plane(file, plans=plans, temporal=tenure.Temporal()):
            pass

    with pytest.raises(tenure.Invalid, match="postgresql://"):
        asyncio.run(main())
    assert not list(tmp_path.iterdir())
