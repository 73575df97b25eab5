"""A provider that says nothing costs a look one wait, not one for each thing that it has."""

import asyncio

import pytest

from tenure.app import agents, findings
from tenure.core.finding import Kind
from tenure.reconcilers import drift, grants, late, orphans
from tenure.testing.lifecycle import CALLER, spec_of
from tests.unit.app.lives import alive

COUNT = drift.AT_ONCE + 4
LONG = orphans.GRACE_SECONDS + orphans.APART_SECONDS


async def seconds(lives, look):
    """How long a look takes."""
    began = lives.plane.store.now()
    await look(lives.plane)
    return lives.plane.store.now() - began


async def many(lives, count=COUNT):
    return [await lives.made(f"a{number}") for number in range(count)]


@pytest.fixture
def silence(monkeypatch):
    """Makes a verb of a provider say nothing any more."""

    def silence(lives, slot, verb):
        async def nothing(*_, **__):
            await asyncio.sleep(1e6)

        monkeypatch.setattr(lives.plane.providers[slot], verb, nothing)

    return silence


@alive
async def late_arrivals(lives, silence):
    await many(lives, 6)
    for number in range(6):
        await lives.verb("delete", f"a{number}")
    silence(lives, "runtime", "inspect")
    assert await seconds(lives, late.tick) < 2 * late.LOOK_SECONDS
    looked = [row["step"] for row in await lives.rows("tombstone") if row["sightings"]]
    assert looked.count("identity") == 6, "the others are looked at"


@alive
async def what_differs(lives, silence):
    await many(lives)
    silence(lives, "runtime", "inspect")
    assert await seconds(lives, drift.tick) < 2 * drift.LOOK_SECONDS
    found = await findings.list_findings(lives.plane, CALLER)
    assert {one.kind for one in found} == {Kind.UNVERIFIABLE}
    assert len(found) == drift.AT_ONCE, "who was not asked is not told of"
    assert all("it said nothing" in one.body["what"] for one in found)


@alive
async def what_was_granted(lives, silence):
    for number in range(4):
        granter = await lives.made(f"g{number}")
        asking = CALLER._replace(principal=granter)
        await lives.done(await agents.create_agent(lives.plane, asking, spec_of(f"c{number}")))
        lives.disk.tables.rows["agent"][granter,].update(state="DELETED")
    silence(lives, "access", "revoke_granter")
    for _ in range(2):
        assert await seconds(lives, grants.tick) < 2 * grants.LOOK_SECONDS
    found = await findings.list_findings(lives.plane, CALLER)
    assert Kind.UNVERIFIABLE in {one.kind for one in found}


@alive
async def orphaned(lives, silence):
    await many(lives, 3)
    things = list(lives.world.holds(provider="runtime"))
    for number in range(3):
        await lives.verb("delete", f"a{number}")
    lives.disk.tables.rows["tombstone"].clear()
    for thing in things:
        lives.world.things["runtime", thing.key.text] = thing
    await orphans.tick(lives.plane)
    await asyncio.sleep(LONG)
    silence(lives, "runtime", "inspect")
    assert await seconds(lives, orphans.tick) < 2 * orphans.LOOK_SECONDS
    assert len(await findings.list_findings(lives.plane, CALLER)) == 3


@pytest.mark.parametrize("look", [late_arrivals, what_differs, what_was_granted, orphaned])
def test_one_wait_for_a_look(look, silence):
    look(silence=silence)
