"""Invocations in flight, by agent: a drain waits for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.ports.marks import Marks

POLL_SECONDS = 0.1
"""How often a process reads which invocations another process wants to end."""
CUT_POLLS_MAX = 50
"""After so many polls the request is withdrawn: a process that has not reacted does not run."""


class InFlight:
    """Counts the invocations that pass through this process, and can end them.

    An invocation is counted, and marked for other processes, before it reads whether the agent is
    open.  So an operation that closes the agent and then counts none knows that none will start.
    """

    def __init__(self, marks: Marks | None = None) -> None:
        """Share `marks` with the other processes of this home; None if there are no others."""
        self._cuts: dict[str, list[asyncio.Event]] = {}
        self._marks = marks
        self._cut_here: set[str] = set()
        """Agents whose invocations were ended here at the request of another process."""
        self._cuts_elsewhere: dict[str, int] = {}
        """Agents whose invocations other processes have to end, and the polls that are left."""

    def count_of(self, agent: str) -> int:
        """How many invocations of this agent are in flight; all other processes count as one."""
        elsewhere = self._marks is not None and self._marks.is_elsewhere(agent)
        return len(self._cuts.get(agent, ())) + elsewhere

    def total(self) -> int:
        """How many invocations are in flight in this process."""
        return sum(map(len, self._cuts.values()))

    def cut(self, agent: str) -> None:
        """End all invocations of this agent now, in this process and in others."""
        for event in self._cuts.get(agent, ()):
            event.set()
        if self._marks is not None and self._marks.is_elsewhere(agent):
            self._marks.cut(agent)
            self._cuts_elsewhere[agent] = CUT_POLLS_MAX

    def end_cut_invocations(self) -> None:
        """End the invocations that other processes cut; withdraw cuts that have been carried out.

        An invocation that begins later, when the agent is open again, is not ended.
        """
        if self._marks is None:
            return
        for agent in self._cuts:
            if not self._marks.is_cut(agent):
                self._cut_here.discard(agent)
            elif agent not in self._cut_here:
                self._cut_here.add(agent)
                for event in self._cuts[agent]:
                    event.set()
        for agent, left in list(self._cuts_elsewhere.items()):
            self._cuts_elsewhere[agent] = left - 1
            if left <= 0 or not self._marks.is_elsewhere(agent):
                del self._cuts_elsewhere[agent]
                self._marks.spare(agent)

    @contextmanager
    def count_one(self, agent: str) -> Iterator[asyncio.Event]:
        """Count one invocation until the block ends; the event says that it must end now."""
        if self._marks is not None and agent not in self._cuts:
            self._marks.put(agent)
            if self._marks.is_cut(agent):
                self._cut_here.add(agent)
        mine = asyncio.Event()
        self._cuts.setdefault(agent, []).append(mine)
        try:
            yield mine
        finally:
            self._cuts[agent].remove(mine)
            if not self._cuts[agent]:
                del self._cuts[agent]
                self._cut_here.discard(agent)
                if self._marks is not None:
                    self._marks.lift(agent)
