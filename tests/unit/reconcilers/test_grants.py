"""Grants: what a deleted agent had granted goes, when that can be done, and is told until then."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, TENANT, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.events import subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.safety import findings
from tenure.core.errors import Unavailable
from tenure.core.finding import FindingKind
from tenure.core.limits import PAGE_MAX
from tenure.core.records import EdgeRecord, SubscriptionRecord, key_of
from tenure.core.records.table import dict_of
from tenure.core.subscription import SubscriptionKind as Way
from tenure.ports.store import Change, Drop
from tenure.reconcilers import grants
from tenure.reconcilers.passes import Pass
from tests.unit.support.agent_planes import agent_test


async def make_granter(harness):
    """An agent that was deleted, and what it had granted was not taken away; its uid."""
    granter = await harness.create_ready("granter")
    asking = CALLER._replace(principal=granter)
    await harness.wait_for(await agents.create_agent(harness.plane, asking, spec_of("one")))
    harness.disk.tables.rows["agent"][granter,].update(state="DELETED")
    return granter


async def list_findings(harness):
    found = await findings.list_findings(harness.plane, CALLER)
    return sorted((one.reconciler, one.kind) for one in found)


async def of_granter(harness, granter):
    return [row for row in await harness.rows(EdgeRecord) if row.owner == granter]


@agent_test
async def test_what_a_deleted_agent_had_granted_is_taken_away(harness):
    """As the deletion does it; and if that was lost, the reconciler does it."""
    granter = await harness.create_ready("granter")
    asking = CALLER._replace(principal=granter)
    for name in ("one", "two"):
        await harness.wait_for(await agents.create_agent(harness.plane, asking, spec_of(name)))
    await harness.create_ready("three")
    assert len(harness.fakes.access.granted_by(granter)) == 2
    kept = [row for row in await harness.rows(EdgeRecord) if row.kind == "grant"]
    assert {row.owner for row in kept} == {granter}
    assert (await harness.run_verb("delete", "granter")).state == "SUCCEEDED"
    assert harness.fakes.access.granted_by(granter) == []
    assert len(harness.fakes.access.granted_by("someone")) == 1
    assert {row.kind for row in await harness.rows(EdgeRecord)} == {"credential"}
    harness.fakes.access.revoked.clear()  # as if nobody had reacted
    for row in kept:
        harness.disk.tables.rows["edge"][key_of(row)] = dict_of(row)
    assert (await grants.tick(harness.plane)).fixed == 2
    assert harness.fakes.access.granted_by(granter) == []
    assert {row.kind for row in await harness.rows(EdgeRecord)} == {"credential"}


@agent_test
async def test_a_child_whose_parent_went_without_it_is_deleted(harness):
    parent = await harness.create_ready("parent")
    child = await harness.create_ready("child", parent="parent")
    harness.disk.tables.rows["agent"][parent,].update(state="DELETED")
    await harness.plane.store.commit(Change("", (), (Drop("agent_name", (TENANT, "parent")),)))
    for _ in range(3):
        await grants.tick(harness.plane)
        await asyncio.sleep(10)
    assert harness.holders(child) == []
    assert await harness.rows(EdgeRecord) == []


@agent_test
async def test_a_plane_that_is_held_tells_and_takes_nothing(harness):
    granter = await make_granter(harness)
    held = Pass(harness.plane, "grants", read_only=True)
    assert (await grants.tick(harness.plane, this_pass=held)).fixed == 0
    assert len(harness.fakes.access.granted_by(granter)) == 1
    assert set(await list_findings(harness)) == {("grants", FindingKind.DRIFT)}
    await grants.tick(harness.plane)
    assert harness.fakes.access.granted_by(granter) == []
    assert await of_granter(harness, granter) == []
    await grants.tick(harness.plane)
    assert await list_findings(harness) == [], "a whole look has not seen it any more"


@pytest.mark.parametrize("silent", [False, True])
def test_a_provider_that_is_away_is_asked_again(silent, monkeypatch):
    agent_test(away_for_a_while)(silent=silent, monkeypatch=monkeypatch)


async def away_for_a_while(harness, silent, monkeypatch):
    granter = await make_granter(harness)
    access = harness.plane.providers["access"]
    revoke = access.revoke_granter

    async def away(*_):
        if silent:
            await asyncio.sleep(1e6)
        raise Unavailable("away")

    monkeypatch.setattr(access, "revoke_granter", away)
    assert (await grants.tick(harness.plane)).fixed == 1, "its own registration, which ends alone"
    assert len(await of_granter(harness, granter)) == 1
    assert ("grants", FindingKind.UNVERIFIABLE) in await list_findings(harness)
    monkeypatch.setattr(access, "revoke_granter", revoke)
    assert (await grants.tick(harness.plane)).fixed == 1
    assert harness.fakes.access.granted_by(granter) == []


@agent_test
async def test_more_than_one_look_can_see_is_seen_by_the_next(harness):
    granter = await make_granter(harness)
    edges = harness.disk.tables.rows["edge"]
    living = "0" * 31 + "1"
    harness.disk.tables.rows["agent"][living,] = {
        **harness.disk.tables.rows["agent"][granter,],
        "uid": living,
        "state": "READY",
    }
    for number in range(PAGE_MAX):
        target = f"{number:08}"
        edges[living, "session", target] = {
            "owner": living,
            "kind": "session",
            "target": target,
            "tenant": TENANT,
            "on_delete": "revoke",
            "at": 0.0,
        }
    assert (await grants.tick(harness.plane, limit=1)).seen == PAGE_MAX
    assert len(harness.fakes.access.granted_by(granter)) == 1
    await grants.tick(harness.plane, limit=1)
    assert harness.fakes.access.granted_by(granter) == []
    assert len([key for key in edges if key[0] == living]) == PAGE_MAX


@agent_test
async def test_a_finding_ends_though_something_else_may_not_go_yet(harness):
    """A subscription about its owner stays until it was told of the end."""
    granter = await make_granter(harness)
    held = Pass(harness.plane, "grants", read_only=True)
    await grants.tick(harness.plane, this_pass=held)
    asked = SubscriptionRequest("mine", Way.NATS, target="mine", agent="one", from_start=True)
    await subscriptions.create_subscription(harness.plane, CALLER, asked)
    uid = (await agent_views.get_agent(harness.plane, CALLER, "one")).uid
    harness.disk.tables.rows["agent"][uid,].update(
        state="DELETED", updated_at=harness.plane.store.now()
    )
    await grants.tick(harness.plane)
    assert await of_granter(harness, granter) == []
    assert set(await list_findings(harness)) == {("grants", FindingKind.CONFIRMED)}
    await grants.tick(harness.plane)
    assert await list_findings(harness) == []
    assert len(await harness.rows(SubscriptionRecord)) == 1
