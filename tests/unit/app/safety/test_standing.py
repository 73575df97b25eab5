"""How agents stand: whose runtime is replaced, who is told to be shut, and what waits for what."""

import asyncio
from contextlib import nullcontext

import pytest

from proofs.agents.lifecycle import FakeCredentials
from tenure.app.safety.pause import SPAN
from tenure.core.agent import AgentState
from tenure.core.errors import Unavailable
from tenure.core.finding import FindingKind
from tenure.reconcilers import drift
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.reconcilers.test_drift import kill, looks, seen
from tests.unit.support.agent_planes import alive, fault, instead


async def away(*_):
    raise Unavailable("away")


def silent(lives, slot):
    """A provider that says nothing of what it holds."""
    return instead(lives, slot, inspect=away)


def replaced(lives, uid, dead):
    return lives.world.holds(provider="runtime", agent=uid)[0].key.text != dead


@pytest.mark.parametrize("slot", ["identity", "access"])
def test_a_silent_provider_stops_no_repair_of_what_was_made_since_the_last_restore(slot):
    @alive
    async def looked_at(lives):
        uid = await lives.made()
        dead = kill(lives, uid)
        with silent(lives, slot):
            await looks(lives)
        assert replaced(lives, uid, dead)

    looked_at()


@alive
async def test_after_a_restore_a_silent_provider_stops_a_repair_once(lives):
    """Until a runtime has been replaced: from then on our records tell all of it."""
    uid = await lives.made()
    dead = kill(lives, uid)
    lives.disk.tables.rows["agent"][uid,].update(generation=2 * SPAN + 1)  # a restore
    with silent(lives, "access"):
        await looks(lives)
    assert not replaced(lives, uid, dead)
    told = {one.body["provider"]: one.body["what"] for one in await seen(lives)}
    assert "before all else of the agent is seen" in told["runtime"]
    assert "cannot be asked" in told["access"]
    await looks(lives)
    assert replaced(lives, uid, dead)
    dead = kill(lives, uid)
    with silent(lives, "access"):
        await looks(lives)
    assert replaced(lives, uid, dead)


@alive
async def test_an_agent_that_is_shut_while_its_runtime_lives_is_told(lives):
    """Suspended since the backup, with its runtime kept."""
    uid = await lives.made()
    lives.fakes.credentials.door.stands[uid] = (1, True)
    await looks(lives)
    (found,) = await seen(lives)
    assert (found.kind, found.body["provider"]) == (FindingKind.DRIFT, "credentials")
    assert "looks suspended elsewhere" in found.body["what"]
    assert "tenure agent suspend alpha" in found.body["what"]
    kill(lives, uid)
    with instead(lives, "credentials", is_open=away):
        await looks(lives)
    slots = sorted(one.body["provider"] for one in await seen(lives))
    assert slots == ["credentials", "runtime"], "that it was opened nobody has said"
    await lives.verb("suspend")
    await lives.verb("resume")
    await looks(lives)
    assert await seen(lives) == []


@alive
async def test_an_agent_that_is_suspended_while_it_is_looked_at_is_not_told_of(lives):
    await lives.made()
    ask = lives.plane.providers["credentials"].is_open

    async def meanwhile(*given):
        await lives.verb("suspend")
        return await ask(*given)

    with instead(lives, "credentials", is_open=meanwhile):
        await drift.tick(lives.plane)
    assert await lives.rows("finding") == []
    assert await lives.state() is AgentState.SUSPENDED


@pytest.mark.parametrize("error", [TimeoutError, Unavailable("is busy")])
def test_whether_an_agent_is_open_that_cannot_be_told_is_a_finding(error):
    @alive
    async def looked_at(lives):
        await lives.made()

        async def nobody(*_):
            raise error

        with patched(FakeCredentials, is_open=nobody):
            await looks(lives)
        (found,) = await seen(lives)
        assert (found.kind, found.body["provider"]) == (FindingKind.UNVERIFIABLE, "credentials")
        assert "whether the agent is open cannot be told" in found.body["what"]
        await looks(lives)
        assert await seen(lives) == []

    looked_at()


@alive
async def test_a_provider_that_hangs_is_not_asked_twice_of_one_agent_at_a_look(lives):
    await lives.made()
    asked = []

    async def hangs(*given):
        asked.append(given)
        await asyncio.sleep(1e6)

    with instead(lives, "credentials", inspect=hangs, is_open=hangs):
        await drift.tick(lives.plane)
    assert len(asked) == 1


@alive
async def test_what_cannot_be_told_now_and_then_makes_no_attempt_sooner(lives):
    """Neither whether the agent is open, nor how its runtime is."""
    kill(lives, await lives.made())
    for nth in range(2, 40):
        fault(lives, "runtime", "ensure", Fault.NEVER_READY, nth)
    for number in range(80):
        slot, verb = (("credentials", "is_open"), ("runtime", "inspect"))[number // 2 % 2]
        with instead(lives, slot, **{verb: away}) if number % 2 else nullcontext():
            await drift.tick(lives.plane)
        await asyncio.sleep(3)
    asked = [row for row in await lives.rows("operation") if row["kind"] == "recover_runtime"]
    assert 2 <= len(asked) <= 4
