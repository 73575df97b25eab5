"""The control plane itself on the wire: health, status and review."""

from tenure.faces.api.schemas.forms import ResponseBody


class HealthStatus(ResponseBody, frozen=True, omit_defaults=True):
    """The answer of a probe; a plane whose status is `held` accepts only reads."""

    status: str
    engine: str = ""
    """Why the engine cannot be reached, so that operations wait; empty: it can be reached."""
    providers: str = ""
    """Why the provider host cannot be reached; empty: it can be reached, or there is none."""


class Document(ResponseBody, frozen=True):
    """An OpenAPI document."""

    openapi: str


class PlaneStatus(ResponseBody, frozen=True):
    """The control plane itself."""

    id: str
    epoch: int
    """It rises with every restore; tokens of an earlier epoch are invalid."""
    held: str
    """Why the plane is paused until an admin confirms; empty: it is not paused."""


class ResumedOperation(ResponseBody, frozen=True):
    """An open operation, which continues after the confirmation."""

    operation: str
    tenant: str
    kind: str
    agent: str
    state: str


class MissingResource(ResponseBody, frozen=True):
    """A resource that an agent has according to the store and that its provider does not have."""

    agent: str
    name: str
    tenant: str
    slot: str
    key: str


class NamedAgent(ResponseBody, frozen=True):
    """An agent that is READY in the store."""

    agent: str
    name: str
    tenant: str


class UnknownResource(ResponseBody, frozen=True):
    """A resource of this plane that the store does not know; it is never deleted."""

    slot: str
    key: str
    agent: str


class PlaneReview(ResponseBody, frozen=True):
    """The effects of a confirmation; each list has the first thousand entries."""

    epoch: int
    held: str
    open_operations: int
    resumed: list[ResumedOperation]
    missing_resources: int
    missing: list[MissingResource]
    started_agents: int
    started: list[NamedAgent]
    """Agents that lack only their runtime; the drift reconciler starts them if it repairs."""
    shut_agents: int
    shut: list[NamedAgent]
    """Agents whose credentials are closed: suspended after the backup, and not started again."""
    untold_agents: int
    untold: list[NamedAgent]
    """Agents that cannot be judged yet: a provider does not answer, or something else differs."""
    unknown_resources: int
    unknown: list[UnknownResource]
    silent: list[str]
    """Providers that did not list their resources or did not answer, each with the reason."""
