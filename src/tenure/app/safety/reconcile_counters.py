"""Counts of what reconcilers have come to, and destinations have taken, here; for metrics."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tenure.core.subscription import SubscriptionKind
from tenure.ports.bus import Verdict


@dataclass(slots=True)
class Count:
    """The looks of one reconciler since the process began."""

    ticks: int = 0
    failed: int = 0
    seen: int = 0
    fixed: int = 0
    seconds: float = 0.0
    last_at: float = 0.0


@dataclass(slots=True)
class Reconciled:
    """What reconcilers have come to here, by name, and where a long walk of one goes on."""

    counts: dict[str, Count] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    hung: dict[str, dict[str, int]] = field(default_factory=dict)
    """What said nothing at the last look of each: see `tenure.reconcilers.circuit_breaker`."""
    leads: bool = False
    """Whether the reconcilers of this process are the ones that look."""
    look: Callable[[str, bool], Awaitable[Any]] | None = None
    """See `tenure.app.safety.reconcile_status`; None: no reconciler runs here."""

    def add(self, name: str, *, seen: int, fixed: int, seconds: float, now: float) -> None:
        """One more look has ended well."""
        count = self.counts.setdefault(name, Count())
        count.ticks += 1
        count.seen += seen
        count.fixed += fixed
        count.seconds += seconds
        count.last_at = now

    def fail(self, name: str) -> None:
        """One more look has come to nothing."""
        self.counts.setdefault(name, Count()).failed += 1


REACTION = "reaction"
"""The kind of a destination that is the plane's own."""
NATS = str(SubscriptionKind.NATS)


@dataclass(slots=True)
class Deliveries:
    """What destinations have answered to the events that were sent here, by their kind."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events by the kind of destination and its verdict."""
    again: Counter[str] = field(default_factory=Counter)
    """Events that were sent, though they had been before."""
    seconds: dict[str, float] = field(default_factory=dict)
    """From the commits of events that were taken until they were."""

    def add(self, kind: str, verdict: Verdict, seconds: float) -> None:
        """One was answered like this, so long after its commit."""
        self.answers[kind, verdict] += 1
        if verdict is Verdict.DELIVERED:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + max(0.0, seconds)
