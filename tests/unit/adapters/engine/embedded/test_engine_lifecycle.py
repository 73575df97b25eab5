"""An engine's life: leases, takeover, starting over, stopping, and the end of its store."""

import asyncio
import logging

import pytest

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.endings import Done, NotYet
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.limits import StepLimits
from tenure.core.operation import OperationState
from tenure.core.records import OperationRecord
from tenure.ports.store import Change, Drop
from tenure.testing.loop import forever
from tenure.testing.memory_store import MemoryStore
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    journal,
    refuse,
    step,
    virtual_time_test,
)

PATIENT = StepLimits(call_seconds=60.0)


async def hang(_):
    await forever()


async def broken():
    raise CommitUnknown("a COMMIT failed")


async def leases(cluster):
    return list(cluster.disk.tables.rows["lease"])


# ------------------------------------------------------------------------------------------- leases


@virtual_time_test
async def test_a_lease_is_renewed_for_as_long_as_the_engine_runs(cluster):
    first, second = await cluster.start(), await cluster.start()
    worker = first.engine.worker
    name = await accept(first.plane, "waits")
    await asyncio.sleep(100)
    assert first.engine.worker == worker
    assert len(await leases(cluster)) == 2
    assert (await second.plane.store.load(name)).operation.token == 1


@virtual_time_test
async def test_a_paused_engine_starts_over_as_a_new_worker(cluster, caplog):
    do = Script(NotYet(1.0), NotYet(1.0))
    cluster.plan("slow", step("made", do, Script(), Script(NotYet(1.0), NotYet(1.0), NotYet(1.0))))
    process = await cluster.start()
    worker = process.engine.worker
    name = await accept(process.plane, "slow")
    waits = await accept(process.plane, "waits")
    process.node.pause(6)
    await asyncio.sleep(8)
    assert process.engine.worker not in ("", worker)
    assert len(await leases(cluster)) == 1
    assert f"the lease of worker {worker} lapsed" in caplog.text
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED
    seen = await process.plane.store.load(waits)
    assert (seen.operation.token, seen.operation.worker) == (2, process.engine.worker)
    await operations.cancel(process.plane, by("the caller"), waits)
    assert (await reads.wait(process.plane, TENANT, waits)).state is OperationState.COMPENSATED


@virtual_time_test
async def test_an_engine_that_starts_over_leaves_its_calls_and_looks_first(cluster):
    do, look = Script(hang), Script(Done({"n": 1}))
    cluster.plan("one", step("made", do, Script(), look, limits=PATIENT))
    process = await cluster.start(concurrency_max=1)
    name = await accept(process.plane, "one")
    queued = await accept(process.plane, "linear")
    await asyncio.sleep(0.1)
    await cluster.disk.observer().commit(
        Change("", (), (Drop("lease", (process.engine._lease_name,)),))
    )
    await asyncio.sleep(2.5)
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (len(do.calls), len(look.calls)) == (1, 1)
    assert (await reads.wait(process.plane, TENANT, queued)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_a_call_that_ends_late_is_awaited_before_the_new_worker_makes_its_own(
    cluster, caplog
):
    seen = []

    async def lingers(_):
        seen.append("do begins")
        try:
            await forever()
        finally:
            await asyncio.sleep(3)
            seen.append("do ends")

    async def looks(_):
        seen.append("look")
        return Done()

    cluster.plan("one", step("made", Script(lingers), Script(), Script(looks), limits=PATIENT))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    await asyncio.sleep(0.1)
    await cluster.disk.observer().commit(
        Change("", (), (Drop("lease", (process.engine._lease_name,)),))
    )
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert seen == ["do begins", "do ends", "look"]
    assert "1 cancelled calls have not ended" in caplog.text


@virtual_time_test
async def test_a_driver_that_is_stopped_before_its_first_step_leaves_nothing_behind(cluster):
    process = await cluster.start()
    name = await accept(process.plane, "waits")
    await asyncio.sleep(0.5)
    process.engine._activate_due(name)
    await process.engine._start_over()
    assert not process.engine._active
    await process.engine._claim()
    await operations.cancel(process.plane, by("the caller"), name)
    assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.COMPENSATED


@virtual_time_test
async def test_what_a_paused_engine_held_is_taken_over_and_the_first_touches_nothing(
    cluster, caplog
):
    caplog.set_level(logging.INFO)

    async def slow(_):
        await asyncio.sleep(20)
        return Done({"by": "the first"})

    do, look = Script(slow), Script(Done({"by": "the second"}))
    cluster.plan("one", step("made", do, Script(), look, limits=PATIENT))
    first, second = await cluster.start(), await cluster.start()
    name = await accept(first.plane, "one")
    first.node.pause(60)
    await asyncio.sleep(15)
    assert (await reads.get_operation(second.plane, TENANT, name)).state is OperationState.SUCCEEDED
    await asyncio.sleep(10)
    assert f"operation {name}: another worker has claimed it" in caplog.text
    assert await journal(second.plane, name) == ["accepted", "done made"]
    assert (await second.plane.store.load(name)).journal[1].body == '{"by":"the second"}'


@virtual_time_test
async def test_what_is_accepted_while_the_worker_starts_over_is_moved_under_one_token(cluster):
    polls, hangs = Script(NotYet(0.5), NotYet(0.5)), Script(hang)
    cluster.plan("polls", step("made", polls, Script(), polls))
    cluster.plan("hangs", step("made", hangs, Script(), Script()))
    process = await cluster.start(lease_ttl_seconds=3.0)
    plane, engine, worker = process.plane, process.engine, process.engine.worker
    starting, go_on = asyncio.Event(), asyncio.Event()

    async def renew():
        """It will be refused: the lease is gone."""

    async def enlist():
        starting.set()
        await go_on.wait()

    await cluster.disk.observer().commit(Change("", (), (Drop("lease", (engine._lease_name,)),)))
    cluster.stores[0].before["commit"] = [starting.wait, starting.wait, renew, enlist]
    accepting = [asyncio.create_task(accept(plane, plan)) for plan in ("polls", "hangs")]
    await starting.wait()
    assert engine.worker not in ("", worker)
    names = [await task for task in accepting]
    await asyncio.sleep(0.1)
    assert names[0] in engine._waiting_tokens
    old = engine._active[names[1]].task
    go_on.set()
    await asyncio.sleep(0.1)
    assert old.cancelled()
    assert engine._waiting_tokens == {names[0]: 2}
    for name in names:
        assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
        row = (await plane.store.load(name)).operation
        assert (row.token, row.worker) == (2, engine.worker)
    assert (len(polls.calls), len(hangs.calls)) == (3, 1)


@virtual_time_test
async def test_what_the_store_refuses_a_keeper_is_asked_for_again(cluster, caplog):
    process = await cluster.start()
    worker = process.engine.worker
    cluster.stores[0].before["commit"] = [refuse]
    await asyncio.sleep(3)
    assert "the disk refused to take this; next attempt in 2 s" in caplog.text
    await asyncio.sleep(30)
    assert process.engine.worker == worker


@virtual_time_test
async def test_what_is_claimed_at_a_start_is_claimed_in_portions(cluster):
    first = await cluster.start()
    names = [await accept(first.plane, "waits") for _ in range(7)]
    await asyncio.sleep(1)
    ready = [await accept(first.plane, "linear") for _ in range(3)]
    await first.stop()
    for limit in (3, 5, 100):  # with a rest, without one, and all at once
        process = await cluster.start(claim_max=limit)
        for name in names:
            assert (
                await reads.get_operation(process.plane, TENANT, name)
            ).state is OperationState.WAITING
        for name in ready:
            assert (await reads.wait(process.plane, TENANT, name)).state is OperationState.SUCCEEDED
        assert len(process.engine._waiting_tokens) == 7
        await process.stop()


@pytest.mark.parametrize(("share", "takes_over"), [(0.4, True), (1.5, False)])
@virtual_time_test
async def test_a_take_over_may_last_longer_than_the_lease(cluster, share, takes_over):
    first = await cluster.start()
    names = [await accept(first.plane, "waits") for _ in range(4)]
    await asyncio.sleep(1)
    await first.stop()
    claim, seconds = MemoryStore.claim, share * 6.0  # of the lease that `solo` gives

    async def slowly(self, *args, **kwargs):
        await asyncio.sleep(seconds)
        return await claim(self, *args, **kwargs)

    with patched(MemoryStore, claim=slowly):
        process = await cluster.start(claim_max=1)
        rows = [await process.plane.store.find(OperationRecord, (name,)) for name in names]
        assert all(row.worker == process.engine.worker for row in rows) is takes_over


# ----------------------------------------------------------------------------------------- stopping


@virtual_time_test
async def test_a_stop_lets_calls_end_within_its_grace_and_starts_nothing_new(cluster):
    async def slow(_):
        await asyncio.sleep(0.5)
        return Done()

    made, later = Script(slow), Script()
    cluster.plan("two", step("made", made), step("later", later))
    process = await cluster.start(concurrency_max=1)
    name = await accept(process.plane, "two")
    queued = await accept(process.plane, "linear")
    await asyncio.sleep(0.1)
    await process.engine.stop(grace_seconds=5)
    assert cluster.loop.time() == pytest.approx(0.5, abs=0.1)
    assert await journal(process.plane, name) == ["accepted", "done made"]
    assert not later.calls
    assert not cluster.world.log
    assert await leases(cluster) == []
    await process.engine.join()
    again = await cluster.start()
    for one in (name, queued):
        assert (await reads.wait(again.plane, TENANT, one)).state is OperationState.SUCCEEDED
    assert len(made.calls) == 1


@virtual_time_test
async def test_a_stop_cuts_off_what_takes_longer_than_its_grace(cluster):
    cluster.plan("one", step("made", Script(hang), Script(), Script()))
    cluster.plan("fork", (step("a", Script(hang)), step("b", Script(hang))))
    process = await cluster.start()
    for plan in ("one", "fork"):
        await accept(process.plane, plan)
    await asyncio.sleep(0.1)
    began = cluster.loop.time()
    await process.engine.stop(grace_seconds=0.5)
    assert cluster.loop.time() - began == pytest.approx(0.5)
    assert await leases(cluster) == []
    assert not process.engine._active


@virtual_time_test
async def test_a_stopped_engine_takes_wakes_and_parks_nothing(cluster):
    process = await cluster.start()
    name = await accept(process.plane, "waits")
    await asyncio.sleep(1)
    handle = await process.engine._executor.load(name, 1)
    await process.engine.stop()
    await process.engine.stop()
    process.engine._waiting_tokens.clear()
    process.engine.execute(handle)
    process.engine.wake(name)
    process.engine.wake("no-such-operation")
    assert not process.engine._active
    assert process.engine.worker == ""


@virtual_time_test
async def test_an_engine_that_never_ran_has_nothing_to_stop_or_to_join(cluster):
    engine = cluster.boot("idle").engine
    await engine.stop()
    await engine.join()
    assert engine.worker == ""


@virtual_time_test
async def test_a_start_that_cannot_claim_gives_its_lease_back_when_it_is_stopped(cluster):
    process = cluster.boot("unlucky")
    cluster.stores[0].before["claim"] = [refuse]
    with pytest.raises(StoreError):
        await process.start()
    assert len(await leases(cluster)) == 1
    await process.engine.stop()
    assert await leases(cluster) == []


@virtual_time_test
async def test_a_lease_that_cannot_be_given_back_lapses(cluster, caplog):
    process = await cluster.start()
    cluster.stores[0].before["commit"] = [refuse]
    await process.engine.stop()
    assert "cannot drop the lease" in caplog.text
    await process.engine.join()
    assert len(await leases(cluster)) == 1
    name = await accept(process.plane, "linear")
    again = await cluster.start()
    assert (await reads.wait(again.plane, TENANT, name)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_a_store_that_fails_while_the_engine_stops_is_said_to_everyone(cluster):
    process = await cluster.start()
    cluster.stores[0].before["commit"] = [broken]
    with pytest.raises(CommitUnknown):
        await process.engine.stop()
    with pytest.raises(CommitUnknown):
        await process.engine.join()


# ---------------------------------------------------------------------------------- the store fails


@virtual_time_test
async def test_when_the_store_fails_calls_are_dropped_and_whoever_waits_is_told(cluster):
    cluster.plan("hangs", step("made", Script(hang), Script(), Script()))
    process = await cluster.start()
    plane, engine = process.plane, process.engine
    hangs, waits = await accept(plane, "hangs"), await accept(plane, "waits")
    await asyncio.sleep(0.1)
    waiting = [
        asyncio.create_task(engine.wait(name, seconds))
        for name, seconds in ((hangs, None), (waits, 60.0), (waits, None))
    ]
    over = asyncio.create_task(engine.wait(hangs, 0.1))
    joined = asyncio.create_task(engine.join())
    await asyncio.sleep(0.5)
    assert over.result() is None
    task = engine._active[hangs].task
    cluster.stores[0].before["commit"] = [broken] * 9
    await accept_fails(plane)
    with pytest.raises(CommitUnknown):
        await joined
    for waiter in waiting:
        with pytest.raises(CommitUnknown):
            await waiter
    await asyncio.sleep(0)
    assert task.cancelled()
    assert engine.worker == ""
    assert not engine._waiters
    await asyncio.sleep(60)
    with pytest.raises(CommitUnknown):
        await engine.join()


async def accept_fails(plane):
    with pytest.raises(CommitUnknown):
        await accept(plane, "linear")


@virtual_time_test
async def test_a_record_that_fails_ends_the_engine_and_its_keeper(cluster):
    """The keeper is in the middle of its round, and nothing of it fails."""
    go_on = asyncio.Event()

    async def slow(_):
        await asyncio.sleep(2.5)
        return Done()

    cluster.plan("one", step("made", Script(slow), limits=PATIENT))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    waiter = asyncio.create_task(process.engine.wait(name))
    cluster.stores[0].before["list_due"] = [go_on.wait]
    await asyncio.sleep(2.2)
    cluster.stores[0].before["commit"] = [broken]
    await asyncio.sleep(1)
    with pytest.raises(CommitUnknown):
        await process.engine.join()
    with pytest.raises(CommitUnknown):
        await waiter
    go_on.set()
    await asyncio.sleep(0)
    await asyncio.wait_for(process.engine._lease_task, 1)
    await process.engine.stop()
    with pytest.raises(CommitUnknown):
        await process.engine.join()


@virtual_time_test
async def test_of_two_failures_the_first_is_told(cluster):
    process = await cluster.start()
    for plan in ("parallel", "linear"):
        await accept(process.plane, plan)
    cluster.stores[0].before["commit"] = [broken] * 9
    told = []
    for seconds in (0.1, 60):
        await asyncio.sleep(seconds)
        with pytest.raises(CommitUnknown) as failed:
            await process.engine.join()
        told.append(failed.value)
    assert told[0] is told[1]


@virtual_time_test
async def test_a_cancelled_waiter_is_forgotten(cluster):
    process = await cluster.start()
    name = await accept(process.plane, "waits")
    waiters = [asyncio.create_task(process.engine.wait(name)) for _ in range(2)]
    await asyncio.sleep(1)
    waiters[0].cancel()
    await asyncio.sleep(1)
    assert len(process.engine._waiters) == 1
    await operations.signal(process.plane, by("a friend"), name, name="approved")
    assert await waiters[1] is OperationState.SUCCEEDED
    assert not process.engine._waiters


@virtual_time_test
async def test_whoever_gives_up_in_the_very_moment_of_the_end_is_not_told(cluster):
    cluster.plan("one", step("made", Script()))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    waiter = asyncio.create_task(process.engine.wait(name))

    async def give_up():
        waiter.cancel()

    cluster.stores[0].after["commit"] = [give_up]
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert (
        await reads.get_operation(process.plane, TENANT, name)
    ).state is OperationState.SUCCEEDED
    assert not process.engine._waiters


@virtual_time_test
async def test_whoever_gives_up_in_the_very_moment_of_a_failure_is_not_told(cluster):
    process = await cluster.start()
    name = await accept(process.plane, "waits")
    waiters = [asyncio.create_task(process.engine.wait(name)) for _ in range(2)]
    await asyncio.sleep(1)

    async def give_up():
        waiters[0].cancel()
        await broken()

    cluster.stores[0].before["commit"] = [give_up]
    for waiter, error in zip(waiters, (asyncio.CancelledError, CommitUnknown), strict=True):
        with pytest.raises(error):
            await waiter
