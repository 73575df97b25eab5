"""Required subscribers: waited for by name, overridden in the open; strict tenants hold still."""

from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER, TENANT, spec_of
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
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.relay import Relay
from tenure.ports.bus import Outgoing
from tenure.ports.store import Change, Drop, Put, Ring
from tenure.testing.operators import by
from tests.unit.support.agent_planes import STRANGER, VIEWER, alive, refusal
from tests.unit.support.sinks import Sink


@alive
async def test_what_is_about_a_deleted_agent_is_not_kept_for_ever(lives):
    uid = await lives.made()
    mine = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", agent="alpha")
    await subscriptions.create_subscription(lives.plane, CALLER, mine)
    operation = await lives.verb("delete")
    event = Outgoing("1", TENANT, uid, operation.id, "agent.deleted", 1, b"{}")
    with pytest.raises(Unavailable, match="mine"):
        await REACTIONS["remove-webhooks"].react(lives.plane, event)
    await lives.loop_until(lives.plane.store.now() + LAST_EVENT_SECONDS + 1)
    await REACTIONS["remove-webhooks"].react(lives.plane, event)
    assert await subscriptions.list_subscriptions(lives.plane, CALLER) == []


async def required(lives, name="billing", **more):
    asked = SubscriptionRequest(name, SubscriptionKind.PULL, required=True, **more)
    view, _ = await subscriptions.create_subscription(lives.plane, CALLER, asked)
    return view.id


async def waits(lives, verb="suspend", name="alpha"):
    """A verb that waits for an acknowledgement."""
    asked = await getattr(agents, f"{verb}_agent")(lives.plane, CALLER, name)
    for _ in range(200):
        seen = await reads.get_operation(lives.plane, TENANT, asked.id)
        if seen.state == OperationState.WAITING:
            return seen
        await lives.loop_until(lives.plane.store.now() + 0.05)
    raise AssertionError(asked)


async def acknowledge(lives, subscription, operation, **more):
    return await acknowledgements.acknowledge(
        lives.plane, CALLER, subscription, operation=operation, **more
    )


@alive
async def test_a_suspend_says_whom_it_waits_for_and_ends_when_they_have_acknowledged(lives):
    await lives.made()
    first, second = await required(lives), await required(lives, "search")
    operation = await waits(lives)
    detail = operation.steps[-1].detail
    assert operation.steps[-1].name == "acknowledged"
    assert "billing since" in detail
    assert "search since" in detail
    assert lives.held() == ["access", "credentials", "identity"], "all is safe before it waits"
    await acknowledge(lives, first, operation.id)
    await lives.loop_until(lives.plane.store.now() + 1)
    seen = await reads.get_operation(lives.plane, TENANT, operation.id)
    assert seen.state == OperationState.WAITING
    assert "billing" not in seen.steps[-1].detail
    one = await acknowledge(lives, second, operation.id)
    assert one.principal == CALLER.principal
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED
    assert await acknowledge(lives, second, operation.id) == one, "twice is once"


@alive
async def test_an_acknowledgement_is_told_to_whichever_process_works_on_the_operation(lives):
    await lives.made()
    subscription = await required(lives)
    operation = await waits(lives)
    told = lives.rings()
    await acknowledge(lives, subscription, operation.id)
    assert told == [Ring(operation.id)]


@alive
async def test_an_early_acknowledgement_counts(lives):
    await lives.made()
    subscription = await required(lives)
    asked = await agents.suspend_agent(lives.plane, CALLER, "alpha")
    await acknowledge(lives, subscription, asked.id)
    assert (await lives.done(asked)).state == OperationState.SUCCEEDED


@alive
async def test_an_operator_may_override_and_the_audit_log_says_so(lives):
    await lives.made()
    subscription = await required(lives)
    operation = await waits(lives, "delete")
    await acknowledge(lives, subscription, operation.id, why="it is switched off")
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED
    lines = await audit.list_audit(lives.plane, CALLER, limit=1_000)
    (line,) = [one for one in lines if one.action == "subscription.override"]
    assert line.body == {"operation": operation.id, "why": "it is switched off"}


@alive
async def test_an_override_without_a_reason_is_refused(lives):
    await lives.made()
    subscription = await required(lives)
    operation = await waits(lives)
    for why in ("", "  "):
        with pytest.raises(Invalid, match="say why"):
            await acknowledge(lives, subscription, operation.id, why=why)
    (one,) = await acknowledgements.list_acknowledgements(lives.plane, CALLER, subscription)
    assert one.acknowledged_at is None


@alive
async def test_what_is_missing_is_listed_first_however_much_was_acknowledged(lives, monkeypatch):
    monkeypatch.setattr(acknowledgements, "PAGE_MAX", 2)
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    subscription = await required(lives)
    puts = [
        Put(
            "awaited", (f"{n}", subscription),
            {"tenant": TENANT, "agent": "a", "since": 1.0, "acknowledged_at": (2.0, None)[n > 4]},
        )
        for n in range(8)
    ]  # fmt: skip
    assert await lives.plane.store.commit(Change("", (), tuple(puts))) is None
    found = await acknowledgements.list_acknowledgements(lives.plane, CALLER, subscription)
    assert [one.operation for one in found] == ["5", "6", "7", "0", "1"]


@alive
async def test_a_subscriber_that_is_deleted_is_no_longer_waited_for(lives):
    await lives.made()
    subscription = await required(lives)
    operation = await waits(lives)
    await subscriptions.delete_subscription(lives.plane, CALLER, subscription)
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED


@alive
async def test_a_subscriber_is_deleted_though_only_a_newer_release_can_release_it(lives):
    for name in ("alpha", "beta"):
        await lives.made(name)
    newer = await lives.newer("suspend_agent")
    subscription = await required(lives)
    theirs = await agents.suspend_agent(newer, CALLER, "beta")
    operation = await waits(lives)
    await subscriptions.delete_subscription(lives.plane, CALLER, subscription)
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED, (
        "the other one is released"
    )
    assert await acknowledgements.close_stale_waits(lives.plane, CALLER) == 0
    assert await acknowledgements.close_stale_waits(newer, CALLER) == 1
    (row,) = [row for row in await lives.rows("awaited") if row["operation"] == theirs.id]
    assert row["acknowledged_at"] is not None


@alive
async def test_one_that_is_deleted_while_an_operation_is_accepted_is_not_waited_for(
    lives, monkeypatch
):
    await lives.made()
    subscription = await required(lives)
    read = acknowledgements.await_subscribers

    async def read_too_early(*given, **more):
        ground = await read(*given, **more)
        if await lives.plane.store.find("subscription", (subscription,)):
            await subscriptions.delete_subscription(lives.plane, CALLER, subscription)
        return ground

    monkeypatch.setattr(acknowledgements, "await_subscribers", read_too_early)
    assert (await lives.verb("suspend")).state == OperationState.SUCCEEDED
    assert await lives.rows("awaited") == []


@alive
async def test_what_is_accepted_while_one_is_deleted_does_not_wait_for_it(lives, monkeypatch):
    await lives.made()
    subscription = await required(lives)
    owners_of = ownership.owners_of
    accepted: list[Any] = []

    async def just_before(*given):
        accepted.append(await agents.suspend_agent(lives.plane, CALLER, "alpha"))
        return await owners_of(*given)

    monkeypatch.setattr(ownership, "owners_of", just_before)
    await subscriptions.delete_subscription(lives.plane, CALLER, subscription)
    (row,) = await lives.rows("awaited")
    assert row["acknowledged_at"] is not None
    assert (await lives.done(accepted[0])).state == OperationState.SUCCEEDED


@alive
async def test_what_waits_for_one_that_is_gone_can_be_ended(lives):
    await lives.made()
    subscription = await required(lives)
    operation = await waits(lives)
    gone = Drop("subscription", (subscription,))
    await lives.plane.store.commit(Change("", (), (gone,)))  # and then the process was killed
    assert (await acknowledgements.get_strictness(lives.plane, CALLER)).missing == []
    assert await acknowledgements.missing_of(lives.plane, operation.id) == []
    told = await acknowledge(lives, subscription, operation.id, why="it is gone")
    assert told.acknowledged_at is not None
    assert (await lives.done(operation)).state == OperationState.SUCCEEDED


@alive
async def test_only_those_who_want_the_event_are_waited_for(lives):
    await lives.made()
    await lives.made("beta")
    await required(lives, types=("agent.deleting",))
    await required(lives, "other", agent="beta")
    asked = await agents.suspend_agent(lives.plane, CALLER, "alpha")
    assert (await lives.done(asked)).state == OperationState.SUCCEEDED
    waiting = await waits(lives, "delete")
    assert "billing" in waiting.steps[-1].detail
    assert "other" not in waiting.steps[-1].detail


@alive
async def test_a_strict_tenant_makes_nothing_new_meanwhile(lives):
    await lives.made()
    subscription = await required(lives)
    strict = await acknowledgements.set_strictness(lives.plane, CALLER, strict=True)
    assert strict == (True, [])
    operation = await waits(lives, "delete")
    refused = await refusal(
        agents.create_agent(lives.plane, CALLER, spec_of("beta")), "awaits_acknowledgement"
    )
    assert refused.holder == operation.id
    assert "billing" in str(refused)
    told = await acknowledgements.get_strictness(lives.plane, CALLER)
    assert [one.name for one in told.missing] == ["billing"]
    other = await agents.create_agent(lives.plane, STRANGER, spec_of("beta"))
    assert other.id
    await acknowledge(lives, subscription, operation.id)
    await lives.done(operation)
    assert await lives.made("beta")


@alive
async def test_a_cancelled_operation_waits_for_nobody(lives):
    await lives.made()
    await required(lives)
    await acknowledgements.set_strictness(lives.plane, CALLER, strict=True)
    lives.fakes.runtime.busy |= {thing.key.text for thing in lives.world.holds()}
    asked = await agents.suspend_agent(lives.plane, CALLER, "alpha", drain_seconds=600)
    await operations.cancel(lives.plane, by("someone"), asked.id)
    await lives.done(asked)
    assert await lives.made("beta")
    assert await lives.rows("awaited")
    event = Outgoing("1", TENANT, asked.agent, asked.id, "agent.ready", 1, b"{}")
    for _ in range(2):
        await REACTIONS["close-waits"].react(lives.plane, event)
    assert await lives.rows("awaited") == []


@alive
async def test_others_see_nothing_and_may_nothing(lives):
    await lives.made()
    subscription = await required(lives)
    operation = await waits(lives)
    for asked in (
        acknowledgements.acknowledge(lives.plane, STRANGER, subscription, operation=operation.id),
        acknowledgements.list_acknowledgements(lives.plane, STRANGER, subscription),
        acknowledgements.acknowledge(lives.plane, CALLER, subscription, operation="0" * 32),
        subscriptions.get_subscription(lives.plane, STRANGER, subscription),
    ):
        with pytest.raises(NotFound):
            await asked
    with pytest.raises(Forbidden):
        await acknowledgements.acknowledge(
            lives.plane, VIEWER, subscription, operation=operation.id
        )
    assert await subscriptions.list_subscriptions(lives.plane, STRANGER) == []


@alive
async def test_what_is_about_a_deleted_agent_alone_goes_with_it(lives):
    uid = await lives.made()
    mine = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", agent="alpha")
    await subscriptions.create_subscription(lives.plane, CALLER, mine)
    all_of_them = SubscriptionRequest("all", SubscriptionKind.NATS, target="all")
    await subscriptions.create_subscription(lives.plane, CALLER, all_of_them)
    operation = await lives.verb("delete")
    event = Outgoing("1", TENANT, uid, operation.id, "agent.deleted", 1, b"{}")
    with pytest.raises(Unavailable, match="mine"):  # it has not been told yet
        await REACTIONS["remove-webhooks"].react(lives.plane, event)
    assert len(await subscriptions.list_subscriptions(lives.plane, CALLER)) == 2
    sink = Sink("mine")
    sink.refuses.add(uid)
    buses = {SubscriptionKind.NATS: LocalBus({"mine": sink.take, "all": Sink("all").take})}
    relay = Relay(lives.plane, buses=buses)
    done = await relay.tick()
    with pytest.raises(Unavailable, match="mine"):  # it has refused it, and is asked again
        await REACTIONS["remove-webhooks"].react(lives.plane, event)
    sink.refuses.clear()
    await lives.loop_until(done.retry_at)
    await relay.tick()
    assert sink.seen[-1].type == "agent.deleted"
    for _ in range(2):
        for reaction in REACTIONS.values():
            await reaction.react(lives.plane, event)
    left = await subscriptions.list_subscriptions(lives.plane, CALLER)
    assert [one.name for one in left] == ["all"]
    assert [row["destination"] for row in await lives.rows("cursor")] == [left[0].id]
