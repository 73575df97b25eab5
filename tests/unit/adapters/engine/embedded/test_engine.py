"""When operations are moved: queued, driven, waiting, woken, handed over by whom or by nobody."""

import asyncio

import pytest

from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.core.endings import Done, NotYet, Waiting
from tenure.core.limits import StepLimits
from tenure.core.operation import OperationState
from tenure.testing.loop import forever
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    journal,
    step,
    virtual_time_test,
)


async def hang(_):
    await forever()


async def end_state(plane, name, seconds=60.0):
    return (await reads.wait(plane, TENANT, name, seconds=seconds)).state


# ------------------------------------------------------------------------------------------- queued


@virtual_time_test
async def test_no_more_than_so_many_are_driven_and_the_others_follow_in_order(cluster):
    now, most, order = 0, 0, []

    async def work(call):
        nonlocal now, most
        now += 1
        most = max(most, now)
        order.append(call.input["n"])
        await asyncio.sleep(0.1)
        now -= 1
        return Done()

    cluster.plan("one", step("made", work))
    plane = (await cluster.start(concurrency_max=3)).plane
    names = [await accept(plane, "one", n=n) for n in range(9)]
    assert {await end_state(plane, name) for name in names} == {OperationState.SUCCEEDED}
    assert most == 3
    assert [set(order[n : n + 3]) for n in (0, 3, 6)] == [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}]
    assert cluster.loop.time() == pytest.approx(0.3, abs=0.01)


@virtual_time_test
async def test_what_is_queued_is_not_moved_twice_however_often_it_is_found(cluster):
    """The keeper finds what is due while the caller who accepted it has not handed it over yet."""
    do = Script()
    cluster.plan("one", step("made", do))
    cluster.plan("hangs", step("made", Script(hang), Script(), Script()))
    process = await cluster.start(concurrency_max=1)
    plane, engine = process.plane, process.engine
    first = await accept(plane, "hangs")
    kept, go_on = asyncio.Event(), asyncio.Event()

    async def hold():
        kept.set()
        await go_on.wait()

    cluster.stores[0].after["commit"] = [hold]
    accepting = asyncio.create_task(accept(plane, "one"))
    await kept.wait()
    await engine._maintain()
    assert len(engine._ready) == 1
    await engine._maintain()
    go_on.set()
    name = await accepting
    assert list(engine._ready) == [name]
    await operations.cancel(plane, by("the caller"), first)
    assert await end_state(plane, name) is OperationState.SUCCEEDED
    await asyncio.sleep(10)
    assert len(do.calls) == 1


@virtual_time_test
async def test_what_is_signalled_while_it_is_queued_is_read_when_its_turn_comes(cluster):
    ask = Script()
    cluster.plan("asks", step("ask", ask))
    cluster.plan("slow", step("made", Script(NotYet(1.0), hang)))
    process = await cluster.start(concurrency_max=1)
    plane = process.plane
    cluster.plan("hangs", step("made", Script(hang), Script(), Script()))
    first = await accept(plane, "hangs")
    names = [await accept(plane, "asks") for _ in range(3)]
    await operations.signal(plane, by("a friend"), names[1], name="go", payload=1)
    await operations.cancel(plane, by("the caller"), first)
    for name in names:
        assert await end_state(plane, name) is OperationState.SUCCEEDED
    assert [call.signals for call in ask.calls] == [{}, {"go": (1,)}, {}]


# -------------------------------------------------------------------------------------- handed over


@virtual_time_test
async def test_what_its_caller_did_not_hand_over_is_found_by_the_keeper(cluster):
    process = await cluster.start()
    plane = process.plane
    kept = asyncio.Event()

    async def then_hang():
        kept.set()
        await forever()

    cluster.stores[0].after["commit"] = [then_hang]
    accepting = asyncio.create_task(admission.accept(plane, OperationRequest("linear")))
    await kept.wait()
    accepting.cancel()
    await asyncio.sleep(0)
    (row,) = await reads.list_operations(plane, TENANT)
    assert row.state == OperationState.RUNNING
    assert not process.engine._active
    assert await end_state(plane, row.id, 3.0) is OperationState.SUCCEEDED


@virtual_time_test
async def test_what_is_driven_or_parked_already_is_not_taken_again(cluster):
    do = Script(Waiting("go"))
    cluster.plan("one", step("made", do))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    handle = process.engine._active[name].handle
    process.engine.execute(handle)
    await asyncio.sleep(1)
    assert name in process.engine._waiting_tokens
    process.engine.execute(handle)
    await asyncio.sleep(5)
    assert len(do.calls) == 1


# ------------------------------------------------------------------------------------------ waiting


@virtual_time_test
async def test_what_waits_costs_no_task_and_is_moved_when_its_time_comes(cluster):
    do = Script(*[NotYet(100.0)] * 4)
    cluster.plan("polls", step("made", do, limits=StepLimits(deadline_seconds=999.0)))
    process = await cluster.start()
    names = [await accept(process.plane, "polls") for _ in range(2)]
    await asyncio.sleep(1)
    assert not process.engine._active
    assert len(process.engine._timers) == 2
    for name in names:
        assert await end_state(process.plane, name, 300) is OperationState.SUCCEEDED
    assert cluster.loop.time() == pytest.approx(200, abs=1.5)


@virtual_time_test
async def test_a_wake_comes_before_the_timer_and_the_timer_then_finds_nobody(cluster):
    ask = Script(NotYet(5.0), Waiting("go"))
    cluster.plan("asks", step("ask", ask))
    process = await cluster.start()
    name = await accept(process.plane, "asks")
    await asyncio.sleep(1)
    process.engine.wake(name)
    await asyncio.sleep(1)
    assert len(ask.calls) == 1, "it is not due, whoever looks"
    assert name in process.engine._waiting_tokens
    await asyncio.sleep(4)
    assert len(ask.calls) == 2


# ------------------------------------------------------------------------------- woken while driven


@virtual_time_test
async def test_what_is_recorded_while_it_is_read_is_seen(cluster):
    """The second signal comes while the engine reads what the first one has changed."""
    ask = Script(Waiting("x"), Waiting("x"))
    cluster.plan("asks", step("ask", ask))
    process = await cluster.start()
    plane = process.plane
    name = await accept(plane, "asks")
    await asyncio.sleep(1)
    store = cluster.stores[0]

    async def once_more():
        await operations.signal(plane, by("a friend"), name, name="x")

    async def slow(_):
        process.engine.wake(name)
        store.after["load"] = [once_more]
        return Waiting("x")

    ask.endings = [slow, Done()]
    await operations.signal(plane, by("a friend"), name, name="x")
    assert await end_state(plane, name, 5.0) is OperationState.SUCCEEDED
    assert len(ask.calls) == 3
    assert (await journal(plane, name)).count("signalled") == 2


@virtual_time_test
async def test_what_is_woken_for_nothing_parks_again(cluster):
    ask = Script(Waiting("x"))
    cluster.plan("asks", step("ask", ask))
    process = await cluster.start()
    name = await accept(process.plane, "asks")
    await asyncio.sleep(1)
    store = cluster.stores[0]

    async def wake():
        process.engine.wake(name)

    store.after["load"] = [wake]
    process.engine.wake(name)
    await asyncio.sleep(0.1)
    assert name in process.engine._waiting_tokens
    assert len(ask.calls) == 1


@virtual_time_test
async def test_a_cancel_reaches_several_calls_at_once(cluster):
    undos = [Script(), Script()]
    cluster.plan(
        "fork",
        (
            step("a", Script(hang), undos[0], Script()),
            step("b", Script(hang), undos[1], Script()),
            step("c", Script(NotYet(0.3), NotYet(0.3))),
        ),
    )
    process = await cluster.start()
    name = await accept(process.plane, "fork")
    await asyncio.sleep(0.5)
    await operations.cancel(process.plane, by("the caller"), name)
    assert await end_state(process.plane, name, 0.2) is OperationState.COMPENSATED
    assert [len(undo.calls) for undo in undos] == [1, 1]


@virtual_time_test
async def test_siblings_go_at_their_own_pace(cluster):
    async def slow(_):
        await asyncio.sleep(0.9)
        return Done()

    polls = Script(NotYet(0.2), NotYet(0.2), NotYet(0.2))
    cluster.plan("fork", (step("slow", Script(slow)), step("polls", polls)))
    plane = (await cluster.start()).plane
    name = await accept(plane, "fork")
    assert await end_state(plane, name) is OperationState.SUCCEEDED
    assert len(polls.calls) == 4
    assert cluster.loop.time() == pytest.approx(0.9, abs=0.05)


@virtual_time_test
async def test_a_wake_reaches_an_operation_that_is_performing_several_moves(cluster):
    async def slow(_):
        await asyncio.sleep(0.9)
        return Done()

    ask = Script(Waiting("go"))
    cluster.plan("fork", (step("slow", Script(slow)), step("ask", ask)))
    plane = (await cluster.start()).plane
    name = await accept(plane, "fork")
    await asyncio.sleep(0.1)
    await operations.signal(plane, by("a friend"), name, name="go")
    await asyncio.sleep(0.1)
    assert len(ask.calls) == 2, "at once, not when its sibling is done"
    assert await end_state(plane, name) is OperationState.SUCCEEDED
