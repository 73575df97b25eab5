"""The control plane's own answers on the wire."""

from tenure.faces.api.schemas.forms import ResponseBody


class HealthStatus(ResponseBody, frozen=True, omit_defaults=True):
    """Whether it lives, or takes requests; a plane that is `held` takes reads alone."""

    status: str
    engine: str = ""
    """Why what is accepted waits, if what moves operations cannot be reached; empty: it can."""
    providers: str = ""
    """Why the embedded providers cannot be asked now, which others serve; empty: they can."""


class Document(ResponseBody, frozen=True):
    """An OpenAPI document."""

    openapi: str


class PlaneStatus(ResponseBody, frozen=True):
    """The control plane itself."""

    id: str
    epoch: int
    """It rises with every restore; tokens of an earlier one are no good."""
    held: str
    """Why nothing may move until an admin confirms; empty: it may."""


class ResumedOperation(ResponseBody, frozen=True):
    """An open operation, which goes on once the plane is let go."""

    operation: str
    tenant: str
    kind: str
    agent: str
    state: str


class MissingResource(ResponseBody, frozen=True):
    """What an agent holds by the store, and its provider does not have."""

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
    """What a provider holds for this plane and the store does not know; it is never deleted."""

    slot: str
    key: str
    agent: str


class PlaneReview(ResponseBody, frozen=True):
    """What letting the plane go would mean; the lists hold the first thousand of each kind."""

    epoch: int
    held: str
    open_operations: int
    resumed: list[ResumedOperation]
    missing_resources: int
    missing: list[MissingResource]
    started_agents: int
    started: list[NamedAgent]
    """Agents whose runtime alone is missing or dead: where drift is repaired they are started."""
    shut_agents: int
    shut: list[NamedAgent]
    """Agents whose credentials are shut: suspended since, and not started again."""
    untold_agents: int
    untold: list[NamedAgent]
    """Agents of which nobody can tell yet: a provider says nothing, or something else differs."""
    unknown_resources: int
    unknown: list[UnknownResource]
    silent: list[str]
    """Providers that did not say what they hold, or what they were asked, and why."""
