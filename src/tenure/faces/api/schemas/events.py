"""Events, subscriptions and acknowledgements on the wire."""

from typing import Annotated

from msgspec import Meta

from tenure.app.events.cloudevents import CloudEvent
from tenure.core.limits import NAME_PATTERN
from tenure.core.subscription import SubscriptionKind
from tenure.faces.api.schemas.forms import Id, Instant, Limit, RequestFields, ResponseBody

Position = Annotated[
    str,
    Meta(pattern=r"^[0-9]{0,19}$(?!\n)", description="`next` or `position` of the page before."),
]
Types = Annotated[
    tuple[Annotated[str, Meta(max_length=64)], ...],
    Meta(max_length=32, description="Such as `agent.suspended` or `agent.*`; none: all."),
]
Name = Annotated[str, Meta(pattern=rf"^{NAME_PATTERN}$(?!\n)")]
Agent = Annotated[str, Meta(max_length=63, description="A name or uid; empty: every agent.")]


class Events(ResponseBody, frozen=True):
    """A page of events in the order of their commits; `position` is where to go on later."""

    items: list[CloudEvent]
    next: str | None
    position: str
    missed: bool
    """Whether some after the position asked for are no longer kept."""


class ListEvents(RequestFields, frozen=True):
    """Which events."""

    agent: Agent = ""
    type: Types = ()
    operation: Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?$(?!\n)")] = ""
    after: Position = ""
    limit: Limit = 100


class CreateSubscription(RequestFields, frozen=True):
    """What somebody wants to hear of, and how it is told."""

    name: Name
    kind: SubscriptionKind
    target: Annotated[
        str, Meta(max_length=2_048, description="A URL for webhook, a subject for nats.")
    ] = ""
    agent: Agent = ""
    types: Types = ()
    required: bool = False
    from_start: bool = False


class Subscription(ResponseBody, frozen=True):
    """A subscription, without its secret."""

    id: Id
    name: str
    kind: SubscriptionKind
    target: str
    agent: str
    types: tuple[str, ...]
    required: bool
    principal: str
    created_at: Instant
    updated_at: Instant
    position: int | None
    failing_since: Instant | None
    next_try: Instant | None
    why: str
    parked: int
    missed: int


class NewSubscription(Subscription, frozen=True):
    """The same with its secret, which is shown once; empty if it has none.

    Also empty where an idempotency key is used again and the secret was changed since.
    """

    secret: str


class Subscriptions(ResponseBody, frozen=True):
    """The tenant's subscriptions, oldest first."""

    items: list[Subscription]


class Letter(ResponseBody, frozen=True):
    """An event that its destination has not taken."""

    position: int
    agent: str
    event: CloudEvent
    why: str
    attempts: int
    """How often it was sent; none: one before it of the same agent stands in its way."""
    parked_since: Instant
    due_at: Instant | None
    """When it is tried again; none: when somebody replays it."""


class Letters(ResponseBody, frozen=True):
    """A page of dead letters, agent by agent, each agent's in order."""

    items: list[Letter]
    next: str | None


class ListLetters(RequestFields, frozen=True):
    """Which letters."""

    after: Annotated[
        str,
        Meta(
            pattern=r"^([0-9A-Za-z_.-]{0,63}/[0-9]{1,18})?$(?!\n)",
            description="`next` of the page before.",
        ),
    ] = ""
    limit: Limit = 100


class OfAgent(RequestFields, frozen=True):
    """Whose letters."""

    agent: Annotated[str, Meta(max_length=63, description="A name or uid; empty: all.")] = ""


class Count(ResponseBody, frozen=True):
    """How many streams are concerned."""

    agents: int


class Acknowledge(RequestFields, frozen=True):
    """What the subscriber has done its part of."""

    operation: Id
    override: (
        Annotated[
            str,
            Meta(max_length=500, description="Why an operator says so in the subscriber's place."),
        ]
        | None
    ) = None


class Acknowledgement(ResponseBody, frozen=True):
    """What a subscriber is, or was, waited for."""

    operation: Id
    subscription: Id
    name: str
    agent: str
    since: Instant
    acknowledged_at: Instant | None
    principal: str


class Acknowledgements(ResponseBody, frozen=True):
    """What is missing comes first."""

    items: list[Acknowledgement]


class Tenant(ResponseBody, frozen=True):
    """What holds for the tenant as a whole."""

    strict: bool
    missing: list[Acknowledgement]


class SetTenant(RequestFields, frozen=True):
    """From now on."""

    strict: bool
