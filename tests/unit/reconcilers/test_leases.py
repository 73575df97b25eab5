"""Leases: those of the dead go."""

import asyncio

from tenure.app.leader import Leader, lease_of
from tenure.app.safety import findings
from tenure.app.tenancy import tokens
from tenure.core.finding import FindingKind
from tenure.core.records import LeaseRecord
from tenure.core.roles import Caller, Role
from tenure.ports.store import Change, Set
from tenure.reconcilers import leases
from tenure.reconcilers.passes import LEADERS, Pass
from tests.unit.support.agent_planes import agent_test

OWNER = Caller(tokens.PLANE_TENANT, "admin", Role.ADMIN)


@agent_test
async def test_leases_of_the_dead_go_and_those_of_leaders_stay(harness):
    for name in (LEADERS, "relay"):
        await Leader(harness.plane, name, ttl_seconds=1.0).renew()
    old = await harness.start("another")
    old.crash()
    await harness.start("a third")
    await asyncio.sleep(leases.RETENTION_SECONDS + 60)
    held = Pass(harness.plane, "leases", read_only=True)
    assert (await leases.tick(harness.plane, this_pass=held)).fixed == 0
    assert (await leases.tick(harness.plane)).fixed == 1
    (found,) = await findings.list_findings(harness.plane, OWNER)
    assert (found.reconciler, found.kind, found.sightings) == ("leases", FindingKind.CONFIRMED, 2)
    assert (await leases.tick(harness.plane)).fixed == 0
    assert await findings.list_findings(harness.plane, OWNER) == []
    names = [row.name for row in await harness.rows(LeaseRecord)]
    assert {*lease_of(LEADERS), *lease_of("relay")} < {*names}
    assert len(names) == 4


@agent_test
async def test_a_holder_that_was_only_asleep_keeps_its_lease(harness, monkeypatch):
    old = await harness.start("another")
    old.crash()
    await harness.start("a third")
    await asyncio.sleep(leases.RETENTION_SECONDS + 60)
    commit = harness.plane.store.commit
    (name,) = [
        (row.name,)
        for row in await harness.rows(LeaseRecord)
        if row.until < harness.plane.store.now() - leases.RETENTION_SECONDS
    ]

    async def just_before(change):
        until = harness.plane.store.now() + 60
        await commit(Change("", (), (Set("lease", name, {"until": until}),)))
        return await commit(change)

    monkeypatch.setattr(harness.plane.store, "commit", just_before)
    assert (await leases.tick(harness.plane)).fixed == 0
    assert name[0] in [row.name for row in await harness.rows(LeaseRecord)]
    assert await findings.list_findings(harness.plane, OWNER) == []
