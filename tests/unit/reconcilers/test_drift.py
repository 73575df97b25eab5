"""Drift: a dead runtime is replaced by one plan, what is gone is made again or told, as asked."""

import asyncio
import json

import pytest

from proofs.agents.lifecycle import CALLER, PLANS, FakeCredentials, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.agents.subject import SUBJECTS
from tenure.app.operations import handle
from tenure.app.operations.handle import encode
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import Unavailable
from tenure.core.finding import FindingKind
from tenure.core.plan import Plan
from tenure.core.records import FindingRecord, OperationRecord
from tenure.core.retry import DRIFT_REPAIR
from tenure.plans.catalogue import Catalogue
from tenure.reconcilers import drift
from tenure.reconcilers import operations as watched
from tenure.reconcilers.passes import Pass
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test, fault


async def run_and_list(harness):
    return await findings.list_findings(harness.plane, CALLER)


def kill(harness, uid):
    """The runtime of an agent dies; its key."""
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    harness.fakes.runtime.stopped.add(thing.key.text)
    return thing.key.text


async def looks(harness, count=4, **ways):
    for _ in range(count):
        await drift.tick(harness.plane, this_pass=Pass(harness.plane, "drift", **ways))
        await asyncio.sleep(drift.SOON_SECONDS)


@agent_test
async def test_a_runtime_that_died_is_replaced_under_a_new_generation(harness):
    uid = await harness.create_ready()
    dead = kill(harness, uid)
    first = await drift.tick(harness.plane)
    assert (first.fixed, first.retry_at is not None) == (0, True)
    assert harness.world.holds(provider="runtime", agent=uid)[0].key.text == dead
    await looks(harness)
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    assert thing.key.text != dead
    assert thing.key.generation == 2
    assert await harness.agent_state() is AgentState.READY
    _, address = await invocations.address_of(harness.plane, CALLER, "alpha")
    assert address == f"{thing.key.text}:1"
    assert await run_and_list(harness) == []
    assert await harness.violations() == []
    kinds = [row.plan_name for row in await harness.rows(OperationRecord)]
    assert kinds == ["create_agent", "recover_runtime"]


def died_and_lost(harness, uid, *slots):
    """The runtime of an agent is gone, and what it holds in these slots."""
    for thing in harness.world.holds(agent=uid):
        if thing.provider in {"runtime", *slots}:
            del harness.world.things[thing.provider, thing.key.text]


@pytest.mark.parametrize("lost_slot", ["identity", "access", "credentials"])
def test_an_agent_that_was_deleted_elsewhere_does_not_come_back(lost_slot):
    @agent_test
    async def looked_at(harness):
        uid = await harness.create_ready()
        died_and_lost(harness, uid, lost_slot)
        left = harness.holders(uid)
        await looks(harness)
        assert harness.holders(uid) == left, "nothing is made anew"
        found = await run_and_list(harness)
        assert {one.body["provider"] for one in found} == {"runtime", lost_slot}
        assert all("tenure agent delete alpha" in one.body["what"] for one in found)
        assert (await harness.run_verb("delete")).state == "SUCCEEDED"
        await looks(harness)
        assert await run_and_list(harness) == []

    looked_at()


@agent_test
async def test_an_agent_that_was_suspended_elsewhere_is_not_started_until_it_is_resumed(harness):
    uid = await harness.create_ready()
    died_and_lost(harness, uid)
    harness.fakes.credentials.door.stands[uid] = (1, True)
    await looks(harness)
    assert "runtime" not in harness.holders(uid)
    (found,) = await run_and_list(harness)
    assert "seems to be suspended elsewhere" in found.body["what"]
    await harness.run_verb("suspend")
    await harness.run_verb("resume")
    await looks(harness)
    assert ("runtime" in harness.holders(uid), await run_and_list(harness)) == (True, [])


@pytest.mark.parametrize("error", [TimeoutError, Unavailable("is busy")])
def test_a_runtime_waits_for_a_provider_that_cannot_say_whether_its_agent_is_open(error):
    @agent_test
    async def looked_at(harness):
        uid = await harness.create_ready()
        dead = kill(harness, uid)

        async def nobody(*_):
            raise error

        with patched(FakeCredentials, is_open=nobody):
            await looks(harness)
        (found,) = await run_and_list(harness)
        assert "before all other resources of the agent" in found.body["what"]
        assert harness.world.holds(provider="runtime", agent=uid)[0].key.text == dead
        await looks(harness)
        assert harness.world.holds(provider="runtime", agent=uid)[0].key.text != dead
        assert await run_and_list(harness) == []

    looked_at()


@agent_test
async def test_a_client_that_is_gone_is_made_again_before_a_runtime_that_died(harness):
    uid = await harness.create_ready()
    dead = kill(harness, uid)
    (thing,) = harness.world.holds(provider="identity", agent=uid)
    del harness.world.things["identity", thing.key.text]
    await looks(harness, 2)
    assert "identity" in harness.holders(uid)
    assert harness.world.holds(provider="runtime", agent=uid)[0].key.text == dead
    await looks(harness)
    assert harness.world.holds(provider="runtime", agent=uid)[0].key.text != dead
    assert await run_and_list(harness) == []


@agent_test
async def test_without_the_look_at_all_else_a_deleted_agent_comes_back(harness):
    """The ablation: the rule is what keeps it away."""
    uid = await harness.create_ready()
    died_and_lost(harness, uid, "identity")

    with patched(drift, _slots_not_repaired=lambda *_: {}):
        await looks(harness)
    assert {"identity", "runtime"} <= set(harness.holders(uid))


@agent_test
async def test_who_asked_for_a_report_is_told_and_nothing_is_done(harness):
    uid = await harness.create_ready(on_drift="report")
    other = await harness.create_ready("beta", on_drift="repair")
    dead, also = kill(harness, uid), kill(harness, other)
    await looks(harness, repairs=False)
    assert harness.world.holds(provider="runtime", agent=uid)[0].key.text == dead
    assert harness.world.holds(provider="runtime", agent=other)[0].key.text != also
    (found,) = await run_and_list(harness)
    assert (found.kind, found.agent, found.resource) == (FindingKind.DRIFT, uid, dead)


@agent_test
async def test_the_new_one_serves_even_if_the_old_one_cannot_be_removed(harness):
    uid = await harness.create_ready()
    dead = kill(harness, uid)
    fault(harness, "runtime", "remove", Fault.REFUSED)
    await looks(harness, 2)
    await asyncio.sleep(30)
    _, address = await invocations.address_of(harness.plane, CALLER, "alpha")
    assert address != f"{dead}:1"
    await watched.tick(harness.plane)
    assert {one.reconciler for one in await run_and_list(harness)} == {"operations", "drift"}


@agent_test
async def test_one_that_never_comes_up_is_tried_less_and_less_often(harness):
    uid = await harness.create_ready()
    dead = kill(harness, uid)
    for nth in range(2, 40):
        fault(harness, "runtime", "ensure", Fault.NEVER_READY, nth)
    for _ in range(200):
        await drift.tick(harness.plane)
        await asyncio.sleep(3)
    asked = [
        row for row in await harness.rows(OperationRecord) if row.plan_name == "recover_runtime"
    ]
    assert 3 <= len(asked) <= 6
    assert {row.state for row in asked} <= {"COMPENSATED", "RUNNING"}
    assert dead in [thing.key.text for thing in harness.world.holds(provider="runtime", agent=uid)]
    assert any(one.kind is FindingKind.DRIFT for one in await run_and_list(harness))


@agent_test
async def test_what_was_tried_for_months_is_tried_again(harness):
    uid = await harness.create_ready()
    (thing,) = harness.world.holds(provider="identity", agent=uid)
    await harness.fakes.identity.remove(thing.key)
    await looks(harness, count=2)
    (row,) = await harness.rows(FindingRecord)
    kept = harness.disk.tables.rows["finding"][row.id,]
    kept["body"] = encode({**json.loads(row.body), "attempts": 5_000, "again_at": 0.0})
    assert (await drift.tick(harness.plane)).retry_at is not None
    (found,) = await run_and_list(harness)
    assert found.body["attempts"] == 5_001
    assert 0 < found.body["again_at"] - harness.plane.store.now() <= DRIFT_REPAIR.cap_seconds


@agent_test
async def test_a_client_deleted_behind_our_back_is_made_again_or_told(harness):
    uid = await harness.create_ready()
    other = await harness.create_ready("beta", on_drift="report")
    for agent in (uid, other):
        (thing,) = harness.world.holds(provider="identity", agent=agent)
        del harness.world.things["identity", thing.key.text]
    await looks(harness)
    assert "identity" in harness.holders(uid)
    assert "identity" not in harness.holders(other)
    (found,) = await run_and_list(harness)
    assert (found.agent, found.kind) == (other, FindingKind.DRIFT)
    assert "deleted at its provider" in found.body["what"]


@agent_test
async def test_a_burned_key_is_told_and_not_made_again(harness):
    uid = await harness.create_ready()
    (thing,) = harness.world.holds(provider="identity", agent=uid)
    await harness.fakes.identity.remove(thing.key)
    await looks(harness)
    (found,) = await run_and_list(harness)
    assert found.kind is FindingKind.DRIFT
    assert "burned" in found.body["error"]


@agent_test
async def test_what_only_a_newer_release_can_make_again_is_told_and_holds_up_nothing(harness):
    older, plan = harness.plane, PLANS["create_agent"]
    newer = Plan(plan.name, stages=plan.stages, version=2, subject=plan.subject)
    harness.catalogue = Catalogue((*harness.catalogue, newer), SUBJECTS)
    newer = (await harness.start("newer")).plane
    strange = await harness.create_ready()
    harness.plane = older
    other = await harness.create_ready("beta")
    for agent in (strange, other):
        (thing,) = harness.world.holds(provider="identity", agent=agent)
        del harness.world.things["identity", thing.key.text]
    await looks(harness)
    assert ("identity" in harness.holders(strange), "identity" in harness.holders(other)) == (
        False,
        True,
    )
    (found,) = await run_and_list(harness)
    assert (found.agent, found.kind) == (strange, FindingKind.DRIFT)
    assert "nobody here knows how to perform create_agent@2/" in found.body["error"]
    await harness.loop_until(found.body["again_at"])
    harness.plane = newer
    await looks(harness)
    assert "identity" in harness.holders(strange)
    assert await run_and_list(harness) == []


@agent_test
async def test_a_provider_that_cannot_be_asked_is_not_clean(harness):
    await harness.create_ready()
    fault(harness, "access", "inspect", Fault.BUSY)
    await drift.tick(harness.plane)
    (found,) = await run_and_list(harness)
    assert found.kind is FindingKind.UNVERIFIABLE
    await drift.tick(harness.plane)
    assert await run_and_list(harness) == []


@agent_test
async def test_a_look_that_was_not_answered_is_no_sighting(harness):
    uid = await harness.create_ready()
    fault(harness, "access", "inspect", Fault.BUSY)
    await drift.tick(harness.plane)
    (thing,) = harness.world.holds(provider="access", agent=uid)
    del harness.world.things["access", thing.key.text]
    assert (await drift.tick(harness.plane)).fixed == 0, "it was seen to be gone once"
    assert "access" not in harness.holders(uid)
    await asyncio.sleep(drift.SOON_SECONDS)
    assert (await drift.tick(harness.plane)).fixed == 1
    assert "access" in harness.holders(uid)


@agent_test
async def test_a_registration_that_lapses_soon_is_told(harness):
    await harness.create_ready()
    real = harness.fakes.credentials._inspect
    lapses_at = harness.plane.store.now() + 3_600

    def inspect(key, what):
        found = real(key, what)
        return found._replace(reference={**found.reference, "lapses_at": lapses_at})

    harness.fakes.credentials._inspect = inspect
    await drift.tick(harness.plane)
    (found,) = await run_and_list(harness)
    assert (found.kind, found.body["provider"]) == (FindingKind.CONFIRMED, "credentials")
    lapses_at += drift.LAPSE_SECONDS
    await drift.tick(harness.plane)
    assert await run_and_list(harness) == []


@agent_test
async def test_a_close_wins_over_a_recovery_under_way(harness):
    uid = await harness.create_ready()
    kill(harness, uid)
    fault(harness, "runtime", "ensure", Fault.SLOW)
    await looks(harness, 2)
    await asyncio.sleep(0.1)
    assert (await harness.run_verb("delete")).state == "SUCCEEDED"
    assert harness.holders(uid) == []
    assert await harness.violations() == []


@agent_test
async def test_what_a_deleted_granter_gave_does_not_come_back_with_a_repair(harness):
    granter = await harness.create_ready("granter")
    asking = CALLER._replace(principal=granter)
    asked = await agents.create_agent(harness.plane, asking, spec_of("one"))
    uid = (await harness.wait_for(asked)).agent
    await harness.run_verb("delete", "granter")
    (thing,) = harness.world.holds(provider="access", agent=uid)
    assert harness.fakes.access.granted_by(granter) == []
    del harness.world.things["access", thing.key.text]
    await looks(harness)
    (again,) = harness.world.holds(provider="access", agent=uid)
    assert (again.spec["roles"], again.spec["teams"]) == ([], [])
    assert harness.fakes.access.granted_by(granter) == []


@agent_test
async def test_what_is_somebody_elses_by_now_is_told_and_left(harness):
    uid = await harness.create_ready()
    (thing,) = harness.world.holds(provider="identity", agent=uid)
    thing.owner = "another"
    await looks(harness)
    (found,) = await run_and_list(harness)
    assert (found.kind, found.resource) == (FindingKind.UNVERIFIABLE, thing.key.text)
    assert harness.world.things["identity", thing.key.text].owner == "another"


@agent_test
async def test_what_differed_and_is_no_longer_held_is_settled_though_an_operation_works(harness):
    """Seen in an old view: the credentials are gone because a delete, which is stuck, took them."""
    uid = await harness.create_ready()
    (thing,) = harness.world.holds(provider="credentials", agent=uid)
    del harness.world.things["credentials", thing.key.text]
    await looks(harness, 1)
    (found,) = await run_and_list(harness)
    assert found.resource == thing.key.text
    fault(harness, "access", "remove", Fault.REFUSED)
    assert (await harness.run_verb("delete")).state == "STUCK"
    await looks(harness, 1)
    assert await run_and_list(harness) == []


@agent_test
async def test_an_agent_that_changes_while_it_is_looked_at_is_left_for_the_next_look(
    harness, monkeypatch
):
    uid = await harness.create_ready()
    (thing,) = harness.world.holds(provider="identity", agent=uid)
    del harness.world.things["identity", thing.key.text]
    await looks(harness, 1)
    read = handle.load_handle

    async def meanwhile(*args):
        found = await read(*args)
        await harness.run_verb("suspend")
        return found

    monkeypatch.setattr(drift, "load_handle", meanwhile)
    await drift.tick(harness.plane)
    assert harness.world.holds(provider="identity", agent=uid) == []
    (found,) = [one for one in await run_and_list(harness) if one.resource == thing.key.text]
    assert "has changed" in str(found.body["error"])
    monkeypatch.setattr(drift, "load_handle", read)
    await harness.loop_until(harness.plane.store.now() + DRIFT_REPAIR.first_seconds + 1)
    await looks(harness)
    assert len(harness.world.holds(provider="identity", agent=uid)) == 1


@agent_test
async def test_what_an_open_operation_has_made_is_its_own_to_make_again(harness, monkeypatch):
    uid = await harness.create_ready()
    (thing,) = harness.world.holds(provider="identity", agent=uid)
    del harness.world.things["identity", thing.key.text]
    await looks(harness, 1)

    async def nobody(*_):
        return None

    with patched(drift, load_handle=nobody):
        await drift.tick(harness.plane)
    (found,) = await run_and_list(harness)
    assert "has not ended" in str(found.body["error"])
    assert harness.world.holds(provider="identity", agent=uid) == []
