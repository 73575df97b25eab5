"""The driver: one process looks, at its own times, and goes on whatever fails."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.app.safety import reconcile_status
from tenure.core.errors import Conflict, Forbidden, Invalid, StoreFull
from tenure.core.records import LeaseRecord
from tenure.ports.store import Change, Set
from tenure.reconcilers import driver, leases
from tenure.reconcilers.driver import RECONCILERS, TTL_SECONDS, Driver, Ways, reconciling
from tenure.reconcilers.leader import lease_of
from tenure.reconcilers.term import LEADERS, Tick
from tests.unit.support.agent_planes import STRANGER, VIEWER, alive


@asynccontextmanager
async def driven(lives, seconds=20.0):
    one = Driver(lives.plane, clock=lives.clock, ways=Ways(seconds))
    task = asyncio.ensure_future(one.drive())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@alive
async def test_every_reconciler_looks_again_and_again(lives):
    async with reconciling(lives.plane, clock=lives.clock, seconds=20.0):
        await asyncio.sleep(100)
        counts = lives.plane.reconciled.counts
        assert set(counts) == set(RECONCILERS)
        assert lives.plane.reconciled.leads
        looks = await reconcile_status.look_now(lives.plane, CALLER, "", dry_run=False)
        assert [look.reconciler for look in looks] == list(RECONCILERS)
    assert not lives.plane.reconciled.leads
    with pytest.raises(Conflict, match="no reconciler runs"):
        await reconcile_status.look_now(lives.plane, CALLER, "", dry_run=True)
    for caller in (VIEWER, STRANGER):
        with pytest.raises(Forbidden):
            await reconcile_status.look_now(lives.plane, caller, "", dry_run=True)


@alive
async def test_who_is_asked_to_look_takes_the_lead_and_a_dry_run_does_not(lives):
    async with driven(lives) as leads:
        await asyncio.sleep(1)
        other = Driver(lives.plane, clock=lives.clock, ways=Ways())
        assert [look.reconciler for look in await other.look("leases", True)] == ["leases"]
        assert (bool(leads.leader.token), other.leader.token) == (True, 0)
        with pytest.raises(Invalid, match="no reconciler 'nobody'"):
            await other.look("nobody", True)
        assert [look.error for look in await other.look("leases", False)] == [""]
        assert other.leader.token > leads.leader.token
        await asyncio.sleep(TTL_SECONDS - 1)
        assert leads.leader.token == 0, "it has learned that it was deposed"
        with pytest.raises(Conflict, match="leads"):  # as amid a look at all of them
            await leads._tick("orphans", dry_run=False)


@alive
async def test_who_was_deposed_stops_looking_and_begins_again_when_it_leads(lives):
    async with driven(lives, 5.0):
        await asyncio.sleep(12)
        key = lease_of(LEADERS)
        row = await lives.plane.store.find(LeaseRecord, key)
        assert row is not None
        until = lives.plane.store.now() + 60
        other = {"token": int(str(row.token)) + 1, "holder": "another", "until": until}
        await lives.plane.store.commit(Change("", (), (Set("lease", key, other),)))
        await asyncio.sleep(2 * TTL_SECONDS)
        assert not lives.plane.reconciled.leads
        before = sum(one.ticks for one in lives.plane.reconciled.counts.values())
        await asyncio.sleep(20)
        assert sum(one.ticks for one in lives.plane.reconciled.counts.values()) == before
        await asyncio.sleep(60)
        assert lives.plane.reconciled.leads
        assert sum(one.ticks for one in lives.plane.reconciled.counts.values()) > before


@alive
async def test_a_store_that_cannot_be_asked_is_asked_again(lives, monkeypatch, caplog):
    commit, full = lives.plane.store.commit, [True]

    async def refuse(change):
        if full:
            raise StoreFull("there is no room")
        return await commit(change)

    monkeypatch.setattr(lives.plane.store, "commit", refuse)
    async with driven(lives):
        await asyncio.sleep(TTL_SECONDS)
        assert "the lead was not renewed: there is no room" in caplog.text
        assert not lives.plane.reconciled.leads
        full.clear()
        await asyncio.sleep(TTL_SECONDS)
        assert lives.plane.reconciled.leads
        full.append(True)
    assert "the lead is not given back (there is no room)" in caplog.text


@alive
async def test_one_that_asks_to_look_sooner_does_and_one_that_fails_waits(lives, monkeypatch):
    looked: list[float] = []

    async def soon(plane, *, limit, term):
        looked.append(plane.store.now())
        if len(looked) == 3:
            raise ZeroDivisionError("a bug")
        return Tick(retry_at=plane.store.now() + 2.0)

    monkeypatch.setattr(leases, "tick", soon)
    monkeypatch.setattr(driver, "RECONCILERS", {"leases": leases})
    async with driven(lives, 100.0):
        await asyncio.sleep(400)
    first, second, third, fourth, *_ = looked
    assert (round(second - first), round(third - second)) == (2, 2)
    assert fourth - third > 70
    assert lives.plane.reconciled.counts["leases"].failed == 1
