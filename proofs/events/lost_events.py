"""Who hears of events in a life in which a share of them is lost for good.

There is a receiver outside that loses nothing, a subscriber that is about one agent, and the
plane's own reactions: of what these are told a part is taken and forgotten.
"""

from collections.abc import Callable
from functools import partial

from tenure.adapters.bus.local import LocalBus
from tenure.app.events.cloudevents import EventFilter
from tenure.app.events.reactions import REACTIONS, React
from tenure.app.plane import Plane
from tenure.core.agent import AgentState
from tenure.core.errors import LeaseLost
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tenure.ports.store import Store

RECEIVER = "receiver"
ABOUT = "about"
"""The subject of the subscriber that is about one agent."""


class Hearing:
    """See the module."""

    def __init__(self, loses: Callable[[], bool]) -> None:
        """Nothing was heard yet; `loses` says whether this reaction is lost."""
        self.heard: set[tuple[str, int]] = set()
        """Agents and numbers, as the receiver knows them."""
        self._loses = loses
        self._relays: dict[int, Relay] = {}

    async def carry(self, plane: Plane) -> None:
        """Let the relay of this plane carry what there is, if it leads."""
        relay = self._relays.get(id(plane))
        if relay is None:
            relay = self._relays[id(plane)] = self._relay(plane)
        await relay.begin()
        try:
            await relay.tick()
        except LeaseLost:
            return  # another one leads by now

    def _relay(self, plane: Plane) -> Relay:
        handlers = {name: partial(self._react, plane, one.react) for name, one in REACTIONS.items()}
        bus = LocalBus({**handlers, RECEIVER: self._take, ABOUT: self._take})
        always = [
            DestinationRoute(Destination(f"tenure:{name}", name), bus, EventFilter(types=one.types))
            for name, one in REACTIONS.items()
        ]
        always.append(DestinationRoute(Destination(RECEIVER, RECEIVER), bus))
        return Relay(plane, buses={SubscriptionKind.NATS: bus}, always=always)

    async def _take(self, event: Outgoing) -> None:
        self.heard.add((event.agent, event.sequence))

    async def _react(self, plane: Plane, react: React, event: Outgoing) -> None:
        if not self._loses():
            await react(plane, event)

    async def wrong(self, store: Store) -> list[str]:
        """What has not got out, or outlives the agent that it is about."""
        rows = await store.list_events(limit=10_000)
        unheard = {(str(row["agent"]), int(str(row["sequence"]))) for row in rows} - self.heard
        wrong = [f"every_event_is_published: {one}" for one in sorted(unheard)]
        for row in await store.list_rows("subscription", {}):
            agent = await store.find("agent", (str(row["agent"]),))
            if agent is not None and agent["state"] == AgentState.DELETED:
                wrong.append(f"no_subscription_outlives_its_agent: {row['name']!s}")
        return wrong
