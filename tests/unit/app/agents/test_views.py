"""Agents as callers see them."""

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.agents import views as agent_views
from tenure.app.operations import commands as operations
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict, NotFound, NotReady
from tenure.core.operation import OperationState
from tenure.core.verb import VerbName
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tests.unit.support.agent_planes import STRANGER, VIEWER, agent_test, fault


@agent_test
async def test_an_agent_is_found_by_its_name_and_by_its_uid(harness):
    uid = await harness.create_ready(labels={"team": "blue"})
    by_name = await agent_views.get_agent(harness.plane, VIEWER, "alpha")
    assert by_name == await agent_views.get_agent(harness.plane, VIEWER, uid)
    assert (by_name.uid, by_name.state, by_name.operation) == (uid, AgentState.READY, "")
    assert by_name.spec["labels"] == {"team": "blue"}
    for name in ("beta", "0" * 32, "", "alpha\n"):
        with pytest.raises(NotFound):
            await agent_views.get_agent(harness.plane, VIEWER, name)


@agent_test
async def test_a_deleted_agent_is_found_by_its_uid_alone_and_without_its_spec(harness):
    uid = await harness.create_ready()
    kept = await harness.create_ready("beta", retention="retain")
    await harness.run_verb("delete")
    await harness.run_verb("delete", "beta")
    with pytest.raises(NotFound):
        await agent_views.get_agent(harness.plane, CALLER, "alpha")
    assert (await agent_views.get_agent(harness.plane, CALLER, uid)).spec == {}
    assert (await agent_views.get_agent(harness.plane, CALLER, kept)).spec["name"] == "beta"
    assert await agent_views.list_agents(harness.plane, CALLER) == []


@agent_test
async def test_a_delete_may_say_otherwise_what_is_retained(harness):
    uid = await harness.create_ready()
    await harness.run_verb("delete", retention="retain")
    assert (await agent_views.get_agent(harness.plane, CALLER, uid)).spec["name"] == "alpha"


@agent_test
async def test_agents_are_listed_by_name_in_pages(harness):
    for number in range(7):
        await agents.create_agent(harness.plane, CALLER, spec_of(f"agent-{number}"))
    await agents.create_agent(harness.plane, STRANGER, spec_of("agent-0"))
    names, last = [], ""
    while page := await agent_views.list_agents(harness.plane, CALLER, after=last, limit=3):
        assert len(page) <= 3
        names += [view.name for view in page]
        last = names[-1]
    assert names == [f"agent-{number}" for number in range(7)]


@agent_test
async def test_agents_are_chosen_by_state_and_labels_across_pages(harness):
    for number in range(6):
        colour = "blue" if number % 3 == 2 else "red"
        await harness.create_ready(f"agent-{number}", labels={"colour": colour})
    await harness.run_verb("suspend", "agent-5")
    blue = await agent_views.list_agents(harness.plane, CALLER, labels={"colour": "blue"}, limit=2)
    assert [view.name for view in blue] == ["agent-2", "agent-5"]
    ready = await agent_views.list_agents(
        harness.plane, CALLER, labels={"colour": "blue"}, states=["READY"], limit=2
    )
    assert [view.name for view in ready] == ["agent-2"]


@agent_test
async def test_an_etag_changes_with_every_operation_and_with_its_end(harness):
    seen = set()
    await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    for verb in ("", "suspend", "resume", "delete"):
        if verb:
            await getattr(agents, f"{verb}_agent")(harness.plane, CALLER, "alpha")
        view = await agent_views.get_agent(harness.plane, CALLER, "alpha")
        seen.add(view.etag)
        await harness.clock.sleep(30)
        if verb != "delete":
            seen.add((await agent_views.get_agent(harness.plane, CALLER, "alpha")).etag)
    assert len(seen) == 7


@agent_test
async def test_what_does_not_serve_says_why(harness):
    harness.faults.script[FaultPoint("access", "ensure", 2)] = Fault.REFUSED
    await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    with pytest.raises(NotReady) as early:
        await invocations.address_of(harness.plane, CALLER, "alpha")
    assert early.value.retry_seconds > 0
    await harness.clock.sleep(5)
    await harness.run_verb("suspend")
    with pytest.raises(Conflict) as refused:
        await invocations.address_of(harness.plane, CALLER, "alpha")
    assert refused.value.code == "suspended"
    await harness.wait_for(await agents.create_agent(harness.plane, CALLER, spec_of("beta")))
    with pytest.raises(Conflict) as refused:
        await invocations.address_of(harness.plane, CALLER, "beta")
    assert refused.value.code == "wrong_state"


@agent_test
async def test_an_agent_with_a_kept_runtime_shows_one_runtime_and_its_logs(harness):
    uid = await harness.create_ready()
    (runtime,) = harness.world.holds(provider="runtime")
    await harness.run_verb("suspend", keep_runtime=True)
    await harness.run_verb("resume")
    shown = await agent_views.list_resources(harness.plane, CALLER, "alpha")
    assert [one.key for one in shown if one.slot == "runtime"] == [runtime.key.text]
    said = f"{runtime.key.text} speaks\n"
    assert await agent_views.logs(harness.plane, CALLER, "alpha") == said
    assert await agent_views.follow_logs(harness.plane, CALLER, "alpha", since=0) == (
        said,
        len(said),
    )
    assert await invocations.address_of(harness.plane, CALLER, "alpha") == (
        uid,
        f"{runtime.key.text}:1",
    )
    await harness.run_verb("delete")
    assert await harness.violations() == []


@agent_test
async def test_a_cancelled_delete_of_a_suspended_agent_leaves_its_kept_runtime_listed_once(harness):
    await harness.create_ready()
    (runtime,) = harness.world.holds(provider="runtime")
    await harness.run_verb("suspend", keep_runtime=True)
    await harness.run_verb("resume")
    await harness.run_verb("suspend", keep_runtime=True)
    fault(harness, "runtime", "status", Fault.LOST)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    await operations.cancel(harness.plane, by("someone"), deleted.id)
    assert (await harness.wait_for(deleted)).state == OperationState.COMPENSATED
    assert await harness.agent_state() is AgentState.SUSPENDED
    shown = await agent_views.list_resources(harness.plane, CALLER, "alpha")
    assert [one.key for one in shown if one.slot == "runtime"] == [runtime.key.text]
    assert await harness.violations() == []


@agent_test
async def test_an_agent_without_a_runtime_has_no_logs(harness):
    await harness.create_ready()
    await harness.run_verb("suspend")
    assert await agent_views.logs(harness.plane, CALLER, "alpha") == ""
    assert await agent_views.follow_logs(harness.plane, CALLER, "alpha", since=3) == ("", 3)


@agent_test
async def test_a_plan_is_shown_with_its_keys_before_it_is_followed(harness):
    _, steps = agent_views.preview_plan(harness.plane, VerbName.CREATE, None)
    assert [step.name for step in steps] == [
        "identity",
        "access",
        "runtime",
        "runtime_ready",
        "credentials",
        "exposed",
    ]
    assert not any(step.key for step in steps)
    assert steps[-1].compensation == ""
    assert steps[3].compensation == "nothing"
    await harness.create_ready()
    await harness.run_verb("suspend")
    row = await agent_views.get_agent_row(harness.plane, CALLER, "alpha")
    _, steps = agent_views.preview_plan(harness.plane, VerbName.RESUME, row)
    (key,) = [step.key for step in steps if step.key]
    await harness.run_verb("resume")
    assert key in {thing.key.text for thing in harness.world.holds(provider="runtime")}
