"""Counts the invocations in flight of each agent, so that a drain can wait for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.ports.marks import InFlightMarks

POLL_SECONDS = 0.1
"""How often a process reads which invocations it has to abort for another process."""
ABORT_POLLS_MAX = 50
"""After so many polls the request is withdrawn: a process that has not reacted does not run."""


class InFlight:
    """Counts the invocations that pass through this process, and can abort them.

    An invocation is counted, and marked for other processes, before it reads whether the agent is
    open.  So an operation that closes the agent and then counts none knows that none will start.
    """

    def __init__(self, marks: InFlightMarks | None = None) -> None:
        """Share `marks` with the other processes of this home; None if there are no others."""
        self._abort_events: dict[str, list[asyncio.Event]] = {}
        self._marks = marks
        self._aborted_here: set[str] = set()
        """Agents whose invocations were aborted here at the request of another process."""
        self._aborts_elsewhere: dict[str, int] = {}
        """Agents whose invocations others have to abort, and the number of polls left for that."""

    def count_of(self, agent: str) -> int:
        """How many invocations of this agent are in flight; all other processes count as one."""
        elsewhere = self._marks is not None and self._marks.is_in_flight_elsewhere(agent)
        return len(self._abort_events.get(agent, ())) + elsewhere

    def total(self) -> int:
        """How many invocations are in flight in this process."""
        return sum(map(len, self._abort_events.values()))

    def abort(self, agent: str) -> None:
        """Abort all invocations of this agent, in this process and in others."""
        for event in self._abort_events.get(agent, ()):
            event.set()
        if self._marks is not None and self._marks.is_in_flight_elsewhere(agent):
            self._marks.request_abort(agent)
            self._aborts_elsewhere[agent] = ABORT_POLLS_MAX

    def apply_remote_aborts(self) -> None:
        """Abort invocations that other processes ask to abort; withdraw our own finished requests.

        An invocation that begins later, when the agent is open again, is not aborted.
        """
        if self._marks is None:
            return
        for agent in self._abort_events:
            if not self._marks.is_abort_requested(agent):
                self._aborted_here.discard(agent)
            elif agent not in self._aborted_here:
                self._aborted_here.add(agent)
                for event in self._abort_events[agent]:
                    event.set()
        for agent, polls_left in list(self._aborts_elsewhere.items()):
            self._aborts_elsewhere[agent] = polls_left - 1
            if polls_left <= 0 or not self._marks.is_in_flight_elsewhere(agent):
                del self._aborts_elsewhere[agent]
                self._marks.withdraw_abort(agent)

    @contextmanager
    def count_one(self, agent: str) -> Iterator[asyncio.Event]:
        """Count one invocation until the block ends; the event says that it must end now."""
        if self._marks is not None and agent not in self._abort_events:
            self._marks.mark_in_flight(agent)
            if self._marks.is_abort_requested(agent):
                self._aborted_here.add(agent)
        mine = asyncio.Event()
        self._abort_events.setdefault(agent, []).append(mine)
        try:
            yield mine
        finally:
            self._abort_events[agent].remove(mine)
            if not self._abort_events[agent]:
                del self._abort_events[agent]
                self._aborted_here.discard(agent)
                if self._marks is not None:
                    self._marks.clear_in_flight(agent)
