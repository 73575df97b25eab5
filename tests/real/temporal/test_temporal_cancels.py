"""Cancels on a real Temporal server: ours, another process's, and one asked of Temporal itself."""

from contextlib import suppress

import pytest
from temporalio.client import WorkflowExecutionStatus

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.operation import OperationState
from tenure.testing.contracts.engine import TENANT, accept, wait_for_end
from tenure.testing.faults import Delays, Fault, FaultPoint
from tenure.testing.operators import by
from tests.real.support.temporal_planes import (
    NEVER_SECONDS,
    PACE,
    TemporalBench,
    eventually,
    intercept_arrivals,
    run_of,
    run_on_temporal,
    status_of,
    wait_for_state,
    wait_until_closed,
)

pytestmark = pytest.mark.timeout(300)


def test_what_is_cancelled_before_anyone_claimed_it_calls_nobody(temporal):
    async def scenario(bench: TemporalBench) -> None:
        idle = await bench.start(executes_operations=False)
        name = await accept(idle, "linear")
        cancelled = await operations.cancel(idle, by("the caller"), name)
        assert cancelled.state is OperationState.COMPENSATED
        worker = await bench.start()
        await wait_until_closed(worker, name)
        assert bench.applied_calls() == []

    run_on_temporal(temporal.address, scenario)


async def cancelled_from_afar(bench: TemporalBench) -> None:
    """The call of a do is under way in one process, and cancelled in another."""
    bench.faults.delays = Delays(slow=NEVER_SECONDS)
    bench.strike(FaultPoint("access", "ensure", 1), Fault.SLOW)
    late = intercept_arrivals(bench.world)
    await bench.start()
    api = await bench.start(executes_operations=False)
    name = await accept(api, "linear")
    await eventually(lambda: late)
    await operations.cancel(api, by("the caller"), name)
    assert (
        await wait_for_end(api, name, 0.8 * PACE) is OperationState.COMPENSATED
    )  # before the limit of the call
    late[0]()
    await bench.world.quiet()
    assert not bench.world.holds()
    assert bench.applied_calls()[:2] == ["identity.ensure", "identity.remove"]


def test_a_cancel_reaches_a_call_in_another_process(temporal):
    run_on_temporal(temporal.address, cancelled_from_afar)


def test_a_cancel_while_it_is_being_undone_changes_nothing(temporal):
    async def scenario(bench: TemporalBench) -> None:
        bench.strike(FaultPoint("runtime", "ensure", 1), Fault.REFUSED)
        bench.strike(FaultPoint("access", "remove", 1), Fault.BUSY)
        plane = await bench.start()
        name = await accept(plane, "linear")
        await wait_for_state(plane, name, OperationState.COMPENSATING)
        await operations.cancel(plane, by("the caller"), name)
        assert await wait_for_end(plane, name) is OperationState.COMPENSATED
        assert not bench.world.holds()

    run_on_temporal(temporal.address, scenario)


def test_a_cancel_asked_of_temporal_is_recorded_as_ours_and_compensated(temporal):
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        name = await accept(plane, "waits")
        await wait_for_state(plane, name, OperationState.WAITING)
        await (await run_of(plane, name)).cancel()
        assert await wait_for_end(plane, name) is OperationState.COMPENSATED
        assert (await reads.get_operation(plane, TENANT, name)).error == "cancelled by temporal"
        await wait_until_closed(plane, name)
        assert await status_of(plane, name) is WorkflowExecutionStatus.COMPLETED
        assert not bench.world.holds()

    run_on_temporal(temporal.address, scenario)


def test_a_cancel_asked_of_temporal_while_a_call_is_out_stops_it_first(temporal):
    async def scenario(bench: TemporalBench) -> None:
        bench.strike(FaultPoint("access", "ensure", 1), Fault.LOST)
        plane = await bench.start()
        name = await accept(plane, "linear")
        await eventually(lambda: bench.faults.calls["access", "ensure"] == 1)
        await (await run_of(plane, name)).cancel()
        assert (
            await wait_for_end(plane, name, 0.8 * PACE) is OperationState.COMPENSATED
        )  # before its limit
        assert bench.applied_calls() == ["identity.ensure", "identity.remove"]

    run_on_temporal(temporal.address, scenario)


def test_a_cancel_asked_of_temporal_after_the_pivot_is_not_obeyed(temporal):
    async def scenario(bench: TemporalBench) -> None:
        bench.strike(FaultPoint("notice", "ensure", 1), Fault.BUSY)
        bench.strike(FaultPoint("notice", "ensure", 2), Fault.BUSY)
        plane = await bench.start()
        name = await accept(plane, "pivot")
        await eventually(lambda: bench.faults.calls["notice", "ensure"] > 0)
        with suppress(Exception):  # it may just have ended
            await (await run_of(plane, name)).cancel()
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED

    run_on_temporal(temporal.address, scenario)
