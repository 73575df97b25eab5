"""Leases: those of the dead go."""

import asyncio

from tenure.reconcilers import leases
from tenure.reconcilers.leader import Leader, lease_of
from tenure.reconcilers.term import LEADERS
from tests.unit.app.lives import alive


@alive
async def test_leases_of_the_dead_go_and_those_of_leaders_stay(lives):
    for name in (LEADERS, "relay"):
        await Leader(lives.plane, name, ttl_seconds=1.0).renew()
    old = await lives.start("another")
    old.crash()
    await lives.start("a third")
    await asyncio.sleep(leases.KEPT_SECONDS + 60)
    assert (await leases.tick(lives.plane)).fixed == 1
    names = [row["name"] for row in await lives.rows("lease")]
    assert {*lease_of(LEADERS), *lease_of("relay")} < {*names}
    assert len(names) == 4
