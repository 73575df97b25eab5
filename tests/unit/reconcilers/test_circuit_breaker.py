"""A provider that says nothing costs a look two waits, not one for each thing that it has.

And what hangs alone, or with a few others, costs nobody else their turn, and a look three waits.
"""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.safety import findings
from tenure.core.finding import FindingKind
from tenure.core.records import TombstoneRecord
from tenure.reconcilers import drift, grants, orphans
from tenure.reconcilers import late_arrivals as late
from tenure.reconcilers.circuit_breaker import CALL_SECONDS, WAITS_MAX
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test, fault

COUNT = drift.AT_ONCE + 4
LONG = orphans.GRACE_SECONDS + orphans.APART_SECONDS


async def seconds(harness, look):
    """How long a look takes."""
    began = harness.plane.store.now()
    await look(harness.plane)
    return harness.plane.store.now() - began


async def many(harness, count=COUNT):
    return [await harness.create_ready(f"a{number:02}") for number in range(count)]


async def delete_agents(harness, count):
    """Agents that are deleted, in the order of their tombstones; and what their runtimes were."""
    uids = await many(harness, count)
    things = {thing.key.agent: thing for thing in harness.world.holds(provider="runtime")}
    for number in range(count):
        await harness.run_verb("delete", f"a{number:02}")
    return uids, things


async def ownerless(harness, count):
    """Runtimes of agents that are deleted, which can go at the next look."""
    uids, things = await delete_agents(harness, count)
    harness.disk.tables.rows["tombstone"].clear()
    for thing in things.values():
        harness.world.things["runtime", thing.key.text] = thing
    await orphans.tick(harness.plane)
    await asyncio.sleep(LONG)
    return uids


async def granters(harness, count):
    """Agents that are deleted, and what they had granted was not taken away."""
    uids = [await harness.create_ready(f"g{number}") for number in range(count)]
    for number, granter in enumerate(uids):
        asking = CALLER._replace(principal=granter)
        await harness.wait_for(
            await agents.create_agent(harness.plane, asking, spec_of(f"c{number}"))
        )
        harness.disk.tables.rows["agent"][granter,].update(state="DELETED")
    return sorted(uids)


@pytest.fixture
def silence(monkeypatch):
    """Makes a verb of a provider say nothing any more, at all or of some agents."""

    def silence(harness, slot, verb, some=None):
        answer = getattr(harness.plane.providers[slot], verb)

        async def nothing(*args, **more):
            if some is None or any(getattr(one, "agent", one) in some for one in args):
                await asyncio.sleep(1e6)
            return await answer(*args, **more)

        monkeypatch.setattr(harness.plane.providers[slot], verb, nothing)

    return silence


@agent_test
async def late_arrivals(harness, silence):
    await delete_agents(harness, 6)
    silence(harness, "runtime", "inspect")
    assert await seconds(harness, late.tick) < 3 * CALL_SECONDS
    looked = [row.step for row in await harness.rows(TombstoneRecord) if row.absences]
    assert looked.count("identity") == 6, "the others are looked at"


@agent_test
async def what_differs(harness, silence):
    await many(harness)
    silence(harness, "runtime", "inspect")
    assert await seconds(harness, drift.tick) < 2 * CALL_SECONDS
    found = await findings.list_findings(harness.plane, CALLER)
    assert {one.kind for one in found} == {FindingKind.UNVERIFIABLE}
    assert len(found) == drift.AT_ONCE, "who was not asked is not told of"
    assert all("no answer within" in one.body["what"] for one in found)


@agent_test
async def what_was_granted(harness, silence):
    uids = await granters(harness, 4)
    silence(harness, "access", "revoke_granter")
    for _ in range(2):
        assert await seconds(harness, grants.tick) < 3 * CALL_SECONDS
    found = await findings.list_findings(harness.plane, CALLER)
    unsure = [one.agent for one in found if one.kind is FindingKind.UNVERIFIABLE]
    assert sorted(unsure) == uids, "who was passed over is not settled by the others"


@agent_test
async def orphan_findings(harness, silence):
    await ownerless(harness, 4)
    silence(harness, "runtime", "inspect")
    assert await seconds(harness, orphans.tick) < 3 * CALL_SECONDS
    assert len(await findings.list_findings(harness.plane, CALLER)) == 4


@pytest.mark.parametrize("look", [late_arrivals, what_differs, what_was_granted, orphan_findings])
def test_two_waits_for_a_look(look, silence):
    look(silence=silence)


# --- what hangs alone -----------------------------------------------------------------------------


def looks(hanging):
    """How many it takes: two that hang one after the other end one, and are asked last then."""
    return 1 + hanging // 2


@agent_test
async def a_late_arrival(harness, silence, hanging):
    uids, things = await delete_agents(harness, 6)
    silence(harness, "runtime", "inspect", uids[:hanging])
    thing = things[uids[-1]]
    harness.world.things["runtime", thing.key.text] = thing
    for _ in range(looks(hanging)):
        await late.tick(harness.plane)
    assert harness.world.holds(provider="runtime") == []


@agent_test
async def an_agent_that_died(harness, silence, hanging):
    hanging = 1 if hanging == 1 else hanging // 2 * drift.AT_ONCE  # whole parts of a look
    uids = await many(harness, hanging + COUNT)
    silence(harness, "runtime", "inspect", uids[:hanging])
    (thing,) = harness.world.holds(provider="runtime", agent=uids[-1])
    del harness.world.things["runtime", thing.key.text]
    for _ in range(looks(hanging) + drift.SIGHTINGS):
        await drift.tick(harness.plane)
        await asyncio.sleep(drift.SOON_SECONDS)
    assert len(harness.world.holds(provider="runtime", agent=uids[-1])) == 1


@agent_test
async def a_grant(harness, silence, hanging):
    uids = await granters(harness, 6)
    silence(harness, "access", "revoke_granter", uids[:hanging])
    for _ in range(looks(hanging)):
        await grants.tick(harness.plane)
    assert [uid for uid in uids if harness.fakes.access.granted_by(uid)] == uids[:hanging]


@agent_test
async def an_orphan(harness, silence, hanging):
    uids = await ownerless(harness, 5)
    listed = [thing.key.agent for thing in harness.world.holds(provider="runtime")]
    assert sorted(listed) == sorted(uids)
    silence(harness, "runtime", "inspect", listed[:hanging])
    for _ in range(looks(hanging)):
        await orphans.tick(harness.plane)
    left = {thing.key.agent for thing in harness.world.holds(provider="runtime")}
    assert left == set(listed[:hanging])


@pytest.mark.parametrize("hanging", [1, 2, 4])
@pytest.mark.parametrize("look", [a_late_arrival, an_agent_that_died, a_grant, an_orphan])
def test_what_hangs_costs_nobody_else_their_turn(look, silence, hanging):
    look(silence=silence, hanging=hanging)


@agent_test
async def what_hung_takes_turns(harness, silence):
    """Of three that hang one comes back: it is asked though the others are still silent."""
    uids, things = await delete_agents(harness, 4)
    some = set(uids[:3])
    silence(harness, "runtime", "inspect", some)
    for _ in range(2):
        await late.tick(harness.plane)
    some.remove(uids[2])
    harness.world.things["runtime", things[uids[2]].key.text] = things[uids[2]]
    for _ in range(3):
        assert await seconds(harness, late.tick) < 3 * CALL_SECONDS
    assert harness.world.holds(provider="runtime") == []


def test_what_hung_takes_turns(silence):
    what_hung_takes_turns(silence=silence)


@agent_test
async def one_here_one_there(harness, silence):
    uids, things = await delete_agents(harness, 4)
    silence(harness, "runtime", "inspect", {uids[0], uids[2]})
    harness.world.things["runtime", things[uids[3]].key.text] = things[uids[3]]
    await late.tick(harness.plane)
    assert harness.world.holds(provider="runtime") == []


@agent_test
async def some_side_by_side(harness, silence):
    uids = await many(harness)
    silence(harness, "runtime", "inspect", uids[:WAITS_MAX])
    (thing,) = harness.world.holds(provider="runtime", agent=uids[-1])
    del harness.world.things["runtime", thing.key.text]
    await drift.tick(harness.plane)
    found = await findings.list_findings(harness.plane, CALLER)
    assert {one.agent for one in found} == {*uids[:WAITS_MAX], uids[-1]}


@pytest.mark.parametrize("look", [one_here_one_there, some_side_by_side])
def test_who_answers_others_is_not_silent(look, silence):
    look(silence=silence)


# --- what hangs here and there --------------------------------------------------------------------


@agent_test
async def late_ones_here_and_there(harness, silence):
    uids, things = await delete_agents(harness, 20)
    silence(harness, "runtime", "inspect", uids[::2])
    for uid in uids:
        harness.world.things["runtime", things[uid].key.text] = things[uid]
    for _ in range(1 + 10 // WAITS_MAX):
        assert await seconds(harness, late.tick) < (WAITS_MAX + 1) * CALL_SECONDS
    left = {thing.key.agent for thing in harness.world.holds(provider="runtime")}
    assert left == set(uids[::2])


@agent_test
async def agents_here_and_there(harness, silence):
    uids = await many(harness, 12)
    silence(harness, "runtime", "inspect", uids[::2])
    for uid in uids[1::2]:
        (thing,) = harness.world.holds(provider="runtime", agent=uid)
        del harness.world.things["runtime", thing.key.text]
    with patched(drift, AT_ONCE=2):
        for _ in range(1 + 6 // WAITS_MAX + drift.SIGHTINGS):
            assert await seconds(harness, drift.tick) < (WAITS_MAX + 1) * CALL_SECONDS
    assert all(harness.world.holds(provider="runtime", agent=uid) for uid in uids)


@pytest.mark.parametrize("look", [late_ones_here_and_there, agents_here_and_there])
def test_what_hangs_here_and_there_costs_a_look_three_waits(look, silence):
    look(silence=silence)


@agent_test
async def a_refusal_between_two_that_hang(harness, silence):
    uids, things = await delete_agents(harness, 4)
    harness.world.things["runtime", things[uids[3]].key.text] = things[uids[3]]
    fault(harness, "runtime", "inspect", Fault.BUSY)
    silence(harness, "runtime", "inspect", {uids[0], uids[2]})
    await late.tick(harness.plane)
    assert harness.world.holds(provider="runtime") == []


def test_a_refusal_is_an_answer_too(silence):
    a_refusal_between_two_that_hang(silence=silence)
