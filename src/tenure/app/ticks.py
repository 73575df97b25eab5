"""Counts of what reconcilers have come to in this process, for metrics."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


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
    """What said nothing at the last look of each: see `tenure.reconcilers.silence`."""
    leads: bool = False
    """Whether the reconcilers of this process are the ones that look."""
    look: Callable[[str, bool], Awaitable[Any]] | None = None
    """See `tenure.app.reconciled`; None: no reconciler runs here."""

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
