"""Required subscribers: waited for by name, overridden in the open; strict tenants hold still."""

from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER, TENANT, spec_of
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app import pages
from tenure.app.agents import commands as agents
from tenure.app.agents import ownership
from tenure.app.events import acknowledgements, subscriptions
from tenure.app.events.reactions import REACTIONS
from tenure.app.events.subscriptions import LAST_EVENT_SECONDS, SubscriptionRequest
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.tenancy import audit
from tenure.core.errors import Forbidden, Invalid, NotFound, Unavailable
from tenure.core.operation import OperationState
from tenure.core.records import AcknowledgementRecord, CursorRecord, SubscriptionRecord
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.relay import Relay
from tenure.ports.bus import Outgoing
from tenure.ports.store import Change, Drop, Put, WakeHint
from tenure.testing.operators import by
from tests.unit.support.agent_planes import STRANGER, VIEWER, agent_test, refusal
from tests.unit.support.sinks import Sink


@agent_test
async def test_what_is_about_a_deleted_agent_is_not_kept_for_ever(harness):
    uid = await harness.create_ready()
    mine = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", agent="alpha")
    await subscriptions.create_subscription(harness.plane, CALLER, mine)
    operation = await harness.run_verb("delete")
    event = Outgoing("1", TENANT, uid, operation.id, "agent.deleted", 1, b"{}")
    with pytest.raises(Unavailable, match="mine"):
        await REACTIONS["remove-webhooks"].react(harness.plane, event)
    await harness.loop_until(harness.plane.store.now() + LAST_EVENT_SECONDS + 1)
    await REACTIONS["remove-webhooks"].react(harness.plane, event)
    assert await subscriptions.list_subscriptions(harness.plane, CALLER) == []


async def create_required(harness, name="billing", **more):
    asked = SubscriptionRequest(name, SubscriptionKind.PULL, required=True, **more)
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    return view.id


async def waits(harness, verb="suspend", name="alpha"):
    """A verb that waits for an acknowledgement."""
    asked = await getattr(agents, f"{verb}_agent")(harness.plane, CALLER, name)
    for _ in range(200):
        seen = await reads.get_operation(harness.plane, TENANT, asked.id)
        if seen.state == OperationState.WAITING:
            return seen
        await harness.loop_until(harness.plane.store.now() + 0.05)
    raise AssertionError(asked)


async def acknowledge(harness, subscription, operation, **more):
    return await acknowledgements.acknowledge(
        harness.plane, CALLER, subscription, operation=operation, **more
    )


@agent_test
async def test_a_suspend_says_whom_it_waits_for_and_ends_when_they_have_acknowledged(harness):
    await harness.create_ready()
    first, second = await create_required(harness), await create_required(harness, "search")
    operation = await waits(harness)
    detail = operation.steps[-1].detail
    assert operation.steps[-1].name == "acknowledged"
    assert "billing since" in detail
    assert "search since" in detail
    assert harness.holders() == ["access", "credentials", "identity"], "all is safe before it waits"
    await acknowledge(harness, first, operation.id)
    await harness.loop_until(harness.plane.store.now() + 1)
    seen = await reads.get_operation(harness.plane, TENANT, operation.id)
    assert seen.state == OperationState.WAITING
    assert "billing" not in seen.steps[-1].detail
    one = await acknowledge(harness, second, operation.id)
    assert one.principal == CALLER.principal
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED
    assert await acknowledge(harness, second, operation.id) == one, "twice is once"


@agent_test
async def test_an_acknowledgement_is_told_to_whichever_process_works_on_the_operation(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    operation = await waits(harness)
    told = harness.record_rings()
    await acknowledge(harness, subscription, operation.id)
    assert told == [WakeHint(operation.id)]


@agent_test
async def test_an_early_acknowledgement_counts(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    asked = await agents.suspend_agent(harness.plane, CALLER, "alpha")
    await acknowledge(harness, subscription, asked.id)
    assert (await harness.wait_for(asked)).state == OperationState.SUCCEEDED


@agent_test
async def test_an_operator_may_override_and_the_audit_log_says_so(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    operation = await waits(harness, "delete")
    await acknowledge(harness, subscription, operation.id, why="it is switched off")
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED
    lines = await audit.list_audit(harness.plane, CALLER, limit=1_000)
    (line,) = [one for one in lines if one.action == "subscription.override"]
    assert line.body == {"operation": operation.id, "why": "it is switched off"}


@agent_test
async def test_an_override_without_a_reason_is_refused(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    operation = await waits(harness)
    for why in ("", "  "):
        with pytest.raises(Invalid, match="reason is empty"):
            await acknowledge(harness, subscription, operation.id, why=why)
    (one,) = await acknowledgements.list_acknowledgements(harness.plane, CALLER, subscription)
    assert one.acknowledged_at is None


@agent_test
async def test_what_is_missing_is_listed_first_however_much_was_acknowledged(harness, monkeypatch):
    monkeypatch.setattr(acknowledgements, "PAGE_MAX", 2)
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    subscription = await create_required(harness)
    puts = [
        Put(
            "awaited", (f"{n}", subscription),
            {"tenant": TENANT, "agent": "a", "since": 1.0, "acknowledged_at": (2.0, None)[n > 4]},
        )
        for n in range(8)
    ]  # fmt: skip
    assert await harness.plane.store.commit(Change("", (), tuple(puts))) is None
    found = await acknowledgements.list_acknowledgements(harness.plane, CALLER, subscription)
    assert [one.operation for one in found] == ["5", "6", "7", "0", "1"]


@agent_test
async def test_a_subscriber_that_is_deleted_is_no_longer_waited_for(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    operation = await waits(harness)
    await subscriptions.delete_subscription(harness.plane, CALLER, subscription)
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED


@agent_test
async def test_a_subscriber_is_deleted_though_only_a_newer_release_can_release_it(harness):
    for name in ("alpha", "beta"):
        await harness.create_ready(name)
    newer = await harness.boot_newer_release("suspend_agent")
    subscription = await create_required(harness)
    theirs = await agents.suspend_agent(newer, CALLER, "beta")
    operation = await waits(harness)
    await subscriptions.delete_subscription(harness.plane, CALLER, subscription)
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED, (
        "the other one is released"
    )
    assert await acknowledgements.close_stale(harness.plane, CALLER) == 0
    assert await acknowledgements.close_stale(newer, CALLER) == 1
    (row,) = [
        row for row in await harness.rows(AcknowledgementRecord) if row.operation == theirs.id
    ]
    assert row.acknowledged_at is not None


@agent_test
async def test_one_that_is_deleted_while_an_operation_is_accepted_is_not_waited_for(
    harness, monkeypatch
):
    await harness.create_ready()
    subscription = await create_required(harness)
    read = acknowledgements.rows_for_subscribers

    async def read_too_early(*args, **more):
        ground = await read(*args, **more)
        if await harness.plane.store.find(SubscriptionRecord, (subscription,)):
            await subscriptions.delete_subscription(harness.plane, CALLER, subscription)
        return ground

    monkeypatch.setattr(acknowledgements, "rows_for_subscribers", read_too_early)
    assert (await harness.run_verb("suspend")).state == OperationState.SUCCEEDED
    assert await harness.rows(AcknowledgementRecord) == []


@agent_test
async def test_what_is_accepted_while_one_is_deleted_does_not_wait_for_it(harness, monkeypatch):
    await harness.create_ready()
    subscription = await create_required(harness)
    owners_of = ownership.edges_to
    accepted: list[Any] = []

    async def just_before(*args):
        accepted.append(await agents.suspend_agent(harness.plane, CALLER, "alpha"))
        return await owners_of(*args)

    monkeypatch.setattr(ownership, "edges_to", just_before)
    await subscriptions.delete_subscription(harness.plane, CALLER, subscription)
    (row,) = await harness.rows(AcknowledgementRecord)
    assert row.acknowledged_at is not None
    assert (await harness.wait_for(accepted[0])).state == OperationState.SUCCEEDED


@agent_test
async def test_what_waits_for_one_that_is_gone_can_be_ended(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    operation = await waits(harness)
    gone = Drop("subscription", (subscription,))
    await harness.plane.store.commit(Change("", (), (gone,)))  # and then the process was killed
    assert (await acknowledgements.get_strictness(harness.plane, CALLER)).missing == []
    assert await acknowledgements.missing_of(harness.plane, operation.id) == []
    told = await acknowledge(harness, subscription, operation.id, why="it is gone")
    assert told.acknowledged_at is not None
    assert (await harness.wait_for(operation)).state == OperationState.SUCCEEDED


@agent_test
async def test_only_those_who_want_the_event_are_waited_for(harness):
    await harness.create_ready()
    await harness.create_ready("beta")
    await create_required(harness, types=("agent.deleting",))
    await create_required(harness, "other", agent="beta")
    asked = await agents.suspend_agent(harness.plane, CALLER, "alpha")
    assert (await harness.wait_for(asked)).state == OperationState.SUCCEEDED
    waiting = await waits(harness, "delete")
    assert "billing" in waiting.steps[-1].detail
    assert "other" not in waiting.steps[-1].detail


@agent_test
async def test_a_strict_tenant_makes_nothing_new_meanwhile(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    strict = await acknowledgements.set_strictness(harness.plane, CALLER, strict=True)
    assert strict == (True, [])
    operation = await waits(harness, "delete")
    refused = await refusal(
        agents.create_agent(harness.plane, CALLER, spec_of("beta")), "awaits_acknowledgement"
    )
    assert refused.holder == operation.id
    assert "billing" in str(refused)
    told = await acknowledgements.get_strictness(harness.plane, CALLER)
    assert [one.name for one in told.missing] == ["billing"]
    other = await agents.create_agent(harness.plane, STRANGER, spec_of("beta"))
    assert other.id
    await acknowledge(harness, subscription, operation.id)
    await harness.wait_for(operation)
    assert await harness.create_ready("beta")


@agent_test
async def test_a_cancelled_operation_waits_for_nobody(harness):
    await harness.create_ready()
    await create_required(harness)
    await acknowledgements.set_strictness(harness.plane, CALLER, strict=True)
    harness.fakes.runtime.busy |= {thing.key.text for thing in harness.world.holds()}
    asked = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=600)
    await operations.cancel(harness.plane, by("someone"), asked.id)
    await harness.wait_for(asked)
    assert await harness.create_ready("beta")
    assert await harness.rows(AcknowledgementRecord)
    event = Outgoing("1", TENANT, asked.agent, asked.id, "agent.ready", 1, b"{}")
    for _ in range(2):
        await REACTIONS["close-waits"].react(harness.plane, event)
    assert await harness.rows(AcknowledgementRecord) == []


@agent_test
async def test_others_see_nothing_and_may_nothing(harness):
    await harness.create_ready()
    subscription = await create_required(harness)
    operation = await waits(harness)
    for asked in (
        acknowledgements.acknowledge(harness.plane, STRANGER, subscription, operation=operation.id),
        acknowledgements.list_acknowledgements(harness.plane, STRANGER, subscription),
        acknowledgements.acknowledge(harness.plane, CALLER, subscription, operation="0" * 32),
        subscriptions.get_subscription(harness.plane, STRANGER, subscription),
    ):
        with pytest.raises(NotFound):
            await asked
    with pytest.raises(Forbidden):
        await acknowledgements.acknowledge(
            harness.plane, VIEWER, subscription, operation=operation.id
        )
    assert await subscriptions.list_subscriptions(harness.plane, STRANGER) == []


@agent_test
async def test_what_is_about_a_deleted_agent_alone_goes_with_it(harness):
    uid = await harness.create_ready()
    mine = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", agent="alpha")
    await subscriptions.create_subscription(harness.plane, CALLER, mine)
    all_of_them = SubscriptionRequest("all", SubscriptionKind.NATS, target="all")
    await subscriptions.create_subscription(harness.plane, CALLER, all_of_them)
    operation = await harness.run_verb("delete")
    event = Outgoing("1", TENANT, uid, operation.id, "agent.deleted", 1, b"{}")
    with pytest.raises(Unavailable, match="mine"):  # it has not been told yet
        await REACTIONS["remove-webhooks"].react(harness.plane, event)
    assert len(await subscriptions.list_subscriptions(harness.plane, CALLER)) == 2
    sink = Sink("mine")
    sink.refuses.add(uid)
    buses = {SubscriptionKind.NATS: LocalBus({"mine": sink.take, "all": Sink("all").take})}
    relay = Relay(harness.plane, buses=buses)
    done = await deliver_all(relay)
    with pytest.raises(Unavailable, match="mine"):  # it has refused it, and is asked again
        await REACTIONS["remove-webhooks"].react(harness.plane, event)
    sink.refuses.clear()
    await harness.loop_until(done.retry_at)
    await deliver_all(relay)
    assert sink.events[-1].type == "agent.deleted"
    for _ in range(2):
        for reaction in REACTIONS.values():
            await reaction.react(harness.plane, event)
    left = await subscriptions.list_subscriptions(harness.plane, CALLER)
    assert [one.name for one in left] == ["all"]
    assert [row.destination for row in await harness.rows(CursorRecord)] == [left[0].id]
