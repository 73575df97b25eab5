"""Orphans: what is certainly nobody's goes, and nothing else, whatever our records have lost."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from proofs.harness.cluster import PLANE
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.leader import Leader, lease_of
from tenure.app.safety import findings
from tenure.app.safety.unknown_resources import remove_resource
from tenure.core.errors import Conflict, Forbidden, Invalid
from tenure.core.finding import FindingKind, finding_id
from tenure.core.ids import resource_key
from tenure.core.limits import PAGE_MAX
from tenure.core.records import AuditRecord, FindingRecord, LeaseRecord, TombstoneRecord
from tenure.core.roles import Caller, Role
from tenure.ports.provider import OwnedResource
from tenure.ports.store import Change, Is, Set
from tenure.reconcilers import late_arrivals, orphans
from tenure.reconcilers.passes import LEADERS, Pass
from tenure.testing.faults import Fault
from tenure.testing.loop import EPOCH
from tests.unit.support.agent_planes import VIEWER, agent_test, fault

OWNER = Caller("default", "admin", Role.ADMIN)
LONG = orphans.GRACE_SECONDS + 1


def plant(harness, *, agent="f" * 32, generation=1, slot="runtime", name="runtime", owner=PLANE):
    """Put something with our label into the world that nobody asked for."""
    key = resource_key(
        PLANE, tenant="default", agent=agent, generation=generation, slot=slot, name=name
    )
    harness.world.plant(slot, key, owner=owner)
    thing = harness.world.things[slot, key.text]
    thing.key = key
    return key


async def left_behind(harness):
    """A runtime that came back after its agent was deleted and nobody watched any more."""
    uid = await harness.create_ready("gone")
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    assert (await harness.run_verb("delete", "gone")).state == "SUCCEEDED"
    for _ in range(3):
        await asyncio.sleep(40)
        await late_arrivals.tick(harness.plane)
    assert await harness.rows(TombstoneRecord) == []
    harness.world.things["runtime", thing.key.text] = thing
    return thing


async def open_findings(harness):
    return await findings.list_findings(harness.plane, CALLER)


@agent_test
async def test_an_orphan_goes_at_the_second_look_after_its_grace(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    assert (await orphans.tick(harness.plane)).fixed == 0
    (found,) = await open_findings(harness)
    assert (found.kind, found.resource, found.sightings) == (FindingKind.DRIFT, thing.key.text, 1)
    again = await orphans.tick(harness.plane)
    assert again.fixed == 0, "two looks are some time apart"
    assert again.retry_at is not None
    await asyncio.sleep(orphans.APART_SECONDS + 1)
    assert (await orphans.tick(harness.plane)).fixed == 1
    assert harness.world.holds(key=thing.key.text) == []
    assert len(harness.holders()) == 4
    (found,) = await open_findings(harness)
    assert (found.kind, found.sightings) == (FindingKind.CONFIRMED, 3)
    assert (await orphans.tick(harness.plane)).fixed == 0
    assert await open_findings(harness) == []


@agent_test
async def test_an_orphan_of_an_agent_with_a_long_past_is_known(harness):
    thing = await left_behind(harness)
    operations = harness.disk.tables.rows["operation"]
    row = operations[max(operations)]
    for number in range(PAGE_MAX):
        name = f"00{number:030}"
        operations[name,] = {**row, "id": name, "generation": 0}
    judged = await orphans.judge(
        harness.plane,
        orphans.Suspect(
            "runtime", OwnedResource(thing.key.text, row["agent"], thing.key.generation, 0.0)
        ),
    )
    assert judged.verdict is orphans.OrphanVerdict.ORPHAN
    assert await agent_views.logs(harness.plane, CALLER, row["agent"]) != ""


@agent_test
async def test_one_look_is_never_enough_however_old_it_is(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    await asyncio.sleep(10 * LONG)
    await orphans.tick(harness.plane)
    assert harness.world.holds(key=thing.key.text) == [thing]


@agent_test
async def test_what_is_young_stays_until_its_grace_is_over(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    thing.since = harness.loop.time() + EPOCH
    await orphans.tick(harness.plane)
    await asyncio.sleep(orphans.APART_SECONDS + 1)
    assert (await orphans.tick(harness.plane)).fixed == 0
    await asyncio.sleep(LONG)
    assert (await orphans.tick(harness.plane)).fixed == 1


@agent_test
async def test_what_our_records_have_never_heard_of_is_reported_and_left(harness):
    uid = await harness.create_ready("alpha")
    unknown = plant(harness)
    newer = plant(harness, agent=uid, generation=9)
    odd = plant(harness, agent=uid, generation=1, name="another")
    foreign = plant(harness, agent="e" * 32, owner="another plane")
    for _ in range(5):
        await orphans.tick(harness.plane)
        await asyncio.sleep(LONG)
    for key in (unknown, newer, odd, foreign):
        assert len(harness.world.holds(key=key.text)) == 1
    found = await open_findings(harness)
    assert {one.resource for one in found} == {unknown.text, newer.text, odd.text}
    assert {one.kind for one in found} == {FindingKind.UNVERIFIABLE}


@agent_test
async def test_an_empty_store_deletes_nothing_of_a_live_world(harness):
    for number in range(4):
        await harness.create_ready(f"agent-{number}")
    before = sorted(harness.world.things)
    for table in ("agent", "agent_name", "operation", "intent", "journal", "reservation"):
        harness.disk.tables.rows[table].clear()
    for part in harness.disk.tables._parts.values():
        part.clear()
    for _ in range(4):
        await orphans.tick(harness.plane)
        await late_arrivals.tick(harness.plane)
        await asyncio.sleep(LONG)
    assert sorted(harness.world.things) == before


@agent_test
async def test_a_store_of_yesterday_deletes_nothing_of_a_live_world(harness):
    """The world went on after the copy: new agents, a resume, a deletion that is forgotten."""
    for name in ("alpha", "beta", "gone"):
        await harness.create_ready(name)
    await harness.run_verb("suspend", "beta")
    copy = harness.disk.tables.dump()
    await harness.create_ready("new")
    await harness.run_verb("resume", "beta")
    await harness.run_verb("delete", "gone")
    before = sorted(harness.world.things)
    old = type(harness.disk.tables).read(copy)
    harness.disk.tables.rows.clear()
    harness.disk.tables.rows.update(old.rows)
    harness.disk.tables._parts.clear()
    harness.disk.tables._parts.update(old._parts)
    for _ in range(5):
        await orphans.tick(harness.plane)
        await asyncio.sleep(LONG)
    assert sorted(harness.world.things) == before
    assert {one.kind for one in await open_findings(harness)} == {FindingKind.UNVERIFIABLE}


@agent_test
async def test_what_is_created_while_the_provider_lists_is_not_taken_for_an_orphan(harness):
    """The provider is asked first: whatever it lists is in the store by the time that is asked."""
    fault(harness, "identity", "list_owned", Fault.SLOW)
    fault(harness, "runtime", "list_owned", Fault.SLOW)
    looking = asyncio.ensure_future(orphans.tick(harness.plane))
    await harness.create_ready("alpha")
    await looking
    assert await open_findings(harness) == []


@agent_test
async def test_too_many_orphans_are_believed_by_nobody(harness):
    things = []
    for number in range(6):
        uid = await harness.create_ready(f"agent-{number}")
        things += harness.world.holds(agent=uid, provider="runtime")
        await harness.run_verb("delete", f"agent-{number}")
    for _ in range(3):
        await asyncio.sleep(40)
        await late_arrivals.tick(harness.plane)
    for thing in things:
        harness.world.things["runtime", thing.key.text] = thing
    for _ in range(4):
        assert (await orphans.tick(harness.plane)).fixed == 0
        await asyncio.sleep(LONG)
    assert len(harness.world.things) == 6
    (found,) = await open_findings(harness)
    assert found.kind is FindingKind.UNVERIFIABLE
    assert "too many" in found.body["what"]


@agent_test
async def test_a_deposed_leader_deletes_nothing(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    first, second = (Leader(harness.plane, LEADERS, ttl_seconds=15.0) for _ in range(2))
    assert await first.renew()
    assert not await second.renew()
    this_pass = Pass(harness.plane, "orphans", token=first.token)
    await orphans.tick(harness.plane, this_pass=this_pass)
    await asyncio.sleep(LONG)  # it slept, and its lease lapsed
    assert await second.renew()
    assert (await orphans.tick(harness.plane, this_pass=this_pass)).fixed == 0
    assert harness.world.holds(key=thing.key.text) == [thing]
    assert not await first.renew()
    fresh = Pass(harness.plane, "orphans", token=second.token)
    assert (await orphans.tick(harness.plane, this_pass=fresh)).fixed == 1


@agent_test
async def test_a_leader_that_renews_twice_at_once_stays_the_leader(harness):
    leader = Leader(harness.plane, LEADERS, ttl_seconds=15.0)
    for _ in range(3):
        assert all(await asyncio.gather(leader.renew(), leader.renew()))
        await asyncio.sleep(LONG)  # it lapsed, and is taken again


@agent_test
async def test_a_plane_that_is_held_reports_and_deletes_nothing(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    for _ in range(3):
        await orphans.tick(harness.plane, this_pass=Pass(harness.plane, "orphans", read_only=True))
        await asyncio.sleep(LONG)
    assert harness.world.holds(key=thing.key.text) == [thing]
    assert len(await open_findings(harness)) == 1


@agent_test
async def test_a_dry_run_says_what_it_sees_and_writes_nothing(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    before = await harness.rows(FindingRecord)
    this_pass = Pass(harness.plane, "orphans", dry_run=True)
    await orphans.tick(harness.plane, this_pass=this_pass)
    assert [seen.resource for seen in this_pass.sightings] == [thing.key.text]
    assert await harness.rows(FindingRecord) == before


@agent_test
async def test_a_provider_that_cannot_be_listed_is_not_clean(harness):
    await harness.create_ready("alpha")
    fault(harness, "access", "list_owned", Fault.BUSY)
    await orphans.tick(harness.plane)
    (found,) = await open_findings(harness)
    assert (found.kind, found.body["provider"]) == (FindingKind.UNVERIFIABLE, "access")
    await orphans.tick(harness.plane)
    assert await open_findings(harness) == []


@agent_test
async def test_a_provider_that_lies_about_deletion_is_drift(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    await orphans.tick(harness.plane)
    await asyncio.sleep(LONG)
    assert (await orphans.tick(harness.plane)).fixed == 1
    harness.world.things["runtime", thing.key.text] = thing  # it said that it was removed
    await orphans.tick(harness.plane)
    (found,) = await open_findings(harness)
    assert (found.kind, found.reconciler) == (FindingKind.DRIFT, "orphans")
    await asyncio.sleep(LONG)
    await late_arrivals.tick(harness.plane)
    kinds = {one.reconciler: one.kind for one in await open_findings(harness)}
    assert kinds["late"] is FindingKind.DRIFT


@agent_test
async def test_a_crash_between_intent_and_removal_is_finished_by_the_tombstone(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    await orphans.tick(harness.plane)
    await asyncio.sleep(LONG)
    fault(harness, "runtime", "remove", Fault.CUT)
    await orphans.tick(harness.plane)
    assert harness.world.holds(key=thing.key.text) == [thing]
    await late_arrivals.tick(harness.plane)
    assert harness.world.holds(key=thing.key.text) == []


@agent_test
async def test_an_agent_that_is_being_made_or_undone_is_left_alone(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    fault(harness, "access", "remove", Fault.REFUSED)
    stuck = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    assert stuck.state == "STUCK"
    held = sorted(harness.world.things)
    for _ in range(4):
        await orphans.tick(harness.plane)
        await asyncio.sleep(LONG)
    assert sorted(harness.world.things) == held
    assert await open_findings(harness) == []


@pytest.mark.parametrize("count", [0, 10, 1_000])
def test_the_cap_is_five_or_a_tenth(count):
    assert orphans.cap(count) == max(5, count / 10)


@agent_test
async def test_the_lead_only_grows(harness):
    tokens = []
    for number in range(3):
        leader = Leader(harness.plane, LEADERS, ttl_seconds=15.0)
        assert await leader.renew()
        tokens.append(leader.token)
        if number == 1:
            await leader.resign()
        else:
            await asyncio.sleep(20)
    assert tokens == [1, 2, 3]
    (row,) = [row for row in await harness.rows(LeaseRecord) if row.name == lease_of(LEADERS)[0]]
    assert row.token == 3
    write = Set("lease", lease_of(LEADERS), {"until": 9e9})
    stale = Change("", (Is("lease", lease_of(LEADERS), {"token": 2}),), (write,))
    assert await harness.plane.store.commit(stale) is not None


@agent_test
async def test_an_orphan_that_cannot_be_removed_is_told_and_tried_again(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    await orphans.tick(harness.plane)
    await asyncio.sleep(LONG)
    fault(harness, "runtime", "remove", Fault.REFUSED_FOR_A_WHILE, 2)
    assert (await orphans.tick(harness.plane)).fixed == 0
    (found,) = await open_findings(harness)
    assert "could not be removed" in str(found.body["what"])
    for _ in range(6):
        await asyncio.sleep(LONG)
        await orphans.tick(harness.plane)
        await late_arrivals.tick(harness.plane)
    assert harness.world.holds(key=thing.key.text) == []


@agent_test
async def test_a_long_list_is_asked_about_in_parts_and_too_many_suspects_are_counted(
    harness, monkeypatch
):
    monkeypatch.setattr(orphans, "CHUNK", 3)
    monkeypatch.setattr(orphans, "SUSPECTS_MAX", 4)
    monkeypatch.setattr(orphans, "REPORTED_MAX", 2)
    for number in range(8):
        plant(harness, agent=f"{number:032x}")
    before = sorted(harness.world.things)
    assert (await orphans.tick(harness.plane)).seen == 8
    told = [str(one.body["what"]) for one in await open_findings(harness)]
    assert len(told) == 3
    assert any("6 more resources are unknown" in what for what in told)
    assert sorted(harness.world.things) == before


@agent_test
async def test_a_look_rests_after_each_part_while_others_commit(harness, monkeypatch):
    monkeypatch.setattr(orphans, "CHUNK", 3)
    monkeypatch.setattr(orphans, "REST_SECONDS", 5.0)
    for number in range(8):
        plant(harness, agent=f"{number:032x}")
    claims, others = orphans._collect_suspects, harness.plane.commits

    async def beside_others(*args):
        others.notify()
        await claims(*args)

    began = harness.loop.time()
    await orphans.tick(harness.plane)
    alone = harness.loop.time() - began
    monkeypatch.setattr(orphans, "_collect_suspects", beside_others)
    await orphans.tick(harness.plane)
    assert alone < 5.0
    assert harness.loop.time() - began - alone >= 2 * 5.0


@agent_test
async def test_what_is_gone_when_it_is_read_again_is_not_removed(harness):
    await harness.create_ready("alpha")
    thing = await left_behind(harness)
    await orphans.tick(harness.plane)
    await asyncio.sleep(LONG)
    fault(harness, "runtime", "list_owned", Fault.STALE_PAGE, 2)
    del harness.world.things["runtime", thing.key.text]
    assert (await orphans.tick(harness.plane)).fixed == 0
    await orphans.tick(harness.plane)
    assert await open_findings(harness) == []


@agent_test
async def test_a_key_that_no_operation_has_named_is_left_alone(harness):
    uid = await harness.create_ready("alpha")
    plant(harness, agent=uid, name="another")
    before = sorted(harness.world.things)
    for _ in range(3):
        await orphans.tick(harness.plane)
        await asyncio.sleep(LONG)
    (found,) = await open_findings(harness)
    assert (found.kind, found.agent) == (FindingKind.UNVERIFIABLE, uid)
    assert "know no such key" in str(found.body["what"])
    assert sorted(harness.world.things) == before


@agent_test
async def test_what_our_records_do_not_know_goes_by_a_persons_word_alone(harness):
    unknown = plant(harness)
    await orphans.tick(harness.plane)
    (found,) = await open_findings(harness)
    thing = harness.world.things["runtime", unknown.text]
    thing.owner, ours = "somebody else", thing.owner
    with pytest.raises(Invalid, match="is not of tenant elsewhere; name its tenant"):
        await remove_resource(harness.plane, OWNER, found.id, tenant="elsewhere")
    thing.owner = ours
    for stranger in (VIEWER, Caller(CALLER.tenant, "operator", Role.OPERATOR)):
        with pytest.raises(Forbidden):
            await remove_resource(harness.plane, stranger, found.id)
    assert harness.world.things["runtime", unknown.text]
    done = await remove_resource(harness.plane, OWNER, found.id)
    assert ("runtime", unknown.text) not in harness.world.things
    assert done.resolved_by == OWNER.principal
    assert await remove_resource(harness.plane, OWNER, found.id) == done, "twice is once"
    (told,) = [row for row in await harness.rows(AuditRecord) if row.action == "finding.remove"]
    assert unknown.text in told.body


@agent_test
async def test_what_our_records_know_by_now_is_never_removed_so(harness):
    uid = await harness.create_ready("alpha")
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    said = {"what": "it", "provider": "runtime", "generation": thing.key.generation}
    kinds = (
        (FindingKind.UNVERIFIABLE, Conflict, "in our records now"),
        (FindingKind.DRIFT, Invalid, "not about"),
    )
    for kind, refusal, words in kinds:
        seen = findings.Sighting("orphans", kind, "x", "default", uid, thing.key.text, said)
        await findings.report(harness.plane, seen)
        with pytest.raises(refusal, match=words):
            await remove_resource(harness.plane, OWNER, finding_id("orphans", "x"))
    assert harness.world.holds(provider="runtime", agent=uid) == [thing]
