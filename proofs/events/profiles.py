"""The workload profiles of event delivery: where the relay dies, and when the receiver refuses."""

from collections.abc import Mapping
from dataclasses import dataclass

from proofs.harness.schedule import Schedule
from tenure.core.errors import Invalid
from tenure.ports.bus import Outgoing
from tenure.testing.tripwire import CrossingSide

CROSSINGS = 89
"""Of a relay; each is tried on two sides."""
SEEDS = 2 * CROSSINGS


@dataclass(frozen=True, slots=True)
class EventProfile:
    """Agents on one process; a relay in another one dies, and others follow it."""

    def death(self, seed: int) -> tuple[int, CrossingSide]:
        """The crossing and side at which the first relay of this seed dies; crossing 0: never."""
        raise NotImplementedError

    def refuse(self, seed: int, time: float, event: Outgoing) -> None:
        """Raise if the receiver does not take this event at this time."""

    def draw(self, seed: int) -> Schedule:
        """The schedule of this seed."""
        return Schedule(seed=seed, requests=(), calm_at=0.0)


@dataclass(frozen=True, slots=True)
class RelayDies(EventProfile):
    """The relay dies before or after each of its crossings, one for each seed."""

    def death(self, seed: int) -> tuple[int, CrossingSide]:
        """Two seeds for each crossing."""
        return 1 + seed // 2 % CROSSINGS, CrossingSide.AFTER if seed % 2 else CrossingSide.BEFORE


@dataclass(frozen=True, slots=True)
class ReceiverRefuses(EventProfile):
    """The receiver says no to some agents for a while, or takes nothing at all."""

    def death(self, seed: int) -> tuple[int, CrossingSide]:
        """In every second run."""
        return seed * 7 % 113 if seed % 2 else 0, CrossingSide.AFTER

    def refuse(self, seed: int, time: float, event: Outgoing) -> None:
        """Depends on the seed: never, for half of the agents, or an outage."""
        if seed % 3 == 1 and time < 40.0 and int(event.agent[-4:], 16) % 2:
            raise Invalid("not of this one, now")
        if seed % 3 == 2 and 5.0 < time < 30.0:
            raise ConnectionError("nobody is there")


PROFILES: Mapping[str, EventProfile] = {
    "relay_dies": RelayDies(),
    "receiver_refuses": ReceiverRefuses(),
}
