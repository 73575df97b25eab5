"""Invocations under way, by agent: what a drain waits for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.ports.marks import Marks


class InFlight:
    """Counts the invocations that go through this process, ends them, and knows of others'.

    One is counted, and marked for others, before it looks whether the agent is open: whoever has
    closed the agent and then sees none under way knows that none will start.
    """

    def __init__(self, marks: Marks | None = None) -> None:
        """Nothing is under way here; without marks there is no other process."""
        self._cuts: dict[str, list[asyncio.Event]] = {}
        self._marks = marks

    def of(self, agent: str) -> int:
        """How many are under way for this agent; those of all other processes count as one."""
        elsewhere = self._marks is not None and self._marks.is_elsewhere(agent)
        return len(self._cuts.get(agent, ())) + elsewhere

    def total(self) -> int:
        """How many are under way through this process."""
        return sum(map(len, self._cuts.values()))

    def cut(self, agent: str) -> None:
        """Have all that this process has under way for this agent end now: their time is over."""
        for event in self._cuts.get(agent, ()):
            event.set()

    @contextmanager
    def one(self, agent: str) -> Iterator[asyncio.Event]:
        """One more, until the block is left; the event says that it has to be left now."""
        if self._marks is not None and agent not in self._cuts:
            self._marks.put(agent)
        mine = asyncio.Event()
        self._cuts.setdefault(agent, []).append(mine)
        try:
            yield mine
        finally:
            self._cuts[agent].remove(mine)
            if not self._cuts[agent]:
                del self._cuts[agent]
                if self._marks is not None:
                    self._marks.lift(agent)
