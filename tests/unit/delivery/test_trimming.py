"""What is kept of events: until all have them, or the cap, and who misses some is told."""

from proofs.agents.lifecycle import CALLER
from tenure.app.events import subscriptions
from tenure.app.events.cloudevents import TRIMMED
from tenure.app.events.subscriptions import Subscribe
from tenure.core.subscription import SubscriptionKind
from tenure.delivery import outbox
from tenure.delivery.event_count import Census
from tenure.ports.store import Change, Put
from tenure.reconcilers.leader import Leader
from tests.unit.support.agent_planes import alive
from tests.unit.support.sinks import Sink, relay_to, rows


@alive
async def test_old_events_go_when_all_have_them(lives):
    await lives.made("alpha")
    sink, late = Sink(), Sink("late")
    late.down = True
    relay = relay_to(lives.plane, sink, late)
    await relay.begin()
    await relay.tick()
    await lives.loop_until(lives.plane.store.now() + 61.0)
    count = len(await rows(lives))
    await relay.leader.renew()
    await outbox.trim(lives.plane, relay.leader, Census(), seconds=60.0)
    assert len(await rows(lives)) == count  # one destination lacks them
    late.down = False
    await relay.tick()
    await outbox.trim(lives.plane, relay.leader, Census(), seconds=60.0)
    assert await rows(lives) == []
    assert late.told == sink.told
    await lives.made("beta")
    await relay.tick()
    assert late.told == sink.told
    assert len(await rows(lives)) == len(late.seen) - count


@alive
async def test_beyond_the_cap_events_go_and_who_missed_them_is_told(lives):
    await lives.made("alpha")
    sink = Sink()
    sink.down = True
    relay = relay_to(lives.plane, sink)
    await relay.begin()
    await relay.tick()
    count = len(await rows(lives))
    await outbox.trim(lives.plane, relay.leader, Census(), rows_max=3)
    assert len(await rows(lives)) == 3
    cursor = await lives.plane.store.find("cursor", ("sink",))
    assert cursor["missed"] == count - 3
    assert (await lives.plane.store.find("cursor", (TRIMMED,)))["position"] == count - 3


@alive
async def test_only_what_it_was_to_hear_of_is_missed(lives):
    """Of another tenant's events, or of those it never asked for, nobody misses any."""
    relay = relay_to(lives.plane, Sink())
    await relay.leader.renew()
    asked = Subscribe("mine", SubscriptionKind.NATS, target="there", types=("agent.ready",))
    view, _ = await subscriptions.create_subscription(lives.plane, CALLER, asked)
    now = lives.plane.store.now()
    told = {"agent": "a", "operation": "o", "at": now, "body": "{}"}
    kinds = [(tenant, kind) for tenant in ("t", CALLER.tenant) for kind in ("ready", "deleted")]
    puts = tuple(
        Put("outbox", (n,), {**told, "tenant": tenant, "type": f"agent.{kind}", "sequence": n})
        for n, (tenant, kind) in enumerate(kinds * 5, 1_000)
    )
    assert await lives.plane.store.commit(Change("", (), puts)) is None
    await outbox.trim(lives.plane, relay.leader, Census(), rows_max=0)
    assert await rows(lives) == []
    assert (await lives.plane.store.find("cursor", (view.id,)))["missed"] == 5


@alive
async def test_the_cap_counts_events_whatever_their_positions_are(lives):
    relay = relay_to(lives.plane, Sink())
    await relay.begin()
    await relay.leader.renew()
    told = {
        "tenant": "t", "agent": "a", "operation": "o", "type": "agent.ready",
        "at": lives.plane.store.now(), "body": "{}",
    }  # fmt: skip
    far = tuple(Put("outbox", (n << 40,), {**told, "sequence": n}) for n in range(1, 21))
    assert await lives.plane.store.commit(Change("", (), far)) is None
    await outbox.trim(lives.plane, relay.leader, Census(), rows_max=20)
    assert len(await rows(lives)) == 20
    await outbox.trim(lives.plane, relay.leader, Census(), rows_max=15)
    assert [row["sequence"] for row in await rows(lives)] == list(range(6, 21))
    assert (await lives.plane.store.find("cursor", ("sink",)))["missed"] == 5


@alive
async def test_events_at_the_cap_are_counted_once_and_followed(lives, monkeypatch):
    """By whoever leads: after another one has led they are counted anew."""
    relay, census, counted = relay_to(lives.plane, Sink()), Census(), list[str]()
    await relay.begin()
    await relay.leader.renew()
    monkeypatch.setattr(outbox, "TRIM_ROWS", 2)
    count_rows = lives.plane.store.count_rows

    async def count(table, said):
        counted.append(table)
        return await count_rows(table, said)

    monkeypatch.setattr(lives.plane.store, "count_rows", count)

    async def trimmed(rows_max):
        while (await outbox.trim(lives.plane, relay.leader, census, rows_max=rows_max)).more:
            pass
        return len(await rows(lives))

    for name in ("alpha", "beta", "gamma"):
        await lives.made(name)
        before = len(await rows(lives))
        assert await trimmed(before) == before
        assert await trimmed(before - 2) == before - 2
        assert await trimmed(5) == 5
    assert counted == ["outbox"]
    other = relay_to(lives.plane, Sink())
    assert await other.leader.take_over()
    await outbox.trim(lives.plane, other.leader, Census(), rows_max=4)
    assert await relay.leader.take_over()
    assert await trimmed(4) == 4
    assert counted == ["outbox"] * 3
    assert await trimmed(100) == 4
    assert await trimmed(3) == 3
    assert counted == ["outbox"] * 4  # far below the cap nobody follows them


@alive
async def test_nothing_is_trimmed_where_nothing_is(lives):
    leader = Leader(lives.plane, "relay")
    await leader.renew()
    assert await outbox.trim(lives.plane, leader, Census()) == outbox.Tick()
