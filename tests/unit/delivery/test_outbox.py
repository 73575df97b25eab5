"""The relay: at least once, in order for each agent, and one that is refused holds up nobody."""

import asyncio
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from proofs.agents.lifecycle import CALLER
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.adapters.seal.local import LocalSeal
from tenure.app import pages
from tenure.app.events import dead_letters, subscriptions
from tenure.app.events.cloudevents import EVENT_TYPES, CloudEvent, EventFilter
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.leader import TTL_SECONDS, Leader
from tenure.core.errors import Invalid, StaleToken, StoreFull
from tenure.core.records import CursorRecord, LeaseRecord, LetterRecord, ParkedRecord
from tenure.core.retry import PARKED_STREAM
from tenure.core.subscription import SubscriptionKind
from tenure.delivery import outbox
from tenure.delivery.relay import Relay
from tenure.delivery.retention import RetentionLimits
from tenure.ports.bus import Destination
from tenure.ports.store import Change, Drop, Put, Set
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink, park_stream, relay_to, rows
from tests.unit.support.webhook_secrets import secret_of


@agent_test
async def test_every_event_arrives_once_in_the_order_of_its_agent(harness):
    agents = [await harness.create_ready(name) for name in ("alpha", "beta")]
    sink = Sink()
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    await deliver_all(relay)
    assert len(sink.events) == len(await rows(harness))
    for agent in agents:
        assert sink.of(agent) == list(range(1, len(sink.of(agent)) + 1))
    await deliver_all(relay)
    assert len(sink.events) == len(await rows(harness))


@agent_test
async def test_a_relay_that_the_store_refuses_at_first_publishes_later(harness, caplog):
    await harness.create_ready("alpha")
    store, sink = harness.plane.store, Sink()
    refusals = [StoreFull("there is no room"), ZeroDivisionError("a bug")]
    commit = store.commit

    async def refuse(change):
        if refusals and change.writes[0].table == "cursor":
            raise refusals.pop(0)
        return await commit(change)

    relay = relay_to(harness.plane, sink)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "commit", refuse)
        task = asyncio.create_task(relay.run())
        await asyncio.sleep(TTL_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await relay.stop()
    assert len(sink.events) == len(await rows(harness)) > 0
    told = [record.getMessage() for record in caplog.records]
    assert "the relay cannot use the store: there is no room" in told
    assert "the relay failed; next attempt in a few seconds" in told


@agent_test
async def test_an_event_is_a_cloud_event(harness):
    agent = await harness.create_ready("alpha")
    sink = Sink()
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    await deliver_all(relay)
    told = [msgspec.json.decode(event.body, type=CloudEvent) for event in sink.events]
    assert {one.specversion for one in told} == {"1.0"}
    assert {one.source for one in told} == {f"urn:tenure:{harness.plane.id}"}
    assert {one.subject for one in told} == {agent}
    assert {one.type for one in told} <= {f"tenure.{event}" for event in EVENT_TYPES}
    assert "tenure.agent.ready" in {one.type for one in told}
    assert len({one.id for one in told}) == len(told)
    assert [one.sequence for one in told] == sorted(one.sequence for one in told)
    assert all(one.time.endswith("+00:00") for one in told)


@agent_test
async def test_a_destination_hears_only_of_what_it_wants(harness):
    await harness.create_ready("alpha")
    sink = Sink()
    relay = relay_to(harness.plane, sink, event_filter=EventFilter(types=("agent.*",)))
    await relay.create_cursors()
    await deliver_all(relay)
    assert [event.type for event in sink.events] == ["agent.creating", "agent.ready"]


@agent_test
async def test_one_agents_stream_is_parked_and_the_others_go_on(harness):
    bad, good, sink, relay, done = await park_stream(harness)
    assert sink.of(bad) == []
    assert sink.of(good) == list(range(1, len(sink.of(good)) + 1))
    dead = await harness.rows(LetterRecord)
    assert [row.agent for row in dead] == [bad] * len(dead)
    assert [row.sequence for row in dead] == list(range(1, len(dead) + 1))
    (row,) = await harness.rows(ParkedRecord)
    assert (row.agent, row.why) == (bad, "not this one")
    # What comes later of it waits behind its letters, and then all of it comes in order.
    await harness.run_verb("suspend", "bad")
    await deliver_all(relay)
    assert sink.of(bad) == []
    sink.refuses.clear()
    assert done.retry_at is not None
    await harness.loop_until(done.retry_at)
    await deliver_all(relay)
    assert sink.of(bad) == list(range(1, len(sink.of(bad)) + 1))
    assert await harness.rows(LetterRecord) == [] == await harness.rows(ParkedRecord)
    assert {row.agent for row in await rows(harness)} == {bad, good}
    assert len(sink.events) == len(await rows(harness))


@agent_test
async def test_a_destination_that_takes_nothing_is_left_alone_and_nothing_is_parked(harness):
    agent = await harness.create_ready("alpha")
    sink, other = Sink(), Sink("other")
    sink.down = True
    relay = relay_to(harness.plane, sink, other)
    await relay.create_cursors()
    done = await deliver_all(relay)
    cursor = await harness.plane.store.find(CursorRecord, ("sink",))
    assert (cursor.position, cursor.attempts) == (0, 1)
    assert cursor.why == "ConnectionError: nobody is there"
    assert cursor.since is not None
    assert other.of(agent)
    assert await harness.rows(ParkedRecord) == []
    again = await deliver_all(relay)  # too soon: nobody is asked
    assert again.retry_at == done.retry_at
    sink.down = False
    await harness.loop_until(done.retry_at)
    await deliver_all(relay)
    assert sink.deliveries == other.deliveries
    cursor = await harness.plane.store.find(CursorRecord, ("sink",))
    assert (cursor.attempts, cursor.why, cursor.since) == (0, "", None)


@agent_test
async def test_who_was_deposed_moves_no_cursor(harness):
    await harness.create_ready("alpha")
    sink = Sink()
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    assert await relay.leader.renew()

    route = (await relay.routes())["sink"][1]
    lease = await harness.plane.store.find(LeaseRecord, ("leader/relay",))
    taken = Set("lease", ("leader/relay",), {"token": lease.token + 1, "holder": "another"})
    await harness.plane.store.commit(Change("", (), (taken,)))
    with pytest.raises(StaleToken):
        await outbox.deliver_page(harness.plane, relay.leader, route)
    assert (await harness.plane.store.find(CursorRecord, ("sink",))).position == 0
    assert sink.events  # it was published, and will be again: never a gap


@agent_test
async def test_one_leads_until_its_lease_lapses(harness):
    first, second = (Leader(harness.plane, "x") for _ in range(2))
    assert await first.renew()
    assert not await second.renew()
    assert (first.leads, second.leads) == (True, False)
    now = harness.plane.store.now()
    await harness.loop_until(now + TTL_SECONDS + 1)
    assert (first.leads, second.leads) == (False, False)
    assert await second.renew()
    assert not await first.renew()
    await second.resign()
    assert await first.renew()
    tokens = [row.token for row in await harness.rows(LeaseRecord) if row.name == "leader/x"]
    assert tokens == [3]


@agent_test
async def test_no_destination_is_overlooked_however_many_there_are(harness, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    await harness.create_ready("alpha")
    sinks, late = [Sink(name) for name in "abcd"], Sink("late")
    late.down = True
    relay = relay_to(harness.plane, *sinks, late)
    await relay.create_cursors()
    await deliver_all(relay)
    await harness.loop_until(harness.plane.store.now() + 61.0)
    count = len(await rows(harness))
    await relay.leader.renew()
    relay.retention.limits = RetentionLimits(seconds=60.0)
    await relay.retention.trim()
    assert len(await rows(harness)) == count


@pytest.mark.parametrize("down", [False, True])
@agent_test
async def test_a_page_of_agents_that_fail_holds_up_nobody_else(harness, down):
    bad = [await harness.create_ready(name) for name in ("one", "two")]
    good = await harness.create_ready("good")
    sink = Sink()
    sink.fails |= {*bad, good} if down else {*bad}
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    await relay.leader.renew()
    events = await rows(harness)
    page = next(place for place, row in enumerate(events) if row.agent == good)
    assert {row.agent for row in events[:page]} == set(bad)
    route = replace((await relay.routes())["sink"][1], page=page)
    for _ in range(outbox.ISOLATION_ATTEMPTS):
        done = await outbox.deliver_page(harness.plane, relay.leader, route)
        await harness.loop_until(max(done.retry_at or 0.0, harness.plane.store.now()))
        await relay.leader.renew()
    if down:  # it takes nothing from anybody: nobody is parked for that
        assert await harness.rows(ParkedRecord) == []
        return
    assert {row.agent for row in await harness.rows(ParkedRecord)} == set(bad)
    await outbox.deliver_page(harness.plane, relay.leader, route)
    assert sorted(set(sink.of(good))) == list(range(1, max(sink.of(good)) + 1))


@agent_test
async def test_a_secret_that_was_changed_signs_beside_the_new_one_for_a_day(
    harness, tmp_path, monkeypatch
):
    assert subscriptions.OVERLAP_SECONDS == 86_400
    monkeypatch.setattr(subscriptions, "OVERLAP_SECONDS", 600.0)  # a day of leases takes long
    signed: list[tuple[bytes, ...]] = []

    class Signing(LocalBus):
        async def publish(self, destination, events):
            signed.append(destination.secrets)
            return await super().publish(destination, events)

    object.__setattr__(harness.plane, "seal", LocalSeal(tmp_path / "key"))
    target = "https://billing.example/hooks"
    asked = SubscriptionRequest("mine", SubscriptionKind.WEBHOOK, target=target)
    view, old = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    _, new = await subscriptions.rotate_secret(harness.plane, CALLER, view.id)
    relay = Relay(harness.plane, buses={SubscriptionKind.WEBHOOK: Signing({target: Sink().take})})
    route = (await relay.routes())[view.id][1]  # as the task of its destination keeps it
    assert route.destination.tenant == route.tenant == CALLER.tenant
    both = tuple(secret_of(one) for one in (new, old))
    for keys in (both, both[:1]):
        await harness.create_ready(f"agent-{len(keys)}")
        await relay.leader.renew()
        await outbox.deliver_page(harness.plane, relay.leader, route)
        assert set(signed) == {keys}
        signed.clear()
        await harness.loop_until(harness.plane.store.now() + subscriptions.OVERLAP_SECONDS)


@agent_test
async def test_letters_are_bounded_and_then_the_cursor_waits(harness, monkeypatch):
    monkeypatch.setattr(outbox, "LETTERS_MAX", 3)
    bad, good, sink, relay, _ = await park_stream(harness)
    await harness.run_verb("suspend", "bad")
    told: list[object] = []
    sink.on_event = lambda event: told.append(event.agent)
    await deliver_all(relay)
    cursor = await harness.plane.store.find(CursorRecord, ("sink",))
    assert "dead letters" in cursor.why
    assert len(await harness.rows(LetterRecord)) == 3
    assert told == []  # nothing is sent for whose failing there is no room
    sink.refuses.clear()
    for _ in range(3):
        await harness.loop_until(harness.plane.store.now() + 60.0)
        await deliver_all(relay)
    for agent in (bad, good):
        assert sink.of(agent) == list(range(1, max(sink.of(agent)) + 1))
    assert await harness.rows(LetterRecord) == []


@agent_test
async def test_a_stream_that_is_discarded_while_events_are_sent_leaves_no_letter(harness):
    bad = await harness.create_ready("bad")
    await harness.create_ready("good")
    asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine")
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    sink = Sink("mine")
    relay = Relay(harness.plane, buses={SubscriptionKind.NATS: LocalBus({"mine": sink.take})})
    parked = {"attempts": 1, "due_at": None, "why": "", "since": 1.0}
    await harness.plane.store.commit(Change("", (), (Put("parked", (view.id, bad), parked),)))
    await harness.run_verb("suspend", "bad")
    await harness.run_verb("suspend", "good")
    real = outbox._send
    discarded: list[int] = []

    async def send(*args):
        if not discarded:
            discarded.append(await dead_letters.discard(harness.plane, CALLER, view.id, agent=bad))
        return await real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "_send", send)
        await deliver_all(relay)
    assert discarded == [1]
    assert await harness.rows(LetterRecord) == []
    assert sink.of(bad)


@agent_test
async def test_a_letter_that_comes_while_its_stream_is_discarded_goes_with_it(harness):
    bad = await harness.create_ready("bad")
    asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine")
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    sink = Sink("mine")
    sink.refuses.add(bad)
    relay = Relay(harness.plane, buses={SubscriptionKind.NATS: LocalBus({"mine": sink.take})})
    await harness.run_verb("suspend", "bad")
    await deliver_all(relay)
    assert await harness.rows(LetterRecord)
    await harness.run_verb("resume", "bad")
    store = harness.plane.store
    commit, ticks = store.commit, [partial(deliver_all, relay)]

    async def commit_late(change):
        if any(type(one) is Drop and one.table == "parked" for one in change.writes) and ticks:
            await ticks.pop()()
        return await commit(change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "commit", commit_late)
        await dead_letters.discard(harness.plane, CALLER, view.id, agent=bad)
    assert ticks == []
    assert await harness.rows(ParkedRecord) == [] == await harness.rows(LetterRecord)


@agent_test
async def test_a_destination_without_a_cursor_is_none(harness):
    await harness.create_ready("alpha")
    sink = Sink()
    relay = relay_to(harness.plane, sink)
    assert await relay.leader.renew()
    assert await deliver_all(relay) == outbox.DeliveryResult()
    assert sink.events == []


@agent_test
async def test_more_letters_than_a_page_leave_in_order(harness, monkeypatch):
    bad, _, sink, relay, done = await park_stream(harness)
    letters_kept = len(await harness.rows(LetterRecord))
    sink.refuses.clear()
    monkeypatch.setattr(outbox, "PAGE", 4)
    assert letters_kept > 2 * outbox.PAGE
    assert done.retry_at is not None
    await harness.loop_until(done.retry_at)
    for _ in range(letters_kept):
        await deliver_all(relay)
    assert sink.of(bad) == list(range(1, letters_kept + 1))
    assert await harness.rows(ParkedRecord) == []


@agent_test
async def test_a_deposed_relay_neither_retries_nor_trims(harness):
    _, _, _, relay, done = await park_stream(harness)
    kept = await harness.rows(LetterRecord)
    other = Leader(harness.plane, "relay")
    await harness.loop_until(max(done.retry_at or 0.0, harness.plane.store.now() + TTL_SECONDS + 1))
    assert await other.renew()
    (route,) = [route for _, route in (await relay.routes()).values()]
    with pytest.raises(StaleToken):
        await outbox.deliver_page(harness.plane, relay.leader, route)
    relay.retention.limits = RetentionLimits(seconds=-1e6, tenant_max=0)
    with pytest.raises(StaleToken):
        await relay.retention.trim()
    assert await harness.rows(LetterRecord) == kept
    assert len(await rows(harness)) > 0


@agent_test
async def test_a_bus_that_breaks_or_a_secret_that_cannot_be_opened_is_a_failure(harness):
    await harness.create_ready("alpha")

    class Breaks:
        async def publish(self, *_):
            raise ZeroDivisionError("a bug")

        async def close(self):
            pass

    def no_secrets():
        raise Invalid("the key is lost")

    for number, route in enumerate((
        outbox.DestinationRoute(Destination("breaks", "x"), Breaks()),
        outbox.DestinationRoute(Destination("lost", "x"), LocalBus({}), secrets=no_secrets),
    )):  # fmt: skip
        relay = Relay(harness.plane, buses={}, fixed_routes=[route])
        await relay.create_cursors()
        await deliver_all(relay)
        cursor = await harness.plane.store.find(CursorRecord, (route.id,))
        assert cursor is not None
        assert cursor.position == 0
        assert cursor.why == ("ZeroDivisionError: a bug", "the key is lost")[number]
        await relay.leader.resign()


@agent_test
async def test_a_time_that_only_a_clock_set_back_since_can_have_meant_has_come(harness):
    held = await park_stream(harness)
    far = harness.plane.store.now() + 86_400.0
    sink, key = held.sink.name, (held.sink.name, held.bad)
    late = Set("parked", key, {"due_at": far}), Set("cursor", (sink,), {"due_at": far})
    await harness.plane.store.commit(Change("", (), late))
    held.sink.refuses.clear()
    await harness.create_ready("more")
    done = await deliver_all(held.relay)
    assert done.retry_at is None
    assert len(set(held.sink.deliveries)) == len(await rows(harness))
    soon = harness.plane.store.now() + PARKED_STREAM.cap_seconds
    await harness.plane.store.commit(Change("", (), (Set("cursor", (sink,), {"due_at": soon}),)))
    assert (await deliver_all(held.relay)).retry_at == soon
