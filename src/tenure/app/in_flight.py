"""Invocations under way through this process, by agent: what a drain waits for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class InFlight:
    """Counts invocations, and ends them.

    One is counted before it looks whether the agent is open: whoever has closed the agent and then
    sees none under way knows that none will start.
    """

    def __init__(self) -> None:
        """Nothing is under way."""
        self._cuts: dict[str, list[asyncio.Event]] = {}

    def of(self, agent: str) -> int:
        """How many are under way for this agent."""
        return len(self._cuts.get(agent, ()))

    def total(self) -> int:
        """How many are under way in all."""
        return sum(map(len, self._cuts.values()))

    def cut(self, agent: str) -> None:
        """Have all that are under way for this agent end now: their time is over."""
        for event in self._cuts.get(agent, ()):
            event.set()

    @contextmanager
    def one(self, agent: str) -> Iterator[asyncio.Event]:
        """One more, until the block is left; the event says that it has to be left now."""
        mine = asyncio.Event()
        self._cuts.setdefault(agent, []).append(mine)
        try:
            yield mine
        finally:
            self._cuts[agent].remove(mine)
            if not self._cuts[agent]:
                del self._cuts[agent]
