"""The driver: one process looks, at its own times, and goes on whatever fails."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.app.leader import lease_of
from tenure.app.safety import reconcile_status
from tenure.core.errors import Conflict, Forbidden, Invalid, StoreFull
from tenure.core.records import LeaseRecord
from tenure.ports.store import Change, Set
from tenure.reconcilers import driver, leases
from tenure.reconcilers.driver import RECONCILERS, TTL_SECONDS, Driver, ReconcilePolicy, reconciling
from tenure.reconcilers.passes import LEADERS, Tick
from tests.unit.support.agent_planes import STRANGER, VIEWER, agent_test


@asynccontextmanager
async def running_driver(harness, seconds=20.0):
    one = Driver(harness.plane, clock=harness.clock, policy=ReconcilePolicy(seconds))
    task = asyncio.ensure_future(one.drive())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@agent_test
async def test_every_reconciler_looks_again_and_again(harness):
    async with reconciling(harness.plane, clock=harness.clock, seconds=20.0):
        await asyncio.sleep(100)
        counts = harness.plane.reconcile_state.counts
        assert set(counts) == set(RECONCILERS)
        assert harness.plane.reconcile_state.leads
        looks = await reconcile_status.run_reconcilers(harness.plane, CALLER, "", dry_run=False)
        assert [look.reconciler for look in looks] == list(RECONCILERS)
    assert not harness.plane.reconcile_state.leads
    with pytest.raises(Conflict, match="no reconciler runs"):
        await reconcile_status.run_reconcilers(harness.plane, CALLER, "", dry_run=True)
    for caller in (VIEWER, STRANGER):
        with pytest.raises(Forbidden):
            await reconcile_status.run_reconcilers(harness.plane, caller, "", dry_run=True)


@agent_test
async def test_who_is_asked_to_look_takes_the_lead_and_a_dry_run_does_not(harness):
    async with running_driver(harness) as leads:
        await asyncio.sleep(1)
        other = Driver(harness.plane, clock=harness.clock, policy=ReconcilePolicy())
        assert [look.reconciler for look in await other.run_now("leases", True)] == ["leases"]
        assert (bool(leads.leader.token), other.leader.token) == (True, 0)
        with pytest.raises(Invalid, match="no reconciler 'nobody'"):
            await other.run_now("nobody", True)
        assert [look.error for look in await other.run_now("leases", False)] == [""]
        assert other.leader.token > leads.leader.token
        await asyncio.sleep(TTL_SECONDS - 1)
        assert leads.leader.token == 0, "it has learned that it was deposed"
        with pytest.raises(Conflict, match="leads"):  # as amid a look at all of them
            await leads._tick("orphans", dry_run=False)


@agent_test
async def test_who_was_deposed_stops_looking_and_begins_again_when_it_leads(harness):
    async with running_driver(harness, 5.0):
        await asyncio.sleep(12)
        key = lease_of(LEADERS)
        row = await harness.plane.store.find(LeaseRecord, key)
        assert row is not None
        until = harness.plane.store.now() + 60
        other = {"token": int(str(row.token)) + 1, "holder": "another", "until": until}
        await harness.plane.store.commit(Change("", (), (Set("lease", key, other),)))
        await asyncio.sleep(2 * TTL_SECONDS)
        assert not harness.plane.reconcile_state.leads
        before = sum(one.ticks for one in harness.plane.reconcile_state.counts.values())
        await asyncio.sleep(20)
        assert sum(one.ticks for one in harness.plane.reconcile_state.counts.values()) == before
        await asyncio.sleep(60)
        assert harness.plane.reconcile_state.leads
        assert sum(one.ticks for one in harness.plane.reconcile_state.counts.values()) > before


@agent_test
async def test_a_store_that_cannot_be_asked_is_asked_again(harness, monkeypatch, caplog):
    commit, full = harness.plane.store.commit, [True]

    async def refuse(change):
        if full:
            raise StoreFull("there is no room")
        return await commit(change)

    monkeypatch.setattr(harness.plane.store, "commit", refuse)
    async with running_driver(harness):
        await asyncio.sleep(TTL_SECONDS)
        assert "the leader's lease was not renewed: there is no room" in caplog.text
        assert not harness.plane.reconcile_state.leads
        full.clear()
        await asyncio.sleep(TTL_SECONDS)
        assert harness.plane.reconcile_state.leads
        full.append(True)
    assert "the leader's lease was not released (there is no room)" in caplog.text


@agent_test
async def test_one_that_asks_to_look_sooner_does_and_one_that_fails_waits(harness, monkeypatch):
    looked: list[float] = []

    async def soon(plane, *, limit, this_pass):
        looked.append(plane.store.now())
        if len(looked) == 3:
            raise ZeroDivisionError("a bug")
        return Tick(retry_at=plane.store.now() + 2.0)

    monkeypatch.setattr(leases, "tick", soon)
    monkeypatch.setattr(driver, "RECONCILERS", {"leases": leases})
    async with running_driver(harness, 100.0):
        await asyncio.sleep(400)
    first, second, third, fourth, *_ = looked
    assert (round(second - first), round(third - second)) == (2, 2)
    assert fourth - third > 70
    assert harness.plane.reconcile_state.counts["leases"].failed == 1
