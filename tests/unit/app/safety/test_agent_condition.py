"""How agents stand: whose runtime is replaced, who is told to be shut, and what waits for what."""

import asyncio
from contextlib import nullcontext

import pytest

from proofs.agents.lifecycle import FakeCredentials
from tenure.app.safety.pause import GENERATIONS_PER_EPOCH
from tenure.core.agent import AgentState
from tenure.core.errors import Unavailable
from tenure.core.finding import FindingKind
from tenure.core.records import FindingRecord, OperationRecord
from tenure.reconcilers import drift
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.reconcilers.test_drift import kill, looks, run_and_list
from tests.unit.support.agent_planes import agent_test, fault, override_verbs


async def away(*_):
    raise Unavailable("away")


def silent(harness, slot):
    """A provider that says nothing of what it holds."""
    return override_verbs(harness, slot, inspect=away)


def is_replaced(harness, uid, dead):
    return harness.world.holds(provider="runtime", agent=uid)[0].key.text != dead


@pytest.mark.parametrize("slot", ["identity", "access"])
def test_a_silent_provider_stops_no_repair_of_what_was_made_since_the_last_restore(slot):
    @agent_test
    async def looked_at(harness):
        uid = await harness.create_ready()
        dead = kill(harness, uid)
        with silent(harness, slot):
            await looks(harness)
        assert is_replaced(harness, uid, dead)

    looked_at()


@agent_test
async def test_after_a_restore_a_silent_provider_stops_a_repair_once(harness):
    """Until a runtime has been replaced: from then on our records tell all of it."""
    uid = await harness.create_ready()
    dead = kill(harness, uid)
    harness.disk.tables.rows["agent"][uid,].update(
        generation=2 * GENERATIONS_PER_EPOCH + 1
    )  # a restore
    with silent(harness, "access"):
        await looks(harness)
    assert not is_replaced(harness, uid, dead)
    told = {one.body["provider"]: one.body["what"] for one in await run_and_list(harness)}
    assert "before all other resources of the agent" in told["runtime"]
    assert "cannot be verified" in told["access"]
    await looks(harness)
    assert is_replaced(harness, uid, dead)
    dead = kill(harness, uid)
    with silent(harness, "access"):
        await looks(harness)
    assert is_replaced(harness, uid, dead)


@agent_test
async def test_an_agent_that_is_shut_while_its_runtime_lives_is_told(harness):
    """Suspended since the backup, with its runtime kept."""
    uid = await harness.create_ready()
    harness.fakes.credentials.door.stands[uid] = (1, True)
    await looks(harness)
    (found,) = await run_and_list(harness)
    assert (found.kind, found.body["provider"]) == (FindingKind.DRIFT, "credentials")
    assert "seems to be suspended elsewhere" in found.body["what"]
    assert "tenure agent suspend alpha" in found.body["what"]
    kill(harness, uid)
    with override_verbs(harness, "credentials", is_open=away):
        await looks(harness)
    slots = sorted(one.body["provider"] for one in await run_and_list(harness))
    assert slots == ["credentials", "runtime"], "that it was opened nobody has said"
    await harness.run_verb("suspend")
    await harness.run_verb("resume")
    await looks(harness)
    assert await run_and_list(harness) == []


@agent_test
async def test_an_agent_that_is_suspended_while_it_is_looked_at_is_not_told_of(harness):
    await harness.create_ready()
    ask = harness.plane.providers["credentials"].is_open

    async def meanwhile(*args):
        await harness.run_verb("suspend")
        return await ask(*args)

    with override_verbs(harness, "credentials", is_open=meanwhile):
        await drift.tick(harness.plane)
    assert await harness.rows(FindingRecord) == []
    assert await harness.agent_state() is AgentState.SUSPENDED


@pytest.mark.parametrize("error", [TimeoutError, Unavailable("is busy")])
def test_whether_an_agent_is_open_that_cannot_be_told_is_a_finding(error):
    @agent_test
    async def looked_at(harness):
        await harness.create_ready()

        async def nobody(*_):
            raise error

        with patched(FakeCredentials, is_open=nobody):
            await looks(harness)
        (found,) = await run_and_list(harness)
        assert (found.kind, found.body["provider"]) == (FindingKind.UNVERIFIABLE, "credentials")
        assert "it is unknown whether the agent is open" in found.body["what"]
        await looks(harness)
        assert await run_and_list(harness) == []

    looked_at()


@agent_test
async def test_a_provider_that_hangs_is_not_asked_twice_of_one_agent_at_a_look(harness):
    await harness.create_ready()
    asked = []

    async def hangs(*args):
        asked.append(args)
        await asyncio.sleep(1e6)

    with override_verbs(harness, "credentials", inspect=hangs, is_open=hangs):
        await drift.tick(harness.plane)
    assert len(asked) == 1


@agent_test
async def test_what_cannot_be_told_now_and_then_makes_no_attempt_sooner(harness):
    """Neither whether the agent is open, nor how its runtime is."""
    kill(harness, await harness.create_ready())
    for nth in range(2, 40):
        fault(harness, "runtime", "ensure", Fault.NEVER_READY, nth)
    for number in range(80):
        slot, verb = (("credentials", "is_open"), ("runtime", "inspect"))[number // 2 % 2]
        with override_verbs(harness, slot, **{verb: away}) if number % 2 else nullcontext():
            await drift.tick(harness.plane)
        await asyncio.sleep(3)
    asked = [
        row for row in await harness.rows(OperationRecord) if row.plan_name == "recover_runtime"
    ]
    assert 2 <= len(asked) <= 4
