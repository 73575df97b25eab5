"""The cascade beyond agents: what an agent subscribed to goes with it, or to its heir."""

import asyncio
from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER, TENANT, spec_of
from tenure.app.agents import cascade, edge_rows, owned_kinds, ownership
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.events import subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.leader import Leader
from tenure.core.agent import AgentState
from tenure.core.edge import EdgeKind
from tenure.core.errors import Invalid
from tenure.core.records import AgentRecord, EdgeRecord, SubscriptionRecord, key_of
from tenure.core.subscription import SubscriptionKind
from tenure.ports.store import Change, Put
from tenure.reconcilers import grants
from tenure.reconcilers.passes import LEADERS, Pass
from tenure.testing.faults import Fault
from tests.unit.support.agent_planes import agent_test, fault, refusal


async def subscribe(harness, caller=CALLER, name="mine", **more):
    """A pull subscription; its id."""
    asked = SubscriptionRequest(name, SubscriptionKind.PULL, **more)
    return (await subscriptions.create_subscription(harness.plane, caller, asked))[0].id


async def subscriptions_left(harness):
    return sorted(row.name for row in await harness.rows(SubscriptionRecord))


@agent_test
async def test_what_an_agent_subscribed_to_goes_with_it_or_to_its_heir(harness):
    maker, heir = await harness.create_ready("maker"), await harness.create_ready("heir")
    asking = CALLER._replace(principal=maker)
    await subscribe(harness, asking, "gone")
    kept = await subscribe(harness, asking, "kept")
    await subscribe(harness, name="another")
    await owned_kinds.own(
        harness.plane, CALLER, maker, kind=EdgeKind.WEBHOOK, target=kept, on_delete="reassign:heir"
    )
    row = await agent_views.get_agent_row(harness.plane, CALLER, "maker")
    shown = await cascade.tree(harness.plane, row, limit=100)
    fates = sorted(one.effect for one in shown if one.kind == "webhook")
    assert fates == [f"reassign:{heir}", "revoke"]
    await harness.run_verb("delete", "maker")
    assert await subscriptions_left(harness) == ["another", "kept"]
    owners = [(r.owner, r.target) for r in await harness.rows(EdgeRecord) if r.kind == "webhook"]
    assert owners == [(heir, kept)]
    await harness.run_verb("delete", "heir")
    assert await subscriptions_left(harness) == ["another"]
    assert await harness.rows(EdgeRecord) == []


@agent_test
async def test_a_subscription_that_another_agent_owns_too_stays_with_that_one(harness):
    maker, other = await harness.create_ready("maker"), await harness.create_ready("other")
    await harness.create_ready("subject")
    asking = CALLER._replace(principal=maker)
    shared = await subscribe(harness, asking, "shared")
    await subscribe(harness, asking, "about", agent="subject")
    await owned_kinds.own(
        harness.plane, CALLER, other, kind=EdgeKind.WEBHOOK, target=shared, on_delete="revoke"
    )
    row = await agent_views.get_agent_row(harness.plane, CALLER, "maker")
    shown = await cascade.tree(harness.plane, row, limit=100)
    assert sorted(one.effect for one in shown if one.kind == "webhook") == ["keep", "revoke"]
    await harness.run_verb("delete", "maker")
    assert await subscriptions_left(harness) == ["shared"], "nobody hears for who is gone"
    await harness.run_verb("delete", "other")
    assert await subscriptions_left(harness) == []


@agent_test
async def test_what_an_heir_has_already_it_has_once(harness):
    maker, heir = await harness.create_ready("maker"), await harness.create_ready("heir")
    kept = await subscribe(harness, CALLER._replace(principal=maker), "kept")
    for owner, on_delete in ((heir, "revoke"), (maker, "reassign:heir")):
        await owned_kinds.own(
            harness.plane, CALLER, owner, kind=EdgeKind.WEBHOOK, target=kept, on_delete=on_delete
        )
    await harness.run_verb("delete", "maker")
    assert await subscriptions_left(harness) == ["kept"]
    await subscriptions.delete_subscription(harness.plane, CALLER, kept)
    assert [row.kind for row in await harness.rows(EdgeRecord)] == [EdgeKind.CREDENTIAL]


@agent_test
async def test_nobody_subscribes_below_or_to_an_agent_that_is_going(harness):
    uid = await harness.create_ready()
    asking = CALLER._replace(principal=uid)
    harness.fakes.runtime.busy |= {thing.key.text for thing in harness.world.holds()}
    await agents.delete_agent(harness.plane, CALLER, "alpha", drain_seconds=60.0)
    await refusal(subscribe(harness, asking), "wrong_state")
    await refusal(subscribe(harness, agent="alpha"), "wrong_state")
    assert await harness.rows(SubscriptionRecord) == []
    assert {row.kind for row in await harness.rows(EdgeRecord)} == {EdgeKind.CREDENTIAL}


@agent_test
async def test_who_changes_while_somebody_subscribes_is_looked_at_again(harness, monkeypatch):
    await harness.create_ready()
    commit = harness.plane.store.commit
    suspended: list[Any] = []

    async def just_before(change):
        if not suspended and any(write.table == "subscription" for write in change.writes):
            suspended.append("meanwhile")
            await harness.run_verb("suspend")
        return await commit(change)

    monkeypatch.setattr(harness.plane.store, "commit", just_before)
    await subscribe(harness, agent="alpha")
    assert await harness.agent_state() is AgentState.SUSPENDED
    (edge,) = [row for row in await harness.rows(EdgeRecord) if row.kind == EdgeKind.WEBHOOK]
    assert edge.target == (await harness.rows(SubscriptionRecord))[0].id


@agent_test
async def test_a_create_that_fails_leaves_no_edge_to_what_was_never_registered(harness):
    fault(harness, "runtime", "ensure", Fault.REFUSED)
    asked = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    assert [row.kind for row in await harness.rows(EdgeRecord)] == [EdgeKind.CREDENTIAL]
    assert (await harness.wait_for(asked)).state == "COMPENSATED"
    assert await harness.rows(EdgeRecord) == []


@agent_test
async def test_what_is_about_a_deleted_agent_goes_though_its_event_was_lost(harness):
    """The reaction to its end never came: the edge is still there, and the reconciler looks."""
    uid = await harness.create_ready()
    asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", agent="alpha")
    await subscriptions.create_subscription(harness.plane, CALLER, asked)
    await harness.run_verb("delete")
    assert (await grants.tick(harness.plane)).fixed == 0, "it is to be told first"
    assert await subscriptions_left(harness) == ["mine"]
    row = await harness.plane.store.find(AgentRecord, (uid,))
    assert row is not None
    await harness.loop_until(float(str(row.updated_at)) + subscriptions.LAST_EVENT_SECONDS + 1)
    assert (await grants.tick(harness.plane)).fixed == 1
    assert await subscriptions_left(harness) == []
    assert await harness.rows(EdgeRecord) == []


@agent_test
async def test_a_deposed_leader_removes_no_subscription(harness):
    maker = await harness.create_ready("maker")
    await subscribe(harness, CALLER._replace(principal=maker), "mine")
    harness.disk.tables.rows["agent"][maker,].update(state="DELETED")
    first, second = (Leader(harness.plane, LEADERS, ttl_seconds=15.0) for _ in range(2))
    await first.renew()
    deposed = Pass(harness.plane, "grants", token=first.token)
    await asyncio.sleep(16)
    await second.renew()
    await grants.tick(harness.plane, this_pass=deposed)
    assert await subscriptions_left(harness) == ["mine"]
    await grants.tick(harness.plane, this_pass=Pass(harness.plane, "grants", token=second.token))
    assert await subscriptions_left(harness) == []


@agent_test
async def test_an_edge_to_a_subscription_that_is_not_there_ends_alone(harness):
    maker = await harness.create_ready("maker")
    edge = edge_rows.put_edge(CALLER.tenant, maker, EdgeKind.WEBHOOK, "nowhere", now=0.0)
    await harness.plane.store.commit(Change("", (), (edge,)))
    await harness.run_verb("delete", "maker")
    assert await harness.rows(EdgeRecord) == []


@agent_test
async def test_what_can_be_nobody_elses_is_reassigned_to_nobody(harness):
    uid = await harness.create_ready("maker")
    await harness.create_ready("heir")
    for kind in (EdgeKind.GRANT, EdgeKind.CREDENTIAL, EdgeKind.SESSION):
        with pytest.raises(Invalid, match="on_delete"):
            await owned_kinds.own(
                harness.plane, CALLER, uid, kind=kind, target="x", on_delete="reassign:heir"
            )
    with pytest.raises(Invalid, match="itself"):
        await owned_kinds.own(
            harness.plane, CALLER, uid, kind=EdgeKind.AGENT, target="maker", on_delete="revoke"
        )


@agent_test
async def test_what_is_owned_is_listed_page_by_page(harness):
    uid = await harness.create_ready("maker")
    for name in ("one", "two"):
        await harness.create_ready(name, parent="maker")
    row = await agent_views.get_agent_row(harness.plane, CALLER, "maker")
    found, after = [], ""
    while page := await ownership.list_edges(harness.plane, row, after=after, limit=1):
        found += page
        after = f"{page[-1].kind} {page[-1].target}"
    assert [one.kind for one in found] == ["agent", "agent", "credential"]
    assert {one.owner for one in found} == {uid}


@agent_test
async def test_an_agent_that_closes_while_it_is_given_away_is_looked_at_again(harness, monkeypatch):
    owner, child = await harness.create_ready("owner"), await harness.create_ready("child")
    commit, suspended = harness.plane.store.commit, list[str]()

    async def just_before(change):
        if not suspended and any(write.table == "edge" for write in change.writes):
            suspended.append("meanwhile")
            await harness.run_verb("suspend", "child")
        return await commit(change)

    monkeypatch.setattr(harness.plane.store, "commit", just_before)
    await refusal(
        owned_kinds.own(
            harness.plane, CALLER, owner, kind=EdgeKind.AGENT, target=child, on_delete="revoke"
        ),
        "wrong_state",
    )
    assert suspended
    assert [row for row in await harness.rows(EdgeRecord) if row.kind == EdgeKind.AGENT] == []


def test_every_kind_of_edge_has_a_row_that_says_how_it_ends():
    assert set(owned_kinds.OWNED_KINDS) == set(EdgeKind)


@agent_test
async def test_an_edge_of_a_kind_that_only_a_newer_release_knows_is_left_to_that_release(harness):
    uid = await harness.create_ready()
    edge = EdgeRecord(uid, "effect", "x", TENANT, "revoke", 0.0)
    await harness.plane.store.commit(Change("", (), (Put.of(edge),)))
    assert not await cascade.end_edge(harness.plane, edge)
    assert await harness.plane.store.find(EdgeRecord, key_of(edge)) is not None
