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
from tests.unit.support.agent_planes import agent_test, fault, refusal

SUCCEEDED, COMPENSATED = OperationState.SUCCEEDED, OperationState.COMPENSATED
QUEUE = RequestOptions(queue=True)


async def draining(harness, seconds=5.0):
    """An agent whose suspend is under way for so long; that operation."""
    await harness.create_ready()
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime")
    }
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=seconds)
    await asyncio.sleep(1.0)
    return suspended


@agent_test
async def test_a_resume_waits_for_the_suspend_before_it(harness):
    suspended = await draining(harness)
    await refusal(agents.resume_agent(harness.plane, CALLER, "alpha"), "operation_in_progress")
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    assert await harness.agent_state() is AgentState.SUSPENDING
    assert (await harness.wait_for(resumed)).state == SUCCEEDED
    assert (await harness.wait_for(suspended)).state == SUCCEEDED
    assert await harness.agent_state() is AgentState.READY
    assert await harness.violations() == []


@agent_test
async def test_a_repeated_key_comes_with_the_same_choice_to_queue(harness):
    await harness.create_ready()
    plain, queued = (RequestOptions("k", queue=queue) for queue in (False, True))
    first = await agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=plain)
    again = agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=queued)
    await refusal(again, "idempotency_mismatch")
    same = await agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=plain)
    assert same.id == first.id


@agent_test
async def test_a_suspend_waits_for_a_create_and_does_not_cancel_it(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    assert (await harness.wait_for(suspended)).state == SUCCEEDED
    assert (await harness.wait_for(created)).state == SUCCEEDED
    assert await harness.agent_state() is AgentState.SUSPENDED
    assert await harness.violations() == []


@agent_test
async def test_what_would_be_accepted_now_does_not_wait(harness):
    await harness.create_ready()
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    with pytest.raises(Conflict):
        await invocations.address_of(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(suspended)).state == SUCCEEDED
    assert await harness.violations() == []


@agent_test
async def test_one_that_finds_no_such_verb_at_its_turn_is_undone_and_says_so(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    ended = await harness.wait_for(suspended)
    assert (await harness.wait_for(created)).state == COMPENSATED
    assert ended.state == COMPENSATED
    assert "agent alpha is CREATE_FAILED; suspend is not possible in this state" in ended.error
    assert await harness.agent_state() is AgentState.CREATE_FAILED
    assert await harness.violations() == []
    await harness.create_ready()  # nobody stands in the way of the name


@agent_test
async def test_one_can_wait(harness):
    await draining(harness)
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    for ask in (agents.resume_agent, agents.suspend_agent):
        full = await refusal(
            ask(harness.plane, CALLER, "alpha", request_options=QUEUE), "queue_full"
        )
        assert full.holder == resumed.id
    assert (await harness.wait_for(resumed)).state == SUCCEEDED
    assert await harness.violations() == []


@agent_test
async def test_a_stop_is_never_queued(harness):
    await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    asked = agents.stop_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    assert "a stop is never queued" in str(await refusal(asked, "operation_in_progress"))


@pytest.mark.parametrize("verb", ["stop", "delete"])
def test_what_closes_the_agent_takes_the_place_of_what_is_queued(verb):
    @agent_test
    async def play(harness):
        suspended = await draining(harness, 3_000.0)
        resumed = await agents.resume_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
        more = {"drain_seconds": 0.0} if verb == "delete" else {}
        closing = await getattr(agents, f"{verb}_agent")(harness.plane, CALLER, "alpha", **more)
        assert (await harness.wait_for(closing)).state == SUCCEEDED
        assert (await harness.wait_for(suspended)).state == COMPENSATED
        ended = await harness.wait_for(resumed)
        assert ended.state == COMPENSATED
        assert f"closed by operation {closing.id}" in ended.error
        then = await harness.agent_state(resumed.agent)
        assert then is (AgentState.SUSPENDED if verb == "stop" else AgentState.DELETED)
        assert await harness.violations() == []

    play()


@agent_test
async def test_a_queued_verb_can_be_cancelled_and_frees_its_place(harness):
    suspended = await draining(harness)
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    await operations.cancel(harness.plane, by("someone"), resumed.id)
    assert (await harness.wait_for(resumed)).state == COMPENSATED
    assert await harness.agent_state() is AgentState.SUSPENDING
    again = await agents.resume_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    assert (await harness.wait_for(suspended)).state == SUCCEEDED
    assert (await harness.wait_for(again)).state == SUCCEEDED
    assert await harness.violations() == []


@agent_test
async def test_a_queued_closing_can_be_cancelled_since_it_has_closed_nothing(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    await operations.cancel(harness.plane, by("someone"), suspended.id)
    assert (await harness.wait_for(suspended)).state == COMPENSATED
    assert (await harness.wait_for(created)).state == SUCCEEDED
    assert await harness.agent_state() is AgentState.READY
    assert await harness.violations() == []


@agent_test
async def test_a_queued_verb_outlives_the_plane(harness):
    await draining(harness)
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha", request_options=QUEUE)
    harness.processes[0].crash()
    await harness.start()
    assert (await harness.wait_for(resumed)).state == SUCCEEDED
    assert await harness.agent_state() is AgentState.READY
    assert await harness.violations() == []
