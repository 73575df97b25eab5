"""Who is held to the engine's contract: the embedded engine, in virtual time."""

import asyncio

import pytest

from proofs.harness.cluster import SETTINGS, Cluster
from tenure.adapters.engine.embedded import EngineSettings
from tenure.app.operations import commands as operations
from tenure.app.start_checks import prepare
from tenure.core.operation import OperationState
from tenure.testing.contracts.engine import EngineContract, Scenario, accept, wait_for_end
from tenure.testing.fakes import World
from tenure.testing.faults import Faults
from tenure.testing.loop import SeededLoop, run
from tenure.testing.operators import by
from tenure.testing.plans import PLANS, SIGNAL, providers_of
from tenure.testing.tripwire import CrossingSide

EFFECTIVE = {"made", "removed"}


class RigBench:
    """Planes of one cluster; the scenario itself stands outside all of them."""

    pace = 1.0

    def __init__(self, loop: SeededLoop, settings: EngineSettings = SETTINGS) -> None:
        self.world = World(loop)
        self.faults = Faults()
        providers = providers_of(self.world, self.faults)
        plans = PLANS.values()
        self.cluster = Cluster(
            loop, plans=plans, world=self.world, providers=providers, settings=settings
        )

    async def start(self):
        process = self.cluster.boot(f"plane/{len(self.cluster.processes)}")
        await process.start()
        return process.plane

    async def stop(self, plane):
        await self._process(plane).stop()

    async def crash(self, plane):
        self._process(plane).crash()

    async def fail(self, plane):
        wire = self._process(plane).wire
        wire.crash_at, wire.side = len(wire.crossings) + 1, CrossingSide.ERROR_LOST

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    def strike(self, call, fault):
        self.faults.script[call] = fault

    def applied_calls(self):
        return [f"{a.provider}.{a.verb}" for a in self.world.log if a.effect in EFFECTIVE]

    def _process(self, plane):
        (found,) = [process for process in self.cluster.processes if process.plane is plane]
        return found


class TestEmbeddedEngine(EngineContract):
    @pytest.fixture(params=range(3))
    def run_scenario(self, request):
        def run_scenario(scenario: Scenario) -> None:
            run(request.param, lambda loop: scenario(RigBench(loop)))

        return run_scenario


def test_operations_are_accepted_for_the_engine_that_takes_them():
    async def main(loop):
        plane = await RigBench(loop).start()
        assert plane.engine.worker

    run(0, main)


def test_what_is_cancelled_while_it_is_queued_is_never_called():
    async def main(loop):
        bench = RigBench(loop, EngineSettings(concurrency_max=1, lease_ttl_seconds=6.0))
        plane = await bench.start()
        first, second = await accept(plane, "linear"), await accept(plane, "linear")
        await operations.cancel(plane, by("the caller"), second)
        assert await wait_for_end(plane, first) is OperationState.SUCCEEDED
        assert await wait_for_end(plane, second) is OperationState.COMPENSATED
        assert bench.applied_calls() == [f"{step}.ensure" for step in PLANS["linear"].steps]

    run(0, main)


def test_a_signal_does_not_make_run_what_nobody_has_claimed():
    async def main(loop):
        bench = RigBench(loop)
        idle = bench.cluster.boot("idle").plane
        await prepare(idle)
        name = await accept(idle, "waits")
        signalled = await operations.signal(idle, by("a friend"), name, name=SIGNAL)
        assert signalled.state is OperationState.PENDING
        other = await accept(idle, "waits")
        await operations.signal(idle, by("a friend"), other, name=SIGNAL)
        cancelled = await operations.cancel(idle, by("the caller"), other)
        assert cancelled.state is OperationState.COMPENSATED
        plane = await bench.start()
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        assert not bench.faults.calls["identity", "remove"]

    run(0, main)
