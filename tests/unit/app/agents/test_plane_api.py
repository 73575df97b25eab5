"""What steps may ask of the control plane: the agent's lock, its state before, what it owns."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents.plane_api import ServingPlaneApi
from tenure.app.operations import commands as operations
from tenure.core.agent import AgentState
from tenure.core.errors import Defect
from tenure.core.operation import OperationState
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tests.unit.support.agent_planes import alive


def api_of(lives):
    api = ServingPlaneApi()
    api.serve(lives.plane)
    return api


async def stuck_create(lives):
    """A create that cannot be undone, and so keeps its agent."""
    lives.faults.script[FaultPoint("credentials", "ensure", 1)] = Fault.REFUSED
    lives.faults.script[FaultPoint("access", "remove", 1)] = Fault.REFUSED
    created = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert created.state == OperationState.STUCK
    return created


@alive
async def test_it_speaks_for_no_plane_before_it_is_given_one(lives):
    with pytest.raises(Defect):
        ServingPlaneApi().in_flight("agent")


@alive
async def test_whoever_works_on_the_agent_has_the_turn_also_when_it_asks_twice(lives):
    uid = await lives.made()
    await lives.plane.store.commit(_locked(uid, "mine"))
    for _ in range(2):
        lock = await api_of(lives).acquire_lock(uid, "mine", was="READY", after="")
        assert (lock.holder, lock.was) == ("", "READY")
        assert sorted(lock.holds) == ["access", "credentials", "identity", "runtime"]


def _locked(uid, operation):
    from tenure.ports.store import Change, Set

    return Change("", (), (Set("agent", (uid,), {"operation": operation}),))


@alive
async def test_the_turn_is_not_taken_while_another_works(lives):
    created = await stuck_create(lives)
    deleted = await agents.delete_agent(lives.plane, CALLER, "alpha")
    lock = await api_of(lives).acquire_lock(
        deleted.agent, deleted.id, was="CREATE_FAILED", after=created.id
    )
    assert lock.holder == created.id


@alive
async def test_an_operation_that_does_not_wait_for_the_agent_gets_no_turn(lives):
    """A worker that slept through the end of its operation does not wait for ever."""
    uid = await lives.made()
    with pytest.raises(Defect, match="does not wait"):
        await api_of(lives).acquire_lock(uid, "an old one", was="READY", after="")
    with pytest.raises(Defect, match="is not there"):
        await api_of(lives).acquire_lock("nobody", "an old one", was="READY", after="")


@alive
async def test_the_agent_stood_as_the_operation_before_has_left_it(lives):
    """A suspend that was closed by a delete after a resume had succeeded: the agent was READY."""
    uid = await lives.made()
    await lives.verb("suspend")
    resumed = await lives.verb("resume")
    lives.fakes.runtime.busy = {thing.key.text for thing in lives.world.holds(provider="runtime")}
    suspended = await agents.suspend_agent(lives.plane, CALLER, "alpha", drain_seconds=3_000.0)
    await asyncio.sleep(0.5)
    deleted = await agents.delete_agent(lives.plane, CALLER, "alpha", drain_seconds=3_000.0)
    await asyncio.sleep(2.0)
    assert (await lives.done(suspended)).state == OperationState.COMPENSATED
    assert resumed.state == OperationState.SUCCEEDED
    await operations.cancel(lives.plane, by("someone"), deleted.id)
    assert (await lives.done(deleted)).state == OperationState.COMPENSATED
    assert await lives.state(uid) is AgentState.READY
    assert await lives.wrong() == []


@alive
async def test_the_turn_that_was_taken_is_kept_with_how_the_agent_stands(lives):
    await stuck_create(lives)
    deleted = await agents.delete_agent(lives.plane, CALLER, "alpha")
    lives.fakes.access._refuses.clear()
    assert (await lives.done(deleted)).state == OperationState.SUCCEEDED
    (turn,) = [
        row for row in (await lives.plane.store.load(deleted.id)).journal if row.step == "turn"
    ]
    assert '"was":"CREATE_FAILED"' in turn.body


@alive
async def test_what_an_agent_owns_is_asked_for_once(lives):
    uid = await lives.made()
    await lives.made("beta", parent="alpha")
    await lives.made("gamma", parent="alpha")
    for _ in range(3):
        left, _ = await api_of(lives).delete_owned(uid, "an operation")
        assert sorted(left) == ["beta", "gamma"]
    await asyncio.sleep(10)
    assert (await api_of(lives).delete_owned(uid, "an operation")).left == []
    asked = [row for row in await lives.rows("operation") if row["kind"] == "delete_agent"]
    assert len(asked) == 2
    assert {row["principal"] for row in asked} == {"operation an operation"}


@alive
async def test_a_child_that_is_held_by_others_is_left_until_the_next_look(lives):
    uid = await lives.made()
    child = await lives.made("beta", parent="alpha")
    lives.faults.script[FaultPoint("access", "remove", 1)] = Fault.REFUSED
    stuck = await lives.verb("delete", "beta")
    assert stuck.state == OperationState.STUCK
    assert (await api_of(lives).delete_owned(uid, "an operation")).left == ["beta"]
    assert (await lives.plane.store.find("agent", (child,)))["next"] is None


@alive
async def test_what_is_in_flight_here_is_counted(lives):
    uid = await lives.made()
    with lives.plane.in_flight.count_one(uid):
        assert api_of(lives).in_flight(uid) == 1
    assert api_of(lives).in_flight(uid) == 0
