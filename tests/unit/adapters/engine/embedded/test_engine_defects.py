"""What an engine does when something happens that cannot: it goes on, and says so."""

import asyncio
from contextlib import suppress

import pytest

from tenure.adapters.engine.embedded import EngineSettings
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.operations.executor import Executor
from tenure.core.endings import Done
from tenure.core.errors import Defect, Invalid, StoreClosed
from tenure.core.limits import StepLimits
from tenure.core.operation import OperationState
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import TENANT, Script, accept, step, virtual_time_test


@virtual_time_test
async def test_an_operation_stopped_by_a_defect_is_claimed_anew_and_asked_about(cluster, caplog):
    do, look = Script(), Script(Done())
    cluster.plan("one", step("made", do, Script(), look))
    process = await cluster.start()
    name = await accept(process.plane, "one")

    async def strange():
        raise RuntimeError("this cannot be")

    cluster.stores[0].before["commit"] = [strange]
    await asyncio.sleep(1)
    assert f"operation {name}: stopped by a defect" in caplog.text
    assert (len(do.calls), len(look.calls)) == (1, 0)
    assert await accept(process.plane, "linear"), "the others go on"
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (len(do.calls), len(look.calls)) == (1, 1), "nobody knew whether it was called: asked"


@virtual_time_test
async def test_one_that_keeps_failing_by_a_defect_is_left_alone_longer_each_time(cluster, caplog):
    look = Script(*[Done()] * 20)
    cluster.plan("one", step("made", Script(), Script(), look))
    process = await cluster.start()

    name = await accept(process.plane, "one")
    real, process.engine._executor._build_change = process.engine._executor._build_change, None
    await asyncio.sleep(120)
    falls = caplog.text.count(f"operation {name}: stopped by a defect")
    assert 3 <= falls <= 7, "after about 5, 15, 35, 75 s"
    process.engine._executor._build_change = real
    await operations.cancel(process.plane, by("a friend"), name)
    await asyncio.sleep(10)
    assert (
        await reads.get_operation(process.plane, TENANT, name)
    ).state is OperationState.COMPENSATED


@virtual_time_test
async def test_what_one_engine_cannot_perform_is_left_to_another_before_it_is_tried_again(cluster):
    look = Script(*[Done()] * 20)
    cluster.plan("one", step("made", Script(), Script(), look))
    first = await cluster.start()
    await asyncio.sleep(1)  # they look round at different times
    second = await cluster.start()
    name = await accept(first.plane, "one")
    first.engine._executor._build_change = None
    ended = await reads.wait(second.plane, TENANT, name, seconds=30.0)
    assert ended.state is OperationState.SUCCEEDED


@virtual_time_test
async def test_a_task_that_somebody_else_cancels_is_asked_about_and_not_repeated(cluster):
    async def cancel_me(_):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    do, look = Script(cancel_me), Script(Done())
    cluster.plan("one", step("made", do, Script(), look))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (len(do.calls), len(look.calls)) == (1, 1)


@virtual_time_test
async def test_a_lease_task_that_is_cancelled_from_outside_ends_the_engine_loudly(cluster):
    process = await cluster.start()
    keeper = process.engine._lease_task
    assert keeper is not None
    keeper.cancel()
    with pytest.raises(Defect, match="lease task was cancelled"):
        await process.engine.join()


@virtual_time_test
async def test_calls_that_do_not_end_are_left_to_themselves_and_the_stop_returns(cluster, caplog):
    async def deaf(_):
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    cluster.plan("one", step("made", Script(deaf)))
    process = await cluster.start()
    await accept(process.plane, "one")
    await asyncio.sleep(0.1)
    began = cluster.loop.time()
    await process.engine.stop(grace_seconds=0.5)
    assert cluster.loop.time() - began < 5
    assert "1 cancelled calls have not ended" in caplog.text


async def deaf_once(call):
    """Makes it, and then hears nobody."""
    end = asyncio.get_running_loop().time() + 100.0
    while (left := end - asyncio.get_running_loop().time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
    return Done("late")


@virtual_time_test
async def test_a_call_that_hears_nobody_does_not_keep_its_operation(cluster, caplog):
    """It is looked at anew after its limit; what the call says at last is nobody's word."""
    do, look = Script(deaf_once), Script(Done("found"))
    cluster.plan("one", step("made", do, Script(), look, limits=StepLimits(call_seconds=2.0)))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    ended = await reads.wait(process.plane, TENANT, name, seconds=60.0)
    assert (ended.state, ended.steps[0].result) == (OperationState.SUCCEEDED, "found")
    assert (len(do.calls), len(look.calls)) == (1, 1)
    assert "a cancelled call has not ended" in caplog.text
    await asyncio.sleep(200)
    assert (await reads.get_operation(process.plane, TENANT, name)).steps[0].result == "found"


@virtual_time_test
async def test_a_defect_of_what_was_left_to_itself_halts_nothing(cluster, caplog, monkeypatch):
    cluster.plan(
        "one",
        step("made", Script(deaf_once), Script(), Script(), limits=StepLimits(call_seconds=2.0)),
    )
    process = await cluster.start()
    name = await accept(process.plane, "one")
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED

    async def broken(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(Executor, "refresh", broken)
    await asyncio.sleep(200)
    assert "stopped by a defect" in caplog.text
    assert not process.engine._halted_until


@virtual_time_test
async def test_a_store_that_was_closed_is_not_asked_again(cluster, caplog):
    process = await cluster.start()

    async def raise_closed():
        raise StoreClosed("closed")

    async def close(_):
        process.plane.store.before["commit"] = [raise_closed]
        return Done()

    cluster.plan("one", step("made", close, Script(), Script()))
    name = await accept(process.plane, "one")
    await asyncio.sleep(0.5)
    assert f"operation {name}: stopped by a defect" in caplog.text


async def slow(_):
    await asyncio.sleep(60)


@virtual_time_test
async def test_a_call_beside_one_that_hears_nobody_is_stopped_and_looked_at_too(cluster):
    look = Script(Done("there"))
    cluster.plan(
        "two",
        [
            step("deaf", Script(deaf_once), Script(), look, limits=StepLimits(call_seconds=2.0)),
            step("slow", Script(slow), Script(), look, limits=StepLimits(call_seconds=90.0)),
        ],
    )
    process = await cluster.start()
    name = await accept(process.plane, "two")
    ended = await reads.wait(process.plane, TENANT, name, seconds=40.0)
    assert ended.state is OperationState.SUCCEEDED
    assert len(look.calls) == 2
    await asyncio.sleep(200)
    assert await reads.get_operation(process.plane, TENANT, name) == ended


def test_settings_that_would_let_work_lie_are_refused():
    for said in ({"concurrency_max": 0}, {"claim_max": 0}):
        with pytest.raises(Invalid, match="at least one"):
            EngineSettings(**said)
    for ttl in (0.0, -1.0, 0.01, float("nan"), float("inf")):
        with pytest.raises(Invalid, match="a lease lasts at least"):
            EngineSettings(lease_ttl_seconds=ttl)
