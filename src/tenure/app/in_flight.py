"""Invocations under way through this process, by agent: what a drain waits for."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class InFlight:
    """Counts invocations.

    One is counted before it looks whether the agent is open: whoever has closed the agent and then
    sees none under way knows that none will start.
    """

    def __init__(self) -> None:
        """Nothing is under way."""
        self._counts: Counter[str] = Counter()

    def of(self, agent: str) -> int:
        """How many are under way for this agent."""
        return self._counts.get(agent, 0)

    def total(self) -> int:
        """How many are under way in all."""
        return self._counts.total()

    @contextmanager
    def one(self, agent: str) -> Iterator[None]:
        """One more, until the block is left."""
        self._counts[agent] += 1
        try:
            yield
        finally:
            self._counts[agent] -= 1
            if not self._counts[agent]:
                del self._counts[agent]
