"""The plans of an agent's life: their order, their pivots, and what their steps do."""

import asyncio
from types import SimpleNamespace

import pytest

from proofs.agents.lifecycle import CALLER, TENANT, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.agent import AgentState
from tenure.core.errors import NotReady, Rejected
from tenure.core.ids import resource_key
from tenure.core.limits import DETAIL_CHARACTERS_MAX
from tenure.core.operation import OperationState
from tenure.core.plan import StepKind
from tenure.plans.agents import lifecycle
from tenure.plans.agents.inputs import AgentInput
from tenure.ports import provider as ports
from tenure.ports.provider import Presence
from tenure.ports.runtime import Status
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tests.unit.support.agent_planes import alive

PLANS = {plan.name: plan for plan in lifecycle.PLANS}


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        ("create_agent", "identity access runtime runtime_ready credentials exposed"),
        ("suspend_agent", "turn drained closed runtime acknowledged"),
        ("stop_agent", "closed killed turn runtime"),
        ("resume_agent", "turn kept runtime runtime_ready opened exposed"),
        (
            "delete_agent",
            "turn drained closed sub_agents credentials access runtime identity acknowledged",
        ),
    ],
)
def test_a_plan_has_its_order(plan, steps):
    assert " ".join(PLANS[plan].steps) == steps


@pytest.mark.parametrize(
    ("plan", "pivot"),
    [
        ("create_agent", "exposed"),
        ("resume_agent", "exposed"),
        ("suspend_agent", "closed"),
        ("delete_agent", "closed"),
    ],
)
def test_there_is_a_way_back_until_the_pivot(plan, pivot):
    steps = PLANS[plan].steps
    assert [name for name, step in steps.items() if step.kind is StepKind.PIVOT] == [pivot]


def test_the_digests_of_the_plans_do_not_change_between_releases():
    """Open operations are found again by them: a changed plan needs a new version."""
    released = {
        "create_agent": "9b733afec7ccc8a4b48be5b483e7402e",
        "suspend_agent": "e578cb2917739ac1530cb83bf275f878",
        "stop_agent": "80bff749e0f3bf3f6a231ad4817c7b8e",
        "resume_agent": "092ca5aad99ddf2243f5c514e65e821f",
        "delete_agent": "070581e3e16af1a61b5df024764e5223",
        "recover_runtime": "dc184a43fa8cc57de42e1f8ed88eb156",
    }
    assert {name: PLANS[name].digest for name in released} == released


def test_a_stop_has_no_way_back():
    assert {step.kind for step in PLANS["stop_agent"].steps.values()} == {StepKind.RETRIABLE}


def last_words(said):
    """What an operation says of a runtime that ended with these words."""
    runtime = SimpleNamespace(wait_ready=_answering(Status(Presence.BROKEN, said=said)))
    key = resource_key("plane", tenant="t", agent="a", generation=1, slot="", name="runtime_ready")
    input_ = AgentInput(name="alpha", spec={"runtime": {}})
    call = ports.Call(
        key, input=input_, results={"runtime": {}}, signals={}, providers={"runtime": runtime}
    )

    async def main() -> None:
        await PLANS["create_agent"].steps["runtime_ready"].do(call)

    with pytest.raises(Rejected) as refused:
        asyncio.run(main())
    assert len(str(refused.value)) <= DETAIL_CHARACTERS_MAX
    return str(refused.value).splitlines()


def _answering(status):
    async def answer(_key, *, seconds):
        assert seconds >= 0
        return status

    return answer


def test_the_last_words_of_a_runtime_are_its_last_lines_whole_and_where_the_rest_is():
    frames = [f'  File "/srv/agent.py", line {n}, in frame_{n}' for n in range(20)]
    end = "ModuleNotFoundError: No module named 'flask'"
    head, *lines = last_words("\n".join(["it exited with code 1", *frames, end, ""]))
    assert "it exited with code 1" in head
    assert head.endswith("tenure agent logs alpha")
    assert lines == [*frames, end][-len(lines) :]
    assert len(lines) > 3
    assert last_words("it exited with code 1\n" + "x" * 2_000 + "end")[1].endswith("xend")
    assert last_words("no " * 1_000 + "\nbut this")[1] == "but this"
    assert last_words("it was ended by signal 9")[1:] == []
    assert last_words("")[0].startswith("the runtime broke before it was ready; all it printed")


def busy(lives):
    lives.fakes.runtime.busy = {thing.key.text for thing in lives.world.holds(provider="runtime")}


async def results(lives, operation):
    seen = await reads.get_operation(lives.plane, TENANT, operation.id)
    return {step.name: step.result for step in seen.steps}


# --- draining -------------------------------------------------------------------------------------


@alive
async def test_a_drain_waits_for_a_busy_runtime_and_no_longer(lives):
    await lives.made()
    busy(lives)
    began = lives.loop.time()
    operation = await agents.suspend_agent(lives.plane, CALLER, "alpha", drain_seconds=60.0)
    await asyncio.sleep(5.0)
    lives.fakes.runtime.busy = set()
    operation = await lives.done(operation)
    assert operation.state == OperationState.SUCCEEDED
    assert 5.0 < lives.loop.time() - began < 6.0
    assert (await results(lives, operation))["drained"] == {"forced": False}


@alive
async def test_a_drain_waits_for_what_this_plane_passes_through(lives):
    uid = await lives.made()
    with lives.plane.in_flight.count_one(uid):
        operation = await _suspend(lives, 60.0)
        await asyncio.sleep(5.0)
        assert await lives.state() is AgentState.SUSPENDING
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED


@alive
async def test_what_outlives_a_drain_is_cut_though_the_runtime_is_kept(lives):
    uid = await lives.made()
    with lives.plane.in_flight.count_one(uid) as cut:
        operation = await agents.suspend_agent(
            lives.plane, CALLER, "alpha", drain_seconds=3.0, keep_runtime=True
        )
        await asyncio.sleep(2.0)
        assert not cut.is_set()
        await asyncio.sleep(1.5)
        assert cut.is_set()
        assert await lives.state() is AgentState.SUSPENDING, "it has not ended yet"
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED


@alive
async def test_what_was_cut_and_does_not_end_is_not_waited_for(lives):
    uid = await lives.made()
    with lives.plane.in_flight.count_one(uid):  # through a process that stands still
        began = lives.loop.time()
        operation = await agents.suspend_agent(
            lives.plane, CALLER, "alpha", drain_seconds=3.0, keep_runtime=True
        )
        assert (await lives.done(operation)).state == OperationState.SUCCEEDED
        assert 5.0 < lives.loop.time() - began < 6.0


async def _suspend(lives, drain_seconds):
    return await agents.suspend_agent(lives.plane, CALLER, "alpha", drain_seconds=drain_seconds)


@alive
async def test_a_drain_ends_at_its_deadline_whatever_the_runtime_says(lives):
    await lives.made()
    busy(lives)
    began = lives.loop.time()
    operation = await lives.done(await _suspend(lives, 3.0))
    assert operation.state == OperationState.SUCCEEDED
    assert lives.loop.time() - began < 4.0
    assert (await results(lives, operation))["drained"]["forced"] is True


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.LOST, Fault.CUT])
def test_a_drain_ends_at_its_deadline_also_if_nobody_can_be_asked(fault):
    @alive
    async def play(lives):
        await lives.made()
        for nth in range(1, 100):
            lives.faults.script[FaultPoint("runtime", "status", nth)] = fault
        began = lives.loop.time()
        operation = await lives.done(await _suspend(lives, 3.0))
        assert operation.state == OperationState.SUCCEEDED
        assert lives.loop.time() - began < 10.0

    play()


@alive
async def test_an_agents_own_drain_seconds_are_the_default(lives):
    await lives.made()  # its spec says one second
    busy(lives)
    began = lives.loop.time()
    await lives.verb("suspend")
    assert 1.0 <= lives.loop.time() - began < 2.0


# --- shutting and opening -------------------------------------------------------------------------


@alive
async def test_a_suspend_shuts_both_doors_and_a_resume_opens_them(lives):
    uid = await lives.made()
    doors = (lives.fakes.identity.door, lives.fakes.credentials.door)
    for verb, stands in (("suspend", False), ("resume", True), ("stop", False), ("resume", True)):
        await lives.verb(verb)
        assert [door.is_open(uid) for door in doors] == [stands, stands]


@alive
async def test_a_refused_shutting_is_no_refusal_of_the_suspend(lives):
    """Half of it may have been applied: the agent does not become READY with its doors shut."""
    await lives.made()
    lives.faults.script[FaultPoint("identity", "raise_epoch", 1)] = Fault.REFUSED_FOR_A_WHILE
    assert (await lives.verb("suspend")).state == OperationState.SUCCEEDED
    assert await lives.wrong() == []


@alive
async def test_an_opening_that_arrives_after_its_undo_opens_nothing(lives):
    uid = await lives.made()
    await lives.verb("suspend")
    lives.faults.script[FaultPoint("credentials", "reopen_agent", 1)] = Fault.SLOWEST
    resumed = await agents.resume_agent(lives.plane, CALLER, "alpha")
    await asyncio.sleep(0.5)
    await operations.cancel(lives.plane, by("someone"), resumed.id)
    assert (await lives.done(resumed)).state == OperationState.COMPENSATED
    await asyncio.sleep(60.0)
    await lives.world.quiet()
    assert not lives.fakes.credentials.door.is_open(uid)
    assert not lives.fakes.identity.door.is_open(uid)
    assert await lives.wrong() == []


# --- runtimes -------------------------------------------------------------------------------------


@alive
async def test_a_kept_runtime_is_used_again(lives):
    await lives.made()
    (before,) = lives.world.holds(provider="runtime")
    await lives.verb("suspend", keep_runtime=True)
    assert lives.world.holds(provider="runtime") == [before]
    await lives.verb("resume")
    assert lives.world.holds(provider="runtime") == [before]
    assert await lives.wrong() == []


@alive
async def test_a_kept_runtime_that_broke_meanwhile_is_replaced_and_removed(lives):
    await lives.made()
    (before,) = lives.world.holds(provider="runtime")
    await lives.verb("suspend", keep_runtime=True)
    lives.fakes.runtime.stopped.add(before.key.text)
    await lives.verb("resume")
    (after,) = lives.world.holds(provider="runtime")
    assert after.key.text != before.key.text
    assert await lives.wrong() == []


@alive
async def test_a_kept_runtime_that_is_not_ready_is_waited_for(lives):
    await lives.made()
    (before,) = lives.world.holds(provider="runtime")
    await lives.verb("suspend", keep_runtime=True)
    before.ready_at = lives.loop.time() + 4.0
    began = lives.loop.time()
    assert (await lives.verb("resume")).state == OperationState.SUCCEEDED
    assert 3.5 < lives.loop.time() - began < 5.0
    assert lives.world.holds(provider="runtime") == [before]


@alive
async def test_a_resume_that_fails_leaves_the_agent_suspended_and_can_be_asked_again(lives):
    await lives.made()
    await lives.verb("suspend")
    lives.faults.script[FaultPoint("runtime", "ensure", 2)] = Fault.NEVER_READY
    assert (await lives.verb("resume")).state == OperationState.COMPENSATED
    assert await lives.state() is AgentState.SUSPENDED
    assert await lives.wrong() == []
    assert (await lives.verb("resume")).state == OperationState.SUCCEEDED
    assert await lives.wrong() == []


@alive
async def test_a_stop_revokes_before_it_kills(lives):
    uid = await lives.made()
    lives.faults.script[FaultPoint("credentials", "close_agent", 1)] = Fault.REFUSED_FOR_A_WHILE
    operation = await agents.stop_agent(lives.plane, CALLER, "alpha")
    await asyncio.sleep(1.0)
    assert lives.fakes.runtime.stopped == set()
    await lives.done(operation)
    (killed,) = lives.fakes.runtime.stopped
    assert killed.startswith("runtime")
    assert not lives.fakes.credentials.door.is_open(uid)


@alive
async def test_what_is_foreign_is_neither_killed_nor_removed_and_ends_the_stop_all_the_same(lives):
    uid = await lives.made()
    (mine,) = lives.world.holds(provider="runtime")
    del lives.world.things["runtime", mine.key.text]
    lives.world.plant("runtime", mine.key)
    lives.fakes.runtime._stop = _refuse
    operation = await lives.verb("stop")
    assert operation.state == OperationState.SUCCEEDED
    assert lives.world.things["runtime", mine.key.text].owner == "someone else"
    assert await lives.state(uid) is AgentState.SUSPENDED


def _refuse(key, fault):
    raise Rejected("it is somebody else's")


# --- exposure -------------------------------------------------------------------------------------


@alive
async def test_nothing_is_exposed_before_the_end(lives):
    lives.faults.script[FaultPoint("credentials", "ensure", 1)] = Fault.SLOW
    operation = await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    await asyncio.sleep(0.5)
    assert "runtime" in lives.held()
    with pytest.raises(NotReady, match="once it is READY"):
        await invocations.address_of(lives.plane, CALLER, "alpha")
    await lives.done(operation)
    await invocations.address_of(lives.plane, CALLER, "alpha")


@alive
async def test_the_providers_are_told_what_the_spec_says(lives):
    await lives.made(owner="a team", teams=["blue"])
    told = {thing.provider: thing.spec for thing in lives.world.things.values()}
    assert told["identity"] == {
        "name": "alpha",
        "owner": "a team",
        "scopes": ["tool:use"],
        "audiences": ["https://tool"],
    }
    assert told["access"] == {"roles": ["reader"], "teams": ["blue"], "granted_by": "someone"}
    assert told["runtime"]["digests"] == {"agent": "a digest"}
    assert told["runtime"].keys() & {"kind", "ready_seconds", "drain_seconds"} == set()
    assert told["credentials"] == {
        "credentials": [{"audience": "https://tool", "scopes": ["tool:use"], "ttl_seconds": 300}]
    }
