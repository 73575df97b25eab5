"""Delivers events in a run in which a share of the reactions to them is lost for good.

A receiver outside loses nothing.  A subscriber to one agent and the plane's own reactions take
their events, and a part of the reactions does nothing.
"""

from collections.abc import Callable
from functools import partial

from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app.events.cloudevents import EventFilter
from tenure.app.events.reactions import REACTIONS, React
from tenure.app.plane import Plane
from tenure.core.agent import AgentState
from tenure.core.errors import StaleToken
from tenure.core.records import AgentRecord, SubscriptionRecord
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tenure.ports.store import Store

RECEIVER = "receiver"
ABOUT = "about"
"""The subject of the subscriber that is about one agent."""


class LossyDelivery:
    """The relays of a run, and what the receiver has got."""

    def __init__(self, loses: Callable[[], bool]) -> None:
        """Nothing was received yet; `loses` says whether this reaction is lost."""
        self.received: set[tuple[str, int]] = set()
        """Agents and numbers, as the receiver knows them."""
        self._loses = loses
        self._relays: dict[int, Relay] = {}

    async def carry(self, plane: Plane) -> None:
        """Let the relay of this plane carry what there is, if it leads."""
        relay = self._relays.get(id(plane))
        if relay is None:
            relay = self._relays[id(plane)] = self._relay(plane)
        await relay.create_cursors()
        try:
            await deliver_all(relay)
        except StaleToken:
            return  # another one leads by now

    def _relay(self, plane: Plane) -> Relay:
        handlers = {name: partial(self._react, plane, one.react) for name, one in REACTIONS.items()}
        bus = LocalBus({**handlers, RECEIVER: self._take, ABOUT: self._take})
        always = [
            DestinationRoute(Destination(f"tenure:{name}", name), bus, EventFilter(types=one.types))
            for name, one in REACTIONS.items()
        ]
        always.append(DestinationRoute(Destination(RECEIVER, RECEIVER), bus))
        return Relay(plane, buses={SubscriptionKind.NATS: bus}, fixed_routes=always)

    async def _take(self, event: Outgoing) -> None:
        self.received.add((event.agent, event.sequence))

    async def _react(self, plane: Plane, react: React, event: Outgoing) -> None:
        if not self._loses():
            await react(plane, event)

    async def violations(self, store: Store) -> list[str]:
        """What has not got out, or outlives the agent that it is about."""
        rows = await store.list_events(limit=10_000)
        missing = {(row.agent, row.sequence) for row in rows} - self.received
        wrong = [f"every_event_is_published: {one}" for one in sorted(missing)]
        for row in await store.list_rows(SubscriptionRecord, {}):
            agent = await store.find(AgentRecord, (row.agent,))
            if agent is not None and agent.state == AgentState.DELETED:
                wrong.append(f"no_subscription_outlives_its_agent: {row.name}")
        return wrong
