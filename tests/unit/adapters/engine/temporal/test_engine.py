"""What Temporal is told of an operation, and what is known of its runs; no server is here."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.temporal import TemporalSettings
from tenure.adapters.engine.temporal import activities as activities_file
from tenure.adapters.engine.temporal import runs as temporal_runs
from tenure.adapters.engine.temporal.engine import TemporalEngine
from tenure.adapters.engine.temporal.messages import ActivityInput
from tenure.adapters.engine.temporal.runs import RunLabels
from tenure.app.operations.handle import load_handle
from tenure.core.errors import EngineError
from tenure.core.operation import OperationState
from tenure.testing.patches import patched
from tests.unit.support.temporal_bench import Bench, run_on_bench


async def told_by(bench: Bench, plan: str, moves: int) -> list[tuple[str, str]]:
    """What is said of each of so many moves, and why the operation stands as it does then."""
    name, answer = await bench.accept(plan)
    told: list[tuple[str, str]] = []
    while len(told) < moves:
        if not answer.moves:
            await asyncio.sleep((answer.wait_seconds or 0.0) + 0.01)
            answer = replace(answer, moves=answer.moves_after_wait, cache_key="")
        answer = await bench.move(name, answer)
        told.append((answer.step_status, answer.reason))
    return told


def test_an_answer_says_how_its_step_ended_and_why_the_operation_turned_back():
    async def scenario(bench: Bench) -> None:
        why = "two was refused: the image is not there"
        assert await told_by(bench, "refused", 4) == [
            ("done", ""),
            ("refused: the image is not there", why),
            ("undone", why),
            ("undone", why),
        ]

    run_on_bench(scenario)


def test_an_answer_says_what_is_not_over_yet():
    async def scenario(bench: Bench) -> None:
        said = [said for said, _ in await told_by(bench, "later", 3)]
        assert said == ["not yet: still booting", "unknown: reset", "waits for approval"]

    run_on_bench(scenario)


def test_a_run_that_ends_since_its_operation_is_stuck_says_until_when():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept("stuck")
        for _ in range(2):
            answer = await bench.move(name, answer)
        assert (answer.state, answer.step_status) == (
            OperationState.STUCK,
            "stuck: the disk is full",
        )
        rest = await ActivityEnvironment().run(bench.here.rest, ActivityInput(name, answer.token))
        assert rest.ends_run
        assert rest.reason.startswith("rests until 20")
        until, _, why = rest.reason.partition(", when a new run follows: ")
        assert until.endswith("+00:00")
        assert why == "one was refused: no; one is stuck: the disk is full"

    run_on_bench(scenario)


def test_of_the_words_of_others_temporal_is_told_one_line_that_is_bounded():
    assert activities_file.first_line(" one\ntwo") == "one"
    assert (
        activities_file.first_line("x" * 5_000)
        == "x" * activities_file.SUMMARY_CHARACTERS_MAX + "…"
    )


# --- releases -------------------------------------------------------------------------------------


def test_what_was_recorded_by_others_is_not_kept():
    """Else the next call would be made and undone, though the cancel was told of here."""

    async def scenario(bench: Bench) -> None:
        hands: Any = None
        engine: Any = TemporalEngine(
            hands, hands, store=bench.store, clock=SystemClock(), entropy=SystemEntropy()
        )
        for tell in (engine.wake, engine.on_notification):
            name, _ = await bench.accept()
            engine._activities.cache(
                await load_handle(bench.store, bench.plane.catalogue, "plane", name)
            )
            assert len(engine._activities._cache) == 1
            tell(name)
            assert len(engine._activities._cache) == 0

    run_on_bench(scenario)


class FailingClient:
    """A server that says this of every run."""

    def __init__(self, status: RPCStatusCode) -> None:
        self.status = status

    def get_workflow_handle(self, _name: str) -> Any:
        return self

    async def describe(self, **_: object) -> None:
        raise RPCError("it is away", self.status, b"")


def test_a_run_that_is_not_there_is_nowhere_else_and_of_others_it_is_not_known():
    async def scenario(bench: Bench) -> None:
        hands: Any = None
        engine: Any = TemporalEngine(
            hands, hands, store=bench.store, clock=SystemClock(), entropy=SystemEntropy()
        )
        engine._runs.client = FailingClient(RPCStatusCode.NOT_FOUND)
        assert not await engine._runs.is_elsewhere("x")
        engine._runs.client = FailingClient(RPCStatusCode.UNAVAILABLE)
        with pytest.raises(EngineError, match=r"could not describe operation x \(it is away\)"):
            await engine._runs.is_elsewhere("x")

    run_on_bench(scenario)


def test_runs_that_start_at_once_in_a_namespace_without_attributes_all_start_without():
    """One of them adds what is missing, and none is left to the relay meanwhile."""
    asked: list[str] = []

    async def register_nothing(_client: object, settings: TemporalSettings) -> bool:
        asked.append(settings.namespace)
        await asyncio.sleep(0)
        return True

    async def start(pairs: Sequence[object]) -> None:
        await asyncio.sleep(0)
        if pairs:
            raise RPCError("no mapping defined", RPCStatusCode.INVALID_ARGUMENT, b"")

    async def scenario(bench: Bench) -> None:
        hands: Any = None
        engine: Any = TemporalEngine(
            hands, hands, store=bench.store, clock=SystemClock(), entropy=SystemEntropy()
        )
        engine._runs.client, engine._runs.has_attributes = object(), True
        about = RunLabels("kind", "agent", "name")
        with patched(temporal_runs, register_attributes=register_nothing):
            await asyncio.gather(
                *(engine._runs.start_with_attributes(start, about) for _ in range(3))
            )
        assert asked == ["default"]
        assert engine._runs.has_attributes

    run_on_bench(scenario)


def test_a_run_is_titled_by_its_agents_name_if_it_has_one():
    assert RunLabels("create_agent", "01a1", "hello").title == "create_agent of hello (01a1)"
    assert RunLabels("linear", "01a1", "").title == "linear of 01a1"
