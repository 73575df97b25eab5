"""Destinations of the tests: functions of this process, behind the real local bus."""

from collections.abc import Callable
from typing import NamedTuple

from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.app.events.cloudevents import EventFilter
from tenure.app.plane import Plane
from tenure.core.errors import Invalid
from tenure.delivery.outbox import DeliveryResult, DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tests.unit.support.agent_planes import AgentHarness


class Sink:
    """Records the events it receives, unless a test lets it reject them or fail."""

    def __init__(self, name: str = "sink") -> None:
        self.name = name
        self.events: list[Outgoing] = []
        self.refuses: set[str] = set()
        """Agents whose events it rejects."""
        self.fails: set[str] = set()
        """Agents whose events make it fail."""
        self.down = False
        self.on_event: Callable[[Outgoing], None] = lambda _: None

    async def take(self, event: Outgoing) -> None:
        self.on_event(event)
        if self.down or event.agent in self.fails:
            raise ConnectionError("nobody is there")
        if event.agent in self.refuses:
            raise Invalid("not this one")
        self.events.append(event)

    @property
    def deliveries(self) -> list[tuple[str, int]]:
        """Agent and sequence of each recorded event, in order."""
        return [(event.agent, event.sequence) for event in self.events]

    def of(self, agent: str) -> list[int]:
        """The sequence numbers of one agent, in order."""
        return [sequence for name, sequence in self.deliveries if name == agent]


def relay_to(plane: Plane, *sinks: Sink, event_filter: EventFilter | None = None) -> Relay:
    """A relay that carries all events to these sinks."""
    bus = LocalBus({sink.name: sink.take for sink in sinks})
    return Relay(
        plane,
        buses={},
        fixed_routes=[
            DestinationRoute(Destination(sink.name, sink.name), bus, event_filter or EventFilter())
            for sink in sinks
        ],
    )


class ParkedStream(NamedTuple):
    """Two agents, and a sink that rejects the events of one of them."""

    bad: str
    good: str
    sink: Sink
    relay: Relay
    result: DeliveryResult
    """The result of the first delivery pass."""


async def park_stream(harness: AgentHarness) -> ParkedStream:
    """Run one delivery pass after which the events of one agent are parked."""
    bad, good = await harness.create_ready("bad"), await harness.create_ready("good")
    sink = Sink()
    sink.refuses.add(bad)
    relay = relay_to(harness.plane, sink)
    await relay.create_cursors()
    return ParkedStream(bad, good, sink, relay, await deliver_all(relay))


async def rows(harness):
    """All stored events."""
    return await harness.plane.store.list_events(limit=1_000)
