"""Destinations of the tests: functions of this process, behind the real local bus."""

from collections.abc import Callable
from typing import NamedTuple

from tenure.adapters.bus.local import LocalBus
from tenure.app.events.cloudevents import EventFilter
from tenure.app.plane import Plane
from tenure.core.errors import Invalid
from tenure.delivery.outbox import DeliveryResult, DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tests.unit.support.agent_planes import Lives


class Sink:
    """Takes what it is given, unless it is told not to."""

    def __init__(self, name: str = "sink") -> None:
        self.name = name
        self.seen: list[Outgoing] = []
        self.refuses: set[str] = set()
        """Agents whose events it says no to."""
        self.fails: set[str] = set()
        """Agents whose events it stumbles over."""
        self.down = False
        self.before: Callable[[Outgoing], None] = lambda _: None

    async def take(self, event: Outgoing) -> None:
        self.before(event)
        if self.down or event.agent in self.fails:
            raise ConnectionError("nobody is there")
        if event.agent in self.refuses:
            raise Invalid("not this one")
        self.seen.append(event)

    @property
    def told(self) -> list[tuple[str, int]]:
        """Agent and sequence of what it took, in order."""
        return [(event.agent, event.sequence) for event in self.seen]

    def of(self, agent: str) -> list[int]:
        """The sequence numbers of one agent, in order."""
        return [sequence for name, sequence in self.told if name == agent]


def relay_to(plane: Plane, *sinks: Sink, wanted: EventFilter | None = None) -> Relay:
    """A relay that carries everything to these."""
    bus = LocalBus({sink.name: sink.take for sink in sinks})
    return Relay(
        plane,
        buses={},
        always=[
            DestinationRoute(Destination(sink.name, sink.name), bus, wanted or EventFilter())
            for sink in sinks
        ],
    )


class Parked(NamedTuple):
    """Two agents, and a sink that does not take what is told of one of them."""

    bad: str
    good: str
    sink: Sink
    relay: Relay
    done: DeliveryResult
    """What came of the first look."""


async def parked(lives: Lives) -> Parked:
    """Look once."""
    bad, good = await lives.made("bad"), await lives.made("good")
    sink = Sink()
    sink.refuses.add(bad)
    relay = relay_to(lives.plane, sink)
    await relay.begin()
    return Parked(bad, good, sink, relay, await relay.tick())


async def rows(lives):
    """All events that are kept."""
    return await lives.plane.store.list_events(limit=1_000)
