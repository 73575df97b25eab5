"""Invocations: who is let in, how it is counted, and how it learns that the agent was closed."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.app.agents import invocations, views
from tenure.app.agents.invocations import Invocation
from tenure.core.errors import Conflict, ConflictCode, NotFound, RuntimeBroken, Unavailable
from tenure.ports.invoker import Headers
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import STRANGER, agent_test


class FakeExchange:
    """An exchange whose caller stays until it is told to leave."""

    def __init__(self) -> None:
        self.headers: Headers = ()
        self.has_started = False
        self.leaves = asyncio.Event()

    async def watch_caller(self) -> None:
        await self.leaves.wait()

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b"a request"

    async def start(self, status: int, headers: Headers) -> None:
        raise NotImplementedError

    async def send(self, piece: bytes) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        raise NotImplementedError


class Runtime:
    """An invoker that starts a response if it should, and then does what it is made for."""

    def __init__(self, *, starts=False, failure=None):
        self.starts = starts
        self.failure = failure
        self.called = asyncio.Event()
        self.ended = False

    async def invoke(self, address, exchange, *, runtime_listens):
        exchange.has_started = self.starts
        self.called.set()
        try:
            if self.failure is not None:
                raise self.failure
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def runtime_listens():
    return True


def invocation_of(runtime, close_event=None):
    return Invocation(
        runtime,
        agent="a",
        address="nowhere:1",
        runtime_listens=runtime_listens,
        close_event=close_event or asyncio.Event(),
        count=ExitStack(),
    )


@agent_test
async def test_an_invocation_counts_from_its_admission_until_its_block_is_left(harness):
    uid = await harness.create_ready()
    runtime = Runtime()
    plane = replace(harness.plane, invoker=runtime)
    invocation = await invocations.admit(plane, CALLER, "alpha")
    assert plane.in_flight.count_of(uid) == 1
    with invocation:
        running = asyncio.ensure_future(invocation.run(FakeExchange()))
        await runtime.called.wait()
        assert plane.in_flight.count_of(uid) == 1
        plane.in_flight.abort(uid)
        with pytest.raises(Conflict) as refused:
            await running
    assert refused.value.code == ConflictCode.SUSPENDED
    assert runtime.ended
    assert plane.in_flight.count_of(uid) == 0


def test_a_close_after_the_response_has_started_ends_it_without_another_response():
    async def scenario():
        runtime, closed = Runtime(starts=True), asyncio.Event()
        running = asyncio.ensure_future(invocation_of(runtime, closed).run(FakeExchange()))
        await runtime.called.wait()
        closed.set()
        await running
        assert runtime.ended

    asyncio.run(scenario())


def test_a_caller_who_leaves_ends_the_call():
    async def scenario():
        runtime, caller = Runtime(), FakeExchange()
        running = asyncio.ensure_future(invocation_of(runtime).run(caller))
        await runtime.called.wait()
        caller.leaves.set()
        await running
        assert runtime.ended

    asyncio.run(scenario())


@pytest.mark.parametrize("failure", [RuntimeBroken("it hung up"), Unavailable("who is that?")])
def test_a_failure_is_raised_unless_the_response_has_started(failure):
    async def scenario():
        with pytest.raises(type(failure), match=re.escape(str(failure))):
            await invocation_of(Runtime(failure=failure)).run(FakeExchange())
        await invocation_of(Runtime(failure=failure, starts=True)).run(FakeExchange())

    asyncio.run(scenario())


def test_a_process_without_an_invoker_says_so():
    async def scenario():
        with pytest.raises(Unavailable, match="does not pass invocations on"):
            await invocation_of(None).run(FakeExchange())

    asyncio.run(scenario())


@agent_test
async def test_an_invocation_that_is_refused_is_not_counted(harness):
    await harness.create_ready()
    with pytest.raises(NotFound):
        await invocations.admit(harness.plane, STRANGER, "alpha")
    await harness.run_verb("suspend")
    with pytest.raises(Conflict):
        await invocations.admit(harness.plane, CALLER, "alpha")
    assert harness.plane.in_flight.total() == 0


@agent_test
async def test_an_agent_that_closes_after_the_first_read_is_not_invoked(harness):
    """The row is read again once the invocation is counted: that read sees the close."""
    uid = await harness.create_ready()
    real, reads = views.get_agent_row, list[int]()

    async def get_agent_row(plane, caller, name):
        row = await real(plane, caller, name)
        reads.append(harness.plane.in_flight.count_of(uid))
        if len(reads) == 1:
            await harness.run_verb("suspend")
        return row

    with patched(views, get_agent_row=get_agent_row), pytest.raises(Conflict) as refused:
        await invocations.admit(harness.plane, CALLER, "alpha")
    assert refused.value.code == "suspended"
    assert harness.plane.in_flight.total() == 0
    assert reads[0] == 0
    assert reads[-1] == 1, "the last read is one that is counted"
