"""What destinations take is counted by their kind, and so is what they have not taken."""

from proofs.agents.lifecycle import CALLER
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app.events import subscriptions
from tenure.app.events.deliveries import read_backlog
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import DeliveryVerdict, Destination
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink


@agent_test
async def test_deliveries_are_counted_by_the_kind_of_destination(harness):
    plane, own, theirs = harness.plane, Sink(), Sink("theirs")
    always = [DestinationRoute(Destination("sink", "sink"), LocalBus({"sink": own.take}))]
    relay = Relay(
        plane, buses={SubscriptionKind.NATS: LocalBus({"theirs": theirs.take})}, fixed_routes=always
    )
    await relay.create_cursors()
    asked = SubscriptionRequest("theirs", SubscriptionKind.NATS, target="theirs")
    await subscriptions.create_subscription(plane, CALLER, asked)
    good, bad = await harness.create_ready("good"), await harness.create_ready("bad")
    theirs.refuses.add(bad)
    await deliver_all(relay)
    counts = plane.deliveries
    rows = await plane.store.list_events(limit=1_000)
    per_agent = {uid: sum(row.agent == uid for row in rows) for uid in (good, bad)}
    assert counts.answers["reaction", DeliveryVerdict.DELIVERED] == len(rows)
    assert counts.answers["nats", DeliveryVerdict.DELIVERED] == per_agent[good]
    assert counts.answers["nats", DeliveryVerdict.REFUSED] == 1  # those behind it were not sent
    assert (counts.retries["nats"], counts.retries["reaction"]) == (0, 0)
    assert counts.seconds["reaction"] >= 0.0
    found = await read_backlog(plane)
    assert (found["nats"].letters, found["nats"].failing) == (per_agent[bad], 1)
    assert found["nats"].since is not None
    assert (found["reaction"].letters, found["reaction"].since) == (0, None)
    theirs.refuses.clear()
    own.down = True
    await harness.create_ready("later")
    await harness.loop_until(plane.store.now() + 60.0)
    await deliver_all(relay)
    assert counts.retries["nats"] == 1
    assert counts.answers["nats", DeliveryVerdict.REFUSED] == 1
    found = await read_backlog(plane)
    assert (found["nats"].letters, found["nats"].failing) == (0, 0)
    assert (found["reaction"].letters, found["reaction"].failing) == (0, 1)
    assert counts.answers["reaction", DeliveryVerdict.UNAVAILABLE] > 0
