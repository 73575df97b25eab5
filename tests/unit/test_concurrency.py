"""Tasks beside a block: they end with it, and a required one ends it."""

import asyncio
import logging

import pytest

from tenure.concurrency import background, cancel_and_wait


class Failure(Exception):
    """What the work of these tests raises."""


async def fail():
    raise Failure("the work failed")


class Work:
    """Runs until it is cancelled, and says how far it came."""

    def __init__(self):
        self.state = "new"

    async def run(self):
        self.state = "running"
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.state = "ended"


def test_work_runs_beside_the_block_and_has_ended_after_it():
    async def scenario():
        work = Work()
        async with background(work.run(), name="work"):
            await asyncio.sleep(0)
            assert work.state == "running"
        assert work.state == "ended"

    asyncio.run(scenario())


@pytest.mark.parametrize("is_required", [False, True])
def test_an_error_of_the_block_leaves_it_and_ends_the_work(is_required):
    async def scenario():
        work = Work()

        async def host():
            async with background(work.run(), name="work", required=is_required):
                await asyncio.sleep(0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await host()
        assert work.state == "ended"

    asyncio.run(scenario())


def test_a_failure_is_logged_at_once_and_the_block_goes_on(caplog):
    async def scenario():
        async with background(fail(), name="the work"):
            for _ in range(3):
                await asyncio.sleep(0)
            assert "the work failed and is not started again" in caplog.text

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())


def test_a_failure_of_required_work_ends_the_block_and_is_raised_from_it():
    async def scenario():
        with pytest.raises(Failure):
            async with background(fail(), name="work", required=True):
                await asyncio.Event().wait()
        await asyncio.sleep(0)  # the host is not cancelled any more

    asyncio.run(scenario())


def test_a_cancel_from_outside_is_no_failure_of_required_work():
    async def scenario():
        work = Work()

        async def host():
            async with background(work.run(), name="work", required=True):
                await asyncio.Event().wait()

        task = asyncio.create_task(host())
        await asyncio.sleep(0.01)
        await cancel_and_wait(task)
        assert task.cancelled()
        assert work.state == "ended"

    asyncio.run(scenario())


@pytest.mark.parametrize("is_required", [False, True])
def test_work_that_returns_leaves_the_block_running(is_required):
    async def scenario():
        async with background(asyncio.sleep(0), name="work", required=is_required):
            await asyncio.sleep(0.01)
        return True

    assert asyncio.run(scenario())
