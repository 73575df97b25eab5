"""How long steps take: a histogram of plain numbers, read at the scrape."""

from collections.abc import Iterator
from typing import NamedTuple

from tenure.core.endings import PerformedMove
from tenure.core.moves import Act

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Times(NamedTuple):
    """One step's cumulative buckets and the sum of its seconds."""

    plan: str
    step: str
    buckets: list[tuple[str, float]]
    seconds: float


class StepTimes:
    """How long steps took, by plan and step; whoever performs them tells it here."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def describe_step(self, performed: PerformedMove) -> None:
        """A move was performed; what only looks or decides is no step's time."""
        if performed.act in {Act.DO, Act.UNDO}:
            seconds = performed.ended_at - performed.started_at
            name = performed.step if performed.act == Act.DO else f"{performed.step}.undo"
            self.observe(performed.plan, name, seconds=seconds)

    def observe(self, plan: str, step: str, *, seconds: float) -> None:
        """One step took so long."""
        key = plan, step
        counts = self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))
        place = next((n for n, bound in enumerate(BUCKETS) if seconds <= bound), -1)
        counts[place] += 1
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def told(self) -> Iterator[Times]:
        """Each plan and step there was."""
        bounds = (*(str(bound) for bound in BUCKETS), "+Inf")
        for (plan, step), counts in sorted(self._counts.items()):
            sums = [float(sum(counts[: n + 1])) for n in range(len(counts))]
            buckets = list(zip(bounds, sums, strict=True))
            yield Times(plan, step, buckets, self._seconds[plan, step])
