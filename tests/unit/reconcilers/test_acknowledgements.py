"""Acknowledgements: nobody waits for who is gone, and who is silent is told by name."""

import asyncio

from proofs.agents.lifecycle import CALLER, TENANT
from tenure.app.agents import commands as agents
from tenure.app.events import acknowledgements, subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.operations import reads
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.finding import FindingKind
from tenure.core.operation import OperationState
from tenure.core.records import AcknowledgementRecord, OperationRecord
from tenure.core.subscription import SubscriptionKind as How
from tenure.ports.store import Change, Drop, Put, Row
from tenure.reconcilers import acknowledgements as watched
from tenure.reconcilers.passes import Pass
from tests.unit.support.agent_planes import agent_test


async def waiting(harness, verb="delete"):
    """An agent whose end a required subscriber holds up; the subscription and the operation."""
    await harness.create_ready()
    asked = SubscriptionRequest("billing", How.PULL, required=True)
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    operation = await getattr(agents, f"{verb}_agent")(harness.plane, CALLER, "alpha")
    await harness.loop_until(harness.plane.store.now() + 30)
    assert await state_of(harness, operation.id) == OperationState.WAITING
    return view.id, operation.id


async def state_of(harness, operation):
    return (await reads.get_operation(harness.plane, TENANT, operation)).state


async def list_findings(harness):
    found = await findings.list_findings(harness.plane, CALLER)
    return [(one.reconciler, one.kind, one.body["subscription"]) for one in found]


async def vanish(harness, subscription):
    """As a plane leaves it that dies after it has dropped the row and before it releases."""
    await harness.plane.store.commit(Change("", (), (Drop("subscription", (subscription,)),)))


@agent_test
async def test_what_waits_for_a_subscriber_that_is_gone_is_released(harness):
    subscription, operation = await waiting(harness)
    await vanish(harness, subscription)
    await harness.loop_until(harness.plane.store.now() + 3_600)
    assert await state_of(harness, operation) == OperationState.WAITING, "it is parked: no timer"
    assert await watched.tick(harness.plane) == (1, 1, None)
    await asyncio.sleep(1)
    assert await state_of(harness, operation) == OperationState.SUCCEEDED
    assert harness.world.things == {}
    assert await list_findings(harness) == [
        ("acknowledgements", FindingKind.CONFIRMED, subscription)
    ]
    assert await watched.tick(harness.plane) == (0, 0, None)
    assert await list_findings(harness) == []


@agent_test
async def test_what_only_a_newer_release_can_release_holds_up_no_other(harness):
    for name in ("beta", "gamma"):
        await harness.create_ready(name)
    newer = await harness.boot_newer_release("suspend_agent")
    asked = SubscriptionRequest("audit", How.PULL, required=True)
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    theirs = await agents.suspend_agent(newer, CALLER, "beta")
    ours = await agents.suspend_agent(harness.plane, CALLER, "gamma")
    await harness.loop_until(harness.plane.store.now() + 30)
    await vanish(harness, view.id)
    assert await watched.tick(harness.plane) == (2, 1, None)
    await asyncio.sleep(1)
    assert await state_of(harness, ours.id) == OperationState.SUCCEEDED
    (left,) = [
        row for row in await harness.rows(AcknowledgementRecord) if row.acknowledged_at is None
    ]
    assert left.operation == theirs.id, "nobody has told it"
    found = await findings.list_findings(harness.plane, CALLER)
    told = {one.body["operation"]: one.body["what"] for one in found}
    assert told[theirs.id].endswith("when a process of the newer release leads")
    assert told[ours.id].endswith("and the operation goes on")
    assert await watched.tick(newer) == (1, 1, None)


@agent_test
async def test_who_is_silent_is_told_until_it_has_acknowledged(harness):
    subscription, operation = await waiting(harness, "suspend")
    await watched.tick(harness.plane)
    assert await list_findings(harness) == [], "it has a minute"
    await harness.loop_until(harness.plane.store.now() + watched.REPORT_AFTER_SECONDS)
    for _ in range(2):
        assert await watched.tick(harness.plane) == (1, 0, None)
    assert await list_findings(harness) == [
        ("acknowledgements", FindingKind.CONFIRMED, subscription)
    ]
    assert await state_of(harness, operation) == OperationState.WAITING
    await acknowledgements.acknowledge(harness.plane, CALLER, subscription, operation=operation)
    await watched.tick(harness.plane)
    assert await list_findings(harness) == []
    await asyncio.sleep(1)
    assert await harness.agent_state() is AgentState.SUSPENDED


@agent_test
async def test_what_an_ended_operation_waited_for_is_forgotten(harness):
    await harness.create_ready()
    (row,) = await harness.rows(OperationRecord)
    key = (row.id, "somebody")
    waits: Row = {"tenant": TENANT, "agent": row.agent, "since": 0.0}
    await harness.plane.store.commit(Change("", (), (Put("awaited", key, waits),)))
    assert (await acknowledgements.get_strictness(harness.plane, CALLER)).missing == []
    assert await watched.tick(harness.plane) == (1, 1, None)
    assert await harness.rows(AcknowledgementRecord) == []


@agent_test
async def test_a_plane_that_is_held_releases_nobody(harness):
    subscription, operation = await waiting(harness)
    await vanish(harness, subscription)
    held = Pass(harness.plane, "acknowledgements", read_only=True)
    assert await watched.tick(harness.plane, this_pass=held) == (1, 0, None)
    await asyncio.sleep(1)
    assert await state_of(harness, operation) == OperationState.WAITING
    assert await watched.tick(harness.plane, limit=0) == (1, 0, None)
