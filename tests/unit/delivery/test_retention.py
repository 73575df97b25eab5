"""How long the outbox has events: by age and need, and by a bound for each tenant."""

from collections import Counter
from random import Random

import pytest

from proofs.agents.lifecycle import CALLER
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app.events import cloudevents, delivery_rows, feed, subscriptions
from tenure.app.events.cloudevents import EventFilter, trimmed_cursor
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.core.records import CursorRecord
from tenure.core.roles import Caller, Role
from tenure.core.subscription import SubscriptionKind
from tenure.delivery import event_count, retention
from tenure.delivery.event_count import bound_for_each
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.delivery.retention import RetentionLimits, TrimResult
from tenure.ports.bus import Destination
from tenure.ports.store import Change, Drop, Put
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink, relay_to, rows


async def put_events(harness, *tenants, kind="agent.ready", age=0.0, start=1):
    """One event for each tenant that is named, in this order."""
    at = harness.plane.store.now() - age
    puts = tuple(
        Put("outbox", (n,), {"tenant": tenant, "agent": f"agent-{tenant}", "operation": "o",
                             "type": kind, "at": at, "body": "{}", "sequence": n})
        for n, tenant in enumerate(tenants, start)
    )  # fmt: skip
    assert await harness.plane.store.commit(Change("", (), puts)) is None


async def tenants_of(harness):
    return Counter(row.tenant for row in await rows(harness))


async def trim(relay, **limits):
    relay.retention.limits = RetentionLimits(**limits)
    await relay.leader.renew()
    return await relay.retention.trim()


async def cursor_of(harness, name):
    return await harness.plane.store.find(CursorRecord, (name,))


async def missed_by(harness, name):
    return (await cursor_of(harness, name)).missed


def relay_to_tenants(plane, **sinks):
    """A relay that carries the events of each tenant to the sink of that name."""
    bus = LocalBus({sink.name: sink.take for sink in sinks.values()})
    routes = [
        DestinationRoute(Destination(sink.name, sink.name), bus, EventFilter(), tenant)
        for tenant, sink in sinks.items()
    ]
    return Relay(plane, buses={}, fixed_routes=routes)


# --- by age and need ------------------------------------------------------------------------------


@agent_test
async def test_old_events_go_when_all_have_them(harness):
    await harness.create_ready("alpha")
    sink, late = Sink(), Sink("late")
    late.down = True
    relay = relay_to(harness.plane, sink, late)
    await relay.create_cursors()
    await deliver_all(relay)
    await harness.loop_until(harness.plane.store.now() + 61.0)
    count = len(await rows(harness))
    assert await trim(relay, seconds=60.0) == TrimResult()
    assert len(await rows(harness)) == count  # one destination lacks them
    late.down = False
    await deliver_all(relay)
    assert await trim(relay, seconds=60.0) == TrimResult(old=count)
    assert await rows(harness) == []
    assert late.deliveries == sink.deliveries
    await harness.create_ready("beta")
    await deliver_all(relay)
    assert late.deliveries == sink.deliveries
    assert len(await rows(harness)) == len(late.events) - count
    assert harness.plane.deliveries.trimmed == {"age": count}
    assert not harness.plane.deliveries.missed


@agent_test
async def test_a_dead_destination_holds_up_no_event_of_another_tenant(harness):
    dead, live = Sink("dead"), Sink("live")
    dead.down = True
    relay = relay_to_tenants(harness.plane, north=dead, south=live)
    await relay.create_cursors()
    await put_events(harness, *["north", "south", "elsewhere"] * 4, age=100.0)
    await deliver_all(relay)
    assert await trim(relay, seconds=60.0) == TrimResult(old=8)
    assert await tenants_of(harness) == {"north": 4}
    dead.down = False
    await harness.loop_until(harness.plane.store.now() + 2.0)
    await deliver_all(relay)
    assert len(dead.events) == 4  # nothing of what it needs was lost
    assert await trim(relay, seconds=60.0) == TrimResult(old=4)


@agent_test
async def test_a_dead_destination_holds_up_only_what_it_subscribes_to(harness):
    relay = relay_to(harness.plane, Sink())
    await relay.create_cursors()
    asked = SubscriptionRequest(
        "mine", SubscriptionKind.NATS, target="there", types=("agent.deleted",)
    )
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    await put_events(harness, *[CALLER.tenant] * 3, age=100.0, start=1)
    await put_events(harness, *[CALLER.tenant] * 2, kind="agent.deleted", age=100.0, start=4)
    await put_events(harness, *[CALLER.tenant] * 3, age=100.0, start=6)
    await deliver_all(relay)
    await trim(relay, seconds=60.0)
    assert [row.position for row in await rows(harness)] == [4, 5]
    await subscriptions.delete_subscription(harness.plane, CALLER, view.id)
    await trim(relay, seconds=60.0)
    assert await rows(harness) == []


@agent_test
async def test_a_walk_over_events_that_are_needed_goes_on_in_the_next_round(harness, monkeypatch):
    """Events that a dead destination needs cost a round a few pages; the rest is dropped."""
    monkeypatch.setattr(retention, "PAGE", 2)
    monkeypatch.setattr(retention, "IDLE_PAGES_MAX", 3)
    dead = Sink("dead")
    dead.down = True
    relay = relay_to_tenants(harness.plane, north=dead)
    await relay.create_cursors()
    await put_events(harness, *["north"] * 20, *["south"] * 4, age=100.0)
    assert [(await trim(relay, seconds=60.0)).old for _ in range(4)] == [0, 0, 0, 4]
    assert await tenants_of(harness) == {"north": 20}
    dead.down = False
    await deliver_all(relay)
    assert sum([(await trim(relay, seconds=60.0)).old for _ in range(2)]) == 20


@agent_test
async def test_a_cursor_that_this_process_has_no_route_for_needs_everything(harness):
    """Another release, or a plane that is wired otherwise, may carry to it."""
    relay = relay_to(harness.plane, Sink("gone"))
    await relay.create_cursors()
    relay = relay_to(harness.plane, Sink())
    await relay.create_cursors()
    await put_events(harness, "north", "south", age=100.0)
    await deliver_all(relay)
    assert await trim(relay, seconds=60.0) == TrimResult()
    assert await trim(relay, seconds=60.0, tenant_max=0) == TrimResult(beyond_bound=2)
    assert await missed_by(harness, "gone") == 2


@agent_test
async def test_nothing_is_dropped_where_nothing_is(harness):
    relay = relay_to(harness.plane, Sink())
    assert await trim(relay) == TrimResult()


# --- by a bound for each tenant -------------------------------------------------------------------


@agent_test
async def test_a_noisy_tenant_drops_its_own_events_and_nobody_elses(harness):
    sinks = {name: Sink(name) for name in ("noisy", "quiet")}
    for sink in sinks.values():
        sink.down = True
    relay = relay_to_tenants(harness.plane, **sinks)
    await relay.create_cursors()
    await put_events(harness, "quiet", "quiet", *["noisy"] * 40, "quiet")
    assert await trim(relay, tenant_max=10) == TrimResult(beyond_bound=30)
    assert await tenants_of(harness) == {"quiet": 3, "noisy": 10}
    assert [row.position for row in await rows(harness)] == [1, 2, *range(33, 44)]  # its oldest
    assert await missed_by(harness, "noisy") == 30
    assert await missed_by(harness, "quiet") == 0
    assert harness.plane.deliveries.missed == {"reaction": 30}
    assert harness.plane.deliveries.trimmed == {"bound": 30}


@agent_test
async def test_if_all_have_too_many_those_with_most_lose_first(harness):
    relay = relay_to(harness.plane, Sink())
    await relay.create_cursors()
    await put_events(harness, *["a"] * 3, *["b"] * 30, *["c"] * 12)
    await trim(relay, all_max=20)
    assert await tenants_of(harness) == {"a": 3, "b": 8, "c": 8}


def test_a_tenant_below_its_share_keeps_all():
    def bound_of(*counts, tenant_max=100, all_max=100):
        return bound_for_each(counts, tenant_max=tenant_max, all_max=all_max)

    assert bound_of() == 100
    assert bound_of(50, 50) == 100
    assert bound_of(1_000) == 100
    assert bound_of(10, 1_000) == 90
    assert bound_of(10, 500, 500) == 45
    assert bound_of(10, 500, 500, tenant_max=20) == 20
    assert bound_of(*[1] * 10, all_max=5) == 0  # more tenants than events: none can have any
    for counts in ((0, 1, 7), (5, 5, 5), (3, 9, 27, 81)):
        level = bound_of(*counts, all_max=13)
        assert sum(min(count, level) for count in counts) <= 13


@agent_test
async def test_beyond_the_bound_events_go_and_who_missed_them_is_told(harness, caplog):
    await harness.create_ready("alpha")
    sink = Sink()
    sink.down = True
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    await deliver_all(relay)
    count = len(await rows(harness))
    await trim(relay, tenant_max=3)
    assert len(await rows(harness)) == 3
    assert await missed_by(harness, "sink") == count - 3
    assert f"destination sink has missed {count - 3} events" in caplog.text
    assert (await cursor_of(harness, trimmed_cursor(CALLER.tenant))).position == count - 3


@agent_test
async def test_only_what_it_was_to_hear_of_is_missed(harness):
    """Of another tenant's events, or of those it never asked for, nobody misses any."""
    relay = relay_to(harness.plane, Sink())
    asked = SubscriptionRequest(
        "mine", SubscriptionKind.NATS, target="there", types=("agent.ready",)
    )
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    for start in range(1_000, 1_020, 4):
        await put_events(harness, "t", CALLER.tenant, start=start)
        await put_events(harness, "t", CALLER.tenant, kind="agent.deleted", start=start + 2)
    await trim(relay, tenant_max=0)
    assert await rows(harness) == []
    assert await missed_by(harness, view.id) == 5


@agent_test
async def test_a_reader_is_told_that_it_missed_events_of_its_own_tenant_alone(harness):
    relay = relay_to(harness.plane, Sink())
    await put_events(harness, "quiet", "noisy", "quiet", *["noisy"] * 20)
    await trim(relay, tenant_max=5)

    async def missed_events(tenant, after):
        caller = Caller(tenant, "reader", Role.VIEWER)
        return (
            await cloudevents.list_events(harness.plane, caller, EventFilter(), after=after)
        ).missed

    assert await missed_events("noisy", 2)
    assert not await missed_events("quiet", 1)
    assert not await missed_events("noisy", 18)
    # What a release that knows one bound for all tenants has dropped, everybody has missed.
    mark = delivery_rows.put_cursor(cloudevents.TRIMMED, position=3)
    drop = Change("", (), (Drop("outbox", (1,)), Drop("outbox", (3,)), mark))
    assert await harness.plane.store.commit(drop) is None
    assert await missed_events("quiet", 1)
    assert not await missed_events("quiet", 3)


@agent_test
async def test_the_bound_counts_events_whatever_their_positions_are(harness):
    relay = relay_to(harness.plane, Sink())
    await relay.create_cursors()
    row = {
        "tenant": "t", "agent": "a", "operation": "o", "type": "agent.ready",
        "at": harness.plane.store.now(), "body": "{}",
    }  # fmt: skip
    far = tuple(Put("outbox", (n << 40,), {**row, "sequence": n}) for n in range(1, 21))
    assert await harness.plane.store.commit(Change("", (), far)) is None
    await trim(relay, tenant_max=20)
    assert len(await rows(harness)) == 20
    await trim(relay, tenant_max=15)
    assert [row.sequence for row in await rows(harness)] == list(range(6, 21))
    assert await missed_by(harness, "sink") == 5


@agent_test
async def test_events_near_the_bound_are_counted_once_and_followed(harness, monkeypatch):
    """By whoever leads: after another process has led they are counted again."""
    relay, counted = relay_to(harness.plane, Sink()), list[int]()
    await relay.create_cursors()
    monkeypatch.setattr(retention, "PAGE", 2)
    monkeypatch.setattr(event_count, "PAGE", 3)
    count_events = harness.plane.store.count_events

    async def count(*, until):
        counted.append(until)
        return await count_events(until=until)

    monkeypatch.setattr(harness.plane.store, "count_events", count)

    async def count_after_trim(tenant_max):
        await trim(relay, tenant_max=tenant_max)
        return len(await rows(harness))

    for name in ("alpha", "beta", "gamma"):
        await harness.create_ready(name)
        before = len(await rows(harness))
        assert await count_after_trim(before) == before
        assert await count_after_trim(before - 2) == before - 2
        assert await count_after_trim(5) == 5
    assert len(counted) == 1
    other = relay_to(harness.plane, Sink())
    assert await other.leader.take_over()
    await trim(other, tenant_max=4)
    assert await relay.leader.take_over()
    assert await count_after_trim(4) == 4
    assert len(counted) == 3
    assert await count_after_trim(100) == 4
    assert await count_after_trim(3) == 3
    assert len(counted) == 4  # far below the bound nobody follows them


@agent_test
async def test_a_round_that_takes_long_ends_and_says_that_there_is_more(harness, monkeypatch):
    monkeypatch.setattr(retention, "PAGE", 2)
    monkeypatch.setattr(retention, "ROUND_SECONDS", 0.0)
    relay = relay_to(harness.plane, Sink())
    await put_events(harness, *["north"] * 10)
    assert await trim(relay, tenant_max=5) == TrimResult(beyond_bound=2, more=True)
    assert await trim(relay, tenant_max=5) == TrimResult(beyond_bound=2, more=True)
    monkeypatch.setattr(retention, "ROUND_SECONDS", 5.0)
    assert await trim(relay, tenant_max=5) == TrimResult(beyond_bound=1)
    assert await tenants_of(harness) == {"north": 5}


@agent_test
async def test_a_destination_that_is_deleted_meanwhile_ends_the_round_and_nothing_is_dropped(
    harness, monkeypatch
):
    relay = relay_to(harness.plane, Sink())
    await relay.create_cursors()
    await put_events(harness, *["north"] * 4)
    routes = relay.routes

    async def routes_then_delete():
        assert (
            await harness.plane.store.commit(Change("", (), (Drop("cursor", ("sink",)),))) is None
        )
        return await routes()

    monkeypatch.setattr(relay, "routes", routes_then_delete)
    assert await trim(relay, tenant_max=1) == TrimResult()
    assert len(await rows(harness)) == 4
    monkeypatch.setattr(relay, "routes", routes)
    assert await trim(relay, tenant_max=1) == TrimResult(beyond_bound=3)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_and_no_tenant_pays_for_another_however_rounds_fall(seed, monkeypatch):
    """Tenants write, destinations come and go, and after each round every bound holds."""
    monkeypatch.setattr(
        feed, "MEMORY_EVENTS", 0
    )  # or what was dropped would still come from memory
    chance = Random(seed)

    @agent_test
    async def scenario(harness):
        sinks = {name: Sink(name) for name in ("a", "b", "c")}
        relay = relay_to_tenants(harness.plane, **sinks)
        await relay.create_cursors()
        written, start = Counter[str](), 1
        for _ in range(30):
            for sink in sinks.values():
                sink.down = chance.random() < 0.5
            names = chance.choices(["a", "b", "c"], weights=[8, 2, 0.2], k=chance.randrange(12))
            await put_events(harness, *names, start=start)
            start += len(names)
            written.update(names)
            await harness.loop_until(harness.plane.store.now() + chance.choice([1.0, 40.0]))
            await deliver_all(relay)
            await trim(relay, seconds=60.0, tenant_max=12, all_max=20)
            found = await tenants_of(harness)
            assert max(found.values(), default=0) <= 12
            assert found.total() <= 20
        for sink in sinks.values():
            sink.down = False
        await harness.loop_until(harness.plane.store.now() + 120.0)
        await deliver_all(relay)
        for name, sink in sinks.items():
            missed_events = await missed_by(harness, name)
            assert len({one.id for one in sink.events}) + missed_events == written[name]
        assert await missed_by(harness, "c") == 0

    scenario()


# --- ablations: what the tests above rest on ------------------------------------------------------


async def noisy_beside_quiet(harness):
    """A quiet tenant keeps what its destination has not received."""
    sinks = {name: Sink(name) for name in ("noisy", "quiet")}
    for sink in sinks.values():
        sink.down = True
    relay = relay_to_tenants(harness.plane, **sinks)
    await relay.create_cursors()
    await put_events(harness, "quiet", "quiet", *["noisy"] * 40)
    await trim(relay, all_max=20)
    return await missed_by(harness, "quiet")


async def dead_beside_live(harness):
    """Events that the live destination has received, and that nobody else needs."""
    dead, live = Sink("dead"), Sink("live")
    dead.down = True
    relay = relay_to_tenants(harness.plane, north=dead, south=live)
    await relay.create_cursors()
    await put_events(harness, *["north", "south"] * 4, age=100.0)
    await deliver_all(relay)
    await trim(relay, seconds=60.0)
    return (await tenants_of(harness))["south"]


@agent_test
async def test_ablation_with_one_bound_for_all_tenants_together_a_quiet_one_loses_events(
    harness, tally
):
    async def oldest_first(self, excess, subscribers):
        page = await harness.plane.store.list_events(limit=excess.total())
        await self._drop(page, subscribers, "bound")
        return len(page)

    with patched(retention.Retention, _keep_to_bounds=oldest_first):
        assert await noisy_beside_quiet(harness) == 2
    tally.add("ablations")


@agent_test
async def test_ablation_if_every_cursor_counts_a_dead_destination_holds_up_all(harness, tally):
    def is_beyond_cursor(self, row):
        return self.position < row.position

    def everybody(self, row):
        return (one for of in self._of_tenant.values() for one in of if one.needs(row))

    with (
        patched(retention.Subscriber, needs=is_beyond_cursor),
        patched(retention.Subscribers, needing=everybody),
    ):
        assert await dead_beside_live(harness) == 4
    tally.add("ablations")


@agent_test
async def test_without_the_ablations_neither_happens(harness):
    assert await noisy_beside_quiet(harness) == 0


@agent_test
async def test_without_the_ablations_nothing_is_held_up(harness):
    assert await dead_beside_live(harness) == 0
