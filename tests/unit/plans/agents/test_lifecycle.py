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
from tests.unit.support.agent_planes import agent_test

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


def last_words(last_line):
    """What an operation says of a runtime that ended with these words."""
    runtime = SimpleNamespace(wait_ready=_answering(Status(Presence.BROKEN, message=last_line)))
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
    assert last_words("")[0].startswith("the runtime broke before it was ready; its output: ")


def busy(harness):
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime")
    }


async def results(harness, operation):
    seen = await reads.get_operation(harness.plane, TENANT, operation.id)
    return {step.name: step.result for step in seen.steps}


# --- draining -------------------------------------------------------------------------------------


@agent_test
async def test_a_drain_waits_for_a_busy_runtime_and_no_longer(harness):
    await harness.create_ready()
    busy(harness)
    began = harness.loop.time()
    operation = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=60.0)
    await asyncio.sleep(5.0)
    harness.fakes.runtime.busy = set()
    operation = await harness.wait_for(operation)
    assert operation.state == OperationState.SUCCEEDED
    assert 5.0 < harness.loop.time() - began < 6.0
    assert (await results(harness, operation))["drained"] == {"forced": False}


@agent_test
async def test_a_drain_waits_for_what_this_plane_passes_through(harness):
    uid = await harness.create_ready()
    with harness.plane.in_flight.count_one(uid):
        operation = await _suspend(harness, 60.0)
        await asyncio.sleep(5.0)
        assert await harness.agent_state() is AgentState.SUSPENDING
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED


@agent_test
async def test_what_outlives_a_drain_is_cut_though_the_runtime_is_kept(harness):
    uid = await harness.create_ready()
    with harness.plane.in_flight.count_one(uid) as cut:
        operation = await agents.suspend_agent(
            harness.plane, CALLER, "alpha", drain_seconds=3.0, keep_runtime=True
        )
        await asyncio.sleep(2.0)
        assert not cut.is_set()
        await asyncio.sleep(1.5)
        assert cut.is_set()
        assert await harness.agent_state() is AgentState.SUSPENDING, "it has not ended yet"
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED


@agent_test
async def test_what_was_cut_and_does_not_end_is_not_waited_for(harness):
    uid = await harness.create_ready()
    with harness.plane.in_flight.count_one(uid):  # through a process that stands still
        began = harness.loop.time()
        operation = await agents.suspend_agent(
            harness.plane, CALLER, "alpha", drain_seconds=3.0, keep_runtime=True
        )
        assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED
        assert 5.0 < harness.loop.time() - began < 6.0


async def _suspend(harness, drain_seconds):
    return await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=drain_seconds)


@agent_test
async def test_a_drain_ends_at_its_deadline_whatever_the_runtime_says(harness):
    await harness.create_ready()
    busy(harness)
    began = harness.loop.time()
    operation = await harness.wait_for(await _suspend(harness, 3.0))
    assert operation.state == OperationState.SUCCEEDED
    assert harness.loop.time() - began < 4.0
    assert (await results(harness, operation))["drained"]["forced"] is True


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.LOST, Fault.CUT])
def test_a_drain_ends_at_its_deadline_also_if_nobody_can_be_asked(fault):
    @agent_test
    async def play(harness):
        await harness.create_ready()
        for nth in range(1, 100):
            harness.faults.script[FaultPoint("runtime", "status", nth)] = fault
        began = harness.loop.time()
        operation = await harness.wait_for(await _suspend(harness, 3.0))
        assert operation.state == OperationState.SUCCEEDED
        assert harness.loop.time() - began < 10.0

    play()


@agent_test
async def test_an_agents_own_drain_seconds_are_the_default(harness):
    await harness.create_ready()  # its spec says one second
    busy(harness)
    began = harness.loop.time()
    await harness.run_verb("suspend")
    assert 1.0 <= harness.loop.time() - began < 2.0


# --- shutting and opening -------------------------------------------------------------------------


@agent_test
async def test_a_suspend_shuts_both_doors_and_a_resume_opens_them(harness):
    uid = await harness.create_ready()
    doors = (harness.fakes.identity.door, harness.fakes.credentials.door)
    for verb, stands in (("suspend", False), ("resume", True), ("stop", False), ("resume", True)):
        await harness.run_verb(verb)
        assert [door.is_open(uid) for door in doors] == [stands, stands]


@agent_test
async def test_a_refused_shutting_is_no_refusal_of_the_suspend(harness):
    """Half of it may have been applied: the agent does not become READY with its doors shut."""
    await harness.create_ready()
    harness.faults.script[FaultPoint("identity", "raise_epoch", 1)] = Fault.REFUSED_FOR_A_WHILE
    assert (await harness.run_verb("suspend")).state == OperationState.SUCCEEDED
    assert await harness.violations() == []


@agent_test
async def test_an_opening_that_arrives_after_its_undo_opens_nothing(harness):
    uid = await harness.create_ready()
    await harness.run_verb("suspend")
    harness.faults.script[FaultPoint("credentials", "reopen_agent", 1)] = Fault.SLOWEST
    resumed = await agents.resume_agent(harness.plane, CALLER, "alpha")
    await asyncio.sleep(0.5)
    await operations.cancel(harness.plane, by("someone"), resumed.id)
    assert (await harness.wait_for(resumed)).state == OperationState.COMPENSATED
    await asyncio.sleep(60.0)
    await harness.world.quiet()
    assert not harness.fakes.credentials.door.is_open(uid)
    assert not harness.fakes.identity.door.is_open(uid)
    assert await harness.violations() == []


# --- runtimes -------------------------------------------------------------------------------------


@agent_test
async def test_a_kept_runtime_is_used_again(harness):
    await harness.create_ready()
    (before,) = harness.world.holds(provider="runtime")
    await harness.run_verb("suspend", keep_runtime=True)
    assert harness.world.holds(provider="runtime") == [before]
    await harness.run_verb("resume")
    assert harness.world.holds(provider="runtime") == [before]
    assert await harness.violations() == []


@agent_test
async def test_a_kept_runtime_that_broke_meanwhile_is_replaced_and_removed(harness):
    await harness.create_ready()
    (before,) = harness.world.holds(provider="runtime")
    await harness.run_verb("suspend", keep_runtime=True)
    harness.fakes.runtime.stopped.add(before.key.text)
    await harness.run_verb("resume")
    (after,) = harness.world.holds(provider="runtime")
    assert after.key.text != before.key.text
    assert await harness.violations() == []


@agent_test
async def test_a_kept_runtime_that_is_not_ready_is_waited_for(harness):
    await harness.create_ready()
    (before,) = harness.world.holds(provider="runtime")
    await harness.run_verb("suspend", keep_runtime=True)
    before.ready_at = harness.loop.time() + 4.0
    began = harness.loop.time()
    assert (await harness.run_verb("resume")).state == OperationState.SUCCEEDED
    assert 3.5 < harness.loop.time() - began < 5.0
    assert harness.world.holds(provider="runtime") == [before]


@agent_test
async def test_a_resume_that_fails_leaves_the_agent_suspended_and_can_be_asked_again(harness):
    await harness.create_ready()
    await harness.run_verb("suspend")
    harness.faults.script[FaultPoint("runtime", "ensure", 2)] = Fault.NEVER_READY
    assert (await harness.run_verb("resume")).state == OperationState.COMPENSATED
    assert await harness.agent_state() is AgentState.SUSPENDED
    assert await harness.violations() == []
    assert (await harness.run_verb("resume")).state == OperationState.SUCCEEDED
    assert await harness.violations() == []


@agent_test
async def test_a_stop_revokes_before_it_kills(harness):
    uid = await harness.create_ready()
    harness.faults.script[FaultPoint("credentials", "close_agent", 1)] = Fault.REFUSED_FOR_A_WHILE
    operation = await agents.stop_agent(harness.plane, CALLER, "alpha")
    await asyncio.sleep(1.0)
    assert harness.fakes.runtime.stopped == set()
    await harness.wait_for(operation)
    (killed,) = harness.fakes.runtime.stopped
    assert killed.startswith("runtime")
    assert not harness.fakes.credentials.door.is_open(uid)


@agent_test
async def test_what_is_foreign_is_neither_killed_nor_removed_and_ends_the_stop_all_the_same(
    harness,
):
    uid = await harness.create_ready()
    (mine,) = harness.world.holds(provider="runtime")
    del harness.world.things["runtime", mine.key.text]
    harness.world.plant("runtime", mine.key)
    harness.fakes.runtime._stop = _refuse
    operation = await harness.run_verb("stop")
    assert operation.state == OperationState.SUCCEEDED
    assert harness.world.things["runtime", mine.key.text].owner == "someone else"
    assert await harness.agent_state(uid) is AgentState.SUSPENDED


def _refuse(key, fault):
    raise Rejected("it is somebody else's")


# --- exposure -------------------------------------------------------------------------------------


@agent_test
async def test_nothing_is_exposed_before_the_end(harness):
    harness.faults.script[FaultPoint("credentials", "ensure", 1)] = Fault.SLOW
    operation = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    await asyncio.sleep(0.5)
    assert "runtime" in harness.holders()
    with pytest.raises(NotReady, match="once it is READY"):
        await invocations.address_of(harness.plane, CALLER, "alpha")
    await harness.wait_for(operation)
    await invocations.address_of(harness.plane, CALLER, "alpha")


@agent_test
async def test_the_providers_are_told_what_the_spec_says(harness):
    await harness.create_ready(owner="a team", teams=["blue"])
    told = {thing.provider: thing.spec for thing in harness.world.things.values()}
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
