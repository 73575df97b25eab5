"""The state of this process's reconcilers between two passes; it is not stored."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tenure.telemetry.counters import ReconcileCounter


@dataclass(slots=True)
class ReconcileState:
    """The counts of each reconciler by name, and the cursor at which its next pass continues."""

    counts: dict[str, ReconcileCounter] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    hung: dict[str, dict[str, int]] = field(default_factory=dict)
    """Providers that did not answer in the last pass: see `tenure.reconcilers.circuit_breaker`."""
    leads: bool = False
    """Whether the reconcilers of this process are the leader."""
    run_now: Callable[[str, bool], Awaitable[Any]] | None = None
    """Runs reconcilers now: see `tenure.app.safety.reconcile_status`.  None if none run here."""

    def add(self, name: str, *, seen: int, fixed: int, seconds: float, now: float) -> None:
        """Count a pass that succeeded."""
        count = self.counts.setdefault(name, ReconcileCounter())
        count.ticks += 1
        count.seen += seen
        count.fixed += fixed
        count.seconds += seconds
        count.last_at = now

    def fail(self, name: str) -> None:
        """Count a pass that failed."""
        self.counts.setdefault(name, ReconcileCounter()).failed += 1
