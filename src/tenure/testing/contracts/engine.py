"""The contract of an engine: each promise of `tenure.ports.engine.Engine` is a test.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new `Bench`:
several planes that share one store and one set of fake providers. Each plane has its own engine.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import pytest

from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.plane import Plane
from tenure.core.errors import CommitUnknown
from tenure.core.operation import OperationState
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tenure.testing.plans import SIGNAL

TENANT = "default"
LONG = 150.0


class Bench(Protocol):
    """Several planes on one store, and control over them."""

    pace: float
    """Real seconds for one second of a scenario: 1 in virtual time, more in real time."""

    async def start(self) -> Plane:
        """Start another plane and its engine."""
        ...

    async def stop(self, plane: Plane) -> None:
        """Stop a plane in order."""
        ...

    async def crash(self, plane: Plane) -> None:
        """Kill a plane."""
        ...

    async def fail(self, plane: Plane) -> None:
        """Make the outcome of the next commit of a plane unknown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of the scenario."""
        ...

    def strike(self, call: FaultPoint, fault: Fault) -> None:
        """Inject a fault into this call."""
        ...

    def applied_calls(self) -> Sequence[str]:
        """The calls that had an effect at a provider, in order: `identity.ensure`."""
        ...


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]
LINEAR = ["identity.ensure", "access.ensure", "runtime.ensure", "credentials.ensure"]


async def accept(plane: Plane, plan: str) -> str:
    """Accept an operation of this plan and return its id."""
    return (await admission.accept(plane, OperationRequest(plan))).id


async def wait_for_end(plane: Plane, operation: str, seconds: float = LONG) -> OperationState:
    """The state of an operation when it has ended or is stuck, or after so many seconds."""
    return (await reads.wait(plane, TENANT, operation, seconds=seconds)).state


async def wait_for_state(bench: Bench, plane: Plane, operation: str, state: OperationState) -> None:
    """Wait until the operation has this state."""
    while (await reads.get_operation(plane, TENANT, operation)).state is not state:
        await bench.sleep(0.01)


async def is_intended(bench: Bench, plane: Plane, operation: str, step: str) -> None:
    """Wait until the call of this step is about to start or has started."""
    while all(
        one.name != step for one in (await reads.get_operation(plane, TENANT, operation)).steps
    ):
        await bench.sleep(0.01)


class EngineContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new bench."""
        raise NotImplementedError

    def test_what_is_accepted_is_moved_to_its_end(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            name = await accept(plane, "linear")
            assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
            assert bench.applied_calls() == LINEAR

        run_scenario(scenario)

    def test_many_operations_move_at_the_same_time(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            names = [await accept(plane, "parallel") for _ in range(20)]
            states = await asyncio.gather(*(wait_for_end(plane, name) for name in names))
            assert set(states) == {OperationState.SUCCEEDED}

        run_scenario(scenario)

    def test_whoever_waits_is_told_the_end(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            name = await accept(plane, "linear")
            assert await plane.engine.wait(name, LONG) is OperationState.SUCCEEDED
            assert plane.engine.outage == ""

        run_scenario(scenario)

    def test_whoever_waits_is_told_that_it_is_stuck(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            bench.strike(FaultPoint("meter", "ensure", 1), Fault.BROKE)
            plane = await bench.start()
            name = await accept(plane, "unaskable")
            assert await plane.engine.wait(name, LONG) is OperationState.STUCK

        run_scenario(scenario)

    def test_waiting_ends_when_its_time_is_over(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            name = await accept(plane, "waits")
            assert await plane.engine.wait(name, 0.2) is None

        run_scenario(scenario)

    def test_a_retry_comes_by_itself(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            bench.strike(FaultPoint("access", "ensure", 1), Fault.BUSY)
            plane = await bench.start()
            assert (
                await wait_for_end(plane, await accept(plane, "linear")) is OperationState.SUCCEEDED
            )
            assert bench.applied_calls() == LINEAR

        run_scenario(scenario)

    def test_a_signal_wakes_what_waits_for_it(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            name = await accept(plane, "waits")
            await wait_for_state(bench, plane, name, OperationState.WAITING)
            await operations.signal(plane, by("a friend"), name, name=SIGNAL)
            assert await wait_for_end(plane, name, 5.0 * bench.pace) is OperationState.SUCCEEDED

        run_scenario(scenario)

    def test_a_cancel_interrupts_a_call_under_way(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            bench.strike(FaultPoint("access", "ensure", 1), Fault.LOST)
            plane = await bench.start()
            name = await accept(plane, "linear")
            await is_intended(bench, plane, name, "access")
            await bench.sleep(0.05)
            await operations.cancel(plane, by("the caller"), name)
            assert await wait_for_end(plane, name, 0.6 * bench.pace) is OperationState.COMPENSATED
            assert bench.applied_calls() == ["identity.ensure", "identity.remove"]

        run_scenario(scenario)

    def test_what_was_recorded_elsewhere_is_seen_in_time(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            one, other = await bench.start(), await bench.start()
            name = await accept(one, "waits")
            await wait_for_state(bench, one, name, OperationState.WAITING)
            await operations.signal(other, by("a friend"), name, name=SIGNAL)
            assert await wait_for_end(one, name) is OperationState.SUCCEEDED

        run_scenario(scenario)

    def test_two_engines_never_move_the_same_operation(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            one, other = await bench.start(), await bench.start()
            names = [await accept(plane, "linear") for plane in (one, other)]
            for name in names:
                assert await wait_for_end(one, name) is OperationState.SUCCEEDED
            assert sorted(bench.applied_calls()) == sorted(LINEAR * 2)

        run_scenario(scenario)

    def test_a_start_resumes_what_a_dead_engine_held(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            bench.strike(FaultPoint("access", "ensure", 1), Fault.REPLY_LOST)
            plane = await bench.start()
            name = await accept(plane, "linear")
            await is_intended(bench, plane, name, "access")
            await bench.sleep(0.05)
            await bench.crash(plane)
            plane = await bench.start()
            assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
            assert bench.applied_calls() == LINEAR

        run_scenario(scenario)

    def test_what_nobody_held_is_claimed_at_the_start(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            await bench.stop(plane)
            assert plane.engine.worker == ""
            assert not plane.engine.accepts
            again = await bench.start()
            name = await accept(again, "waits")
            await wait_for_state(bench, again, name, OperationState.WAITING)
            await bench.stop(again)
            last = await bench.start()
            await operations.signal(last, by("a friend"), name, name=SIGNAL)
            assert await wait_for_end(last, name, 5.0 * bench.pace) is OperationState.SUCCEEDED

        run_scenario(scenario)

    def test_a_stop_lets_calls_under_way_end(self, run_scenario: RunScenario) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            name = await accept(plane, "linear")
            await bench.sleep(0.015)
            await bench.stop(plane)
            before = list(bench.applied_calls())
            again = await bench.start()
            seen = await reads.get_operation(again, TENANT, name)
            done = [step.name for step in seen.steps if step.state == "PRESENT"]
            # It may have gone on already.
            assert [f"{name}.ensure" for name in done[: len(before)]] == before
            assert await wait_for_end(again, name) is OperationState.SUCCEEDED
            assert bench.applied_calls() == LINEAR

        run_scenario(scenario)

    def test_join_returns_after_a_stop_and_raises_what_broke_it(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(bench: Bench) -> None:
            plane = await bench.start()
            await bench.stop(plane)
            await asyncio.wait_for(plane.engine.join(), LONG)
            broken = await bench.start()
            await bench.fail(broken)
            with pytest.raises(CommitUnknown):
                await asyncio.wait_for(broken.engine.join(), LONG)
            assert broken.engine.worker == ""
            assert not broken.engine.accepts

        run_scenario(scenario)
