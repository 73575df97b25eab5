"""A verb that waits for its turn: one place, no say before, judged by what it finds then."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.agents.commands import RequestOptions
from tenure.app.operations import commands as operations
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict
from tenure.core.operation import OperationState
from tenure.testing.faults import Fault
from tenure.testing.operators import by
from tests.unit.support.agent_planes import alive, fault, refusal

SUCCEEDED, COMPENSATED = OperationState.SUCCEEDED, OperationState.COMPENSATED
QUEUE = RequestOptions(queue=True)


async def draining(lives, seconds=5.0):
    """An agent whose suspend is under way for so long; that operation."""
    await lives.made()
    lives.fakes.runtime.busy = {thing.key.text for thing in lives.world.holds(provider="runtime")}
    suspended = await agents.suspend_agent(lives.plane, CALLER, "alpha", drain_seconds=seconds)
    await asyncio.sleep(1.0)
    return suspended


@alive
async def test_a_resume_waits_for_the_suspend_before_it(lives):
    suspended = await draining(lives)
    await refusal(agents.resume_agent(lives.plane, CALLER, "alpha"), "operation_in_progress")
    resumed = await agents.resume_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    assert await lives.state() is AgentState.SUSPENDING
    assert (await lives.done(resumed)).state == SUCCEEDED
    assert (await lives.done(suspended)).state == SUCCEEDED
    assert await lives.state() is AgentState.READY
    assert await lives.wrong() == []


@alive
async def test_a_suspend_waits_for_a_create_and_does_not_cancel_it(lives):
    created = await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    suspended = await agents.suspend_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    assert (await lives.done(suspended)).state == SUCCEEDED
    assert (await lives.done(created)).state == SUCCEEDED
    assert await lives.state() is AgentState.SUSPENDED
    assert await lives.wrong() == []


@alive
async def test_what_would_be_accepted_now_does_not_wait(lives):
    await lives.made()
    suspended = await agents.suspend_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    with pytest.raises(Conflict):
        await invocations.address_of(lives.plane, CALLER, "alpha")
    assert (await lives.done(suspended)).state == SUCCEEDED
    assert await lives.wrong() == []


@alive
async def test_one_that_finds_no_such_verb_at_its_turn_is_undone_and_says_so(lives):
    fault(lives, "credentials", "ensure", Fault.REFUSED)
    created = await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    suspended = await agents.suspend_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    ended = await lives.done(suspended)
    assert (await lives.done(created)).state == COMPENSATED
    assert ended.state == COMPENSATED
    assert "agent alpha is CREATE_FAILED; suspend is not possible in this state" in ended.error
    assert await lives.state() is AgentState.CREATE_FAILED
    assert await lives.wrong() == []
    await lives.made()  # nobody stands in the way of the name


@alive
async def test_one_can_wait(lives):
    await draining(lives)
    resumed = await agents.resume_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    for ask in (agents.resume_agent, agents.suspend_agent):
        full = await refusal(ask(lives.plane, CALLER, "alpha", request_options=QUEUE), "queue_full")
        assert full.holder == resumed.id
    assert (await lives.done(resumed)).state == SUCCEEDED
    assert await lives.wrong() == []


@alive
async def test_a_stop_is_never_queued(lives):
    await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    asked = agents.stop_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    assert "a stop is never queued" in str(await refusal(asked, "operation_in_progress"))


@pytest.mark.parametrize("verb", ["stop", "delete"])
def test_what_closes_the_agent_takes_the_place_of_what_is_queued(verb):
    @alive
    async def play(lives):
        suspended = await draining(lives, 3_000.0)
        resumed = await agents.resume_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
        more = {"drain_seconds": 0.0} if verb == "delete" else {}
        closing = await getattr(agents, f"{verb}_agent")(lives.plane, CALLER, "alpha", **more)
        assert (await lives.done(closing)).state == SUCCEEDED
        assert (await lives.done(suspended)).state == COMPENSATED
        ended = await lives.done(resumed)
        assert ended.state == COMPENSATED
        assert f"closed by operation {closing.id}" in ended.error
        then = await lives.state(resumed.agent)
        assert then is (AgentState.SUSPENDED if verb == "stop" else AgentState.DELETED)
        assert await lives.wrong() == []

    play()


@alive
async def test_a_queued_verb_can_be_cancelled_and_frees_its_place(lives):
    suspended = await draining(lives)
    resumed = await agents.resume_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    await operations.cancel(lives.plane, by("someone"), resumed.id)
    assert (await lives.done(resumed)).state == COMPENSATED
    assert await lives.state() is AgentState.SUSPENDING
    again = await agents.resume_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    assert (await lives.done(suspended)).state == SUCCEEDED
    assert (await lives.done(again)).state == SUCCEEDED
    assert await lives.wrong() == []


@alive
async def test_a_queued_closing_can_be_cancelled_since_it_has_closed_nothing(lives):
    created = await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    suspended = await agents.suspend_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    await operations.cancel(lives.plane, by("someone"), suspended.id)
    assert (await lives.done(suspended)).state == COMPENSATED
    assert (await lives.done(created)).state == SUCCEEDED
    assert await lives.state() is AgentState.READY
    assert await lives.wrong() == []


@alive
async def test_a_queued_verb_outlives_the_plane(lives):
    await draining(lives)
    resumed = await agents.resume_agent(lives.plane, CALLER, "alpha", request_options=QUEUE)
    lives.processes[0].crash()
    await lives.start()
    assert (await lives.done(resumed)).state == SUCCEEDED
    assert await lives.state() is AgentState.READY
    assert await lives.wrong() == []
