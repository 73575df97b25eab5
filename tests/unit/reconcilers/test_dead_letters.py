"""Letters: what a destination does not take is one finding for it, until it has it or is gone."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app.events import dead_letters, subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.leader import Leader
from tenure.app.safety import findings
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.limits import PAGE_MAX
from tenure.core.records import LetterRecord, ParkedRecord
from tenure.core.subscription import SubscriptionKind as Way
from tenure.delivery.relay import Relay
from tenure.ports.store import Change, Drop, Put, Row, Set
from tenure.reconcilers import dead_letters as reconciler
from tenure.reconcilers.passes import LEADERS, Pass
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink, relay_to


async def list_findings(harness):
    return await findings.list_findings(harness.plane, CALLER)


async def subscribe(harness, sink):
    """A subscription that hears of everything, and the relay that carries to it."""
    asked = SubscriptionRequest("mine", Way.NATS, target=sink.name, from_start=True)
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    return view.id, Relay(harness.plane, buses={Way.NATS: LocalBus({sink.name: sink.take})})


@agent_test
async def test_parked_streams_are_one_finding_until_they_are_taken(harness):
    bad = [await harness.create_ready(name) for name in ("bad", "worse")]
    await harness.create_ready("good")
    sink = Sink()
    sink.refuses.update(bad)
    name, relay = await subscribe(harness, sink)
    await deliver_all(relay)
    for _ in range(2):
        assert (await reconciler.tick(harness.plane)).seen == 2
    (found,) = await list_findings(harness)
    dead = len(await harness.rows(LetterRecord))
    assert (found.kind, found.agent, found.sightings) == (FindingKind.CONFIRMED, "", 2)
    assert f"subscription mine has not accepted {dead} events of 2 agents" in found.body["what"]
    assert found.body["what"].endswith("not this one; they are sent again later")
    assert {"destination": name, "letters": dead, "parked": 2}.items() <= found.body.items()
    sink.refuses.discard(bad[0])
    await dead_letters.replay(harness.plane, CALLER, name)
    await deliver_all(relay)
    await reconciler.tick(harness.plane)
    assert [one.agent for one in await list_findings(harness)] == [bad[1]], (
        "it is the only one by now"
    )
    await dead_letters.discard(harness.plane, CALLER, name, agent=bad[1])
    await reconciler.tick(harness.plane)
    assert await list_findings(harness) == []


@agent_test
async def test_however_many_streams_are_parked_all_are_replayed_and_given_up(harness):
    name, _ = await subscribe(harness, Sink())
    many = [f"{number:032x}" for number in range(PAGE_MAX + 1)]
    parked = {"attempts": 3, "due_at": None, "why": "not this one", "since": 1.0}
    dead: Row = {"tenant": "default", "operation": "", "type": "t", "at": 1.0, "body": "{}"}
    writes = [Put("parked", (name, agent), parked) for agent in many]
    writes.append(Put("letter", (name, many[-1], 1), {**dead, "sequence": 1}))
    assert await harness.plane.store.commit(Change("", (), tuple(writes))) is None
    (shown,) = await dead_letters.list_letters(harness.plane, CALLER, name)
    assert shown.why == "not this one"
    assert await dead_letters.replay(harness.plane, CALLER, name) == len(many)
    assert await dead_letters.discard(harness.plane, CALLER, name, agent="") == len(many)
    assert await harness.rows(ParkedRecord) == await harness.rows(LetterRecord) == []


@agent_test
async def test_one_that_is_no_longer_tried_waits_for_a_person(harness):
    bad = await harness.create_ready("bad")
    await harness.create_ready("good")
    sink = Sink()
    sink.refuses.add(bad)
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    await deliver_all(relay)
    given_up = Set("parked", (sink.name, bad), {"due_at": None})
    await harness.plane.store.commit(Change("", (), (given_up,)))
    await reconciler.tick(harness.plane)
    (found,) = await list_findings(harness)
    assert found.agent == bad
    assert found.body["what"].startswith("sink has not accepted")
    assert found.body["what"].endswith("replay or discard them")


@agent_test
async def test_a_destination_that_takes_nothing_is_told_after_a_while(harness):
    await harness.create_ready()
    sink = Sink()
    sink.down = True
    name, relay = await subscribe(harness, sink)
    await deliver_all(relay)
    await reconciler.tick(harness.plane)
    assert await list_findings(harness) == []
    await asyncio.sleep(reconciler.REPORT_AFTER_SECONDS + 1)
    await reconciler.tick(harness.plane)
    (found,) = await list_findings(harness)
    since = in_utc(found.body["failing_since"])
    assert f"subscription mine has accepted nothing since {since}: " in found.body["what"]
    assert since.endswith(" UTC")
    assert "nobody is there" in found.body["what"]
    await harness.plane.store.commit(Change("", (), (Set("cursor", (name,), {"missed": 3}),)))
    await reconciler.tick(harness.plane)
    (found,) = await list_findings(harness)
    assert found.body["what"].endswith(", and has missed 3 events, which are no longer stored")
    sink.down = False
    await dead_letters.replay(harness.plane, CALLER, name)
    await deliver_all(relay)
    await reconciler.tick(harness.plane)
    assert await list_findings(harness) == []


async def left_behind(harness):
    """A plane died after it had dropped a subscription and before its letters."""
    bad = await harness.create_ready("bad")
    await harness.create_ready("good")
    sink = Sink()
    sink.refuses.add(bad)
    name, relay = await subscribe(harness, sink)
    await deliver_all(relay)
    await reconciler.tick(harness.plane)
    drops = (Drop("subscription", (name,)), Drop("cursor", (name,)))
    await harness.plane.store.commit(Change("", (), drops))


@agent_test
async def test_what_is_left_of_a_destination_that_is_gone_goes(harness):
    await left_behind(harness)
    held = Pass(harness.plane, "letters", read_only=True)
    assert (await reconciler.tick(harness.plane, this_pass=held)).fixed == 0
    assert len(await harness.rows(LetterRecord)) > 1
    assert (await reconciler.tick(harness.plane)).fixed == 1
    assert await harness.rows(LetterRecord) == [] == await harness.rows(ParkedRecord)
    assert await list_findings(harness) == []


@pytest.mark.parametrize("with_fence", [True, False])
def test_who_was_deposed_drops_nothing(with_fence):
    agent_test(drop_after_new_leader)(with_fence=with_fence)


async def drop_after_new_leader(harness, with_fence):
    await left_behind(harness)
    first, second = (Leader(harness.plane, LEADERS) for _ in range(2))
    await first.renew()
    await second.take_over()
    this_pass = Pass(harness.plane, "letters", token=first.token)
    if with_fence:
        assert (await reconciler.tick(harness.plane, this_pass=this_pass)).fixed == 0
        assert len(await harness.rows(LetterRecord)) > 1
        return
    with patched(Pass, fence=lambda _: ()):
        assert (await reconciler.tick(harness.plane, this_pass=this_pass)).fixed == 1
