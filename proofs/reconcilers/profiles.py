"""The workload profile of reconcilers, and the faults that strike their passes."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from proofs.agents.lifecycle import LETTERS
from proofs.harness.schedule import Schedule
from tenure.testing.faults import Fault, FaultPoint, Faults

LOST = 0.2
"""The share of reactions that are lost."""
NEVER = {Fault.FOREIGN, Fault.REFUSED, Fault.NEVER_READY, Fault.UNREADY, Fault.GONE}
"""Faults that no reconciler could repair by itself."""


@dataclass(frozen=True, slots=True)
class LostReactions:
    """One process; what is lost and damaged is drawn while the run goes on."""

    def draw(self, seed: int) -> Schedule:
        """The schedule of this seed."""
        return Schedule(seed=seed, requests=(), calm_at=0.0)


PROFILES: Mapping[str, LostReactions] = {"lost_reactions": LostReactions()}


class Storm(Faults):
    """Faults that strike what reconcilers ask, while it lasts."""

    def __init__(self, rng: random.Random) -> None:
        """Calm."""
        super().__init__()
        self._rng = rng
        self.rate = 0.0

    def strike(self, provider: str, verb: str) -> Fault | None:
        """The fault of this call, if any."""
        self.calls[provider, verb] += 1
        planned = self.script.get(FaultPoint(provider, verb, self.calls[provider, verb]))
        if planned is not None or self._rng.random() >= self.rate:
            return planned
        return self._rng.choice([f for f in LETTERS[verb] if f not in NEVER])
