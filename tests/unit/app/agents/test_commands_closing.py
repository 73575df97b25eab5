"""Closing an agent: at the acknowledgement, over whatever else is under way; and taking it back."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from proofs.agents.lifecycle import CALLER, PLANS, TENANT, spec_of
from tenure.app.agents import cascade, invocations
from tenure.app.agents import commands as agents
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.agent import AgentState
from tenure.core.errors import (
    Conflict,
    PlanUnknown,
    StoreFull,
)
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.records import AgentNameRecord, AgentRecord, OperationRecord
from tenure.ports.store import WakeHint
from tenure.testing.faults import Fault
from tenure.testing.operators import by
from tests.unit.support.agent_planes import agent_test, fault, refusal

SUCCEEDED, COMPENSATED = OperationState.SUCCEEDED, OperationState.COMPENSATED


# --- closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["suspend", "stop", "delete"])
def test_from_the_acknowledgement_on_nothing_is_served(verb):
    @agent_test
    async def play(harness):
        await harness.create_ready()
        ask = getattr(agents, f"{verb}_agent")
        await ask(harness.plane, CALLER, "alpha")
        with pytest.raises(Conflict):
            await invocations.address_of(harness.plane, CALLER, "alpha")

    play()


@agent_test
async def test_a_delete_during_a_create_cancels_it_and_takes_away_what_it_made(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    await asyncio.sleep(0.025)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    assert await harness.agent_state(created.agent) is AgentState.DELETING
    assert (await harness.wait_for(deleted)).state == SUCCEEDED
    assert (await harness.wait_for(created)).state == COMPENSATED
    assert harness.world.things == {}
    assert await harness.violations() == []


@pytest.mark.parametrize("verb", ["suspend", "stop", "delete"])
def test_what_a_newer_release_works_on_is_for_that_one_to_close(verb):
    @agent_test
    async def play(harness):
        await harness.create_ready()
        await harness.run_verb("suspend")
        newer = await harness.boot_newer_release("resume_agent")
        resumed = await agents.resume_agent(newer, CALLER, "alpha")
        ask = getattr(agents, f"{verb}_agent")
        why = f"{resumed.id} has the lock .* resume_agent@2/.* to a process of the newer release"
        with pytest.raises(PlanUnknown, match=why):
            await ask(harness.plane, CALLER, "alpha")
        assert await harness.agent_state() is AgentState.RESUMING, "nothing was changed"
        await ask(newer, CALLER, "alpha")
        assert (await reads.get_operation(newer, TENANT, resumed.id)).state == COMPENSATED

    play()


@agent_test
async def test_a_child_that_a_newer_release_works_on_is_asked_again_at_the_next_look(harness):
    top, child = (
        await harness.create_ready("top"),
        await harness.create_ready("child", parent="top"),
    )
    newer = await harness.boot_newer_release("suspend_agent")
    theirs = await agents.suspend_agent(newer, CALLER, "child")
    deleted = await agents.delete_agent(harness.plane, CALLER, "top", drain_seconds=0.0)
    assert (await cascade.delete_owned(harness.plane, top, deleted.id)).remaining == ["child"]
    await operations.cancel(newer, CALLER, theirs.id)
    assert (await harness.wait_for(deleted)).state == SUCCEEDED
    assert await harness.agent_state(child) is AgentState.DELETED


@agent_test
async def test_a_close_interrupts_what_it_closes_in_whichever_process_it_runs(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    await asyncio.sleep(0.025)
    told = harness.record_rings()
    await agents.delete_agent(harness.plane, CALLER, "alpha")
    assert told == [WakeHint(created.id, interrupt=True)]


@agent_test
async def test_a_suspend_during_a_resume_cancels_it(harness):
    await harness.create_ready()
    await harness.run_verb("suspend")
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha")
    await asyncio.sleep(0.013)
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(suspended)).state == SUCCEEDED
    assert (await harness.wait_for(resumed)).state == COMPENSATED
    assert await harness.agent_state() is AgentState.SUSPENDED
    assert await harness.violations() == []


@agent_test
async def test_a_delete_during_a_suspend_ends_the_drain(harness):
    uid = await harness.create_ready()
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime")
    }
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=3_000.0)
    await asyncio.sleep(1.0)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha", drain_seconds=1.0)
    assert (await harness.wait_for(deleted)).state == SUCCEEDED
    assert (await harness.wait_for(suspended)).state == COMPENSATED
    assert await harness.agent_state(uid) is AgentState.DELETED
    assert await harness.violations() == []


@agent_test
async def test_a_stop_does_not_wait_for_a_drain(harness):
    await harness.create_ready()
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime")
    }
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=3_000.0)
    await asyncio.sleep(1.0)
    began = harness.loop.time()
    stopped = await agents.stop_agent(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(stopped)).state == SUCCEEDED
    assert harness.loop.time() - began < 1.0
    assert (await harness.wait_for(suspended)).state == COMPENSATED
    assert await harness.violations() == []


@agent_test
async def test_a_runtime_that_was_kept_warm_can_be_stopped(harness):
    uid = await harness.create_ready()
    await harness.run_verb("suspend", keep_runtime=True)
    assert "runtime" in harness.holders(uid)
    assert (await harness.run_verb("stop")).state == SUCCEEDED
    assert "runtime" not in harness.holders(uid)
    assert await harness.agent_state() is AgentState.SUSPENDED


@agent_test
async def test_a_closing_waits_for_what_is_stuck_until_that_is_helped(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    fault(harness, "access", "remove", Fault.REFUSED)
    created = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert created.state == OperationState.STUCK
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(deleted, 20.0)).state == OperationState.RUNNING
    refused = await refusal(
        operations.cancel(harness.plane, by("someone"), deleted.id), "not_its_turn"
    )
    assert refused.holder == deleted.id
    harness.fakes.access._refuses.clear()
    await operations.retry(harness.plane, by("an operator"), created.id)
    assert (await harness.wait_for(deleted)).state == SUCCEEDED
    assert harness.world.things == {}
    assert await harness.violations() == []


@agent_test
async def test_no_third_operation_waits_behind_a_second(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    fault(harness, "access", "remove", Fault.REFUSED)
    await harness.wait_for(await agents.create_agent(harness.plane, CALLER, spec_of("alpha")))
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    for ask in (agents.delete_agent, agents.stop_agent, agents.suspend_agent):
        refused = await refusal(ask(harness.plane, CALLER, "alpha"), "operation_in_progress")
        assert refused.holder in {deleted.id, (await harness.rows(OperationRecord))[0].id}


@agent_test
async def test_a_stuck_delete_is_helped_and_not_overtaken(harness):
    uid = await harness.create_ready()
    fault(harness, "access", "remove", Fault.REFUSED)
    deleted = await harness.run_verb("delete")
    assert deleted.state == OperationState.STUCK
    assert await harness.agent_state() is AgentState.DELETE_FAILED
    refused = await refusal(
        agents.delete_agent(harness.plane, CALLER, "alpha"), "operation_in_progress"
    )
    assert refused.holder == deleted.id
    harness.fakes.access._refuses.clear()
    await operations.retry(harness.plane, by("an operator"), deleted.id)
    assert (await harness.wait_for(deleted)).state == SUCCEEDED
    assert await harness.agent_state(uid) is AgentState.DELETED
    assert await harness.violations() == []


@agent_test
async def test_a_delete_after_an_abandoned_one_takes_away_what_was_left(harness):
    uid = await harness.create_ready()
    fault(harness, "access", "remove", Fault.REFUSED)
    deleted = await harness.run_verb("delete")
    await operations.abandon(harness.plane, by("an operator"), deleted.id)
    assert await harness.agent_state() is AgentState.DELETE_FAILED
    harness.fakes.access._refuses.clear()
    assert (await harness.run_verb("delete")).state == SUCCEEDED
    assert await harness.agent_state(uid) is AgentState.DELETED
    assert harness.world.things == {}


# --- taking a close back --------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["READY", "SUSPENDED", "CREATE_FAILED", "DELETE_FAILED"])
@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_delete_returns_the_agent_to_what_it_was(before, late):
    """Also if nobody has begun with it yet."""

    @agent_test
    async def play(harness):
        await _bring(harness, before)
        assert await harness.agent_state() is AgentState(before)
        held = harness.holders()
        fault(harness, "runtime", "status", Fault.LOST)
        deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
        if late:
            await asyncio.sleep(0.0)
        try:
            await operations.cancel(harness.plane, by("someone"), deleted.id)
        except Conflict as refused:
            assert late and refused.code == "past_pivot"  # noqa: PT017, PT018
            return
        assert (await harness.wait_for(deleted)).state == COMPENSATED
        assert await harness.agent_state() is AgentState(before)
        assert harness.holders() == held

    play()


async def _bring(harness, before):
    """An agent called alpha in this state."""
    if before == "CREATE_FAILED":
        fault(harness, "access", "ensure", Fault.REFUSED)
        await harness.wait_for(await agents.create_agent(harness.plane, CALLER, spec_of("alpha")))
        return
    await harness.create_ready()
    if before == "SUSPENDED":
        await harness.run_verb("suspend", keep_runtime=True)
    elif before == "DELETE_FAILED":
        fault(harness, "access", "remove", Fault.REFUSED)
        deleted = await harness.run_verb("delete")
        await operations.abandon(harness.plane, by("an operator"), deleted.id)


async def _expose_slowly(_):
    await asyncio.sleep(0.5)


SLOW = Plan(
    "create_agent",
    subject="agent",
    stages=[
        tuple(replace(s, do=_expose_slowly) if s.name == "exposed" else s for s in stage)
        for stage in PLANS["create_agent"].stages
    ],
)


@partial(agent_test, plans={**PLANS, "create_agent": SLOW})
async def test_a_create_that_was_closed_past_its_pivot_still_says_where_it_is_reached(harness):
    """The delete is cancelled then, and the agent is READY."""
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    await asyncio.sleep(0.2)
    fault(harness, "runtime", "status", Fault.LOST)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(created)).state == SUCCEEDED
    assert await harness.agent_state() is AgentState.DELETING
    await asyncio.sleep(0.5)
    await operations.cancel(harness.plane, by("someone"), deleted.id)
    assert (await harness.wait_for(deleted)).state == COMPENSATED
    assert await harness.agent_state() is AgentState.READY
    await invocations.address_of(harness.plane, CALLER, "alpha")
    assert await harness.violations() == []


@agent_test
async def test_a_closing_that_ends_before_its_turn_was_recorded_knows_how_the_agent_stood(harness):
    """The turn is taken, and the plane dies before it could write that down."""
    await harness.create_ready()
    await harness.run_verb("suspend", keep_runtime=True)
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha")
    await asyncio.sleep(0.005)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    for _ in range(100):
        row = await harness.plane.store.find(AgentRecord, (deleted.agent,))
        if row.operation == deleted.id:
            break
        await asyncio.sleep(0.001)
    kept = (await harness.plane.store.load(deleted.id)).operation
    assert '"was":"SUSPENDED"' in kept.input
    assert f'"after":"{resumed.id}"' in kept.input
    assert (await harness.wait_for(resumed)).state == COMPENSATED


@agent_test
async def test_a_stop_that_is_given_up_before_its_turn_leaves_the_lock_alone(harness):
    await harness.create_ready()
    await harness.run_verb("suspend")
    fault(harness, "runtime", "ensure", Fault.SLOWEST)
    fault(harness, "runtime", "remove", Fault.REFUSED)
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha")
    await asyncio.sleep(0.1)
    for nth in range(1, 100):
        fault(harness, "credentials", "close_agent", Fault.BUSY, nth)
    stopped = await agents.stop_agent(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(stopped)).state == OperationState.STUCK
    row = await harness.plane.store.find(AgentRecord, (stopped.agent,))
    assert (row.operation, row.next) == (resumed.id, stopped.id)
    await operations.abandon(harness.plane, by("an operator"), stopped.id)
    row = await harness.plane.store.find(AgentRecord, (stopped.agent,))
    assert (row.operation, row.next) == (resumed.id, None)


# --- what an agent owns ---------------------------------------------------------------------------


@agent_test
async def test_a_delete_takes_what_the_agent_owns_along(harness):
    await harness.create_ready()
    child = await harness.create_ready("beta", parent="alpha")
    grandchild = await harness.create_ready("gamma", parent="beta")
    assert (await harness.run_verb("delete")).state == SUCCEEDED
    for uid in (child, grandchild):
        assert await harness.agent_state(uid) is AgentState.DELETED
    assert harness.world.things == {}
    assert await harness.rows(AgentNameRecord) == []
    assert await harness.violations() == []


@agent_test
async def test_nothing_new_is_owned_by_an_agent_that_is_closed(harness):
    await harness.create_ready()
    await harness.run_verb("suspend")
    await refusal(
        agents.create_agent(harness.plane, CALLER, spec_of("beta", parent="alpha")), "wrong_state"
    )


@agent_test
async def test_a_child_and_the_delete_of_its_parent_do_not_pass_each_other(harness):
    for number in range(20):
        name = f"parent-{number}"
        await harness.create_ready(name)
        child = agents.create_agent(harness.plane, CALLER, spec_of(f"child-{number}", parent=name))
        gone = agents.delete_agent(harness.plane, CALLER, name)
        both = [child, gone] if number % 2 else [gone, child]
        await asyncio.gather(*both, return_exceptions=True)
    for row in await harness.rows(OperationRecord):
        await reads.wait(harness.plane, TENANT, row.id, seconds=60.0)
    await asyncio.sleep(5)
    assert await harness.violations() == []
    assert harness.world.things == {}


@agent_test
async def test_a_child_whose_delete_was_cancelled_is_asked_again(harness):
    await harness.create_ready()
    child = await harness.create_ready("beta", parent="alpha")
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime", agent=child)
    }
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha", drain_seconds=0.0)
    await asyncio.sleep(0.5)
    (asked,) = [
        row.id for row in await harness.rows(OperationRecord)
        if row.agent == child and row.plan_name == "delete_agent"
    ]  # fmt: skip
    await operations.cancel(harness.plane, by("someone"), asked)
    assert (await harness.wait_for(deleted)).state == SUCCEEDED
    assert await harness.agent_state(child) is AgentState.DELETED


@agent_test
async def test_what_closes_an_agent_is_accepted_on_a_full_disk(harness):
    await harness.create_ready("alpha")
    harness.disk.tables.full = True
    with pytest.raises(StoreFull):
        await agents.create_agent(harness.plane, CALLER, spec_of("beta"))
    await agents.delete_agent(harness.plane, CALLER, "alpha")
    harness.disk.tables.full = False
