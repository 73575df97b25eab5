"""Agents as callers ask for them: what is accepted, what is refused, and what closing means."""

import asyncio
from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER, SLOTS, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import creation, invocations, quotas
from tenure.app.agents import views as agent_views
from tenure.app.agents.commands import RequestOptions
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.agent import AgentState
from tenure.core.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionFailed,
)
from tenure.core.operation import OperationState
from tenure.testing.faults import Fault
from tenure.testing.operators import by
from tests.unit.support.agent_planes import STRANGER, VIEWER, alive, fault, keyed, refusal

SUCCEEDED, COMPENSATED = OperationState.SUCCEEDED, OperationState.COMPENSATED


# --- one after the other --------------------------------------------------------------------------


@alive
async def test_a_created_agent_holds_one_of_each_and_is_served(lives):
    uid = await lives.made()
    assert lives.held(uid) == sorted(SLOTS)
    assert await lives.state() is AgentState.READY
    whose, address = await invocations.address_of(lives.plane, CALLER, "alpha")
    assert (whose, address) == (uid, f"{lives.world.holds(provider='runtime')[0].key.text}:1")
    assert await lives.wrong() == []


@alive
async def test_a_life_from_create_to_delete_leaves_nothing_but_its_history(lives):
    uid = await lives.made()
    for verb, state in (
        ("suspend", AgentState.SUSPENDED),
        ("resume", AgentState.READY),
        ("stop", AgentState.SUSPENDED),
        ("resume", AgentState.READY),
        ("delete", AgentState.DELETED),
    ):
        assert (await lives.verb(verb, uid)).state == SUCCEEDED
        assert await lives.state(uid) is state
        assert await lives.wrong() == []
    assert lives.world.things == {}
    assert await agent_views.list_resources(lives.plane, CALLER, uid) == []
    assert len(await lives.rows("operation")) == 6
    assert len(await lives.rows("audit")) == 6


@alive
async def test_a_failed_create_undoes_itself_and_keeps_its_row_to_be_looked_at(lives):
    fault(lives, "credentials", "ensure", Fault.REFUSED)
    operation = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert operation.state == COMPENSATED
    assert "refuses" in operation.error
    assert await lives.state() is AgentState.CREATE_FAILED
    assert lives.world.things == {}
    assert await lives.wrong() == []


@alive
async def test_a_runtime_that_is_never_ready_is_undone_at_its_deadline(lives):
    fault(lives, "runtime", "ensure", Fault.NEVER_READY)
    began = lives.loop.time()
    operation = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert operation.state == COMPENSATED
    assert "not ready after 6 s" in operation.error
    assert lives.loop.time() - began < 8
    assert lives.world.things == {}


@alive
async def test_a_runtime_provider_that_cannot_be_asked_ends_the_wait_too(lives):
    for nth in range(1, 200):
        fault(lives, "runtime", "wait_ready", Fault.BUSY, nth)
    operation = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert operation.state == COMPENSATED
    assert await lives.wrong() == []


# --- names ----------------------------------------------------------------------------------------


@alive
async def test_of_fifty_creates_of_one_name_one_wins(lives):
    asked = [
        agents.create_agent(
            lives.plane, CALLER, spec_of("alpha"), request_options=keyed(f"caller {number}")
        )
        for number in range(50)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    (winner,) = [answer for answer in answers if not isinstance(answer, Conflict)]
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert {answer.code for answer in refused} == {"name_taken"}
    assert (await lives.done(winner)).state == SUCCEEDED
    assert len(await lives.rows("agent")) == len(await lives.rows("reservation")) == 1
    assert await lives.wrong() == []


@alive
async def test_two_planes_on_one_store_do_not_share_a_name_either(lives):
    first = lives.plane
    await lives.start("another")
    asked = [
        agents.create_agent(plane, CALLER, spec_of("alpha"))
        for plane in (first, lives.plane)
        for _ in range(5)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(not isinstance(answer, Conflict) for answer in answers) == 1


@alive
async def test_a_name_is_free_again_once_its_agent_is_deleted(lives):
    first = await lives.made()
    await lives.verb("delete")
    second = await lives.made()
    assert first != second
    assert (await agent_views.get_agent(lives.plane, CALLER, first)).state is AgentState.DELETED
    assert await lives.wrong() == []


@alive
async def test_a_create_replaces_one_that_has_failed_under_a_new_uid(lives):
    fault(lives, "access", "ensure", Fault.REFUSED)
    failed = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    uid = await lives.made()
    assert uid != failed.agent
    old = await lives.plane.store.find("agent", (failed.agent,))
    assert (old["state"], old["spec"]) == (AgentState.DELETED, None)
    told = [
        row["type"]
        for row in await lives.plane.store.list_events(limit=100)
        if row["agent"] == failed.agent and row["type"].startswith("agent.")
    ]
    assert told == ["agent.creating", "agent.create_failed", "agent.deleted"]
    assert await lives.wrong() == []


@alive
async def test_a_create_that_was_abandoned_with_something_left_is_deleted_not_replaced(lives):
    fault(lives, "credentials", "ensure", Fault.REFUSED)
    fault(lives, "access", "remove", Fault.REFUSED)
    operation = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert operation.state == OperationState.STUCK
    await operations.abandon(lives.plane, by("an operator"), operation.id)
    assert lives.held(operation.agent) == ["access"]
    refused = await refusal(
        agents.create_agent(lives.plane, CALLER, spec_of("alpha")), "name_taken"
    )
    assert "left behind" in str(refused)
    lives.fakes.access._refuses.clear()
    assert (await lives.verb("delete")).state == SUCCEEDED
    assert lives.world.things == {}
    await lives.made()


@alive
async def test_the_name_of_a_living_agent_is_taken(lives):
    await lives.made()
    await refusal(agents.create_agent(lives.plane, CALLER, spec_of("alpha")), "name_taken")
    await lives.verb("suspend")
    await refusal(agents.create_agent(lives.plane, CALLER, spec_of("alpha")), "name_taken")


# --- idempotency ----------------------------------------------------------------------------------


@alive
async def test_fifty_requests_with_one_key_are_one_operation(lives):
    asked = [
        agents.create_agent(lives.plane, CALLER, spec_of("alpha"), request_options=keyed("k"))
        for _ in range(50)
    ]
    answers = await asyncio.gather(*asked)
    assert len({answer.id for answer in answers}) == 1
    assert len(await lives.rows("operation")) == 1
    await lives.done(answers[0])
    deletes = await asyncio.gather(
        *(
            agents.delete_agent(lives.plane, CALLER, "alpha", request_options=keyed("k"))
            for _ in range(50)
        )
    )
    assert len({answer.id for answer in deletes}) == 1
    assert deletes[0].id != answers[0].id, "the same key may be used anew for another verb"


@alive
async def test_one_key_for_another_request_is_refused(lives):
    await agents.create_agent(lives.plane, CALLER, spec_of("alpha"), request_options=keyed("k"))
    await refusal(
        agents.create_agent(lives.plane, CALLER, spec_of("beta"), request_options=keyed("k")),
        "idempotency_mismatch",
    )


@alive
async def test_the_keys_of_tenants_and_principals_are_their_own(lives):
    mine = await agents.create_agent(
        lives.plane, CALLER, spec_of("alpha"), request_options=keyed("k")
    )
    other = CALLER._replace(principal="another")
    theirs = await agents.create_agent(
        lives.plane, STRANGER, spec_of("alpha"), request_options=keyed("k")
    )
    beside = await agents.create_agent(
        lives.plane, other, spec_of("beta"), request_options=keyed("k")
    )
    assert len({mine.id, theirs.id, beside.id}) == 3


@alive
async def test_a_key_answers_with_its_operation_after_the_agent_is_deleted(lives):
    created = await agents.create_agent(
        lives.plane, CALLER, spec_of("alpha"), request_options=keyed("c")
    )
    await lives.done(created)
    deleted = await agents.delete_agent(lives.plane, CALLER, "alpha", request_options=keyed("d"))
    await lives.done(deleted)
    again = await agents.create_agent(
        lives.plane, CALLER, spec_of("alpha"), request_options=keyed("c")
    )
    assert (again.id, again.state) == (created.id, SUCCEEDED)
    again = await agents.delete_agent(lives.plane, CALLER, "alpha", request_options=keyed("d"))
    assert again.id == deleted.id
    assert lives.world.things == {}
    assert await lives.rows("agent_name") == []


@alive
async def test_a_key_answers_also_when_what_was_started_is_there_no_more(lives):
    created = await agents.create_agent(
        lives.plane, CALLER, spec_of("alpha"), request_options=keyed("c")
    )
    lives.fakes.runtime.missing = True
    again = await agents.create_agent(
        lives.plane, CALLER, spec_of("alpha"), request_options=keyed("c")
    )
    assert again.id == created.id


@alive
async def test_what_its_runtime_does_not_find_is_accepted_undone_and_foretold(lives):
    assert await creation.missing_files(lives.plane, spec_of("alpha")) == []
    lives.fakes.runtime.missing = True
    assert await creation.missing_files(lives.plane, spec_of("alpha")) == [
        "command: it cannot be found"
    ]
    ended = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert ended.state == COMPENSATED
    assert "command: it cannot be found" in ended.error
    assert lives.world.things == {}


@alive
async def test_a_request_that_meets_its_own_twin_is_told_the_same_operation(lives, monkeypatch):
    """The twin is accepted after this one has looked for its key, before it looks at the name."""
    real, answers = creation.claim_name, list[Any]()

    async def late(*given, **more):
        if not answers:
            answers.append(None)
            asked = agents.create_agent(
                lives.plane, CALLER, spec_of("alpha"), request_options=keyed("k")
            )
            answers[0] = await asked
        return await real(*given, **more)

    monkeypatch.setattr(creation, "claim_name", late)
    mine = await agents.create_agent(
        lives.plane, CALLER, spec_of("alpha"), request_options=keyed("k")
    )
    assert mine.id == answers[0].id


# --- what is refused before anything is written ---------------------------------------------------


@alive
async def test_a_viewer_changes_nothing(lives):
    await lives.made()
    for asked in (
        agents.create_agent(lives.plane, VIEWER, spec_of("beta")),
        agents.suspend_agent(lives.plane, VIEWER, "alpha"),
        agents.resume_agent(lives.plane, VIEWER, "alpha"),
        agents.stop_agent(lives.plane, VIEWER, "alpha"),
        agents.delete_agent(lives.plane, VIEWER, "alpha"),
    ):
        with pytest.raises(Forbidden):
            await asked
    assert len(await lives.rows("operation")) == 1


@alive
async def test_what_the_runtime_cannot_enforce_is_refused_with_its_sentence(lives):
    runtime = {"command": ["agent"], "network": {"egress": ["example.org"]}}
    with pytest.raises(Invalid, match=r"runtime\.network"):
        await agents.create_agent(lives.plane, CALLER, spec_of("alpha", runtime=runtime))
    assert await lives.rows("agent") == []


@alive
async def test_a_verb_on_what_has_changed_since_is_refused(lives):
    await lives.made()
    known = (await agent_views.get_agent(lives.plane, CALLER, "alpha")).etag
    await lives.verb("suspend")
    with pytest.raises(PreconditionFailed):
        await agents.delete_agent(
            lives.plane, CALLER, "alpha", request_options=RequestOptions(if_match=known)
        )
    now = (await agent_views.get_agent(lives.plane, CALLER, "alpha")).etag
    await lives.done(
        await agents.delete_agent(
            lives.plane, CALLER, "alpha", request_options=RequestOptions(if_match=now)
        )
    )


@alive
async def test_a_verb_that_has_no_row_from_here_is_refused(lives):
    uid = await lives.made()
    await refusal(agents.resume_agent(lives.plane, CALLER, "alpha"), "wrong_state")
    await lives.verb("suspend")
    await refusal(agents.suspend_agent(lives.plane, CALLER, "alpha"), "wrong_state")
    await lives.verb("delete")
    for ask in (agents.resume_agent, agents.suspend_agent, agents.delete_agent, agents.stop_agent):
        await refusal(ask(lives.plane, CALLER, uid), "wrong_state")
        with pytest.raises(NotFound):
            await ask(lives.plane, CALLER, "alpha")


@alive
async def test_a_resume_waits_for_nobody_and_is_refused_while_another_works(lives):
    await lives.made()
    operation = await agents.suspend_agent(lives.plane, CALLER, "alpha")
    refused = await refusal(
        agents.resume_agent(lives.plane, CALLER, "alpha"), "operation_in_progress"
    )
    assert refused.holder == operation.id


@alive
async def test_another_tenants_agent_is_as_absent_as_one_that_never_was(lives):
    uid = await lives.made()
    for name in ("alpha", uid):
        for asked in (
            agent_views.get_agent(lives.plane, STRANGER, name),
            agent_views.list_resources(lives.plane, STRANGER, name),
            invocations.address_of(lives.plane, STRANGER, name),
            agent_views.logs(lives.plane, STRANGER, name),
            agent_views.follow_logs(lives.plane, STRANGER, name, since=0),
            agents.suspend_agent(lives.plane, STRANGER, name),
            agents.resume_agent(lives.plane, STRANGER, name),
            agents.stop_agent(lives.plane, STRANGER, name),
            agents.delete_agent(lives.plane, STRANGER, name),
        ):
            with pytest.raises(NotFound) as refused:
                await asked
            assert str(refused.value) == f"there is no agent {name}"
    assert await agent_views.list_agents(lives.plane, STRANGER) == []
    with pytest.raises(NotFound):
        await agents.create_agent(lives.plane, STRANGER, spec_of("beta", parent="alpha"))
    assert await lives.state() is AgentState.READY


@alive
async def test_another_tenants_operation_is_invisible(lives):
    await lives.made()
    (operation,) = [row["id"] for row in await lives.rows("operation")]
    for ask in (reads.get_operation, reads.wait):
        with pytest.raises(NotFound):
            await ask(lives.plane, "elsewhere", operation)
    for verb in (operations.cancel, operations.retry, operations.abandon):
        with pytest.raises(NotFound):
            await verb(lives.plane, by("stranger", "elsewhere"), operation)
    assert await reads.list_operations(lives.plane, "elsewhere") == []


# --- quotas ---------------------------------------------------------------------------------------


@alive
async def test_a_quota_is_not_exceeded_by_fifty_creates_at_once(lives):
    await quotas.set_quota(lives.plane, CALLER, most=7)
    asked = [
        agents.create_agent(lives.plane, CALLER, spec_of(f"agent-{number}")) for number in range(50)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert {answer.code for answer in refused} == {"quota_exceeded"}
    assert len(refused) == 43
    assert (await quotas.get_quota(lives.plane, CALLER)).used == 7


@alive
async def test_a_place_is_given_back_by_compensation_and_by_delete(lives):
    await quotas.set_quota(lives.plane, CALLER, most=1)
    fault(lives, "runtime", "ensure", Fault.REFUSED)
    await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    assert (await quotas.get_quota(lives.plane, CALLER)).used == 0
    await lives.made("beta")
    await refusal(agents.create_agent(lives.plane, CALLER, spec_of("gamma")), "quota_exceeded")
    await lives.verb("suspend", "beta")
    assert (await quotas.get_quota(lives.plane, CALLER)).used == 1
    await lives.verb("delete", "beta")
    assert (await quotas.get_quota(lives.plane, CALLER)).used == 0
    await lives.made("gamma")
