"""What the control plane offers to steps of an agent's plans: locks, ownership, invocations.

A step reaches it by `tenure.plans.agents.steps.plane_of`.  Every method is idempotent, as steps are
repeated after a crash.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from tenure.core.agent import AgentState


class HeldResource(Struct, frozen=True, gc=False):
    """A resource that an agent holds or may hold, by the step that made it.

    It is part of stored inputs and results: its fields keep their names.
    """

    operation: str
    step: str
    key: str
    generation: int


class AgentLock(NamedTuple):
    """The answer to a request for an agent's lock."""

    holder: str = ""
    """The operation that has the lock and must end first; empty: the lock is ours."""
    was: AgentState = AgentState.READY
    """The state to which the agent returns if our operation is cancelled."""
    holds: Mapping[str, Sequence[HeldResource]] = {}
    """The resources that the agent holds or may hold, by slot."""
    refused: str = ""
    """Why a queued operation cannot be carried out in the state that the agent is in now."""


class OwnedAgents(NamedTuple):
    """The agents that an agent owned and that are still there."""

    left: Sequence[str]
    """The names of agents that must be gone first."""
    more: bool = False
    """Whether not all of them were asked for yet."""


class MissingAcknowledgement(NamedTuple):
    """A required subscriber that has not acknowledged an operation, and since when it is asked."""

    name: str
    since: float


class PlaneApi(Protocol):
    """Every promise here is a test in `tests/unit/app/agents/test_plane_api.py`."""

    async def acquire_lock(
        self, agent: str, operation: str, *, was: AgentState, after: str
    ) -> AgentLock:
        """Give this operation the agent's lock, once no other operation has it.

        `was` is the state to which the agent would have returned when the operation was accepted.
        `after` is the operation that had the lock then; its end decides which state that is now.
        """
        ...

    async def serve_from(self, agent: str, operation: str, serving: Mapping[str, object]) -> None:
        """From now on the agent is reached there; only for the operation that has the lock."""
        ...

    async def delete_owned(self, agent: str, operation: str) -> OwnedAgents:
        """Ask for the deletion of everything that only this agent owns, however far below.

        Asking twice under the same operation asks for nothing new.
        """
        ...

    async def list_missing_acknowledgements(
        self, operation: str
    ) -> Sequence[MissingAcknowledgement]:
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
