"""What steps may ask of the control plane: the agent's lock, its state before, what it owns."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents.plane_api import AgentPlaneApi
from tenure.app.operations import commands as operations
from tenure.core.agent import AgentState
from tenure.core.errors import Defect
from tenure.core.operation import OperationState
from tenure.core.records import AgentRecord, OperationRecord
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tests.unit.support.agent_planes import agent_test


def api_of(harness):
    api = AgentPlaneApi()
    api.attach(harness.plane)
    return api


async def stuck_create(harness):
    """A create that cannot be undone, and so keeps its agent."""
    harness.faults.script[FaultPoint("credentials", "ensure", 1)] = Fault.REFUSED
    harness.faults.script[FaultPoint("access", "remove", 1)] = Fault.REFUSED
    created = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert created.state == OperationState.STUCK
    return created


@agent_test
async def test_it_speaks_for_no_plane_before_it_is_given_one(harness):
    with pytest.raises(Defect):
        AgentPlaneApi().in_flight("agent")


@agent_test
async def test_whoever_works_on_the_agent_has_the_turn_also_when_it_asks_twice(harness):
    uid = await harness.create_ready()
    await harness.plane.store.commit(_lock_change(uid, "mine"))
    for _ in range(2):
        lock = await api_of(harness).acquire_lock(
            uid, "mine", return_state="READY", previous_operation=""
        )
        assert (lock.lock_holder, lock.return_state) == ("", "READY")
        assert sorted(lock.holds) == ["access", "credentials", "identity", "runtime"]


def _lock_change(uid, operation):
    from tenure.ports.store import Change, Set

    return Change("", (), (Set("agent", (uid,), {"operation": operation}),))


@agent_test
async def test_the_turn_is_not_taken_while_another_works(harness):
    created = await stuck_create(harness)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    lock = await api_of(harness).acquire_lock(
        deleted.agent, deleted.id, return_state="CREATE_FAILED", previous_operation=created.id
    )
    assert lock.lock_holder == created.id


@agent_test
async def test_an_operation_that_does_not_wait_for_the_agent_gets_no_turn(harness):
    """A worker that slept through the end of its operation does not wait for ever."""
    uid = await harness.create_ready()
    with pytest.raises(Defect, match="does not wait"):
        await api_of(harness).acquire_lock(
            uid, "an old one", return_state="READY", previous_operation=""
        )
    with pytest.raises(Defect, match="is not there"):
        await api_of(harness).acquire_lock(
            "nobody", "an old one", return_state="READY", previous_operation=""
        )


@agent_test
async def test_the_agent_stood_as_the_operation_before_has_left_it(harness):
    """A suspend that was closed by a delete after a resume had succeeded: the agent was READY."""
    uid = await harness.create_ready()
    await harness.run_verb("suspend")
    resumed = await harness.run_verb("resume")
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime")
    }
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=3_000.0)
    await asyncio.sleep(0.5)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha", drain_seconds=3_000.0)
    await asyncio.sleep(2.0)
    assert (await harness.wait_for(suspended)).state == OperationState.COMPENSATED
    assert resumed.state == OperationState.SUCCEEDED
    await operations.cancel(harness.plane, by("someone"), deleted.id)
    assert (await harness.wait_for(deleted)).state == OperationState.COMPENSATED
    assert await harness.agent_state(uid) is AgentState.READY
    assert await harness.violations() == []


@agent_test
async def test_the_turn_that_was_taken_is_kept_with_how_the_agent_stands(harness):
    await stuck_create(harness)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    harness.fakes.access._refuses.clear()
    assert (await harness.wait_for(deleted)).state == OperationState.SUCCEEDED
    (turn,) = [
        row for row in (await harness.plane.store.load(deleted.id)).journal if row.step == "turn"
    ]
    assert '"was":"CREATE_FAILED"' in turn.body


@agent_test
async def test_what_an_agent_owns_is_asked_for_once(harness):
    uid = await harness.create_ready()
    await harness.create_ready("beta", parent="alpha")
    await harness.create_ready("gamma", parent="alpha")
    for _ in range(3):
        left, _ = await api_of(harness).delete_owned(uid, "an operation")
        assert sorted(left) == ["beta", "gamma"]
    await asyncio.sleep(10)
    assert (await api_of(harness).delete_owned(uid, "an operation")).remaining == []
    asked = [row for row in await harness.rows(OperationRecord) if row.plan_name == "delete_agent"]
    assert len(asked) == 2
    assert {row.principal for row in asked} == {"operation an operation"}


@agent_test
async def test_a_child_that_is_held_by_others_is_left_until_the_next_look(harness):
    uid = await harness.create_ready()
    child = await harness.create_ready("beta", parent="alpha")
    harness.faults.script[FaultPoint("access", "remove", 1)] = Fault.REFUSED
    stuck = await harness.run_verb("delete", "beta")
    assert stuck.state == OperationState.STUCK
    assert (await api_of(harness).delete_owned(uid, "an operation")).remaining == ["beta"]
    assert (await harness.plane.store.find(AgentRecord, (child,))).next is None


@agent_test
async def test_what_is_in_flight_here_is_counted(harness):
    uid = await harness.create_ready()
    with harness.plane.in_flight.count_one(uid):
        assert api_of(harness).in_flight(uid) == 1
    assert api_of(harness).in_flight(uid) == 0
