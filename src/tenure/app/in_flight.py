"""Invocations under way, by agent: what a drain waits for."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.ports.marks import Marks


class InFlight:
    """Counts the invocations that go through this process, and knows of those through others.

    One is counted, and marked for others, before it looks whether the agent is open: whoever has
    closed the agent and then sees none under way knows that none will start.
    """

    def __init__(self, marks: Marks | None = None) -> None:
        """Nothing is under way here; without marks there is no other process."""
        self._counts: Counter[str] = Counter()
        self._marks = marks

    def of(self, agent: str) -> int:
        """How many are under way for this agent; those of all other processes count as one."""
        elsewhere = self._marks is not None and self._marks.is_elsewhere(agent)
        return self._counts.get(agent, 0) + elsewhere

    def total(self) -> int:
        """How many are under way through this process."""
        return self._counts.total()

    @contextmanager
    def one(self, agent: str) -> Iterator[None]:
        """One more, until the block is left."""
        if self._marks is not None and not self._counts[agent]:
            self._marks.put(agent)
        self._counts[agent] += 1
        try:
            yield
        finally:
            self._counts[agent] -= 1
            if not self._counts[agent]:
                del self._counts[agent]
                if self._marks is not None:
                    self._marks.lift(agent)
