"""Grants: what an agent that is gone had granted or owned goes, also if nobody reacted."""

import asyncio

from tenure.app import agents
from tenure.ports.store import Change, Drop
from tenure.reconcilers import grants
from tenure.testing.lifecycle import CALLER, TENANT, spec_of
from tests.unit.app.lives import alive


@alive
async def test_what_a_deleted_agent_had_granted_is_taken_away(lives):
    """As the deletion does it; and if that was lost, the reconciler does it."""
    granter = await lives.made("granter")
    asking = CALLER._replace(principal=granter)
    for name in ("one", "two"):
        await lives.done(await agents.create_agent(lives.plane, asking, spec_of(name)))
    await lives.made("three")
    assert len(lives.fakes.access.granted_by(granter)) == 2
    kept = [row for row in await lives.rows("edge") if row["kind"] == "grant"]
    assert {row["owner"] for row in kept} == {granter}
    assert (await lives.verb("delete", "granter")).state == "SUCCEEDED"
    assert lives.fakes.access.granted_by(granter) == []
    assert len(lives.fakes.access.granted_by("someone")) == 1
    assert {row["kind"] for row in await lives.rows("edge")} == {"credential"}
    lives.fakes.access.revoked.clear()  # as if nobody had reacted
    for row in kept:
        lives.disk.tables.rows["edge"][row["owner"], row["kind"], row["target"]] = row
    assert (await grants.tick(lives.plane)).fixed == 2
    assert lives.fakes.access.granted_by(granter) == []
    assert {row["kind"] for row in await lives.rows("edge")} == {"credential"}


@alive
async def test_a_child_whose_parent_went_without_it_is_deleted(lives):
    parent = await lives.made("parent")
    child = await lives.made("child", parent="parent")
    lives.disk.tables.rows["agent"][parent,].update(state="DELETED")
    await lives.plane.store.commit(Change("", (), (Drop("agent_name", (TENANT, "parent")),)))
    for _ in range(3):
        await grants.tick(lives.plane)
        await asyncio.sleep(10)
    assert lives.held(child) == []
    assert await lives.rows("edge") == []
