"""Records of agents: the agent, its name, and the edges to what it owns.

Every operation locks a row of the table `agent`.  For an operation on an agent that row is the
agent.  A plan that is about no agent locks a row which has only a tenant and a generation, so every
other column of the table may be NULL.
"""

from typing import Annotated, NamedTuple, TypeGuard

from tenure.core.agent import AgentState
from tenure.core.edge import EdgeKind
from tenure.core.records.table import declares_table


@declares_table("agent", key=("uid",))
class AgentRecord(NamedTuple):
    """An agent, and the lock of the operation that works on it."""

    uid: str
    """The identifier of the agent for ever; a name can be used again, a uid cannot."""
    tenant: str
    """The tenant that the agent belongs to."""
    generation: int
    """How many operations were accepted for it, with or without the lock; part of their keys."""
    name: str | None
    """The name that people use for it, unique among the tenant's agents that are not deleted."""
    state: Annotated[str | None, AgentState]
    """Where it is in its life; see the table in `tenure.core.agent`."""
    operation: str | None
    """The operation that has the lock; NULL: none."""
    next: str | None
    """The operation that waits for the lock: it has closed the agent, or is queued; NULL: none."""
    epoch: int | None
    """Raised by every verb after the create; no epoch of `ports.epoch`, which counts restores."""
    parent: str | None
    """The uid of the agent that owns it; NULL: none does."""
    spec: str | None
    """The specification as JSON."""
    serving: str | None
    """The runtime that serves it, as JSON: address, key, generation; NULL: none does."""
    created_at: float | None
    """When its creation was accepted."""
    updated_at: float | None
    """When its row was last changed for a reason that callers see."""


class NamedAgentRecord(AgentRecord):
    """The row of an agent, and not of a lock without an agent.

    It is the same table, in a narrower type: these columns of an agent are never NULL.  A row is
    seen as this type by `cast` or `is_agent`, so no value is converted.
    """

    __slots__ = ()
    name: str
    """The name that people use for it."""
    state: str
    """Where it is in its life."""
    epoch: int
    """Raised by every verb on the agent after its create."""
    created_at: float
    """When its creation was accepted."""
    updated_at: float
    """When its row was last changed for a reason that callers see."""


def is_agent(row: AgentRecord) -> TypeGuard[NamedAgentRecord]:
    """Whether the row is an agent: a lock without an agent has no state."""
    return row.state is not None


@declares_table("agent_name", key=("tenant", "name"))
class AgentNameRecord(NamedTuple):
    """A name that an agent has; it is free again once the agent is deleted."""

    tenant: str
    """The tenant within which the name is unique."""
    name: str
    """The name."""
    agent: str
    """The uid of the agent that has it."""


@declares_table("edge", key=("owner", "kind", "target"))
class EdgeRecord(NamedTuple):
    """An edge of the ownership graph, written in the commit that makes its target."""

    owner: str
    """The uid of the agent that owns the target or has granted it."""
    kind: Annotated[str, EdgeKind]
    """The kind of the target."""
    target: str
    """The identifier of the target: a uid, a subscription, the key of a grant."""
    tenant: str
    """The tenant of both ends."""
    on_delete: str
    """What happens to the target when the owner is deleted: `revoke`, or `reassign:` and a uid."""
    at: float
    """When the edge was made."""
