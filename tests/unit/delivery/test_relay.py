"""The relay while it runs: whom it carries to, what it outlives, and when it lets go."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

from proofs.agents.lifecycle import CALLER
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app.events import subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.leader import TTL_SECONDS, lease_of
from tenure.app.wakeups import Wakeup
from tenure.core.errors import StoreFull
from tenure.core.records import CursorRecord, LeaseRecord
from tenure.core.retry import DESTINATION
from tenure.core.subscription import SubscriptionKind
from tenure.delivery import dispatcher, outbox, relay
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import NO_NATS, Relay, relaying
from tenure.delivery.retention import RetentionLimits
from tenure.ports.bus import DeliveryVerdict, Destination
from tenure.ports.store import Change, Set
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink, relay_to


@asynccontextmanager
async def carrying(harness, sink, **more):
    """A relay that runs, to one destination that is always there."""
    bus = LocalBus({sink.name: sink.take})
    always = [DestinationRoute(Destination(sink.name, sink.name), bus)]
    async with relaying(harness.plane, buses=more.pop("buses", {}), fixed_routes=always) as one:
        yield one


async def relay_for(harness, sink, seconds=60.0):
    """Return when everything that is committed has arrived."""
    store = harness.plane.store
    async with asyncio.timeout(seconds):
        while len(set(sink.deliveries)) < len(await store.list_events(limit=1_000)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def nats(harness, name, target):
    asked = SubscriptionRequest(name, SubscriptionKind.NATS, target=target)
    return (await subscriptions.create_subscription(harness.plane, CALLER, asked))[0].id


@agent_test
async def test_a_subscription_is_carried_to_from_when_it_is_made_until_it_is_deleted(harness):
    sink, mine = Sink(), Sink("mine")
    async with carrying(
        harness, sink, buses={SubscriptionKind.NATS: LocalBus({"mine": mine.take})}
    ):
        name = await nats(harness, "mine", "mine")
        await subscriptions.create_subscription(
            harness.plane, CALLER, SubscriptionRequest("reads", SubscriptionKind.PULL)
        )
        await harness.create_ready("alpha")
        await relay_for(harness, sink)
        await asyncio.sleep(2)
        assert mine.deliveries == sink.deliveries
        await subscriptions.delete_subscription(harness.plane, CALLER, name)
        await asyncio.sleep(1)
        await harness.create_ready("beta")
        await relay_for(harness, sink)
        assert len(mine.deliveries) < len(sink.deliveries)


@agent_test
async def test_a_subscription_that_was_changed_is_carried_to_anew(harness):
    sink, mine = Sink(), Sink("mine")
    async with carrying(
        harness, sink, buses={SubscriptionKind.NATS: LocalBus({"mine": mine.take})}
    ):
        name = await nats(harness, "mine", "nobody")
        await harness.create_ready("alpha")
        await asyncio.sleep(5)
        assert mine.deliveries == []
        view = await subscriptions.get_subscription(harness.plane, CALLER, name)
        assert view.why == "there is no function nobody"
        change = Set("subscription", (name,), {"target": "mine", "revision": 2})
        await harness.plane.store.commit(Change("", (), (change,)))
        await asyncio.sleep(DESTINATION.cap_seconds)
        assert mine.deliveries == sink.deliveries != []


class Slow(Sink):
    """Takes its time."""

    async def take(self, event):
        await asyncio.sleep(0.3)
        await super().take(event)


@agent_test
async def test_a_process_that_dies_again_and_again_gets_on_with_a_slow_destination(harness):
    await harness.create_ready("alpha")
    for verb in ("suspend", "resume") * 2:
        await harness.run_verb(verb)
    last = (await harness.plane.store.list_events(limit=1_000))[-1].position
    sink, lived = Slow(), 0
    await relay_to(harness.plane, sink).create_cursors()
    while (await harness.plane.store.find(CursorRecord, ("sink",))).position < last:
        async with carrying(harness, sink):
            await asyncio.sleep(3)
        lived += 1
        assert lived < 50
    assert lived > 2, "no page was as long as one life"
    assert len(sink.deliveries) < 2 * len(set(sink.deliveries))


class CountingStore:
    """A store that counts what is read of it, by the table."""

    def __init__(self, inner):
        self._inner = inner
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def find(self, table, key):
        self.reads[table] += 1
        return await self._inner.find(table, key)

    async def list_rows(self, table, where, **more):
        self.reads[table] += 1
        return await self._inner.list_rows(table, where, **more)


def count_reads(harness):
    """What the plane reads from now on; its commits are told of, as the embedded store does."""
    store = CountingStore(harness.plane.store)
    harness.plane = replace(harness.plane, store=store)
    harness.plane.commits.notify()
    return store.reads


@agent_test
async def test_where_every_commit_is_told_of_an_idle_relay_reads_next_to_nothing(harness):
    reads, sink = count_reads(harness), Sink()
    async with carrying(harness, sink):
        await asyncio.sleep(5)
        reads.clear()
        await asyncio.sleep(60)
        assert reads["subscription"] <= 60 / relay.ROUTES_SECONDS + 1
        assert reads["cursor"] + reads["parked"] <= 2 * (60 / dispatcher.IDLE_POLL_SECONDS + 1)
        await harness.create_ready("alpha")
        assert sink.deliveries == []
        harness.plane.commits.notify()
        await relay_for(harness, sink, 0.2)
        await harness.create_ready("beta")  # of which nobody tells, against all that was promised
        await relay_for(harness, sink, dispatcher.IDLE_POLL_SECONDS + 1)


@agent_test
async def test_beside_others_it_is_looked_for_what_they_commit(harness):
    sink, mine = Sink(), Sink("mine")
    harness.plane = replace(harness.plane, shared=True)
    harness.plane.commits.notify()
    async with carrying(
        harness, sink, buses={SubscriptionKind.NATS: LocalBus({"mine": mine.take})}
    ):
        await asyncio.sleep(5)
        other = replace(harness.plane, commits=Wakeup(), subscription_changes=Wakeup())
        asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine")
        await subscriptions.create_subscription(other, CALLER, asked)
        await harness.create_ready("alpha")
        await relay_for(harness, sink, dispatcher.POLL_SECONDS + 0.2)
        await relay_for(harness, mine, relay.ROUTES_SECONDS)


@agent_test
async def test_a_subscription_that_is_made_here_is_carried_to_at_once(harness):
    sink, mine = Sink(), Sink("mine")
    async with carrying(
        harness, sink, buses={SubscriptionKind.NATS: LocalBus({"mine": mine.take})}
    ):
        await harness.create_ready("alpha")
        await asyncio.sleep(5)
        asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", from_start=True)
        await subscriptions.create_subscription(harness.plane, CALLER, asked)
        await relay_for(harness, mine, 0.2)


@agent_test
async def test_where_there_is_no_server_nothing_is_taken_and_it_says_so(harness):
    sink = Sink()
    async with carrying(harness, sink):
        name = await nats(harness, "mine", "mine")
        await harness.create_ready("alpha")
        await relay_for(harness, sink)
        await asyncio.sleep(5)
        view = await subscriptions.get_subscription(harness.plane, CALLER, name)
        assert "no NATS server" in view.why
    await NO_NATS.close()


@agent_test
async def test_two_relays_carry_each_event_once_and_the_second_goes_on_when_the_first_ends(harness):
    first, second = Sink(), Sink()
    async with carrying(harness, second) as other:
        async with carrying(harness, first) as leads:
            await harness.create_ready("alpha")
            await asyncio.sleep(TTL_SECONDS)
            assert sorted((leads.leader.leads, other.leader.leads)) == [False, True]
            idle = second if leads.leader.leads else first
            assert idle.deliveries == []
            assert (
                await deliver_all(other if leads.leader.leads else leads) == outbox.DeliveryResult()
            )
        await asyncio.sleep(TTL_SECONDS)
        await harness.create_ready("beta")
        await asyncio.sleep(5)
        assert other.leader.leads
    rows = await harness.plane.store.list_events(limit=1_000)
    assert len(first.deliveries) + len(second.deliveries) == len(rows)


@agent_test
async def test_nothing_leaves_while_the_plane_is_held(harness):
    sink = Sink()
    async with carrying(harness, sink):
        await harness.create_ready("alpha")
        await relay_for(harness, sink)
        before = len(sink.deliveries)
        harness.plane.pause.memo = harness.plane.pause.memo._replace(pause_reason="restored")
        await asyncio.sleep(TTL_SECONDS)
        await harness.create_ready("beta")
        await asyncio.sleep(TTL_SECONDS)
        assert len(sink.deliveries) == before
        harness.plane.pause.memo = harness.plane.pause.memo._replace(pause_reason="")
        await relay_for(harness, sink)


@agent_test
async def test_a_look_that_fails_is_tried_again_and_what_was_taken_over_is_let_go(
    harness, monkeypatch, caplog
):
    sink = Sink()
    failures = [ZeroDivisionError("a bug"), ZeroDivisionError("another")]
    tick = outbox.deliver_page

    async def failing(*args, **more):
        if failures:
            raise failures.pop()
        return await tick(*args, **more)

    monkeypatch.setattr(relay, "deliver_page", failing)
    async with carrying(harness, sink):
        await harness.create_ready("alpha")
        await relay_for(harness, sink)
        assert "delivery to destination sink failed; next attempt in 1 s" in caplog.text
        # Somebody else takes the lead while this one thinks that it has it.
        key = lease_of("relay")
        row = await harness.plane.store.find(LeaseRecord, key)
        assert row is not None
        taken = Set("lease", key, {"token": int(str(row.token)) + 1, "holder": "another"})
        await harness.plane.store.commit(Change("", (), (taken,)))
        await harness.create_ready("beta")
        await asyncio.sleep(TTL_SECONDS * 3)  # the other one is gone again
        await relay_for(harness, sink)


@agent_test
async def test_a_backlog_of_many_pages_is_carried_in_one_go(harness, monkeypatch):
    sink = Sink()
    for name in ("alpha", "beta", "gamma"):
        await harness.create_ready(name)
    bus = LocalBus({sink.name: sink.take})
    route = DestinationRoute(Destination(sink.name, sink.name), bus, page=3)
    async with relaying(harness.plane, buses={}, fixed_routes=[route]):
        await relay_for(harness, sink)
    rows = await harness.plane.store.list_events(limit=1_000)
    assert len(sink.deliveries) == len(rows)


@agent_test
async def test_old_events_are_dropped_while_it_runs(harness):
    sink = Sink()
    async with carrying(harness, sink) as one:
        await harness.create_ready("alpha")
        await relay_for(harness, sink)
        one.retention.limits = RetentionLimits(seconds=1.0)
        await asyncio.sleep(2 * relay.TRIM_SECONDS)
        assert await harness.plane.store.list_events() == []


@agent_test
async def test_a_lease_that_cannot_be_given_back_lapses(harness, monkeypatch, caplog):
    sink = Sink()
    one = relay_to(harness.plane, sink)
    await one.create_cursors()
    await deliver_all(one)
    commit = harness.plane.store.commit

    async def full(_):
        raise StoreFull("there is no room")

    monkeypatch.setattr(harness.plane.store, "commit", full)
    await one.stop()
    assert "was not released" in caplog.text
    monkeypatch.setattr(harness.plane.store, "commit", commit)
    other = Relay(harness.plane, buses={})
    assert not await other.leader.renew()
    await asyncio.sleep(TTL_SECONDS + 1)
    assert await other.leader.renew()


@agent_test
async def test_nobody_is_called_what_is_not_there(harness):
    (receipt,) = await LocalBus({}).publish(Destination("x", "x"), [None])  # type: ignore[list-item]
    assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
