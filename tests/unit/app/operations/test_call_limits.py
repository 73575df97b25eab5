"""Calls that are ended from outside: at their limit, once, and never when they are over."""

import asyncio

import pytest

from tenure.app.operations.call_limits import CallLimits
from tenure.testing.loop import forever, run


async def call(watch, seconds, works=forever):
    """Why this call was stopped; empty if it ended by itself."""
    task = asyncio.current_task()
    assert task is not None
    watch.begin(task, seconds)
    try:
        await works()
    except asyncio.CancelledError:
        if not (why := watch.end(task, seconds)):
            raise
        task.uncancel()
        return why
    return watch.end(task, seconds)


def test_each_call_ends_at_its_own_limit():
    async def main(loop):
        watch, ends = CallLimits(), []

        async def one(begins, seconds):
            await asyncio.sleep(begins)
            why = await call(watch, seconds)
            ends.append((loop.time(), why))

        await asyncio.gather(one(0.0, 2.0), one(0.5, 2.0), one(0.6, 1.0), one(0.9, 2.0))
        return ends

    assert run(0, main) == [
        (1.6, "no answer within 1 s"),
        (2.0, "no answer within 2 s"),
        (2.5, "no answer within 2 s"),
        (2.9, "no answer within 2 s"),
    ]


def test_a_call_that_is_over_is_left_alone_and_the_watch_goes_on_with_the_next():
    async def main(loop):
        watch = CallLimits()
        assert await call(watch, 1.0, works=lambda: asyncio.sleep(0.5)) == ""
        await asyncio.sleep(0.25)
        began = loop.time()
        assert await call(watch, 1.0) == "no answer within 1 s"
        assert loop.time() - began == 1.0
        await asyncio.sleep(10)
        assert await call(watch, 1.0) == "no answer within 1 s"
        assert not watch._why
        assert not watch._timers

    run(0, main)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_stopped_for_another_reason_at_its_limit_is_stopped_once(seed):
    async def main(loop):
        watch = CallLimits()
        task = asyncio.create_task(call(watch, 1.0))
        loop.call_at(1.0, watch.stop, task, "the caller went away")
        why = await task
        assert task.cancelling() == 0
        return why

    assert run(seed, main) in ("the caller went away", "no answer within 1 s")


def test_a_cancel_from_elsewhere_is_nobody_s_stop():
    async def main(loop):
        watch = CallLimits()
        task = asyncio.create_task(call(watch, 1.0))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(5)
        assert not watch._ends[1.0]

    run(0, main)
