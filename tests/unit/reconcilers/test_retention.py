"""Retention: what is over goes when it was said to, and what an agent holds stays known."""

import asyncio
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from proofs.agents.lifecycle import CALLER, TENANT, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.events import acknowledgements, subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.leader import Leader
from tenure.app.operations import reads
from tenure.app.safety import findings
from tenure.app.safety.findings import Sighting
from tenure.core.errors import Conflict, NotFound
from tenure.core.finding import FindingKind
from tenure.core.records import (
    AuditRecord,
    FindingRecord,
    IdempotencyRecord,
    IntentRecord,
    JournalRecord,
    OperationRecord,
    TombstoneRecord,
)
from tenure.core.subscription import SubscriptionKind as Way
from tenure.ports.store import Change, Drop, Row, Set
from tenure.reconcilers import drift, late_arrivals, orphans, retention
from tenure.reconcilers.passes import LEADERS, Pass, RetentionPeriods
from tenure.settings import Settings
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tenure.wiring import run_plane
from tests.unit.support.agent_planes import agent_test, fault, options_with_key
from tests.unit.support.late_reconcilers import (
    DAY,
    PLANS,
    RETENTION_RESULT,
    keys,
    on_any_store,
    with_later_clock,
)


async def kinds(harness):
    """The operations that are kept, by what they are."""
    return sorted(row.plan_name for row in await harness.rows(OperationRecord))


async def known_rows(harness, uid):
    rows = await harness.plane.store.list_resources(TENANT, uid)
    return [one.key for one in rows if one.slot]


async def run_lifecycle(harness):
    """An agent that was suspended and is back, and one that is gone; the uid of the first."""
    uid = await harness.create_ready("alpha")
    await harness.create_ready("gone")
    await harness.run_verb("suspend")
    await harness.run_verb("resume")
    await harness.run_verb("delete", "gone")
    return uid


async def kept_after_a_hundred_days(harness):
    """Whether what an agent holds is still known after what is over has gone."""
    uid = await run_lifecycle(harness)
    before, plane = await known_rows(harness, uid), with_later_clock(harness.plane, 100)
    await retention.tick(plane)
    watched = {str(row.operation) for row in await harness.rows(TombstoneRecord)}
    assert watched <= {row.id for row in await harness.rows(OperationRecord)}
    for _ in range(late_arrivals.ABSENCES_MIN):
        await late_arrivals.tick(plane)
    await retention.tick(plane)
    return before == await known_rows(harness, uid)


@agent_test
async def test_an_operation_goes_when_nothing_that_it_made_can_be_there(harness):
    assert await kept_after_a_hundred_days(harness)
    assert await kinds(harness) == ["create_agent", "resume_agent"], "alpha holds what these made"
    for record in (JournalRecord, IntentRecord):
        names = {row.operation for row in await harness.rows(record)}
        assert len(names) == 2
    assert len(await harness.rows(AuditRecord)) == 5, "which is never shortened"
    assert (await harness.run_verb("delete")).state == "SUCCEEDED"
    assert harness.holders() == []
    assert await harness.create_ready("gone")


@agent_test
async def test_ablation_without_a_look_at_intents_an_agents_things_are_forgotten(harness):
    with patched(retention, may_hold=lambda _: False):
        assert not await kept_after_a_hundred_days(harness)


async def came_about_in_the_name_of_a_deleted_agent(harness, *, forgotten):
    """What its token still makes, and what of its grants comes back, when all else of it is over.

    A row that is there says that it is deleted; one that is not says that it was never an agent.
    """
    granter = await harness.create_ready("granter")
    asks = CALLER._replace(principal=granter)
    asked = await agents.create_agent(harness.plane, asks, spec_of("one"))
    uid = (await harness.wait_for(asked)).agent
    await harness.run_verb("delete", "granter")
    plane = with_later_clock(harness.plane, 100)
    for _ in range(late_arrivals.ABSENCES_MIN):
        await late_arrivals.tick(plane)
    await retention.tick(plane)
    assert [row.agent for row in await harness.rows(OperationRecord)] == [uid]
    assert await harness.rows(TombstoneRecord) == []
    if forgotten:
        await harness.plane.store.commit(Change("", (), (Drop("agent", (granter,)),)))
    made = []
    with suppress(Conflict):
        await agents.create_agent(harness.plane, asks, spec_of("two"))
        made.append("an agent")
    with suppress(Conflict):
        await subscriptions.create_subscription(
            harness.plane, asks, SubscriptionRequest("hook", Way.PULL)
        )
        made.append("a subscription")
    (thing,) = harness.world.holds(provider="access", agent=uid)
    del harness.world.things["access", thing.key.text]
    for _ in range(drift.SIGHTINGS + 1):
        await drift.tick(harness.plane)
        await asyncio.sleep(drift.SOON_SECONDS)
    return made + ["a grant" for _ in harness.fakes.access.granted_by(granter)]


@agent_test
async def test_a_deleted_agent_stays_known_for_nothing_may_be_made_in_its_name(harness):
    assert await came_about_in_the_name_of_a_deleted_agent(harness, forgotten=False) == []


@agent_test
async def test_ablation_in_the_name_of_a_deleted_agent_that_is_forgotten_much_is_made(harness):
    came = await came_about_in_the_name_of_a_deleted_agent(harness, forgotten=True)
    assert came == ["an agent", "a subscription", "a grant"]


@agent_test
async def test_nothing_goes_before_its_time_and_nothing_if_it_is_kept_for_ever(harness):
    await run_lifecycle(harness)
    before = await kinds(harness)
    await retention.tick(with_later_clock(harness.plane, 89))
    assert await kinds(harness) == before
    plane = with_later_clock(harness.plane, 10_000)
    await retention.tick(
        plane, this_pass=Pass(plane, "retention", retention=RetentionPeriods(0.0, 0.0))
    )
    assert await kinds(harness) == before


def age(harness, days):
    """All operations so far were so long ago."""
    for row in harness.disk.tables.rows["operation"].values():
        for column in ("created_at", "updated_at", "ended_at"):
            row[column] = float(str(row[column])) - days * DAY


async def nobody_watches(harness):
    """The tombstones have had their time."""
    for _ in range(3):
        await asyncio.sleep(40)
        await late_arrivals.tick(harness.plane)
    assert await harness.rows(TombstoneRecord) == []


@agent_test
async def test_what_an_old_agent_had_is_known_as_long_as_what_a_young_one_had(harness):
    uid = await harness.create_ready("gone")
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    age(harness, 100)
    await harness.run_verb("delete", "gone")
    for days in (60, 60, 100):
        await nobody_watches(harness)
        await retention.tick(harness.plane)
        harness.world.things["runtime", thing.key.text] = thing  # a removal that came to nothing
        await orphans.tick(harness.plane)
        await asyncio.sleep(orphans.APART_SECONDS)
        await orphans.tick(harness.plane)
        assert harness.world.holds(key=thing.key.text) == []
        age(harness, days)
    assert await kinds(harness) == ["create_agent"], "the deletion itself has made nothing"
    await nobody_watches(harness)
    await retention.tick(harness.plane)
    assert await kinds(harness) == []


@agent_test
async def test_what_turns_up_while_its_operation_is_judged_keeps_it_until_it_is_gone(harness):
    """Its removal fails, so that only the tombstone knows of it, and only by its operation."""
    uid = await harness.create_ready("gone")
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    await harness.run_verb("delete", "gone")
    await nobody_watches(harness)
    harness.world.things["runtime", thing.key.text] = thing
    await orphans.tick(harness.plane)
    await asyncio.sleep(orphans.APART_SECONDS)
    age(harness, 100)
    drop = retention._drop

    async def after_a_look_at_orphans(*args):
        if not await harness.rows(TombstoneRecord):
            fault(harness, "runtime", "remove", Fault.BUSY)
            await orphans.tick(harness.plane)
        return await drop(*args)

    with patched(retention, _drop=after_a_look_at_orphans):
        await retention.tick(harness.plane)
    assert harness.holders() == ["runtime"]
    await nobody_watches(harness)
    assert harness.holders() == []


@agent_test
async def test_the_last_runtime_of_an_agent_that_was_just_suspended_is_known(harness):
    uid = await harness.create_ready()
    await harness.run_verb("suspend")
    await harness.run_verb("resume")
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    age(harness, 100)
    await harness.run_verb("suspend")
    await nobody_watches(harness)
    assert (await retention.tick(harness.plane)).fixed == 1, "the first suspend"
    _, key = await agent_views._runtime(harness.plane, CALLER, "alpha")
    assert key is not None
    assert key.text == thing.key.text


@agent_test
async def test_a_key_goes_after_a_day_and_an_operation_not_before_its_key(harness):
    uid = await harness.create_ready()
    await harness.wait_for(
        await agents.suspend_agent(
            harness.plane, CALLER, "alpha", request_options=options_with_key("once")
        )
    )
    plane = with_later_clock(harness.plane, 0.9)
    soon = Pass(plane, "retention", retention=RetentionPeriods(operations=1.0))
    assert (await retention.tick(plane, this_pass=soon)).fixed == 0
    again = await agents.suspend_agent(
        harness.plane, CALLER, "alpha", request_options=options_with_key("once")
    )
    assert again.state == "SUCCEEDED"
    plane = with_later_clock(harness.plane, 1.1)
    soon = Pass(plane, "retention", retention=RetentionPeriods(operations=1.0))
    assert (await retention.tick(plane, this_pass=soon)).fixed == 2
    assert await harness.rows(IdempotencyRecord) == []
    with pytest.raises(NotFound):
        await reads.get_operation(harness.plane, TENANT, again.id)
    assert len(await known_rows(harness, uid)) == 3


@agent_test
async def test_an_acknowledgement_can_be_said_again_for_a_day(harness):
    await harness.create_ready()
    required = SubscriptionRequest("mine", Way.PULL, required=True)
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, required)
    asked = await agents.suspend_agent(harness.plane, CALLER, "alpha")

    async def list_texts():
        return await acknowledgements.acknowledge(
            harness.plane, CALLER, view.id, operation=asked.id
        )

    await retention.tick(with_later_clock(harness.plane, 10))
    first = await list_texts()
    await retention.tick(with_later_clock(harness.plane, 10))
    assert await list_texts() == first, "its operation is still open"
    await harness.wait_for(asked)
    await retention.tick(with_later_clock(harness.plane, 0.9))
    assert await list_texts() == first
    await retention.tick(with_later_clock(harness.plane, 1.1))
    with pytest.raises(NotFound):
        await list_texts()


@agent_test
async def test_a_finding_goes_a_month_after_it_was_resolved(harness):
    rows: list[Any] = [
        await findings.report(
            harness.plane,
            Sighting("leases", FindingKind.CONFIRMED, name, TENANT, "", "", {"what": name}),
        )
        for name in ("over", "still so", "again")
    ]
    for row in (rows[0], rows[2]):
        await findings.resolve(harness.plane, row, by="somebody")
    commit, plane = harness.plane.store.commit, with_later_clock(harness.plane, 31)

    async def just_before(change):
        seen = Set("finding", (rows[2].id,), {"resolved_at": None})
        await commit(Change("", (), (seen,)))
        return await commit(change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.plane.store, "commit", just_before)
        await retention.tick(with_later_clock(harness.plane, 29))
        assert len(await harness.rows(FindingRecord)) == 3
        assert (await retention.tick(plane)).fixed == 1
    left = {row.id for row in await harness.rows(FindingRecord)}
    assert left == {rows[1].id, rows[2].id}, "what was seen again meanwhile stays"


@agent_test
async def test_more_than_one_look_can_do_is_done_by_the_next_and_soon(harness):
    await harness.plane.store.commit(Change("", (), keys(1_000)))
    with patched(retention, ROWS_MAX=200, RULES=(retention.RULES[0]._replace(rows_max=200),)):
        done = await retention.tick(harness.plane, limit=100)
        assert (done.seen, done.fixed) == (100, 100)
        assert done.retry_at == harness.plane.store.now()
        done = await retention.tick(harness.plane, limit=500)
        assert (done.seen, done.fixed, done.retry_at) == (200, 200, harness.plane.store.now())
    assert (await retention.tick(harness.plane)).retry_at == harness.plane.store.now()
    assert (await retention.tick(harness.plane)).retry_at is None
    assert await harness.rows(IdempotencyRecord) == []


@pytest.mark.parametrize(("over", "soon"), [(99, True), (10, True), (9, False)])
def test_what_stays_among_what_goes_does_not_make_it_slow(over, soon):
    agent_test(some_of_a_hundred)(over=over, soon=soon)


async def some_of_a_hundred(harness, over, soon):
    """As many as one look passes, of which some stay; and then one more of each."""
    now = harness.plane.store.now()
    for puts, at in ((keys(200)[:over], 0.0), (keys(200)[over:100], now), (keys(101)[100:], 0.0)):
        for put in puts:
            row: Row = {"operation": "o", "fingerprint": "f", "at": at}
            await harness.plane.store.commit(Change("", (), (replace(put, row=row),)))
    with patched(retention, RULES=(retention.RULES[0]._replace(rows_max=100),)):
        done = await retention.tick(harness.plane, limit=100)
        assert (done.seen, done.fixed) == (100, over)
        assert done.retry_at == (harness.plane.store.now() if soon else None)
        done = await retention.tick(harness.plane, limit=100)
        assert (done.seen, done.fixed, done.retry_at) == (1, 1, None)


@pytest.mark.parametrize("with_fence", [True, False])
def test_who_was_deposed_drops_nothing(with_fence):
    agent_test(drop_after_new_leader)(with_fence=with_fence)


async def drop_after_new_leader(harness, with_fence):
    await harness.plane.store.commit(Change("", (), keys(10)))
    first, second = (Leader(harness.plane, LEADERS) for _ in range(2))
    await first.renew()
    await second.take_over()
    off = nullcontext() if with_fence else patched(Pass, fence=lambda _: ())
    with off:
        this_pass = Pass(harness.plane, "retention", token=first.token)
        done = await retention.tick(harness.plane, this_pass=this_pass)
    assert done.fixed == (0 if with_fence else 10)


@agent_test
async def test_a_plane_that_is_held_tells_and_drops_nothing(harness):
    await harness.plane.store.commit(Change("", (), keys(10)))
    held = Pass(harness.plane, "retention", read_only=True)
    assert (await retention.tick(harness.plane, this_pass=held)).fixed == 0
    (found,) = await findings.list_findings(harness.plane, CALLER)
    assert found.body["what"] == "10 or more idempotency keys are past their retention time"
    assert len(await harness.rows(IdempotencyRecord)) == 10
    assert (await retention.tick(harness.plane)).fixed == 10
    assert await findings.list_findings(harness.plane, CALLER) == []


def test_on_a_file_what_is_over_goes_too(tmp_path):
    async def main():
        settings = Settings(store=str(tmp_path / "tenure.db"))
        async with run_plane(settings, plans=PLANS, providers={}) as plane:
            return await on_any_store(plane)

    assert asyncio.run(main()) == RETENTION_RESULT
