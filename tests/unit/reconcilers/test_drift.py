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
from tenure.core.retry import DRIFT_REPAIR
from tenure.plans.catalogue import Catalogue
from tenure.reconcilers import drift
from tenure.reconcilers import operations as watched
from tenure.reconcilers.term import Term
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import alive, fault


async def seen(lives):
    return await findings.list_findings(lives.plane, CALLER)


def kill(lives, uid):
    """The runtime of an agent dies; its key."""
    (thing,) = lives.world.holds(provider="runtime", agent=uid)
    lives.fakes.runtime.stopped.add(thing.key.text)
    return thing.key.text


async def looks(lives, count=4, **ways):
    for _ in range(count):
        await drift.tick(lives.plane, term=Term(lives.plane, "drift", **ways))
        await asyncio.sleep(drift.SOON_SECONDS)


@alive
async def test_a_runtime_that_died_is_replaced_under_a_new_generation(lives):
    uid = await lives.made()
    dead = kill(lives, uid)
    first = await drift.tick(lives.plane)
    assert (first.fixed, first.retry_at is not None) == (0, True)
    assert lives.world.holds(provider="runtime", agent=uid)[0].key.text == dead
    await looks(lives)
    (thing,) = lives.world.holds(provider="runtime", agent=uid)
    assert thing.key.text != dead
    assert thing.key.generation == 2
    assert await lives.state() is AgentState.READY
    _, address = await invocations.address_of(lives.plane, CALLER, "alpha")
    assert address == f"{thing.key.text}:1"
    assert await seen(lives) == []
    assert await lives.wrong() == []
    kinds = [row["kind"] for row in await lives.rows("operation")]
    assert kinds == ["create_agent", "recover_runtime"]


def died_and_lost(lives, uid, *slots):
    """The runtime of an agent is gone, and what it holds in these slots."""
    for thing in lives.world.holds(agent=uid):
        if thing.provider in {"runtime", *slots}:
            del lives.world.things[thing.provider, thing.key.text]


@pytest.mark.parametrize("lost", ["identity", "access", "credentials"])
def test_an_agent_that_was_deleted_elsewhere_does_not_come_back(lost):
    @alive
    async def looked_at(lives):
        uid = await lives.made()
        died_and_lost(lives, uid, lost)
        left = lives.held(uid)
        await looks(lives)
        assert lives.held(uid) == left, "nothing is made anew"
        found = await seen(lives)
        assert {one.body["provider"] for one in found} == {"runtime", lost}
        assert all("tenure agent delete alpha" in one.body["what"] for one in found)
        assert (await lives.verb("delete")).state == "SUCCEEDED"
        await looks(lives)
        assert await seen(lives) == []

    looked_at()


@alive
async def test_an_agent_that_was_suspended_elsewhere_is_not_started_until_it_is_resumed(lives):
    uid = await lives.made()
    died_and_lost(lives, uid)
    lives.fakes.credentials.door.stands[uid] = (1, True)
    await looks(lives)
    assert "runtime" not in lives.held(uid)
    (found,) = await seen(lives)
    assert "looks suspended elsewhere" in found.body["what"]
    await lives.verb("suspend")
    await lives.verb("resume")
    await looks(lives)
    assert ("runtime" in lives.held(uid), await seen(lives)) == (True, [])


@pytest.mark.parametrize("error", [TimeoutError, Unavailable("is busy")])
def test_a_runtime_waits_for_a_provider_that_cannot_say_whether_its_agent_is_open(error):
    @alive
    async def looked_at(lives):
        uid = await lives.made()
        dead = kill(lives, uid)

        async def nobody(*_):
            raise error

        with patched(FakeCredentials, is_open=nobody):
            await looks(lives)
        (found,) = await seen(lives)
        assert "before all else of the agent is seen" in found.body["what"]
        assert lives.world.holds(provider="runtime", agent=uid)[0].key.text == dead
        await looks(lives)
        assert lives.world.holds(provider="runtime", agent=uid)[0].key.text != dead
        assert await seen(lives) == []

    looked_at()


@alive
async def test_a_client_that_is_gone_is_made_again_before_a_runtime_that_died(lives):
    uid = await lives.made()
    dead = kill(lives, uid)
    (thing,) = lives.world.holds(provider="identity", agent=uid)
    del lives.world.things["identity", thing.key.text]
    await looks(lives, 2)
    assert "identity" in lives.held(uid)
    assert lives.world.holds(provider="runtime", agent=uid)[0].key.text == dead
    await looks(lives)
    assert lives.world.holds(provider="runtime", agent=uid)[0].key.text != dead
    assert await seen(lives) == []


@alive
async def test_without_the_look_at_all_else_a_deleted_agent_comes_back(lives):
    """The ablation: the rule is what keeps it away."""
    uid = await lives.made()
    died_and_lost(lives, uid, "identity")

    with patched(drift, _left_alone=lambda *_: {}):
        await looks(lives)
    assert {"identity", "runtime"} <= set(lives.held(uid))


@alive
async def test_who_asked_for_a_report_is_told_and_nothing_is_done(lives):
    uid = await lives.made(on_drift="report")
    other = await lives.made("beta", on_drift="repair")
    dead, also = kill(lives, uid), kill(lives, other)
    await looks(lives, repairs=False)
    assert lives.world.holds(provider="runtime", agent=uid)[0].key.text == dead
    assert lives.world.holds(provider="runtime", agent=other)[0].key.text != also
    (found,) = await seen(lives)
    assert (found.kind, found.agent, found.resource) == (FindingKind.DRIFT, uid, dead)


@alive
async def test_the_new_one_serves_even_if_the_old_one_cannot_be_removed(lives):
    uid = await lives.made()
    dead = kill(lives, uid)
    fault(lives, "runtime", "remove", Fault.REFUSED)
    await looks(lives, 2)
    await asyncio.sleep(30)
    _, address = await invocations.address_of(lives.plane, CALLER, "alpha")
    assert address != f"{dead}:1"
    await watched.tick(lives.plane)
    assert {one.reconciler for one in await seen(lives)} == {"operations", "drift"}


@alive
async def test_one_that_never_comes_up_is_tried_less_and_less_often(lives):
    uid = await lives.made()
    dead = kill(lives, uid)
    for nth in range(2, 40):
        fault(lives, "runtime", "ensure", Fault.NEVER_READY, nth)
    for _ in range(200):
        await drift.tick(lives.plane)
        await asyncio.sleep(3)
    asked = [row for row in await lives.rows("operation") if row["kind"] == "recover_runtime"]
    assert 3 <= len(asked) <= 6
    assert {row["state"] for row in asked} <= {"COMPENSATED", "RUNNING"}
    assert dead in [thing.key.text for thing in lives.world.holds(provider="runtime", agent=uid)]
    assert any(one.kind is FindingKind.DRIFT for one in await seen(lives))


@alive
async def test_what_was_tried_for_months_is_tried_again(lives):
    uid = await lives.made()
    (thing,) = lives.world.holds(provider="identity", agent=uid)
    await lives.fakes.identity.remove(thing.key)
    await looks(lives, count=2)
    (row,) = await lives.rows("finding")
    kept = lives.disk.tables.rows["finding"][row["id"],]
    kept["body"] = encode({**json.loads(row["body"]), "attempts": 5_000, "again_at": 0.0})
    assert (await drift.tick(lives.plane)).retry_at is not None
    (found,) = await seen(lives)
    assert found.body["attempts"] == 5_001
    assert 0 < found.body["again_at"] - lives.plane.store.now() <= DRIFT_REPAIR.cap_seconds


@alive
async def test_a_client_deleted_behind_our_back_is_made_again_or_told(lives):
    uid = await lives.made()
    other = await lives.made("beta", on_drift="report")
    for agent in (uid, other):
        (thing,) = lives.world.holds(provider="identity", agent=agent)
        del lives.world.things["identity", thing.key.text]
    await looks(lives)
    assert "identity" in lives.held(uid)
    assert "identity" not in lives.held(other)
    (found,) = await seen(lives)
    assert (found.agent, found.kind) == (other, FindingKind.DRIFT)
    assert "behind our back" in found.body["what"]


@alive
async def test_a_burned_key_is_told_and_not_made_again(lives):
    uid = await lives.made()
    (thing,) = lives.world.holds(provider="identity", agent=uid)
    await lives.fakes.identity.remove(thing.key)
    await looks(lives)
    (found,) = await seen(lives)
    assert found.kind is FindingKind.DRIFT
    assert "burned" in found.body["error"]


@alive
async def test_what_only_a_newer_release_can_make_again_is_told_and_holds_up_nothing(lives):
    older, plan = lives.plane, PLANS["create_agent"]
    newer = Plan(plan.name, stages=plan.stages, version=2, subject=plan.subject)
    lives.catalogue = Catalogue((*lives.catalogue, newer), SUBJECTS)
    newer = (await lives.start("newer")).plane
    strange = await lives.made()
    lives.plane = older
    other = await lives.made("beta")
    for agent in (strange, other):
        (thing,) = lives.world.holds(provider="identity", agent=agent)
        del lives.world.things["identity", thing.key.text]
    await looks(lives)
    assert ("identity" in lives.held(strange), "identity" in lives.held(other)) == (False, True)
    (found,) = await seen(lives)
    assert (found.agent, found.kind) == (strange, FindingKind.DRIFT)
    assert "nobody here knows how to perform create_agent@2/" in found.body["error"]
    await lives.loop_until(found.body["again_at"])
    lives.plane = newer
    await looks(lives)
    assert "identity" in lives.held(strange)
    assert await seen(lives) == []


@alive
async def test_a_provider_that_cannot_be_asked_is_not_clean(lives):
    await lives.made()
    fault(lives, "access", "inspect", Fault.BUSY)
    await drift.tick(lives.plane)
    (found,) = await seen(lives)
    assert found.kind is FindingKind.UNVERIFIABLE
    await drift.tick(lives.plane)
    assert await seen(lives) == []


@alive
async def test_a_look_that_was_not_answered_is_no_sighting(lives):
    uid = await lives.made()
    fault(lives, "access", "inspect", Fault.BUSY)
    await drift.tick(lives.plane)
    (thing,) = lives.world.holds(provider="access", agent=uid)
    del lives.world.things["access", thing.key.text]
    assert (await drift.tick(lives.plane)).fixed == 0, "it was seen to be gone once"
    assert "access" not in lives.held(uid)
    await asyncio.sleep(drift.SOON_SECONDS)
    assert (await drift.tick(lives.plane)).fixed == 1
    assert "access" in lives.held(uid)


@alive
async def test_a_registration_that_lapses_soon_is_told(lives):
    await lives.made()
    real = lives.fakes.credentials._inspect
    lapses_at = lives.plane.store.now() + 3_600

    def inspect(key, what):
        found = real(key, what)
        return found._replace(reference={**found.reference, "lapses_at": lapses_at})

    lives.fakes.credentials._inspect = inspect
    await drift.tick(lives.plane)
    (found,) = await seen(lives)
    assert (found.kind, found.body["provider"]) == (FindingKind.CONFIRMED, "credentials")
    lapses_at += drift.LAPSE_SECONDS
    await drift.tick(lives.plane)
    assert await seen(lives) == []


@alive
async def test_a_close_wins_over_a_recovery_under_way(lives):
    uid = await lives.made()
    kill(lives, uid)
    fault(lives, "runtime", "ensure", Fault.SLOW)
    await looks(lives, 2)
    await asyncio.sleep(0.1)
    assert (await lives.verb("delete")).state == "SUCCEEDED"
    assert lives.held(uid) == []
    assert await lives.wrong() == []


@alive
async def test_what_a_deleted_granter_gave_does_not_come_back_with_a_repair(lives):
    granter = await lives.made("granter")
    asking = CALLER._replace(principal=granter)
    asked = await agents.create_agent(lives.plane, asking, spec_of("one"))
    uid = (await lives.done(asked)).agent
    await lives.verb("delete", "granter")
    (thing,) = lives.world.holds(provider="access", agent=uid)
    assert lives.fakes.access.granted_by(granter) == []
    del lives.world.things["access", thing.key.text]
    await looks(lives)
    (again,) = lives.world.holds(provider="access", agent=uid)
    assert (again.spec["roles"], again.spec["teams"]) == ([], [])
    assert lives.fakes.access.granted_by(granter) == []


@alive
async def test_what_is_somebody_elses_by_now_is_told_and_left(lives):
    uid = await lives.made()
    (thing,) = lives.world.holds(provider="identity", agent=uid)
    thing.owner = "another"
    await looks(lives)
    (found,) = await seen(lives)
    assert (found.kind, found.resource) == (FindingKind.UNVERIFIABLE, thing.key.text)
    assert lives.world.things["identity", thing.key.text].owner == "another"


@alive
async def test_what_differed_and_is_no_longer_held_is_settled_though_an_operation_works(lives):
    """Seen in an old view: the credentials are gone because a delete, which is stuck, took them."""
    uid = await lives.made()
    (thing,) = lives.world.holds(provider="credentials", agent=uid)
    del lives.world.things["credentials", thing.key.text]
    await looks(lives, 1)
    (found,) = await seen(lives)
    assert found.resource == thing.key.text
    fault(lives, "access", "remove", Fault.REFUSED)
    assert (await lives.verb("delete")).state == "STUCK"
    await looks(lives, 1)
    assert await seen(lives) == []


@alive
async def test_an_agent_that_changes_while_it_is_looked_at_is_left_for_the_next_look(
    lives, monkeypatch
):
    uid = await lives.made()
    (thing,) = lives.world.holds(provider="identity", agent=uid)
    del lives.world.things["identity", thing.key.text]
    await looks(lives, 1)
    read = handle.load_handle

    async def meanwhile(*given):
        found = await read(*given)
        await lives.verb("suspend")
        return found

    monkeypatch.setattr(drift, "load_handle", meanwhile)
    await drift.tick(lives.plane)
    assert lives.world.holds(provider="identity", agent=uid) == []
    (found,) = [one for one in await seen(lives) if one.resource == thing.key.text]
    assert "has changed" in str(found.body["error"])
    monkeypatch.setattr(drift, "load_handle", read)
    await lives.loop_until(lives.plane.store.now() + DRIFT_REPAIR.first_seconds + 1)
    await looks(lives)
    assert len(lives.world.holds(provider="identity", agent=uid)) == 1


@alive
async def test_what_an_open_operation_has_made_is_its_own_to_make_again(lives, monkeypatch):
    uid = await lives.made()
    (thing,) = lives.world.holds(provider="identity", agent=uid)
    del lives.world.things["identity", thing.key.text]
    await looks(lives, 1)

    async def nobody(*_):
        return None

    with patched(drift, load_handle=nobody):
        await drift.tick(lives.plane)
    (found,) = await seen(lives)
    assert "is not over" in str(found.body["error"])
    assert lives.world.holds(provider="identity", agent=uid) == []
