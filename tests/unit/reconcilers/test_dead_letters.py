"""Letters: what a destination does not take is one finding for it, until it has it or is gone."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.adapters.bus.local import LocalBus
from tenure.app.events import dead_letters, subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.safety import findings
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.limits import PAGE_MAX
from tenure.core.subscription import SubscriptionKind as Way
from tenure.delivery.relay import Relay
from tenure.ports.store import Change, Drop, Put, Row, Set
from tenure.reconcilers import dead_letters as reconciler
from tenure.reconcilers.leader import Leader
from tenure.reconcilers.term import LEADERS, Term
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import alive
from tests.unit.support.sinks import Sink, relay_to


async def told(lives):
    return await findings.list_findings(lives.plane, CALLER)


async def subscribed(lives, sink):
    """A subscription that hears of everything, and the relay that carries to it."""
    asked = SubscriptionRequest("mine", Way.NATS, target=sink.name, from_start=True)
    view, _ = await subscriptions.create_subscription(lives.plane, CALLER, asked)
    return view.id, Relay(lives.plane, buses={Way.NATS: LocalBus({sink.name: sink.take})})


@alive
async def test_parked_streams_are_one_finding_until_they_are_taken(lives):
    bad = [await lives.made(name) for name in ("bad", "worse")]
    await lives.made("good")
    sink = Sink()
    sink.refuses.update(bad)
    name, relay = await subscribed(lives, sink)
    await relay.tick()
    for _ in range(2):
        assert (await reconciler.tick(lives.plane)).seen == 2
    (found,) = await told(lives)
    dead = len(await lives.rows("letter"))
    assert (found.kind, found.agent, found.sightings) == (FindingKind.CONFIRMED, "", 2)
    assert f"subscription mine has not taken {dead} events of 2 agents" in found.body["what"]
    assert found.body["what"].endswith("not this one; they are tried again")
    assert {"destination": name, "letters": dead, "parked": 2}.items() <= found.body.items()
    sink.refuses.discard(bad[0])
    await dead_letters.replay(lives.plane, CALLER, name)
    await relay.tick()
    await reconciler.tick(lives.plane)
    assert [one.agent for one in await told(lives)] == [bad[1]], "it is the only one by now"
    await dead_letters.discard(lives.plane, CALLER, name, agent=bad[1])
    await reconciler.tick(lives.plane)
    assert await told(lives) == []


@alive
async def test_however_many_streams_are_parked_all_are_replayed_and_given_up(lives):
    name, _ = await subscribed(lives, Sink())
    many = [f"{number:032x}" for number in range(PAGE_MAX + 1)]
    parked = {"attempts": 3, "due_at": None, "why": "not this one", "since": 1.0}
    dead: Row = {"tenant": "default", "operation": "", "type": "t", "at": 1.0, "body": "{}"}
    writes = [Put("parked", (name, agent), parked) for agent in many]
    writes.append(Put("letter", (name, many[-1], 1), {**dead, "sequence": 1}))
    assert await lives.plane.store.commit(Change("", (), tuple(writes))) is None
    (shown,) = await dead_letters.list_letters(lives.plane, CALLER, name)
    assert shown.why == "not this one"
    assert await dead_letters.replay(lives.plane, CALLER, name) == len(many)
    assert await dead_letters.discard(lives.plane, CALLER, name, agent="") == len(many)
    assert await lives.rows("parked") == await lives.rows("letter") == []


@alive
async def test_one_that_is_no_longer_tried_waits_for_a_person(lives):
    bad = await lives.made("bad")
    await lives.made("good")
    sink = Sink()
    sink.refuses.add(bad)
    relay = relay_to(lives.plane, sink)
    await relay.begin()
    await relay.tick()
    given_up = Set("parked", (sink.name, bad), {"due_at": None})
    await lives.plane.store.commit(Change("", (), (given_up,)))
    await reconciler.tick(lives.plane)
    (found,) = await told(lives)
    assert found.agent == bad
    assert found.body["what"].startswith("sink has not taken")
    assert found.body["what"].endswith("replay or discard them")


@alive
async def test_a_destination_that_takes_nothing_is_told_after_a_while(lives):
    await lives.made()
    sink = Sink()
    sink.down = True
    name, relay = await subscribed(lives, sink)
    await relay.tick()
    await reconciler.tick(lives.plane)
    assert await told(lives) == []
    await asyncio.sleep(reconciler.TOLD_SECONDS + 1)
    await reconciler.tick(lives.plane)
    (found,) = await told(lives)
    since = in_utc(found.body["failing_since"])
    assert f"subscription mine takes nothing since {since}: " in found.body["what"]
    assert since.endswith(" UTC")
    assert "nobody is there" in found.body["what"]
    await lives.plane.store.commit(Change("", (), (Set("cursor", (name,), {"missed": 3}),)))
    await reconciler.tick(lives.plane)
    (found,) = await told(lives)
    assert found.body["what"].endswith(", and has missed 3 events, which are no longer kept")
    sink.down = False
    await dead_letters.replay(lives.plane, CALLER, name)
    await relay.tick()
    await reconciler.tick(lives.plane)
    assert await told(lives) == []


async def left_behind(lives):
    """A plane died after it had dropped a subscription and before its letters."""
    bad = await lives.made("bad")
    await lives.made("good")
    sink = Sink()
    sink.refuses.add(bad)
    name, relay = await subscribed(lives, sink)
    await relay.tick()
    await reconciler.tick(lives.plane)
    drops = (Drop("subscription", (name,)), Drop("cursor", (name,)))
    await lives.plane.store.commit(Change("", (), drops))


@alive
async def test_what_is_left_of_a_destination_that_is_gone_goes(lives):
    await left_behind(lives)
    held = Term(lives.plane, "letters", read_only=True)
    assert (await reconciler.tick(lives.plane, term=held)).fixed == 0
    assert len(await lives.rows("letter")) > 1
    assert (await reconciler.tick(lives.plane)).fixed == 1
    assert await lives.rows("letter") == [] == await lives.rows("parked")
    assert await told(lives) == []


@pytest.mark.parametrize("fenced", [True, False])
def test_who_was_deposed_drops_nothing(fenced):
    alive(deposed)(fenced=fenced)


async def deposed(lives, fenced):
    await left_behind(lives)
    first, second = (Leader(lives.plane, LEADERS) for _ in range(2))
    await first.renew()
    await second.take_over()
    term = Term(lives.plane, "letters", token=first.token)
    if fenced:
        assert (await reconciler.tick(lives.plane, term=term)).fixed == 0
        assert len(await lives.rows("letter")) > 1
        return
    with patched(Term, fence=lambda _: ()):
        assert (await reconciler.tick(lives.plane, term=term)).fixed == 1
