"""What steps of an agent's plan can call in the plane itself: locks, ownership, invocations.

Steps of a delete take the agent's lock and delete the agents below it by these methods; they get
the object from `tenure.plans.agents.steps.plane_of`.  Every method is idempotent, because a step is
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


class LockAnswer(NamedTuple):
    """The answer to a request for an agent's lock."""

    lock_holder: str = ""
    """Another operation that has the lock and must end first; empty: the lock
    was acquired, or `refusal` says why not."""
    return_state: AgentState = AgentState.READY
    """The state to which the agent returns if the operation is cancelled."""
    holds: Mapping[str, Sequence[HeldResource]] = {}
    """The resources that the agent holds or may hold, by slot."""
    refusal: str = ""
    """Why a queued operation cannot be carried out in the state that the agent is in now."""


class OwnedAgents(NamedTuple):
    """The agents that the delete of their owner waits for."""

    remaining: Sequence[str]
    """The names of the agents that are not deleted yet."""
    has_unrequested: bool = False
    """Whether the deletion of some of them was not requested yet."""


class MissingAcknowledgement(NamedTuple):
    """A required subscriber that has not acknowledged an operation, and since when."""

    name: str
    since: float


class PlaneApi(Protocol):
    """Every promise here is a test in `tests/unit/app/agents/test_plane_api.py`."""

    async def acquire_lock(
        self, agent: str, operation: str, *, return_state: AgentState, previous_operation: str
    ) -> LockAnswer:
        """Give this operation the agent's lock, once no other operation has it.

        A cancelled operation returns the agent to `return_state`, as it was when the operation was
        accepted.  If `previous_operation` had the lock at that time, the state that its end gave
        the agent replaces `return_state`.
        """
        ...

    async def serve_from(self, agent: str, operation: str, serving: Mapping[str, object]) -> None:
        """Pass invocations of the agent to this runtime from now on.

        Defect if this operation does not have the agent's lock.
        """
        ...

    async def delete_owned(self, agent: str, operation: str) -> OwnedAgents:
        """Request the deletion of all agents, direct or indirect, that only this agent owns.

        The grants, webhooks and sessions that only it owns end too.

        A second call requests only what is not requested yet, or was refused.
        """
        ...

    async def list_missing_acknowledgements(
        self, operation: str
    ) -> Sequence[MissingAcknowledgement]:
        """The required subscribers for whom this operation still waits."""
        ...

    def in_flight(self, agent: str) -> int:
        """How many invocations of the agent are in flight, in all processes of this plane.

        Those of all other processes count as one, so 0 means that there is none.
        """
        ...

    def abort_invocations(self, agent: str) -> None:
        """Abort all invocations of the agent that are in flight."""
        ...
