"""Leases: those of the dead go."""

import asyncio

from tenure.app.safety import findings
from tenure.app.tenancy import tokens
from tenure.core.finding import FindingKind
from tenure.core.roles import Caller, Role
from tenure.ports.store import Change, Set
from tenure.reconcilers import leases
from tenure.reconcilers.leader import Leader, lease_of
from tenure.reconcilers.term import LEADERS, Term
from tests.unit.support.agent_planes import alive

OWNER = Caller(tokens.TENANT, "admin", Role.ADMIN)


@alive
async def test_leases_of_the_dead_go_and_those_of_leaders_stay(lives):
    for name in (LEADERS, "relay"):
        await Leader(lives.plane, name, ttl_seconds=1.0).renew()
    old = await lives.start("another")
    old.crash()
    await lives.start("a third")
    await asyncio.sleep(leases.KEPT_SECONDS + 60)
    held = Term(lives.plane, "leases", read_only=True)
    assert (await leases.tick(lives.plane, term=held)).fixed == 0
    assert (await leases.tick(lives.plane)).fixed == 1
    (found,) = await findings.list_findings(lives.plane, OWNER)
    assert (found.reconciler, found.kind, found.sightings) == ("leases", FindingKind.CONFIRMED, 2)
    assert (await leases.tick(lives.plane)).fixed == 0
    assert await findings.list_findings(lives.plane, OWNER) == []
    names = [row["name"] for row in await lives.rows("lease")]
    assert {*lease_of(LEADERS), *lease_of("relay")} < {*names}
    assert len(names) == 4


@alive
async def test_a_holder_that_was_only_asleep_keeps_its_lease(lives, monkeypatch):
    old = await lives.start("another")
    old.crash()
    await lives.start("a third")
    await asyncio.sleep(leases.KEPT_SECONDS + 60)
    commit = lives.plane.store.commit
    (name,) = [
        (row["name"],)
        for row in await lives.rows("lease")
        if row["until"] < lives.plane.store.now() - leases.KEPT_SECONDS
    ]

    async def just_before(change):
        until = lives.plane.store.now() + 60
        await commit(Change("", (), (Set("lease", name, {"until": until}),)))
        return await commit(change)

    monkeypatch.setattr(lives.plane.store, "commit", just_before)
    assert (await leases.tick(lives.plane)).fixed == 0
    assert name[0] in [row["name"] for row in await lives.rows("lease")]
    assert await findings.list_findings(lives.plane, OWNER) == []
