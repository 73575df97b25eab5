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
from tenure.core.subscription import SubscriptionKind as How
from tenure.ports.store import Change, Drop, Put, Row
from tenure.reconcilers import acknowledgements as watched
from tenure.reconcilers.term import Term
from tests.unit.support.agent_planes import alive


async def waiting(lives, verb="delete"):
    """An agent whose end a required subscriber holds up; the subscription and the operation."""
    await lives.made()
    asked = SubscriptionRequest("billing", How.PULL, required=True)
    view, _ = await subscriptions.create_subscription(lives.plane, CALLER, asked)
    operation = await getattr(agents, f"{verb}_agent")(lives.plane, CALLER, "alpha")
    await lives.loop_until(lives.plane.store.now() + 30)
    assert await state_of(lives, operation.id) == OperationState.WAITING
    return view.id, operation.id


async def state_of(lives, operation):
    return (await reads.get_operation(lives.plane, TENANT, operation)).state


async def told(lives):
    found = await findings.list_findings(lives.plane, CALLER)
    return [(one.reconciler, one.kind, one.body["subscription"]) for one in found]


async def vanish(lives, subscription):
    """As a plane leaves it that dies after it has dropped the row and before it releases."""
    await lives.plane.store.commit(Change("", (), (Drop("subscription", (subscription,)),)))


@alive
async def test_what_waits_for_a_subscriber_that_is_gone_is_released(lives):
    subscription, operation = await waiting(lives)
    await vanish(lives, subscription)
    await lives.loop_until(lives.plane.store.now() + 3_600)
    assert await state_of(lives, operation) == OperationState.WAITING, "it is parked: no timer"
    assert await watched.tick(lives.plane) == (1, 1, None)
    await asyncio.sleep(1)
    assert await state_of(lives, operation) == OperationState.SUCCEEDED
    assert lives.world.things == {}
    assert await told(lives) == [("acknowledgements", FindingKind.CONFIRMED, subscription)]
    assert await watched.tick(lives.plane) == (0, 0, None)
    assert await told(lives) == []


@alive
async def test_what_only_a_newer_release_can_release_holds_up_no_other(lives):
    for name in ("beta", "gamma"):
        await lives.made(name)
    newer = await lives.newer("suspend_agent")
    asked = SubscriptionRequest("audit", How.PULL, required=True)
    view, _ = await subscriptions.create_subscription(lives.plane, CALLER, asked)
    theirs = await agents.suspend_agent(newer, CALLER, "beta")
    ours = await agents.suspend_agent(lives.plane, CALLER, "gamma")
    await lives.loop_until(lives.plane.store.now() + 30)
    await vanish(lives, view.id)
    assert await watched.tick(lives.plane) == (2, 1, None)
    await asyncio.sleep(1)
    assert await state_of(lives, ours.id) == OperationState.SUCCEEDED
    (left,) = [row for row in await lives.rows("awaited") if row["acknowledged_at"] is None]
    assert left["operation"] == theirs.id, "nobody has told it"
    found = await findings.list_findings(lives.plane, CALLER)
    told = {one.body["operation"]: one.body["what"] for one in found}
    assert told[theirs.id].endswith("when a process of the newer release leads")
    assert told[ours.id].endswith("and the operation goes on")
    assert await watched.tick(newer) == (1, 1, None)


@alive
async def test_who_is_silent_is_told_until_it_has_acknowledged(lives):
    subscription, operation = await waiting(lives, "suspend")
    await watched.tick(lives.plane)
    assert await told(lives) == [], "it has a minute"
    await lives.loop_until(lives.plane.store.now() + watched.TOLD_SECONDS)
    for _ in range(2):
        assert await watched.tick(lives.plane) == (1, 0, None)
    assert await told(lives) == [("acknowledgements", FindingKind.CONFIRMED, subscription)]
    assert await state_of(lives, operation) == OperationState.WAITING
    await acknowledgements.acknowledge(lives.plane, CALLER, subscription, operation=operation)
    await watched.tick(lives.plane)
    assert await told(lives) == []
    await asyncio.sleep(1)
    assert await lives.state() is AgentState.SUSPENDED


@alive
async def test_what_an_ended_operation_waited_for_is_forgotten(lives):
    await lives.made()
    (row,) = await lives.rows("operation")
    key = (str(row["id"]), "somebody")
    waits: Row = {"tenant": TENANT, "agent": str(row["agent"]), "since": 0.0}
    await lives.plane.store.commit(Change("", (), (Put("awaited", key, waits),)))
    assert (await acknowledgements.get_strictness(lives.plane, CALLER)).missing == []
    assert await watched.tick(lives.plane) == (1, 1, None)
    assert await lives.rows("awaited") == []


@alive
async def test_a_plane_that_is_held_releases_nobody(lives):
    subscription, operation = await waiting(lives)
    await vanish(lives, subscription)
    held = Term(lives.plane, "acknowledgements", read_only=True)
    assert await watched.tick(lives.plane, term=held) == (1, 0, None)
    await asyncio.sleep(1)
    assert await state_of(lives, operation) == OperationState.WAITING
    assert await watched.tick(lives.plane, limit=0) == (1, 0, None)
