"""Moves as Temporal's activities perform them, on what their worker has kept: also if it is stale.

The store is asked what became of it, the providers what they were called for.
"""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from tenure.adapters.engine.temporal import activities as activities_file
from tenure.adapters.engine.temporal.messages import ActivityInput, Answer
from tenure.adapters.engine.temporal.sticky_cache import ENTRY_TTL_SECONDS, StickyCache
from tenure.app.operations import commands as operations
from tenure.core.operation import OperationState
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tests.unit.support.temporal_bench import Bench, Hands, run_on_bench


def test_a_worker_that_performs_all_moves_reads_the_operation_never():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        assert await bench.follow(name, answer) == OperationState.SUCCEEDED
        assert bench.loads == 0
        assert bench.called == {"one.do": 1, "two.do": 1, "three.do": 1}

    run_on_bench(scenario)


def test_another_worker_reads_what_it_has_not_seen():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        answer = await bench.move(name, answer, by=bench.beside)
        assert bench.loads == 1
        # Here is kept what stood before: it does not know all that the run was told.
        assert await bench.follow(name, answer) == OperationState.SUCCEEDED
        assert bench.loads == 2
        assert bench.called == {"one.do": 1, "two.do": 1, "three.do": 1}

    run_on_bench(scenario)


def test_a_cancel_that_was_heard_of_stops_the_next_call():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        await operations.cancel(bench.plane, by("the caller"), name)
        assert await bench.follow(name, answer) == OperationState.COMPENSATED
        assert bench.called == {"one.do": 1, "two.undo": 1, "one.undo": 1}

    run_on_bench(scenario)


def test_what_was_called_for_though_it_was_cancelled_is_undone():
    """Nobody was told of the cancel: as if it had come while the call was under way."""

    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        with patched(Hands, deaf=True):
            await operations.cancel(bench.plane, by("the caller"), name)
        assert await bench.follow(name, answer) == OperationState.COMPENSATED
        assert bench.called == {"one.do": 1, "two.do": 1, "two.undo": 1, "one.undo": 1}
        assert not bench.made

    run_on_bench(scenario)


def test_what_was_cancelled_before_anybody_claimed_it_calls_nobody():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        with patched(Hands, deaf=True):
            await operations.cancel(bench.plane, by("the caller"), name)
        assert await bench.follow(name, answer) == OperationState.COMPENSATED
        assert not bench.called

    run_on_bench(scenario)


async def polled_beside(bench: Bench) -> str:
    """Another worker's call of the pivot has no answer; then it is called on what is kept here."""
    name, answer = await bench.accept("pivoted")
    answer = await bench.move(name, answer)
    answer = await bench.move(name, answer, by=bench.beside)
    assert answer.wait_seconds is not None
    await asyncio.sleep(answer.wait_seconds + 0.01)
    await bench.move(
        name, replace(answer, moves=answer.moves_after_wait, moves_after_wait=[], cache_key="")
    )
    assert bench.called["pivot.do"] == 2
    return str((await bench.store.load(name)).operation.state)


def test_what_was_polled_elsewhere_is_known_before_it_is_called_again():
    """A refusal of a pivot that may have been applied turns nothing back."""

    async def scenario(bench: Bench) -> None:
        assert await polled_beside(bench) == OperationState.RUNNING

    run_on_bench(scenario)


def test_ablation_without_its_ticket_a_pivot_that_may_be_applied_is_turned_back(tally):
    def any_cache_key(self, operation, token, cache_key):
        kept = self._entries.pop(operation, None)
        return kept and kept.handle

    async def scenario(bench: Bench) -> None:
        with patched(StickyCache, take=any_cache_key):
            assert await polled_beside(bench) != OperationState.RUNNING

    run_on_bench(scenario)
    tally.add("ablations")


def test_a_second_attempt_reads_and_asks():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        answer = await bench.move(name, answer, attempt=2)
        assert bench.called == {"one.do": 1, "two.inspect": 1}
        assert await bench.follow(name, answer) == OperationState.SUCCEEDED

    run_on_bench(scenario)


def taken_over(bench: Bench, name: str) -> Any:
    """Another run has claimed it, at another worker."""
    claims: Any = bench.beside._claims
    return claims.take_over(name)


def test_one_that_was_taken_over_records_nothing_on_what_it_has_kept():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        await taken_over(bench, name)
        before = (await bench.store.load(name)).journal
        late = await bench.move(name, answer)
        assert late.ends_run
        assert (await bench.store.load(name)).journal == before
        assert bench.called["two.do"] == 1

    run_on_bench(scenario)


def test_one_that_slept_for_long_calls_nobody_on_what_it_has_kept():
    async def scenario(bench: Bench) -> None:
        assert not await slept(bench)

    run_on_bench(scenario)


async def slept(bench: Bench) -> int:
    """How often a worker calls that was away for longer than it may be."""
    name, answer = await bench.accept()
    answer = await bench.move(name, answer)
    bench.time += ENTRY_TTL_SECONDS + 1.0
    await taken_over(bench, name)
    assert (await bench.move(name, answer)).ends_run
    return bench.called["two.do"]


def test_ablation_what_is_kept_for_ever_is_seen_to_call():
    def kept_for_ever(self, operation, token, cache_key):
        return self._entries.pop(operation).handle

    async def scenario(bench: Bench) -> None:
        with patched(StickyCache, take=kept_for_ever):
            assert await slept(bench)

    run_on_bench(scenario)


def test_a_step_that_another_attempt_has_taken_is_left_to_it():
    """What is kept says no, or may be wrong: the store is asked."""

    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        (due,) = answer.moves
        stale = replace(answer, moves=[replace(due, token=due.token + 1)])
        told = await bench.move(name, stale)
        assert bench.called == {"one.do": 1}
        assert told.moves == answer.moves
        assert await bench.follow(name, told) == OperationState.SUCCEEDED

    run_on_bench(scenario)


def test_siblings_never_share_what_is_kept():
    async def scenario(bench: Bench) -> None:
        name, _ = await bench.accept("siblings")
        loaded = await ActivityEnvironment().run(bench.here.load, ActivityInput(name, 0))
        first, second = loaded.moves
        told = await asyncio.gather(
            bench.move(name, replace(loaded, moves=[first])),
            bench.move(name, replace(loaded, moves=[second])),
        )
        last = max(told, key=lambda one: one.revision)
        assert last.state == OperationState.SUCCEEDED
        assert bench.called == {"one.do": 1, "two.do": 1}

    run_on_bench(scenario)


# --- what people read ---------------------------------------------------------------------------


def test_what_only_a_newer_release_knows_is_left_to_another_worker_for_seconds(caplog):
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        for attempt, seconds in ((1, 0.1), (2, 0.13), (100, 30.0)):
            with pytest.raises(ApplicationError, match="nobody here knows how") as raised:
                await bench.move(name, answer, by=bench.older, attempt=attempt)
            assert raised.value.next_retry_delay == timedelta(seconds=seconds)
        assert caplog.text.count("linear@1/one; retrying until another worker takes it") == 1
        assert await bench.follow(name, answer) == OperationState.SUCCEEDED

    run_on_bench(scenario)


def test_what_is_not_in_this_planes_store_is_never_answered_but_left_to_its_own(caplog):
    """Two planes at one task queue: each worker is asked for what is the other's."""

    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        failed: list[BaseException] = []
        other = Bench()
        other.here._on_failure = failed.append
        with pytest.raises(ApplicationError, match="not in the store of this plane") as raised:
            await bench.move(name, answer, by=other.here)
        assert raised.value.next_retry_delay == timedelta(seconds=0.1)
        asked = (other.here.load, other.here.cancel, other.here.rest)
        for ask, token in itertools.product(asked, (0, 1)):
            with pytest.raises(ApplicationError, match="not in the store of this plane"):
                await ActivityEnvironment().run(ask, ActivityInput(name, token))
        assert not failed
        assert caplog.text.count("--temporal-queue") == 1
        assert await bench.follow(name, answer) == OperationState.SUCCEEDED

    run_on_bench(scenario)


def test_what_was_said_to_be_unknown_is_not_remembered_without_bound():
    async def scenario(bench: Bench) -> None:
        with patched(activities_file, UNKNOWN_LOGGED_MAX=2):
            for name in "abc":
                with pytest.raises(ApplicationError):
                    await ActivityEnvironment().run(bench.here.load, ActivityInput(name, 0))
        assert len(bench.here._logged_unknown) == 1

    run_on_bench(scenario)


async def tried_in_vain(bench: Bench, attempts: int) -> tuple[str, Answer, list[object]]:
    """A second step, for which so many workers of an older release were asked."""
    name, answer = await bench.accept()
    answer = await bench.move(name, answer)
    said: list[object] = []
    for attempt in range(1, attempts + 1):
        with pytest.raises(ApplicationError):
            await bench.move(name, answer, by=bench.older, attempt=attempt, heartbeat=said)
    return name, answer, said


def test_after_workers_that_called_nobody_the_call_is_made_at_once():
    async def scenario(bench: Bench) -> None:
        name, answer, said = await tried_in_vain(bench, 3)
        await bench.move(name, answer, attempt=4, heartbeat=said)
        assert bench.called == {"one.do": 1, "two.do": 1}

    run_on_bench(scenario)


def test_after_one_that_may_have_called_none_counts_as_the_first():
    """The second attempt was lost; who comes after it cannot say that nobody was called."""

    async def scenario(bench: Bench) -> None:
        name, answer, said = await tried_in_vain(bench, 1)
        with pytest.raises(ApplicationError):
            await bench.move(name, answer, by=bench.older, attempt=3, heartbeat=said)
        await bench.move(name, answer, attempt=4, heartbeat=said)
        assert bench.called == {"one.do": 1, "two.inspect": 1}

    run_on_bench(scenario)
