"""Operations: what stands still, is stuck or was abandoned is told for as long as it is so."""

import asyncio

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.operations import commands as operations
from tenure.app.safety import findings
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.records import OperationRecord
from tenure.core.records.table import dict_of
from tenure.reconcilers import operations as watched
from tenure.testing.faults import Fault
from tenure.testing.operators import by
from tests.unit.support.agent_planes import agent_test, fault


async def run_and_list(harness):
    return await findings.list_findings(harness.plane, CALLER)


@agent_test
async def test_what_is_stuck_or_abandoned_is_told_until_nothing_is_left(harness):
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    fault(harness, "access", "remove", Fault.REFUSED)
    stuck = await harness.wait_for(
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    )
    await watched.tick(harness.plane)
    (found,) = await run_and_list(harness)
    assert (found.kind, found.body["operation"]) == (FindingKind.CONFIRMED, stuck.id)
    await operations.abandon(harness.plane, by("ann"), stuck.id)
    await watched.tick(harness.plane)
    (found,) = await run_and_list(harness)
    assert "abandoned by ann" in found.body["what"]
    assert [one["slot"] for one in found.body["left"]] == ["access"]
    harness.fakes.access._refuses.clear()
    assert (await harness.run_verb("delete")).state == "SUCCEEDED"
    await watched.tick(harness.plane)
    assert await run_and_list(harness) == []


@agent_test
async def test_what_is_stuck_tells_what_is_there_as_it_is_recorded(harness):
    await harness.create_ready()
    (row,) = await harness.rows(OperationRecord)
    harness.disk.tables.rows["operation"][row.id,].update(ended_at=None, state="STUCK")
    await watched.tick(harness.plane)
    (found,) = await run_and_list(harness)
    assert {one["step"]: one["state"] for one in found.body["left"]} == dict.fromkeys(
        ("identity", "access", "runtime", "credentials"), "PRESENT"
    )


@agent_test
async def test_an_operation_that_nobody_moves_is_told_and_woken(harness):
    await harness.create_ready()
    (row,) = await harness.rows(OperationRecord)
    kept = harness.disk.tables.rows["operation"][row.id,]
    kept.update(ended_at=None, state="RUNNING", due_at=kept["updated_at"])
    await watched.tick(harness.plane)
    assert await run_and_list(harness) == []
    await asyncio.sleep(watched.OVERDUE_SECONDS + 1)
    assert (await watched.tick(harness.plane)).fixed == 1
    (found,) = await run_and_list(harness)
    assert found.kind is FindingKind.UNVERIFIABLE


@agent_test
async def test_an_operation_that_was_recorded_by_a_clock_set_back_since_is_told(harness):
    await harness.create_ready()
    (row,) = await harness.rows(OperationRecord)
    kept, now = harness.disk.tables.rows["operation"][row.id,], harness.plane.store.now()
    kept.update(ended_at=None, state="RUNNING", updated_at=now + 59.0, due_at=now + 86_400.0)
    assert (await watched.tick(harness.plane)).fixed == 0
    assert await run_and_list(harness) == [], "clocks differ"
    for ahead in ("updated_at", "created_at"):  # it may have been looked at since
        kept.update(created_at=now, updated_at=now)
        kept.update({ahead: now + 86_390.0})
        await watched.tick(harness.plane)
        (found,) = await run_and_list(harness)
        assert (found.kind, found.body["until"]) == (FindingKind.CONFIRMED, now + 86_400.0)
        assert f"may not continue before {in_utc(now + 86_400.0)}" in found.body["what"]
    kept.update(due_at=None)
    await asyncio.sleep(86_390.0 - 59.0)
    await watched.tick(harness.plane)
    assert await run_and_list(harness) == []


@agent_test
async def test_what_is_over_is_settled_though_not_all_is_looked_at(harness):
    """With more open operations than a look sees, no look is whole."""
    fault(harness, "access", "remove", Fault.REFUSED)
    await harness.create_ready()
    stuck = await harness.run_verb("delete")
    assert stuck.state == "STUCK"
    await harness.create_ready("beta")
    row = next(
        one for one in await harness.rows(OperationRecord) if one.plan_name == "create_agent"
    )
    other = {**dict_of(row), "id": "f" * 32, "ended_at": None, "state": "WAITING"}
    harness.disk.tables.rows["operation"]["f" * 32,] = other
    await watched.tick(harness.plane, limit=1)
    assert [one.body["operation"] for one in await run_and_list(harness)] == [stuck.id]
    await watched.tick(harness.plane, limit=1)
    assert len(await run_and_list(harness)) == 1, "it was not its turn, and it is still so"
    harness.fakes.access._refuses.clear()
    await operations.retry(harness.plane, by("ann"), stuck.id)
    assert (await harness.wait_for(stuck)).state == "SUCCEEDED"
    await watched.tick(harness.plane, limit=1)
    assert await run_and_list(harness) == []
