"""The dispatcher: whom events watch hears of them, and whom they do not is left alone."""

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.adapters.bus.local import LocalBus
from tenure.app.events import dead_letters, feed, subscriptions
from tenure.app.events.cloudevents import EventFilter
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.operations.outbox_rows import NEW_EVENT, POSITION
from tenure.core.errors import StoreError
from tenure.core.records import CursorRecord
from tenure.core.retry import DESTINATION
from tenure.core.subscription import SubscriptionKind
from tenure.delivery import dispatcher, outbox, relay
from tenure.delivery.dispatcher import Dispatcher
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import relaying
from tenure.ports.bus import Destination
from tenure.ports.store import Change
from tests.unit.delivery.test_relay import count_reads
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink

TENANTS = ("north", "south", "east")
TYPES = ("agent.ready", "agent.deleted", "operation.accepted")


class FilteredSink(Sink):
    """Takes everything, and knows what it is to have."""

    def __init__(self, name, tenant, event_filter):
        super().__init__(name)
        self.tenant, self.event_filter = tenant, event_filter

    @property
    def positions(self):
        return [event.sequence for event in self.events]


def event(number, tenant, type_, *, at=1.0):
    row = (tenant, f"{tenant}{number % 2}", "o", type_, at, "{}", number)
    return NEW_EVENT.expand((POSITION, *row))


def route_to(sink):
    bus = LocalBus({sink.name: sink.take})
    return DestinationRoute(Destination(sink.name, sink.name), bus, sink.event_filter, sink.tenant)


@asynccontextmanager
async def carried_to(plane, *sinks):
    async with relaying(plane, buses={}, fixed_routes=[route_to(sink) for sink in sinks]) as one:
        yield one


async def happens(plane, *events, with_hint=True):
    await plane.store.commit(Change("", (), events))
    if with_hint:
        plane.commits.notify()


def idle(count):
    """Destinations of other tenants, and of one type that never happens."""
    event_filter = EventFilter(types=("agent.deleted",))
    return [
        FilteredSink(f"idle{n}", f"other{n % 5}" if n % 2 else "north", event_filter)
        for n in range(count)
    ]


@agent_test
async def test_whom_an_event_does_not_concern_reads_nothing_for_it(harness):
    reads, mine = count_reads(harness), FilteredSink("mine", "north", EventFilter())
    plane = harness.plane
    async with carried_to(plane, mine, *idle(50)):
        await asyncio.sleep(1)
        reads.clear()
        for number in range(20):
            await happens(plane, event(number, "north", "agent.ready"))
            await asyncio.sleep(0.1)
        assert len(mine.events) == 20
        assert reads["cursor"] <= 20 + 1, "those of one destination, of 51"


@agent_test
async def test_cursors_of_those_whom_nothing_concerns_move_on_all_the_same(harness, monkeypatch):
    monkeypatch.setattr(outbox, "SKIPPED_MAX", 10)
    plane, sinks = harness.plane, idle(6)
    plane.commits.notify()
    async with carried_to(plane, *sinks):
        await asyncio.sleep(1)
        for number in range(40):
            await happens(plane, event(number, "north", "agent.ready"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(dispatcher.IDLE_POLL_SECONDS)
        cursors = {row.destination: row.position for row in await harness.rows(CursorRecord)}
        assert [cursors[sink.name] for sink in sinks] == [40] * 6
        assert [sink.events for sink in sinks] == [[]] * 6
        await asyncio.sleep(relay.TRIM_SECONDS + 1)
        assert await plane.store.list_events() == [], "what all have passed over is kept no longer"
        await happens(plane, event(41, "north", "agent.deleted"))
        await asyncio.sleep(0.1)
        assert [len(sink.events) for sink in sinks] == [1, 0] * 3


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))]
)
def test_nothing_is_lost_or_out_of_order_however_events_and_looks_fall_together(seed, monkeypatch):
    monkeypatch.setattr(feed, "MEMORY_EVENTS", 16)
    monkeypatch.setattr(feed, "PAGE", 6)
    monkeypatch.setattr(dispatcher, "PAGE", 4)
    monkeypatch.setattr(outbox, "SKIPPED_MAX", 9)
    chance = random.Random(seed)

    @agent_test
    async def scenario(harness):
        plane = replace(harness.plane, shared=chance.random() < 0.5)
        made, sinks = 0, []
        for n in range(12):
            event_filter = EventFilter(
                types=(chance.choice(TYPES),) if chance.random() < 0.7 else ()
            )
            sinks.append(FilteredSink(f"sink{n}", chance.choice(("", *TENANTS)), event_filter))
        with_hint = chance.random()

        async def some():
            nonlocal made
            rows = []
            for _ in range(chance.randrange(1, 9)):
                made += 1
                tenant, type_ = chance.choice(TENANTS), chance.choice(TYPES)
                rows.append(event(made, tenant, type_, at=plane.store.now()))
            await happens(plane, *rows, with_hint=chance.random() < with_hint)

        await some()
        for _ in range(3):  # lives of a relay
            async with carried_to(plane, *sinks):
                for _ in range(40):
                    await some()
                    if chance.random() < 0.2:
                        await plane.feed.after(chance.randrange(made), limit=5)
                    await asyncio.sleep(chance.choice((0, 0, 0.003, 0.02, 0.3, 3)))
                    for sink in sinks:
                        sink.down = chance.random() < 0.05
                for sink in sinks:
                    sink.down = False
                await asyncio.sleep(DESTINATION.cap_seconds + 2 * dispatcher.IDLE_POLL_SECONDS)
        rows = [
            row
            for start in range(0, made, 500)
            for row in await plane.store.list_events(after=start, limit=500)
        ]
        assert len(rows) == made
        for sink in sinks:
            route = route_to(sink)
            first = list(dict.fromkeys(sink.positions))
            assert sorted(first) == [row.sequence for row in rows if route.has(row)]
            for agent in {row.agent for row in rows}:
                assert sorted(set(sink.of(agent))) == list(dict.fromkeys(sink.of(agent)))

    scenario()


@agent_test
async def test_a_wake_that_does_not_come_is_not_waited_for(harness, monkeypatch, caplog):
    failures = [ZeroDivisionError("a bug"), StoreError("not now")]
    after, mine = feed.Feed.after, FilteredSink("mine", "north", EventFilter())
    plane = harness.plane
    plane.commits.notify()

    async def failing(of, position, *, limit):
        if limit == dispatcher.PAGE and failures:
            raise failures.pop()
        return await after(of, position, limit=limit)

    monkeypatch.setattr(feed.Feed, "after", failing)
    async with carried_to(plane, mine):
        await asyncio.sleep(5)
        assert "reading new events failed; next attempt in 1 s" in caplog.text
        assert "the dispatcher cannot read events: not now" in caplog.text
        monkeypatch.setattr(Dispatcher, "_wake_subscribers", lambda *_: None)
        await happens(plane, event(1, "north", "agent.ready"))
        await asyncio.sleep(1)
        assert mine.events == []
        await asyncio.sleep(dispatcher.IDLE_POLL_SECONDS)
        assert len(mine.events) == 1


@agent_test
async def test_letters_that_are_to_be_tried_again_are_tried_at_once(harness):
    mine = Sink("mine")
    plane = harness.plane
    plane.commits.notify()
    async with relaying(plane, buses={SubscriptionKind.NATS: LocalBus({"mine": mine.take})}):
        asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine")
        view, _ = await subscriptions.create_subscription(plane, CALLER, asked)
        await asyncio.sleep(1)
        bad = await harness.create_ready("bad")
        mine.refuses.add(bad)
        plane.commits.notify()
        await asyncio.sleep(0.2)
        assert mine.events == []
        assert (await subscriptions.get_subscription(plane, CALLER, view.id)).parked == 1
        mine.refuses.clear()
        await dead_letters.replay(plane, CALLER, view.id)
        await asyncio.sleep(0.2)
        assert len(mine.events) == len(await plane.store.list_events(limit=100))
