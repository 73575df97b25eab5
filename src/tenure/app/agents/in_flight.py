"""Invocations under way, by agent: what a drain waits for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.ports.marks import Marks

HEED_SECONDS = 0.1
"""How often it is looked whether another process wants anything to end."""
CUT_LOOKS = 50
"""For so many looks that is wanted: one who has not heeded it by then stands still."""


class InFlight:
    """Counts the invocations that go through this process, ends them, and knows of others'.

    One is counted, and marked for others, before it looks whether the agent is open: whoever has
    closed the agent and then sees none under way knows that none will start.
    """

    def __init__(self, marks: Marks | None = None) -> None:
        """Share `marks` with the other processes of this home; None: there are no others."""
        self._cuts: dict[str, list[asyncio.Event]] = {}
        self._marks = marks
        self._heeded: set[str] = set()
        """Agents whose invocations another process wants to end, and that have been told."""
        self._wanted: dict[str, int] = {}
        """Agents whose invocations in other processes are to end, and for how many looks more."""

    def of(self, agent: str) -> int:
        """How many are under way for this agent; those of all other processes count as one."""
        elsewhere = self._marks is not None and self._marks.is_elsewhere(agent)
        return len(self._cuts.get(agent, ())) + elsewhere

    def total(self) -> int:
        """How many are under way through this process."""
        return sum(map(len, self._cuts.values()))

    def cut(self, agent: str) -> None:
        """Have all that is under way for this agent end now, here and elsewhere."""
        for event in self._cuts.get(agent, ()):
            event.set()
        if self._marks is not None and self._marks.is_elsewhere(agent):
            self._marks.cut(agent)
            self._wanted[agent] = CUT_LOOKS

    def heed(self) -> None:
        """End what other processes want to end; spare them what they have ended.

        Whoever begins later, the agent being open again, is not meant.
        """
        if self._marks is None:
            return
        for agent in self._cuts:
            if not self._marks.is_cut(agent):
                self._heeded.discard(agent)
            elif agent not in self._heeded:
                self._heeded.add(agent)
                for event in self._cuts[agent]:
                    event.set()
        for agent, left in list(self._wanted.items()):
            self._wanted[agent] = left - 1
            if left <= 0 or not self._marks.is_elsewhere(agent):
                del self._wanted[agent]
                self._marks.spare(agent)

    @contextmanager
    def one(self, agent: str) -> Iterator[asyncio.Event]:
        """One more, until the block is left; the event says that it has to be left now."""
        if self._marks is not None and agent not in self._cuts:
            self._marks.put(agent)
            if self._marks.is_cut(agent):
                self._heeded.add(agent)
        mine = asyncio.Event()
        self._cuts.setdefault(agent, []).append(mine)
        try:
            yield mine
        finally:
            self._cuts[agent].remove(mine)
            if not self._cuts[agent]:
                del self._cuts[agent]
                self._heeded.discard(agent)
                if self._marks is not None:
                    self._marks.lift(agent)
