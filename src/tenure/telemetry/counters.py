"""Counts in memory what a process has done; `tenure.telemetry.scrape` reads the counts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tenure.core.endings import PerformedMove
from tenure.core.moves import Act
from tenure.ports.bus import DeliveryVerdict

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the step histogram, in seconds."""


@dataclass(slots=True)
class ReconcileCounter:
    """The passes of one reconciler since the process started."""

    ticks: int = 0
    failed: int = 0
    seen: int = 0
    fixed: int = 0
    seconds: float = 0.0
    last_at: float = 0.0


@dataclass(slots=True)
class DeliveryCounters:
    """The answers of destinations to events that this process has sent, by kind of destination."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events by the kind of destination and its verdict."""
    retries: Counter[str] = field(default_factory=Counter)
    """Events that had been sent before and were sent again."""
    seconds: dict[str, float] = field(default_factory=dict)
    """The sum of the times between an event's commit and its delivery."""
    trimmed: Counter[str] = field(default_factory=Counter)
    """Events dropped from the outbox, by reason."""
    missed: Counter[str] = field(default_factory=Counter)
    """Events dropped before a destination received them, by its kind."""

    def add(self, kind: str, verdict: DeliveryVerdict, seconds: float) -> None:
        """Count one answer, which came so many seconds after the event's commit."""
        self.answers[kind, verdict] += 1
        if verdict is DeliveryVerdict.DELIVERED:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + max(0.0, seconds)


class StepHistogram(NamedTuple):
    """The cumulative buckets of one step and the sum of its seconds."""

    plan: str
    step: str
    buckets: tuple[tuple[str, float], ...]
    seconds: float


class StepTimes:
    """How long steps took, by plan and step."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def record(self, move: PerformedMove) -> None:
        """Count a move if it was a do or an undo; an inspect is not the time of its step."""
        if move.act in {Act.DO, Act.UNDO}:
            seconds = move.ended_at - move.started_at
            name = move.step if move.act == Act.DO else f"{move.step}.undo"
            self.observe(move.plan, name, seconds=seconds)

    def observe(self, plan: str, step: str, *, seconds: float) -> None:
        """Count one step that took so many seconds."""
        key = plan, step
        counts = self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))
        bucket = next((n for n, bound in enumerate(BUCKETS) if seconds <= bound), -1)
        counts[bucket] += 1
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def histograms(self) -> Iterator[StepHistogram]:
        """Yield the histogram of each plan and step."""
        bounds = (*(str(bound) for bound in BUCKETS), "+Inf")
        for (plan, step), counts in sorted(self._counts.items()):
            sums = [float(sum(counts[: n + 1])) for n in range(len(counts))]
            buckets = tuple(zip(bounds, sums, strict=True))
            yield StepHistogram(plan, step, buckets, self._seconds[plan, step])
