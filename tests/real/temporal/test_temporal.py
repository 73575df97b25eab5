"""Operations on a real Temporal server: what its history shows, stuck ones, lost ones.

Goal: whatever is done to a run or to a worker, the operation ends as the store's journal says, and
the world holds what that end promises.  Method: real server, real time, fakes whose world is asked.
"""

import asyncio
from collections import Counter

import pytest
from temporalio.testing import ActivityEnvironment

from tenure.adapters.engine.temporal import IDLE_WORKER
from tenure.adapters.engine.temporal.messages import ActivityInput
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.core.limits import INPUT_BYTES_MAX
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.records import OperationRecord
from tenure.testing.contracts.engine import TENANT, accept, wait_for_end
from tenure.testing.faults import Delays, Fault, FaultPoint
from tenure.testing.operators import by
from tenure.testing.plans import PLANS, SIGNAL
from tests.real.support.temporal_planes import (
    NEVER_SECONDS,
    REAL_TIME_PLANS,
    TemporalBench,
    activities_of,
    engine_of,
    eventually,
    make_ready,
    run_of,
    run_on_temporal,
    wait_for_state,
    wait_until_closed,
    with_limits,
)

pytestmark = pytest.mark.timeout(300)
UNDISTURBED = {"margin_seconds": 120.0}
"""For who counts what a run asks for: on a busy machine it may stand still, and is not woken."""


def quick_to_be_stuck() -> list[Plan]:
    """Linear plans whose undos are stuck at once and tried again soon."""
    return [
        with_limits(PLANS["linear"], undo_seconds=0.2, retry_cap_seconds=0.5),
        *REAL_TIME_PLANS[1:],
    ]


# ------------------------------------------------------------------------------------ whose it is


def test_two_planes_in_one_namespace_do_not_meet_by_default(temporal):
    async def scenario(bench: TemporalBench) -> None:
        other = TemporalBench(temporal.address, task_queue="")
        try:
            plane, theirs = await bench.start(), await other.start(executes_operations=False)
            name = await accept(theirs, "linear")
            beside = await other.start()
            await wait_for_state(theirs, name, OperationState.SUCCEEDED)
            found = await (await run_of(theirs, name)).describe()
            assert found.task_queue == engine_of(beside)._runs.queue != engine_of(plane)._runs.queue
            assert not bench.world.log
        finally:
            await other.close()

    run_on_temporal(temporal.address, scenario, task_queue="")


def test_two_planes_at_one_task_queue_get_their_own_all_the_same(temporal):
    async def scenario(bench: TemporalBench) -> None:
        other = TemporalBench(temporal.address, task_queue=bench.settings.task_queue)
        try:
            plane, theirs = await bench.start(), await other.start()
            names = [await accept(theirs, "linear") for _ in range(5)]
            for name in names:
                assert await wait_for_end(theirs, name) is OperationState.SUCCEEDED
            assert engine_of(plane).accepts
            assert not bench.world.log
        finally:
            await other.close()

    run_on_temporal(temporal.address, scenario)


def test_what_is_open_at_another_task_queue_is_followed_at_the_new_one(temporal):
    """Of one nobody had claimed, and of one that was under way."""

    async def scenario(bench: TemporalBench) -> None:
        before = await bench.start()
        parked = await accept(before, "waits")
        await wait_for_state(before, parked, OperationState.WAITING)
        await bench.stop(before)
        alone = await bench.start(executes_operations=False)
        unclaimed = await accept(alone, "linear")
        await bench.stop(alone)
        plane = await bench.start(task_queue=f"{bench.settings.task_queue}-new")
        assert await wait_for_end(plane, unclaimed) is OperationState.SUCCEEDED
        await asyncio.sleep(bench.settings.margin_seconds)
        await operations.signal(plane, by("a friend"), parked, name=SIGNAL)
        assert await wait_for_end(plane, parked) is OperationState.SUCCEEDED

    run_on_temporal(temporal.address, scenario)


# ----------------------------------------------------------------------------- what Temporal shows


def test_an_operation_of_four_steps_is_four_activities_named_after_them(temporal):
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        name = await accept(plane, "linear")
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        await wait_until_closed(plane, name)
        assert await activities_of(plane, name) == list(PLANS["linear"].steps)
        described = await (await run_of(plane, name)).describe()
        agent = (await reads.get_operation(plane, TENANT, name)).agent
        shown = {pair.key.name: pair.value for pair in described.typed_search_attributes}
        assert shown | {"TenureAgent": agent, "TenureKind": "linear"} == shown
        assert shown["TenureState"] == "SUCCEEDED"
        assert await described.static_summary() == f"linear of {agent}"

    run_on_temporal(temporal.address, scenario, **UNDISTURBED)


def test_the_undos_stand_in_the_history_under_their_steps_names(temporal):
    async def scenario(bench: TemporalBench) -> None:
        bench.strike(FaultPoint("runtime", "ensure", 1), Fault.REFUSED)
        plane = await bench.start()
        name = await accept(plane, "linear")
        assert await wait_for_end(plane, name) is OperationState.COMPENSATED
        await wait_until_closed(plane, name)
        done = ["identity", "access", "runtime"]
        assert await activities_of(plane, name) == done + [f"{s}.undo" for s in reversed(done)]
        assert not bench.world.holds()

    run_on_temporal(temporal.address, scenario, **UNDISTURBED)


def test_inputs_and_results_never_enter_temporal(temporal):
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        given = {"text": "x" * (INPUT_BYTES_MAX - 100)}
        accepted = await admission.accept(plane, OperationRequest("linear", input=given))
        assert await wait_for_end(plane, accepted.id) is OperationState.SUCCEEDED
        await wait_until_closed(plane, accepted.id)
        described = await (await run_of(plane, accepted.id)).describe()
        size = described.raw_description.workflow_execution_info.history_size_bytes
        assert 0 < size < 16_000

    run_on_temporal(temporal.address, scenario, **UNDISTURBED)


def test_readiness_is_a_timer_in_the_run_and_one_activity_for_each_look(temporal):
    async def scenario(bench: TemporalBench) -> None:
        bench.faults.delays = Delays(ready=NEVER_SECONDS)
        bench.strike(FaultPoint("runtime", "ensure", 1), Fault.UNREADY)
        plane = await bench.start()
        name = await accept(plane, "ready")
        await eventually(lambda: bench.faults.calls["runtime", "inspect"] >= 2)
        make_ready(bench)
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        await wait_until_closed(plane, name)
        names = Counter(await activities_of(plane, name))
        assert names["runtime_ready"] >= 2
        assert names["operation.load"] == 0

    run_on_temporal(temporal.address, scenario, **UNDISTURBED)


# ------------------------------------------------------------------------------------------- stuck


async def stuck(bench: TemporalBench):
    """A plane and an operation of which nobody can tell whether its second step happened."""
    bench.strike(FaultPoint("meter", "ensure", 1), Fault.BROKE)
    plane = await bench.start()
    name = await accept(plane, "unaskable")
    assert await wait_for_end(plane, name) is OperationState.STUCK
    await wait_until_closed(plane, name)  # no run, no worker and no timer is spent on it
    row = await plane.store.find(OperationRecord, (name,))
    assert row is not None
    assert row.worker == IDLE_WORKER
    return plane, name


def test_a_rest_whose_answer_was_lost_is_over_when_it_is_asked_again(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        plane, name = await stuck(bench)
        row = await plane.store.find(OperationRecord, (name,))
        assert row is not None
        activities = engine_of(plane)._activities
        again = ActivityInput(name, row.token)
        told = await ActivityEnvironment().run(activities.rest, again)
        assert told.ends_run
        await wait_until_closed(plane, name)
        ended_with = f"STUCK: {told.reason}"
        assert ended_with.startswith("STUCK: rests until an operator acts: nobody can tell whether")
        assert await (await run_of(plane, name)).result() == ended_with

    run_on_temporal(temporal.address, scenario)


@pytest.mark.parametrize(
    ("exit_", "state", "meters"),
    [
        ("adopt", OperationState.SUCCEEDED, 1),
        ("mark_absent", OperationState.SUCCEEDED, 2),
        ("abandon", OperationState.ABANDONED, 1),
        ("cancel", OperationState.STUCK, 1),
        ("retry", OperationState.STUCK, 1),
    ],
)
def test_a_stuck_operation_has_its_exits(temporal, exit_, state, meters):
    async def scenario(bench: TemporalBench) -> None:
        plane, name = await stuck(bench)
        step = {"step": "meter"} if exit_ in {"adopt", "mark_absent"} else {}
        before = (await plane.store.load(name)).operation.revision
        await getattr(operations, exit_)(plane, by("an operator"), name, **step)
        if state is OperationState.STUCK:

            async def looked_at():
                row = await plane.store.find(OperationRecord, (name,))
                moved = row.revision > before + 2  # the verb, the claim, and what came of it
                return moved and row.worker == IDLE_WORKER

            await eventually(looked_at)
        assert await wait_for_end(plane, name) is state
        assert sum(n for (p, _), n in bench.world.made.items() if p == "meter") == meters
        await wait_until_closed(plane, name)

    run_on_temporal(temporal.address, scenario)


async def healing(bench: TemporalBench) -> None:
    """The undo of a step is refused for a while; nobody says anything."""
    bench.faults.delays = Delays(heal=NEVER_SECONDS)
    bench.strike(FaultPoint("access", "ensure", 1), Fault.REFUSED)
    bench.strike(FaultPoint("identity", "remove", 1), Fault.REFUSED_FOR_A_WHILE)
    plane = await bench.start()
    name = await accept(plane, "linear")
    assert await wait_for_end(plane, name) is OperationState.STUCK
    bench.providers["identity"]._refuses.clear()
    await wait_for_state(plane, name, OperationState.COMPENSATED)
    assert not bench.world.holds()


def test_what_is_stuck_is_tried_again_in_new_runs_until_it_ends(temporal):
    run_on_temporal(temporal.address, healing, plans=quick_to_be_stuck())
