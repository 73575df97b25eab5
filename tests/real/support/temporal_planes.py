"""Planes on one store and one world of fakes, moved by a real Temporal server in real time."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.temporal import IDLE_WORKER, WORKER, TemporalEngine, TemporalSettings
from tenure.app.operations import admission, reads
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.executor import Executor
from tenure.app.operations.single_claims import SingleClaims
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.errors import CommitUnknown
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.ports.provider import Provider
from tenure.ports.store import Store
from tenure.testing import memory_store
from tenure.testing.contracts.engine import TENANT
from tenure.testing.fakes import World
from tenure.testing.faults import Faults
from tenure.testing.loop import SeededLoop
from tenure.testing.plans import PLANS, providers_of

PLANE = "plane"
PACE = 20.0
"""A call may take twenty seconds, so that what must come sooner has time on a busy machine."""
EFFECTIVE = {"made", "removed"}
_queues = itertools.count()


class RealTime:
    """What a world of fakes asks of its loop, from a real one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self.create_future = self._loop.create_future

    def outside(self, when: float, arrive: Callable[[], None]) -> None:
        self._loop.call_at(when, arrive)


def with_real_time_limits(plan: Plan) -> Plan:
    """The same plan, its limits as much longer as real seconds are."""

    def slower(step):
        limits = replace(
            step.limits,
            call_seconds=step.limits.call_seconds * PACE,
            deadline_seconds=step.limits.deadline_seconds * PACE,
        )
        return replace(step, limits=limits)

    stages = tuple(tuple(slower(step) for step in stage) for stage in plan.stages)
    return Plan(plan.name, stages=stages, version=plan.version, subject=plan.subject)


REAL_TIME_PLANS = [with_real_time_limits(plan) for plan in PLANS.values()]


def build_temporal_plane(
    store: Store, providers: Mapping[str, Provider], settings: TemporalSettings, plans: list[Plan]
) -> Plane:
    """A plane whose engine is Temporal; not started."""
    clock, entropy, catalogue = SystemClock(), SystemEntropy(), Catalogue(plans)
    work = Executor(PLANE, store=store, entropy=entropy, catalogue=catalogue, providers=providers)
    claims = SingleClaims(WORKER, idle_worker=IDLE_WORKER)
    engine = TemporalEngine(
        work, claims, store=store, clock=clock, entropy=entropy, settings=settings
    )
    plane = Plane(
        id=PLANE,
        store=store,
        engine=engine,
        entropy=entropy,
        catalogue=catalogue,
        providers=providers,
    )
    claims.attach(plane)
    return plane


def engine_of(plane: Plane) -> TemporalEngine[Any]:
    return cast("TemporalEngine[Any]", plane.engine)


def settings_for(address: str, **more: Any) -> TemporalSettings:
    """Quick looks, and a task queue of its own."""
    queue = f"tenure-{next(_queues)}"
    quick = TemporalSettings(
        address=address, task_queue=queue, run_starter_seconds=0.2, margin_seconds=1.0
    )
    return replace(quick, **more)


class TemporalBench:
    """See `tenure.testing.contracts.engine.Bench`."""

    pace = PACE

    def __init__(self, address: str, plans: list[Plan] = REAL_TIME_PLANS, **settings: Any) -> None:
        self.world = World(cast(SeededLoop, RealTime()))
        self.faults = Faults()
        self.tables = memory_store.Tables()
        self.settings = settings_for(address, **settings)
        self.providers = providers_of(self.world, self.faults)
        self.plans = plans
        self.planes: list[Plane] = []

    def store(self) -> memory_store.MemoryStore:
        return memory_store.build(clock=SystemClock(), tables=self.tables)

    async def start(self, **settings: Any) -> Plane:
        mine = replace(self.settings, **settings)
        plane = build_temporal_plane(self.store(), self.providers, mine, self.plans)
        await prepare(plane)
        await plane.engine.start()
        self.planes.append(plane)
        return plane

    async def stop(self, plane: Plane) -> None:
        await plane.engine.stop()
        await plane.store.close()

    async def crash(self, plane: Plane) -> None:
        assert isinstance(plane.store, memory_store.MemoryStore)
        plane.store.kill()
        await plane.engine.stop(grace_seconds=0)

    async def fail(self, plane: Plane) -> None:
        assert isinstance(plane.store, memory_store.MemoryStore)
        plane.store.fail_commit(is_applied=False)
        try:
            await admission.accept(plane, OperationRequest("linear"))
        except CommitUnknown:
            return
        raise AssertionError("the commit did not fail")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.pace)

    def strike(self, call, fault):
        self.faults.script[call] = fault

    def applied_calls(self):
        return [f"{a.provider}.{a.verb}" for a in self.world.log if a.effect in EFFECTIVE]

    async def close(self) -> None:
        for plane in self.planes:
            await plane.engine.stop(grace_seconds=1)


def run_on_temporal(
    address: str, scenario: Callable[[TemporalBench], Any], **settings: Any
) -> None:
    """Run a scenario on a fresh bench."""

    async def main() -> None:
        bench = TemporalBench(address, **settings)
        try:
            await scenario(bench)
        finally:
            await bench.close()

    asyncio.run(main())


NEVER_SECONDS = 1e6
"""For what is let arrive, or be ready, by hand."""


def intercept_arrivals(world: World) -> list[Callable[[], None]]:
    """What is on its way for long from now on, to be let arrive by hand."""
    held: list[Callable[[], None]] = []
    send = world.send

    def sent(when: float, arrive: Callable[[], None]) -> None:
        if when >= world.loop.time() + NEVER_SECONDS / 2:
            held.append(arrive)
        else:
            send(when, arrive)

    world.send = sent  # type: ignore[method-assign]
    return held


async def eventually(is_so: Callable[[], Any], seconds: float = 120.0) -> None:
    """Return when it is so; fail if that takes longer."""
    async with asyncio.timeout(seconds):
        while True:
            answer = is_so()
            if hasattr(answer, "__await__"):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.02)


async def run_of(plane, operation) -> WorkflowHandle[Any, Any]:
    client = engine_of(plane)._runs.client
    assert client is not None
    return client.get_workflow_handle(operation)


async def activities_of(plane, operation) -> list[str]:
    history = await (await run_of(plane, operation)).fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


async def status_of(plane, operation) -> WorkflowExecutionStatus | None:
    return (await (await run_of(plane, operation)).describe()).status


async def wait_until_closed(plane, operation) -> None:
    """Return when no run follows the operation any more."""

    async def is_closed() -> bool:
        return await status_of(plane, operation) is not WorkflowExecutionStatus.RUNNING

    await eventually(is_closed)


async def wait_for_state(plane, operation, state: OperationState) -> None:
    async def stands() -> bool:
        return (await reads.get_operation(plane, TENANT, operation)).state is state

    await eventually(stands)


def with_limits(plan: Plan, **limits: float) -> Plan:
    """The plan with other limits."""
    stages = tuple(
        tuple(replace(step, limits=replace(step.limits, **limits)) for step in stage)
        for stage in plan.stages
    )
    return Plan(plan.name, stages=stages, version=plan.version)


def make_ready(bench: TemporalBench) -> None:
    for thing in bench.world.holds(provider="runtime"):
        thing.ready_at = 0.0
