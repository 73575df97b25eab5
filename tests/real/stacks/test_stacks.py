"""The same promises on each stack: sqlite + embedded, postgres + embedded, postgres + temporal.

Goal: P1, P2, P6, P7, P10 and P23 do not depend on where a plane keeps its operations and what moves
them; `test_stacks_agents` has the others.  Method: real workers on real servers are killed with -9,
or stopped for longer than they may be; their providers are files.  What was said, what is kept and
what there is must then agree.  The cases are few, since the mass of them is run on one stack
elsewhere; each is counted under its promise and its stack, and the run closes with a table of them.
"""

import asyncio
import signal
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from proofs.kills.audit import AGAIN, LINEAR, ChildLine, LabelledRequest, lines_of, shelves_of
from proofs.kills.kill9 import TENANT, all_ended
from proofs.subjects import ABLATIONS
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.plane import Plane
from tenure.core.errors import Conflict
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.records import IntentRecord, OperationRecord
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Store
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tenure.wiring import run_plane
from tests.real.support.counting_services import (
    CHARGE_PLAN,
    LEDGER,
    MEASURE_PLAN,
    METER,
    count_writes,
)
from tests.real.support.runtimes import until
from tests.real.support.stacks import (
    LINEAR_2,
    NEXT_PLANS,
    PAGE,
    PLANS,
    STACKS,
    Gate,
    Stack,
    Worker,
    finish_and_audit,
    journals_in,
    let_answer,
    rows_of,
)
from tests.real.support.stacks import providers_of as providers_in

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
KILLS = 4
EFFECTS = 6
AMID = 3
"""Calls that a worker is stopped amid, at least."""
OVERTAKEN_SECONDS = 150.0
"""Temporal hands calls also to a worker that is stopped, until its polls end after a minute; each
of those is lost for ten seconds."""
WATCHED_SECONDS = 3.0
"""How long a worker that was woken is watched, which should do nothing."""
SEEN_SECONDS = 60.0
"""How long one without a fence is waited for, which should be seen to do something."""
CALLERS = 12


def start_worker(ending: ExitStack, *args, **kwargs) -> Worker:
    worker = Worker(*args, **kwargs)
    ending.callback(worker.kill)
    return worker


def add_to_tally(tally, promise: int, stack: Stack, cases: int) -> None:
    assert cases > 0
    tally.add(f"promise_{promise}_on_{stack.name}", cases)


def open_plane(stack: Stack, directory):
    """A plane of this process on the same stack and the same world."""
    return run_plane(stack.settings(), plans=PLANS, providers=providers_in(directory / "world"))


def test_what_killed_workers_have_acknowledged_ends_and_nothing_else_is_left(
    stack, tmp_path, tally, ending
):
    abreast = 2 if stack.is_shared else 1
    workers = [start_worker(ending, stack, tmp_path, life) for life in range(abreast)]
    for kill in range(KILLS):
        dying = workers[kill % abreast]
        dying.wait_for("accepted", count=8)
        dying.kill()
        tally.add("kills")
        workers[kill % abreast] = start_worker(ending, stack, tmp_path, kill + abreast)
    workers[0].wait_for("ended", count=5)
    for worker in workers:
        worker.kill()
        tally.add("kills")
    report = finish_and_audit(stack, tmp_path)
    assert report.succeeded > report.compensated > 0
    add_to_tally(tally, 1, stack, report.acknowledged)
    add_to_tally(tally, 2, stack, report.operations)


def test_an_effect_whose_worker_died_before_its_answer_is_never_repeated_nor_called_failed(
    stack, tmp_path, tally, ending
):
    done_by_the_dead(stack, tmp_path, tally, ending)
    add_to_tally(tally, 6, stack, EFFECTS)


def test_ablation_an_effect_that_is_repeated_unasked_is_seen(stack, tmp_path, tally, ending):
    with ABLATIONS["inspect_first"].off(), pytest.raises(AssertionError):
        done_by_the_dead(stack, tmp_path, tally, ending)
    assert any(count > 1 for book in books_in(tmp_path) for count in count_writes(book).values())
    tally.add("ablations")


def done_by_the_dead(stack: Stack, directory: Path, tally, ending: ExitStack) -> None:
    """Kill a worker between its effects and their answers, let another go on, and count."""
    worker = start_worker(ending, stack, directory, 0, most=-EFFECTS, is_held=True)
    done_unheard_of(worker, directory)
    worker.kill()
    tally.add("kills")

    async def rest() -> None:
        async with open_plane(stack, directory) as plane:
            await at_rest(plane, worker.accepted())

    asyncio.run(rest())
    written_once(directory)


def books_in(directory: Path) -> list[Path]:
    return [directory / "world" / f"{name}.book" for name in (LEDGER, METER)]


def done_unheard_of(worker: Worker, directory: Path) -> None:
    """Every line is there, and nobody has heard of any."""
    worker.wait_for("accepted", count=EFFECTS)
    assert until(lambda: sum(count_writes(book).total() for book in books_in(directory)) >= EFFECTS)


def written_once(directory: Path) -> None:
    for book in books_in(directory):
        assert set(count_writes(book).values()) == {1}, count_writes(book)
        assert count_writes(book).total() == EFFECTS // 2


async def at_rest(plane: Plane, names: list[str]) -> None:
    """All have succeeded; of what nobody can ask about a person has said so."""
    for name in names:
        ended = await reads.wait(plane, TENANT, name, seconds=OVERTAKEN_SECONDS)
        if ended.state is OperationState.STUCK:  # a person looks into the book, and says so
            assert ended.plan_name == MEASURE_PLAN.name
            await operations.adopt(plane, by("operator"), name, step="measure")
            ended = await reads.wait(plane, TENANT, name, seconds=OVERTAKEN_SECONDS)
        else:
            assert ended.plan_name == CHARGE_PLAN.name
        assert ended.state is OperationState.SUCCEEDED


def test_a_worker_that_slept_through_its_end_commits_nothing_more(stack, tmp_path, tally, ending):
    """On a file the sleeper still holds it, so nobody else is let in: also one writer."""
    taken, wrong = slept_through(stack, tmp_path, ending)
    assert not wrong, wrong
    tally.add("takeovers", stack.is_shared)
    finish_and_audit(stack, tmp_path)
    add_to_tally(tally, 7, stack, len(taken))


def test_ablation_a_worker_without_a_fence_is_seen_to_commit(stack, tmp_path, tally, ending):
    off = "fenced" if stack.is_shared else "file_locked"
    _, wrong = slept_through(stack, tmp_path, ending, ablate=off)
    assert wrong
    tally.add("ablations")


def slept_through(
    stack: Stack, directory: Path, ending: ExitStack, *, ablate: str = ""
) -> tuple[list[str], list[str]]:
    """Stop a worker amid its calls, for longer than its lease, and let it go on.

    The keys it was called for, and what is wrong.
    """
    runtime = shelves_of(directory / "world")["runtime"]
    sleeper = start_worker(ending, stack, directory, 0, most=8, is_held=True, ablate=ablate)
    sleeper.wait_for("accepted", count=6)
    assert until(lambda: len(runtime.list_keys()) >= AMID)
    sleeper.tell(signal.SIGSTOP)
    keys = runtime.list_keys()
    if stack.is_shared:
        watched = SEEN_SECONDS if ablate else WATCHED_SECONDS
        return keys, asyncio.run(_overtaken(stack, directory, sleeper, keys, watched))
    second = start_worker(ending, stack, directory, 1, most=1, ablate=ablate)
    assert until(lambda: second.process.poll() is not None or second.accepted())
    if "StoreLocked" not in second.errors.read_text() or second.accepted():
        return keys, ["another was let in"]
    let_answer(directory / "world")
    sleeper.tell(signal.SIGCONT)
    sleeper.wait_for("idle")
    sleeper.kill()
    return keys, []


async def _overtaken(
    stack: Stack, directory: Path, sleeper: Worker, keys: list[str], watched_seconds: float
) -> list[str]:
    """Take over, wake the sleeper while the calls that repeat its own have no answer yet.

    Whatever is recorded of those then would be the sleeper's.
    """
    gate = Gate()
    providers = gate.before(providers_in(directory / "world"))
    async with run_plane(stack.settings(), plans=PLANS, providers=providers) as plane:
        async with asyncio.timeout(OVERTAKEN_SECONDS):
            while not gate.waiting >= set(keys):  # noqa: ASYNC110 (an engine of its own calls)
                await asyncio.sleep(0.02)
        before = await _standing(plane.store, keys)
        assert len(before) == len(keys)
        let_answer(directory / "world")
        sleeper.tell(signal.SIGCONT)
        end, same = time.monotonic() + watched_seconds, True
        while same and time.monotonic() < end:
            await asyncio.sleep(0.05)
            same = before == await _standing(plane.store, keys)
        gate.opened.set()
        if not same:
            return ["the sleeper has committed something"]
        assert await all_ended(plane, OVERTAKEN_SECONDS)
        await asyncio.to_thread(sleeper.wait_for, "idle")
    sleeper.kill()
    return []


async def _standing(store: Store, keys: list[str]) -> dict[str, object]:
    """How the intent of each key stands, and what the journal says of its step.

    When it is tried again, and by whose token, whoever overtakes may have to say more than once.
    """
    found: dict[str, object] = {}
    for row in await store.list_rows(IntentRecord, {"slot": "runtime"}, limit=PAGE):
        if row.key in keys:
            lines = await journals_in(store, [str(row.operation)])
            of_it = [line for line in lines[str(row.operation)] if line.step == row.step]
            found[row.key] = (row.state, of_it)
    return found


@pytest.mark.parametrize("stack", ["postgres_embedded", "postgres_temporal"], indirect=True)
def test_an_effect_of_a_worker_that_slept_is_not_repeated(stack, tmp_path, tally, ending):
    """It was done before the worker slept; another learns that, and the sleeper adds nothing."""
    sleeper = start_worker(ending, stack, tmp_path, 0, most=-EFFECTS, is_held=True)
    done_unheard_of(sleeper, tmp_path)
    sleeper.tell(signal.SIGSTOP)

    async def rest() -> None:
        async with open_plane(stack, tmp_path) as plane:
            await at_rest(plane, sleeper.accepted())
            before = await journals_in(plane.store, sleeper.accepted())
            let_answer(tmp_path / "world")
            sleeper.tell(signal.SIGCONT)
            await asyncio.sleep(WATCHED_SECONDS)  # whoever does nothing cannot say so
            assert await journals_in(plane.store, sleeper.accepted()) == before

    asyncio.run(rest())
    assert sleeper.process.poll() is None
    written_once(tmp_path)
    tally.add("takeovers")
    add_to_tally(tally, 7, stack, EFFECTS)


def test_a_key_is_one_operation_whoever_sends_it_again(stack, tmp_path, tally, ending):
    worker = start_worker(ending, stack, tmp_path, 0, most=6)
    worker.wait_for("ended", count=6)
    worker.kill()
    tally.add("kills")
    cases = asyncio.run(_sent_again(stack, tmp_path, worker.accepted()))
    finish_and_audit(stack, tmp_path)
    add_to_tally(tally, 10, stack, cases)


def test_ablation_a_key_that_is_not_kept_is_seen(stack, tmp_path, tally):
    with ABLATIONS["key_in_accept"].off(), pytest.raises(AssertionError, match=r"assert \d+ == 1"):
        asyncio.run(_sent_again(stack, tmp_path, []))
    tally.add("ablations")


async def _sent_again(stack: Stack, directory: Path, first: list[str]) -> int:
    """One key from many, to two planes; then those of a dead worker. How many there were."""
    async with (
        open_plane(stack, directory) as plane,
        opened_beside(stack, directory, plane) as other,
    ):
        same = OperationRequest(
            "linear", input={"label": "9-0", "refuse": ""}, idempotency_key="9-0"
        )
        asked = [admission.accept(one, same) for one in (plane, other) * CALLERS]
        told = {one.id for one in await asyncio.gather(*asked)}
        assert len(told) == 1
        with pytest.raises(Conflict, match="another request"):
            await admission.accept(other, OperationRequest("pivot", idempotency_key="9-0"))
        # What the dead worker had been told, it would be told again.
        wanted = [LabelledRequest(0, number) for number in range(AGAIN)]
        resent = [await admission.accept(other, one.command()) for one in wanted]
        assert {one.id for one in resent} <= set(first)
        assert await all_ended(plane, OVERTAKEN_SECONDS)
        return 2 * CALLERS + 1 + len(resent)


def opened_beside(stack: Stack, directory, plane):
    """Another plane on the same store; on a file, which admits one, the same again."""
    return open_plane(stack, directory) if stack.is_shared else nullcontext(plane)


def test_workers_of_two_releases_finish_what_either_began(stack, tmp_path, tally, ending):
    """The newer one is killed, and the older one takes over what it cannot perform: it lets go."""
    older = start_worker(ending, stack, tmp_path, 0, slow=1.0)
    older.wait_for("accepted", count=6)
    first: ChildLine | None = None
    if stack.is_shared:
        first = _taken_over_in_vain(
            older, start_worker(ending, stack, tmp_path, 1, is_held=True, newer=True)
        )
        tally.add("kills")
    else:
        older.kill()
    newer = start_worker(ending, stack, tmp_path, 2 if stack.is_shared else 1, slow=1.0, newer=True)
    end = time.monotonic() + OVERTAKEN_SECONDS
    while first and first not in lines_of([newer.said]):
        assert newer.process.poll() is None
        assert time.monotonic() < end, "the newer one does not get what only it knows"
        time.sleep(0.02)
    newer.wait_for("accepted", count=6)
    for worker in (older, newer):
        worker.kill()
        tally.add("kills")
    report = finish_and_audit(stack, tmp_path, plans=NEXT_PLANS)
    assert report.succeeded > report.compensated > 0
    plans = asyncio.run(_plans_in(stack, tmp_path))
    assert plans[LINEAR.digest] > 0
    assert plans[LINEAR_2.digest] > 0
    add_to_tally(tally, 23, stack, plans.total())


def _taken_over_in_vain(older: Worker, newer: Worker) -> ChildLine:
    """Kill the newer one amid its own plan; what another of them must say then."""
    mine = until(lambda: [one for one in lines_of([newer.said]) if one.rest == "1-0"])
    newer.kill()
    only = f"{LINEAR_2.name}@{LINEAR_2.version}"
    assert until(lambda: only in older.errors.read_text(), OVERTAKEN_SECONDS), "it has not tried"
    return ChildLine("ended", mine[0].operation, OperationState.SUCCEEDED)


async def _plans_in(stack: Stack, directory: Path) -> Counter[str]:
    """How many operations keep each plan."""
    providers = providers_in(directory / "world")
    async with run_plane(stack.settings(), plans=NEXT_PLANS, providers=providers) as plane:
        rows = await rows_of(plane.store, OperationRecord)
        return Counter(row.plan_digest for row in rows)


@pytest.mark.parametrize(
    "stack", [*STACKS[:2], pytest.param(STACKS[2], marks=pytest.mark.long)], indirect=True
)
def test_ablation_an_operation_that_does_not_keep_its_plan_is_seen(stack, tmp_path, tally, ending):
    """What an older release began is read by the newest plan of that name, and does not end."""

    def newest(catalogue: Catalogue, digest: str) -> Plan | None:
        plan = catalogue._by_digest.get(digest)
        return None if plan is None else catalogue.newest(plan.name)

    older = start_worker(ending, stack, tmp_path, 0, slow=1.0)
    older.wait_for("accepted", count=6)
    older.kill()
    with patched(Catalogue, find=newest), pytest.raises(AssertionError):
        finish_and_audit(stack, tmp_path, plans=NEXT_PLANS, seconds=8.0)
    finish_and_audit(stack, tmp_path, plans=NEXT_PLANS)  # it was that and nothing else
    tally.add("ablations")
