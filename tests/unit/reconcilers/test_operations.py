"""Operations: what stands still, is stuck or was abandoned is told for as long as it is so."""

import asyncio

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.operations import commands as operations
from tenure.app.safety import findings
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.reconcilers import operations as watched
from tenure.testing.faults import Fault
from tenure.testing.operators import by
from tests.unit.support.agent_planes import alive, fault


async def seen(lives):
    return await findings.list_findings(lives.plane, CALLER)


@alive
async def test_what_is_stuck_or_abandoned_is_told_until_nothing_is_left(lives):
    fault(lives, "credentials", "ensure", Fault.REFUSED)
    fault(lives, "access", "remove", Fault.REFUSED)
    stuck = await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("alpha")))
    await watched.tick(lives.plane)
    (found,) = await seen(lives)
    assert (found.kind, found.body["operation"]) == (FindingKind.CONFIRMED, stuck.id)
    await operations.abandon(lives.plane, by("ann"), stuck.id)
    await watched.tick(lives.plane)
    (found,) = await seen(lives)
    assert "abandoned by ann" in found.body["what"]
    assert [one["slot"] for one in found.body["left"]] == ["access"]
    lives.fakes.access._refuses.clear()
    assert (await lives.verb("delete")).state == "SUCCEEDED"
    await watched.tick(lives.plane)
    assert await seen(lives) == []


@alive
async def test_what_is_stuck_tells_what_is_there_as_it_is_recorded(lives):
    await lives.made()
    (row,) = await lives.rows("operation")
    lives.disk.tables.rows["operation"][row["id"],].update(ended_at=None, state="STUCK")
    await watched.tick(lives.plane)
    (found,) = await seen(lives)
    assert {one["step"]: one["state"] for one in found.body["left"]} == dict.fromkeys(
        ("identity", "access", "runtime", "credentials"), "PRESENT"
    )


@alive
async def test_an_operation_that_nobody_moves_is_told_and_woken(lives):
    await lives.made()
    (row,) = await lives.rows("operation")
    kept = lives.disk.tables.rows["operation"][row["id"],]
    kept.update(ended_at=None, state="RUNNING", due_at=kept["updated_at"])
    await watched.tick(lives.plane)
    assert await seen(lives) == []
    await asyncio.sleep(watched.OVERDUE_SECONDS + 1)
    assert (await watched.tick(lives.plane)).fixed == 1
    (found,) = await seen(lives)
    assert found.kind is FindingKind.UNVERIFIABLE


@alive
async def test_an_operation_that_was_recorded_by_a_clock_set_back_since_is_told(lives):
    await lives.made()
    (row,) = await lives.rows("operation")
    kept, now = lives.disk.tables.rows["operation"][row["id"],], lives.plane.store.now()
    kept.update(ended_at=None, state="RUNNING", updated_at=now + 59.0, due_at=now + 86_400.0)
    assert (await watched.tick(lives.plane)).fixed == 0
    assert await seen(lives) == [], "clocks differ"
    for ahead in ("updated_at", "created_at"):  # it may have been looked at since
        kept.update(created_at=now, updated_at=now)
        kept.update({ahead: now + 86_390.0})
        await watched.tick(lives.plane)
        (found,) = await seen(lives)
        assert (found.kind, found.body["until"]) == (FindingKind.CONFIRMED, now + 86_400.0)
        assert f"it may stand until {in_utc(now + 86_400.0)}" in found.body["what"]
    kept.update(due_at=None)
    await asyncio.sleep(86_390.0 - 59.0)
    await watched.tick(lives.plane)
    assert await seen(lives) == []


@alive
async def test_what_is_over_is_settled_though_not_all_is_looked_at(lives):
    """With more open operations than a look sees, no look is whole."""
    fault(lives, "access", "remove", Fault.REFUSED)
    await lives.made()
    stuck = await lives.verb("delete")
    assert stuck.state == "STUCK"
    await lives.made("beta")
    row = next(one for one in await lives.rows("operation") if one["kind"] == "create_agent")
    other = {**row, "id": "f" * 32, "ended_at": None, "state": "WAITING"}
    lives.disk.tables.rows["operation"]["f" * 32,] = other
    await watched.tick(lives.plane, limit=1)
    assert [one.body["operation"] for one in await seen(lives)] == [stuck.id]
    await watched.tick(lives.plane, limit=1)
    assert len(await seen(lives)) == 1, "it was not its turn, and it is still so"
    lives.fakes.access._refuses.clear()
    await operations.retry(lives.plane, by("ann"), stuck.id)
    assert (await lives.done(stuck)).state == "SUCCEEDED"
    await watched.tick(lives.plane, limit=1)
    assert await seen(lives) == []
