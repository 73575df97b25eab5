"""Agents as callers ask for them: what is accepted, what is refused, and what closing means."""

import asyncio
from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER, SLOTS, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import creation, invocations
from tenure.app.agents import views as agent_views
from tenure.app.agents.commands import RequestOptions
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.operations.executor import Executor
from tenure.app.tenancy import quotas
from tenure.core.agent import AgentState
from tenure.core.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionFailed,
)
from tenure.core.operation import OperationState
from tenure.core.records import (
    AgentNameRecord,
    AgentRecord,
    AuditRecord,
    OperationRecord,
    ReservationRecord,
)
from tenure.testing.faults import Fault
from tenure.testing.operators import by
from tests.unit.support.agent_planes import (
    STRANGER,
    VIEWER,
    agent_test,
    fault,
    options_with_key,
    refusal,
)

SUCCEEDED, COMPENSATED = OperationState.SUCCEEDED, OperationState.COMPENSATED


# --- one after the other --------------------------------------------------------------------------


@agent_test
async def test_a_created_agent_holds_one_of_each_and_is_served(harness):
    uid = await harness.create_ready()
    assert harness.holders(uid) == sorted(SLOTS)
    assert await harness.agent_state() is AgentState.READY
    whose, address = await invocations.address_of(harness.plane, CALLER, "alpha")
    assert (whose, address) == (uid, f"{harness.world.holds(provider='runtime')[0].key.text}:1")
    assert await harness.violations() == []


@agent_test
async def test_a_life_from_create_to_delete_leaves_nothing_but_its_history(harness):
    uid = await harness.create_ready()
    for verb, state in (
        ("suspend", AgentState.SUSPENDED),
        ("resume", AgentState.READY),
        ("stop", AgentState.SUSPENDED),
        ("resume", AgentState.READY),
        ("delete", AgentState.DELETED),
    ):
        assert (await harness.run_verb(verb, uid)).state == SUCCEEDED
        assert await harness.agent_state(uid) is state
        assert await harness.violations() == []
    assert harness.world.things == {}
    assert await agent_views.list_resources(harness.plane, CALLER, uid) == []
    assert len(await harness.rows(OperationRecord)) == 6
    assert len(await harness.rows(AuditRecord)) == 6


@agent_test
async def test_an_engine_learns_an_agents_name_from_the_operation_alone(harness):
    uid = await harness.create_ready()
    await harness.run_verb("suspend", uid)
    plane = harness.plane
    executor = Executor(
        plane.id, store=plane.store, entropy=plane.entropy, catalogue=plane.catalogue, providers={}
    )
    rows = await plane.store.list_rows(OperationRecord, {})
    assert [executor.name_of(row) for row in rows] == ["alpha", "alpha"]
    assert executor.name_of(rows[0]._replace(plan_name="of another release")) == ""


@agent_test
async def test_a_failed_create_undoes_itself_and_keeps_its_row_to_be_looked_at(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    operation = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert operation.state == COMPENSATED
    assert "refuses" in operation.error
    assert await harness.agent_state() is AgentState.CREATE_FAILED
    assert harness.world.things == {}
    assert await harness.violations() == []


@agent_test
async def test_a_runtime_that_is_never_ready_is_undone_at_its_deadline(harness):
    fault(harness, "runtime", "ensure", Fault.NEVER_READY)
    began = harness.loop.time()
    operation = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert operation.state == COMPENSATED
    assert "not ready after 6 s" in operation.error
    assert harness.loop.time() - began < 8
    assert harness.world.things == {}


@agent_test
async def test_a_runtime_provider_that_cannot_be_asked_ends_the_wait_too(harness):
    for nth in range(1, 200):
        fault(harness, "runtime", "wait_ready", Fault.BUSY, nth)
    operation = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert operation.state == COMPENSATED
    assert await harness.violations() == []


# --- names ----------------------------------------------------------------------------------------


@agent_test
async def test_of_fifty_creates_of_one_name_one_wins(harness):
    asked = [
        agents.create_agent(
            harness.plane,
            CALLER,
            spec_of("alpha"),
            request_options=options_with_key(f"caller {number}"),
        )
        for number in range(50)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    (winner,) = [answer for answer in answers if not isinstance(answer, Conflict)]
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert {answer.code for answer in refused} == {"name_taken"}
    assert (await harness.wait_for(winner)).state == SUCCEEDED
    assert len(await harness.rows(AgentRecord)) == len(await harness.rows(ReservationRecord)) == 1
    assert await harness.violations() == []


@agent_test
async def test_two_planes_on_one_store_do_not_share_a_name_either(harness):
    first = harness.plane
    await harness.start("another")
    asked = [
        agents.create_agent(plane, CALLER, spec_of("alpha"))
        for plane in (first, harness.plane)
        for _ in range(5)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(not isinstance(answer, Conflict) for answer in answers) == 1


@agent_test
async def test_a_name_is_free_again_once_its_agent_is_deleted(harness):
    first = await harness.create_ready()
    await harness.run_verb("delete")
    second = await harness.create_ready()
    assert first != second
    assert (await agent_views.get_agent(harness.plane, CALLER, first)).state is AgentState.DELETED
    assert await harness.violations() == []


@agent_test
async def test_a_create_replaces_one_that_has_failed_under_a_new_uid(harness):
    fault(harness, "access", "ensure", Fault.REFUSED)
    failed = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    uid = await harness.create_ready()
    assert uid != failed.agent
    old = await harness.plane.store.find(AgentRecord, (failed.agent,))
    assert (old.state, old.spec) == (AgentState.DELETED, None)
    told = [
        row.type
        for row in await harness.plane.store.list_events(limit=100)
        if row.agent == failed.agent and row.type.startswith("agent.")
    ]
    assert told == ["agent.creating", "agent.create_failed", "agent.deleted"]
    assert await harness.violations() == []


@agent_test
async def test_a_create_that_was_abandoned_with_something_left_is_deleted_not_replaced(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    fault(harness, "access", "remove", Fault.REFUSED)
    operation = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert operation.state == OperationState.STUCK
    await operations.abandon(harness.plane, by("an operator"), operation.id)
    assert harness.holders(operation.agent) == ["access"]
    refused = await refusal(
        agents.create_agent(harness.plane, CALLER, spec_of("alpha")), "name_taken"
    )
    assert "left behind" in str(refused)
    harness.fakes.access._refuses.clear()
    assert (await harness.run_verb("delete")).state == SUCCEEDED
    assert harness.world.things == {}
    await harness.create_ready()


@agent_test
async def test_the_name_of_a_living_agent_is_taken(harness):
    await harness.create_ready()
    await refusal(agents.create_agent(harness.plane, CALLER, spec_of("alpha")), "name_taken")
    await harness.run_verb("suspend")
    await refusal(agents.create_agent(harness.plane, CALLER, spec_of("alpha")), "name_taken")


# --- idempotency ----------------------------------------------------------------------------------


@agent_test
async def test_fifty_requests_with_one_key_are_one_operation(harness):
    asked = [
        agents.create_agent(
            harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("k")
        )
        for _ in range(50)
    ]
    answers = await asyncio.gather(*asked)
    assert len({answer.id for answer in answers}) == 1
    assert len(await harness.rows(OperationRecord)) == 1
    await harness.wait_for(answers[0])
    deletes = await asyncio.gather(
        *(
            agents.delete_agent(
                harness.plane, CALLER, "alpha", request_options=options_with_key("k")
            )
            for _ in range(50)
        )
    )
    assert len({answer.id for answer in deletes}) == 1
    assert deletes[0].id != answers[0].id, "the same key may be used anew for another verb"


@agent_test
async def test_one_key_for_another_request_is_refused(harness):
    await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("k")
    )
    await refusal(
        agents.create_agent(
            harness.plane, CALLER, spec_of("beta"), request_options=options_with_key("k")
        ),
        "idempotency_mismatch",
    )


@agent_test
async def test_the_keys_of_tenants_and_principals_are_their_own(harness):
    mine = await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("k")
    )
    other = CALLER._replace(principal="another")
    theirs = await agents.create_agent(
        harness.plane, STRANGER, spec_of("alpha"), request_options=options_with_key("k")
    )
    beside = await agents.create_agent(
        harness.plane, other, spec_of("beta"), request_options=options_with_key("k")
    )
    assert len({mine.id, theirs.id, beside.id}) == 3


@agent_test
async def test_a_key_answers_with_its_operation_after_the_agent_is_deleted(harness):
    created = await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("c")
    )
    await harness.wait_for(created)
    deleted = await agents.delete_agent(
        harness.plane, CALLER, "alpha", request_options=options_with_key("d")
    )
    await harness.wait_for(deleted)
    again = await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("c")
    )
    assert (again.id, again.state) == (created.id, SUCCEEDED)
    again = await agents.delete_agent(
        harness.plane, CALLER, "alpha", request_options=options_with_key("d")
    )
    assert again.id == deleted.id
    assert harness.world.things == {}
    assert await harness.rows(AgentNameRecord) == []


@agent_test
async def test_a_key_answers_also_when_what_was_started_is_there_no_more(harness):
    created = await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("c")
    )
    harness.fakes.runtime.missing = True
    again = await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("c")
    )
    assert again.id == created.id


@agent_test
async def test_what_its_runtime_does_not_find_is_accepted_undone_and_foretold(harness):
    assert await creation.missing_files(harness.plane, spec_of("alpha")) == []
    harness.fakes.runtime.missing = True
    assert await creation.missing_files(harness.plane, spec_of("alpha")) == [
        "command: it cannot be found"
    ]
    ended = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert ended.state == COMPENSATED
    assert "command: it cannot be found" in ended.error
    assert harness.world.things == {}


@agent_test
async def test_a_request_that_meets_its_own_twin_is_told_the_same_operation(harness, monkeypatch):
    """The twin is accepted after this one has looked for its key, before it looks at the name."""
    real, answers = creation.claim_name, list[Any]()

    async def late(*args, **more):
        if not answers:
            answers.append(None)
            asked = agents.create_agent(
                harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("k")
            )
            answers[0] = await asked
        return await real(*args, **more)

    monkeypatch.setattr(creation, "claim_name", late)
    mine = await agents.create_agent(
        harness.plane, CALLER, spec_of("alpha"), request_options=options_with_key("k")
    )
    assert mine.id == answers[0].id


# --- what is refused before anything is written ---------------------------------------------------


@agent_test
async def test_a_viewer_changes_nothing(harness):
    await harness.create_ready()
    for asked in (
        agents.create_agent(harness.plane, VIEWER, spec_of("beta")),
        agents.suspend_agent(harness.plane, VIEWER, "alpha"),
        agents.resume_agent(harness.plane, VIEWER, "alpha"),
        agents.stop_agent(harness.plane, VIEWER, "alpha"),
        agents.delete_agent(harness.plane, VIEWER, "alpha"),
    ):
        with pytest.raises(Forbidden):
            await asked
    assert len(await harness.rows(OperationRecord)) == 1


@agent_test
async def test_what_the_runtime_cannot_enforce_is_refused_with_its_sentence(harness):
    runtime = {"command": ["agent"], "network": {"egress": ["example.org"]}}
    with pytest.raises(Invalid, match=r"runtime\.network"):
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha", runtime=runtime))
    assert await harness.rows(AgentRecord) == []


@agent_test
async def test_a_verb_on_what_has_changed_since_is_refused(harness):
    await harness.create_ready()
    known = (await agent_views.get_agent(harness.plane, CALLER, "alpha")).etag
    await harness.run_verb("suspend")
    with pytest.raises(PreconditionFailed):
        await agents.delete_agent(
            harness.plane, CALLER, "alpha", request_options=RequestOptions(if_match=known)
        )
    now = (await agent_views.get_agent(harness.plane, CALLER, "alpha")).etag
    await harness.wait_for(
        await agents.delete_agent(
            harness.plane, CALLER, "alpha", request_options=RequestOptions(if_match=now)
        )
    )


@agent_test
async def test_a_verb_that_has_no_row_from_here_is_refused(harness):
    uid = await harness.create_ready()
    await refusal(agents.resume_agent(harness.plane, CALLER, "alpha"), "wrong_state")
    await harness.run_verb("suspend")
    await refusal(agents.suspend_agent(harness.plane, CALLER, "alpha"), "wrong_state")
    await harness.run_verb("delete")
    for ask in (agents.resume_agent, agents.suspend_agent, agents.delete_agent, agents.stop_agent):
        await refusal(ask(harness.plane, CALLER, uid), "wrong_state")
        with pytest.raises(NotFound):
            await ask(harness.plane, CALLER, "alpha")


@agent_test
async def test_a_resume_waits_for_nobody_and_is_refused_while_another_works(harness):
    await harness.create_ready()
    operation = await agents.suspend_agent(harness.plane, CALLER, "alpha")
    refused = await refusal(
        agents.resume_agent(harness.plane, CALLER, "alpha"), "operation_in_progress"
    )
    assert refused.holder == operation.id


@agent_test
async def test_another_tenants_agent_is_as_absent_as_one_that_never_was(harness):
    uid = await harness.create_ready()
    for name in ("alpha", uid):
        for asked in (
            agent_views.get_agent(harness.plane, STRANGER, name),
            agent_views.list_resources(harness.plane, STRANGER, name),
            invocations.address_of(harness.plane, STRANGER, name),
            agent_views.logs(harness.plane, STRANGER, name),
            agent_views.follow_logs(harness.plane, STRANGER, name, since=0),
            agents.suspend_agent(harness.plane, STRANGER, name),
            agents.resume_agent(harness.plane, STRANGER, name),
            agents.stop_agent(harness.plane, STRANGER, name),
            agents.delete_agent(harness.plane, STRANGER, name),
        ):
            with pytest.raises(NotFound) as refused:
                await asked
            assert str(refused.value) == f"there is no agent {name}"
    assert await agent_views.list_agents(harness.plane, STRANGER) == []
    with pytest.raises(NotFound):
        await agents.create_agent(harness.plane, STRANGER, spec_of("beta", parent="alpha"))
    assert await harness.agent_state() is AgentState.READY


@agent_test
async def test_another_tenants_operation_is_invisible(harness):
    await harness.create_ready()
    (operation,) = [row.id for row in await harness.rows(OperationRecord)]
    for ask in (reads.get_operation, reads.wait):
        with pytest.raises(NotFound):
            await ask(harness.plane, "elsewhere", operation)
    for verb in (operations.cancel, operations.retry, operations.abandon):
        with pytest.raises(NotFound):
            await verb(harness.plane, by("stranger", "elsewhere"), operation)
    assert await reads.list_operations(harness.plane, "elsewhere") == []


# --- quotas ---------------------------------------------------------------------------------------


@agent_test
async def test_a_quota_is_not_exceeded_by_fifty_creates_at_once(harness):
    await quotas.set_quota(harness.plane, CALLER, most=7)
    asked = [
        agents.create_agent(harness.plane, CALLER, spec_of(f"agent-{number}"))
        for number in range(50)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert {answer.code for answer in refused} == {"quota_exceeded"}
    assert len(refused) == 43
    assert (await quotas.get_quota(harness.plane, CALLER)).used == 7


@agent_test
async def test_a_place_is_given_back_by_compensation_and_by_delete(harness):
    await quotas.set_quota(harness.plane, CALLER, most=1)
    fault(harness, "runtime", "ensure", Fault.REFUSED)
    await harness.wait_for(await agents.create_agent(harness.plane, CALLER, spec_of("alpha")))
    assert (await quotas.get_quota(harness.plane, CALLER)).used == 0
    await harness.create_ready("beta")
    await refusal(agents.create_agent(harness.plane, CALLER, spec_of("gamma")), "quota_exceeded")
    await harness.run_verb("suspend", "beta")
    assert (await quotas.get_quota(harness.plane, CALLER)).used == 1
    await harness.run_verb("delete", "beta")
    assert (await quotas.get_quota(harness.plane, CALLER)).used == 0
    await harness.create_ready("gamma")
