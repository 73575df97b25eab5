"""Agents on the wire; the schema of a spec is in `tenure.app.agents.spec`."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from tenure.app.agents import views as agent_views
from tenure.app.agents.spec import OnDelete
from tenure.core.agent import AgentState
from tenure.core.edge import EdgeKind
from tenure.core.verb import VerbName
from tenure.faces.api.schemas.forms import Cursor, Id, Instant, Limit, RequestFields, ResponseBody

DryRun = Annotated[bool, Meta(description="Only show the plan: steps, compensations, keys.")]
Queue = Annotated[
    bool,
    Meta(
        description="Wait for the operation that works on the agent, instead of being refused."
        " A stop never waits, and a delete waits only for another delete."
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
    """A resource that a provider holds for an agent, or may hold."""

    slot: str
    key: str
    state: str
    operation: str
    step: str


class AgentResources(ResponseBody, frozen=True):
    """All resources that providers hold for an agent, or may hold."""

    items: list[Resource]
    next: str | None = None


class StepPreview(ResponseBody, frozen=True):
    """One step of a plan in a dry run."""

    name: str
    kind: str
    compensation: str
    slot: str
    key: str


class CascadeBranch(ResponseBody, frozen=True):
    """One thing that an agent owns or has granted, and its fate in the delete."""

    owner: str
    kind: EdgeKind
    target: str
    name: str
    depth: int
    fate: str


class PlanPreview(ResponseBody, frozen=True):
    """The answer to a dry run: the steps in order, and for a delete its cascade."""

    kind: VerbName
    plan: str
    version: int
    steps: list[StepPreview]
    cascade: list[CascadeBranch]
    warnings: list[str]
    """For a create: files that its runtime does not find; the create would be undone for them."""


class Edge(ResponseBody, frozen=True):
    """Something that an agent owns or has granted."""

    owner: str
    kind: EdgeKind
    target: str
    on_delete: str
    at: Instant


class Edges(ResponseBody, frozen=True):
    """A page of edges."""

    items: list[Edge]
    next: str | None


class ListEdges(RequestFields, frozen=True):
    """The page of edges to list."""

    after: Cursor = ""
    limit: Limit = 100


class AddEdge(RequestFields, frozen=True):
    """A thing that the agent owns from now on, and its fate when the agent is deleted."""

    kind: EdgeKind
    target: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$(?!\n)",
            description="For the kind `agent`: its name or uid.",
        ),
    ]
    on_delete: OnDelete = "revoke"


class AgentInvitation(ResponseBody, frozen=True):
    """Shown once: send `token` as bearer token to /oauth/register, with the agent's public keys."""

    client_id: str
    token: str
    expires_at: Instant


class LogText(ResponseBody, frozen=True):
    """The output of an agent."""

    text: str
    next_offset: int | None = None
    """With `since`: the offset of the next part."""


class ListAgents(RequestFields, frozen=True):
    """The agents to list."""

    state: Annotated[
        tuple[AgentState, ...], Meta(description="Only in this state; may occur several times.")
    ] = ()
    label: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^=]+=[^\n]*$(?!\n)", max_length=400)], ...],
        Meta(description="Only with this label, `key=value`; may occur several times."),
    ] = ()
    after: Cursor = ""
    limit: Limit = 100


class DryRunQuery(RequestFields, frozen=True):
    """Options of every verb."""

    dry_run: DryRun = False


class QueueQuery(RequestFields, frozen=True):
    """Options of a verb on an existing agent."""

    dry_run: DryRun = False
    queue: Queue = False


class Delete(RequestFields, frozen=True):
    """Options of a delete."""

    dry_run: DryRun = False
    queue: Queue = False
    drain_seconds: Annotated[
        DrainSeconds | UnsetType,
        Meta(description="How long work in flight may continue; 0: it is cut at once."),
    ] = UNSET
    retention: Annotated[
        Literal["remove", "retain"] | UnsetType,
        Meta(description="Whether the spec is removed or retained."),
    ] = UNSET


class Suspend(RequestFields, frozen=True):
    """Options of a suspend."""

    keep_runtime: bool = False
    drain_seconds: DrainSeconds | None = None


class Logs(RequestFields, frozen=True):
    """The part of the log to show."""

    lines: Annotated[int, Meta(ge=1, le=10_000, description="How many of the last lines.")] = 100
    since: Annotated[
        Offset | UnsetType,
        Meta(description="Show the log from this offset on, instead of the last lines."),
    ] = UNSET


def agent(view: agent_views.AgentView) -> Agent:
    """The response body for an agent."""
    return Agent(**view._asdict())
