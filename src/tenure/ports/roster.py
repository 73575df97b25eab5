"""The roster: what the plane itself knows of its agents, as steps of plans may ask it.

It stands among a plane's providers under the name `roster`, but holds no resources: its verbs are
about whose turn it is, which agents an agent owns, and what is in flight.  All are idempotent.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

ROSTER = "roster"


class Turn(NamedTuple):
    """Whose turn it is with an agent; if it is ours, how the agent stood and what it holds."""

    holder: str = ""
    """The operation that must end first; empty: it is our turn."""
    was: str = ""
    """The state to which the agent returns if our operation is cancelled."""
    holds: Mapping[str, Sequence[Mapping[str, object]]] = {}
    """What it holds or may hold, by slot: operation, step, key, generation."""
    refused: str = ""
    """Why its turn has come in vain: it was queued, and cannot be done as the agent stands now."""


class Below(NamedTuple):
    """What is still there of what an agent owned."""

    left: Sequence[str]
    """The names of agents that must be gone first."""
    more: bool = False
    """Whether not all of them were asked for yet."""


class Missing(NamedTuple):
    """A required subscriber that has not acknowledged an operation, and since when it is asked."""

    name: str
    since: float


class Roster(Protocol):
    """Every promise here is a test in `tests/unit/app/test_roster.py`."""

    async def take_turn(self, agent: str, operation: str, *, was: str, after: str) -> Turn:
        """Make this operation the one that works on the agent, once no other does.

        `was` is how the agent stood when the operation was accepted; `after` the operation that
        worked on it then, on whose end it depends what the agent was.
        """
        ...

    async def serve_from(
        self, agent: str, operation: str, serving: Mapping[str, object]
    ) -> None:
        """From now on the agent is reached there; only for the operation whose turn it is."""
        ...

    async def delete_owned(self, agent: str, operation: str) -> Below:
        """Ask for the deletion of everything that only this agent owns, however far below.

        Asking twice under the same operation asks for nothing new.
        """
        ...

    async def unacknowledged(self, operation: str) -> Sequence[Missing]:
        """The required subscribers for whom this operation still waits."""
        ...

    def in_flight(self, agent: str) -> int:
        """How many invocations are being passed through to the agent; 0 only if nobody does.

        Those of all other processes of this plane count as one.
        """
        ...

    def cut(self, agent: str) -> None:
        """End all invocations that are still being passed through to the agent."""
        ...
