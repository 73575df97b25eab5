"""Agents on the wire; what one should be is said by `tenure.app.agents.spec`."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from tenure.app.agents import views as agent_views
from tenure.app.agents.spec import OnDelete
from tenure.core.agent import AgentState, Verb
from tenure.core.edge import EdgeKind
from tenure.faces.api.schemas.forms import Cursor, Id, Instant, Limit, RequestFields, ResponseBody

DryRun = Annotated[bool, Meta(description="Only show the plan: steps, compensations, keys.")]
Queue = Annotated[
    bool,
    Meta(
        description="Wait for the operation that works on the agent, where this would be refused"
        " for it; a stop never waits, and a delete only for another delete."
    ),
]
Offset = Annotated[int, Meta(ge=0, le=1 << 53)]
DrainSeconds = Annotated[float, Meta(ge=0, le=3_600)]


class Agent(ResponseBody, frozen=True):
    """One agent."""

    uid: Id
    name: str
    state: AgentState
    generation: int
    epoch: int
    operation: str
    parent: str
    spec: dict[str, Any]
    created_at: Instant
    updated_at: Instant
    etag: str


class Agents(ResponseBody, frozen=True):
    """A page of agents by name."""

    items: list[Agent]
    next: str | None


class Resource(ResponseBody, frozen=True):
    """What a provider holds for an agent, or may hold."""

    slot: str
    key: str
    state: str
    operation: str
    step: str


class AgentResources(ResponseBody, frozen=True):
    """Everything that providers hold for an agent, or may hold."""

    items: list[Resource]
    next: str | None = None


class StepPreview(ResponseBody, frozen=True):
    """One step of what would be done."""

    name: str
    kind: str
    compensation: str
    slot: str
    key: str


class CascadeBranch(ResponseBody, frozen=True):
    """One thing that an agent owns or has granted, and what would become of it."""

    owner: str
    kind: EdgeKind
    target: str
    name: str
    depth: int
    fate: str


class PlanPreview(ResponseBody, frozen=True):
    """What would be done, in order; of a delete also what would go with the agent."""

    kind: Verb
    plan: str
    version: int
    steps: list[StepPreview]
    cascade: list[CascadeBranch]
    warnings: list[str]
    """Of a create: what its runtime does not find, for which it would be undone."""


class Edge(ResponseBody, frozen=True):
    """Something that an agent owns or has granted."""

    owner: str
    kind: EdgeKind
    target: str
    on_delete: str
    at: Instant


class Edges(ResponseBody, frozen=True):
    """A page of them."""

    items: list[Edge]
    next: str | None


class ListEdges(RequestFields, frozen=True):
    """Which edges."""

    after: Cursor = ""
    limit: Limit = 100


class AddEdge(RequestFields, frozen=True):
    """What an agent is to own from now on, and what becomes of it when that is deleted."""

    kind: EdgeKind
    target: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$(?!\n)",
            description="Of kind `agent`: its name or uid.",
        ),
    ]
    on_delete: OnDelete = "revoke"


class AgentInvitation(ResponseBody, frozen=True):
    """Shown once; send `token` as the bearer to /oauth/register, with the agent's public keys."""

    client_id: str
    token: str
    expires_at: Instant


class LogText(ResponseBody, frozen=True):
    """What an agent printed."""

    text: str
    next_offset: int | None = None
    """With `since`: where the next piece begins."""


class ListAgents(RequestFields, frozen=True):
    """Which agents."""

    state: Annotated[
        tuple[AgentState, ...], Meta(description="Only in this state; may be given several times.")
    ] = ()
    label: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^=]+=[^\n]*$(?!\n)", max_length=400)], ...],
        Meta(description="Only with this label, `key=value`; may be given several times."),
    ] = ()
    after: Cursor = ""
    limit: Limit = 100


class DryRunQuery(RequestFields, frozen=True):
    """How to ask for a verb."""

    dry_run: DryRun = False


class QueueQuery(RequestFields, frozen=True):
    """How to ask for a verb on an agent that is there."""

    dry_run: DryRun = False
    queue: Queue = False


class Delete(RequestFields, frozen=True):
    """How to delete."""

    dry_run: DryRun = False
    queue: Queue = False
    drain_seconds: Annotated[
        DrainSeconds | UnsetType,
        Meta(description="How long work in flight may go on; 0: not at all."),
    ] = UNSET
    retention: Annotated[
        Literal["remove", "retain"] | UnsetType, Meta(description="What becomes of the spec.")
    ] = UNSET


class Suspend(RequestFields, frozen=True):
    """How to suspend."""

    keep_runtime: bool = False
    drain_seconds: DrainSeconds | None = None


class Logs(RequestFields, frozen=True):
    """Which part of a log."""

    lines: Annotated[int, Meta(ge=1, le=10_000, description="The last so many lines.")] = 100
    since: Annotated[
        Offset | UnsetType, Meta(description="Not the last lines: from this offset on.")
    ] = UNSET


def agent(view: agent_views.AgentView) -> Agent:
    """An agent as it is told."""
    return Agent(**view._asdict())
