"""The same promises on each stack: sqlite + embedded, postgres + embedded, postgres + temporal.

Goal: P1, P2, P6, P7 and P10 do not depend on where a plane keeps its operations and what moves
them.  Method: real workers on real servers are killed with -9, or stopped for longer than they may
be; their providers are files.  What was said, what is kept and what there is must then agree.  The
cases are few, since the mass of them is run on one stack elsewhere; each is counted under its
promise and its stack, and the run closes with a table of them.
"""

import asyncio
import signal
import time
from contextlib import ExitStack, nullcontext

import pytest

from tenure.app import operations
from tenure.app.operations import Accept
from tenure.core.errors import Conflict
from tenure.core.operation import State
from tenure.testing.audit import AGAIN, Wanted
from tenure.testing.kill9 import TENANT, all_ended
from tenure.wiring import running
from tests.real.books import CHARGED, LEDGER, MEASURED, METER, SLOW_SECONDS, written
from tests.real.stacks import PLANS, Stack, Worker, journals_in, looked_at, on_temporal
from tests.real.stacks import providers_of as providers_in

pytestmark = [pytest.mark.timeout(150), pytest.mark.slow]
STACKS = ("sqlite_embedded", "postgres_embedded", "postgres_temporal")
KILLS = 4
EFFECTS = 6
CALLERS = 12


@pytest.fixture(params=STACKS)
def stack(request, tmp_path) -> Stack:
    if request.param == "sqlite_embedded":
        return Stack(str(tmp_path / "tenure.db"))
    url = request.getfixturevalue("postgres_url")
    if request.param == "postgres_embedded":
        return Stack(url)
    return on_temporal(url, request.getfixturevalue("temporal").address)


@pytest.fixture
def ending():
    """What is killed at the end, whatever happened."""
    with ExitStack() as ended:
        yield ended


def begun(ending: ExitStack, *given, **named) -> Worker:
    worker = Worker(*given, **named)
    ending.callback(worker.kill)
    return worker


def counted(tally, promise: int, stack: Stack, cases: int) -> None:
    assert cases > 0
    tally.add(f"promise_{promise}_on_{stack.name}", cases)


def opened(stack: Stack, directory):
    """A plane of this process on the same stack and the same world."""
    return running(stack.settings(), plans=PLANS, providers=providers_in(directory / "world"))


def test_what_killed_workers_have_acknowledged_ends_and_nothing_else_is_left(
    stack, tmp_path, tally, ending
):
    abreast = 2 if stack.is_shared else 1
    workers = [begun(ending, stack, tmp_path, life) for life in range(abreast)]
    for kill in range(KILLS):
        dying = workers[kill % abreast]
        dying.wait_for("accepted", count=8)
        dying.kill()
        tally.add("kills")
        workers[kill % abreast] = begun(ending, stack, tmp_path, kill + abreast)
    workers[0].wait_for("ended", count=5)
    for worker in workers:
        worker.kill()
        tally.add("kills")
    report = looked_at(stack, tmp_path)
    assert report.succeeded > report.compensated > 0
    counted(tally, 1, stack, report.acknowledged)
    counted(tally, 2, stack, report.operations)


def test_an_effect_whose_worker_died_before_its_answer_is_never_repeated_nor_called_failed(
    stack, tmp_path, tally, ending
):
    books = {name: tmp_path / "world" / f"{name}.book" for name in (LEDGER, METER)}
    worker = begun(ending, stack, tmp_path, 0, most=-EFFECTS)
    worker.wait_for("accepted", count=EFFECTS)
    until = time.monotonic() + 30
    while sum(written(book).total() for book in books.values()) < EFFECTS:
        assert time.monotonic() < until
        time.sleep(0.005)
    worker.kill()  # every line is there, and nobody has heard of any
    tally.add("kills")

    async def rest() -> None:
        async with opened(stack, tmp_path) as plane:
            for name in worker.accepted():
                ended = await operations.wait(plane, TENANT, name, seconds=SLOW_SECONDS / 4)
                until = time.monotonic() + 60
                while ended.state not in {State.SUCCEEDED, State.STUCK}:
                    assert ended.state in {State.RUNNING, State.WAITING}, ended
                    assert time.monotonic() < until, ended
                    ended = await operations.wait(plane, TENANT, name, seconds=0.2)
                if ended.state is State.STUCK:  # a person looks into the book, and says so
                    assert ended.kind == MEASURED.name
                    await operations.adopt(plane, TENANT, name, step="measure", by="operator")
                    ended = await operations.wait(plane, TENANT, name, seconds=30.0)
                else:
                    assert ended.kind == CHARGED.name
                assert ended.state is State.SUCCEEDED

    asyncio.run(rest())
    for book in books.values():
        assert set(written(book).values()) == {1}, written(book)
        assert written(book).total() == EFFECTS // 2
    counted(tally, 6, stack, EFFECTS)


def test_a_worker_that_slept_through_its_end_commits_nothing_more(stack, tmp_path, tally, ending):
    """On a file the sleeper still holds it, so nobody else is let in: also one writer."""
    slow = 1.0
    sleeper = begun(ending, stack, tmp_path, 0, most=8, slow=slow)
    sleeper.wait_for("accepted", count=6)
    sleeper.tell(signal.SIGSTOP)
    taken = sleeper.accepted()
    if not stack.is_shared:
        second = begun(ending, stack, tmp_path, 1, most=1)
        assert second.process.wait(30) != 0
        assert "StoreLocked" in second.errors.read_text()
        assert second.accepted() == []
        sleeper.tell(signal.SIGCONT)
        sleeper.wait_for("idle")
    else:
        asyncio.run(_taken_over(stack, tmp_path, sleeper, taken))
        tally.add("takeovers")
    sleeper.kill()
    looked_at(stack, tmp_path)
    counted(tally, 7, stack, len(taken))


async def _taken_over(stack: Stack, directory, sleeper: Worker, taken: list[str]) -> None:
    """Finish in the sleeper's place, wake it, let it do the rest: what had ended stays as it is."""
    async with opened(stack, directory) as plane:
        assert await all_ended(plane, 90.0)
        before = await journals_in(plane.store, taken)
        rows = [await plane.store.find("operation", (name,)) for name in taken]
        sleeper.tell(signal.SIGCONT)
        await asyncio.to_thread(sleeper.wait_for, "idle", seconds=60.0)
        assert await all_ended(plane, 60.0)
        assert await journals_in(plane.store, taken) == before
        assert [await plane.store.find("operation", (name,)) for name in taken] == rows


def test_a_key_is_one_operation_whoever_sends_it_again(stack, tmp_path, tally, ending):
    worker = begun(ending, stack, tmp_path, 0, most=6)
    worker.wait_for("ended", count=6)
    worker.kill()
    tally.add("kills")
    first = worker.accepted()

    async def again() -> int:
        async with opened(stack, tmp_path) as plane, opened_beside(stack, tmp_path, plane) as other:
            same = Accept("linear", input={"label": "9-0", "refuse": ""}, idempotency_key="9-0")
            asked = [operations.accept(one, same) for one in (plane, other) * CALLERS]
            told = {one.id for one in await asyncio.gather(*asked)}
            assert len(told) == 1
            with pytest.raises(Conflict, match="another request"):
                await operations.accept(other, Accept("pivot", idempotency_key="9-0"))
            # What the dead worker had been told, it would be told again.
            wanted = [Wanted(0, number) for number in range(AGAIN)]
            resent = [await operations.accept(other, one.command()) for one in wanted]
            assert {one.id for one in resent} <= set(first)
            assert await all_ended(plane, 60.0)
            return 2 * CALLERS + 1 + len(resent)

    cases = asyncio.run(again())
    looked_at(stack, tmp_path)
    counted(tally, 10, stack, cases)


def opened_beside(stack: Stack, directory, plane):
    """Another plane on the same store; on a file, which admits one, the same again."""
    return opened(stack, directory) if stack.is_shared else nullcontext(plane)
