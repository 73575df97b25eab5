"""Events, subscriptions and acknowledgements on the wire."""

from typing import Annotated

from msgspec import Meta

from tenure.app.events.cloudevents import CloudEvent
from tenure.core.limits import NAME_PATTERN
from tenure.core.subscription import SubscriptionKind
from tenure.faces.api.schemas.forms import Id, Instant, Limit, RequestFields, ResponseBody

Position = Annotated[
    str,
    Meta(pattern=r"^[0-9]{0,19}$(?!\n)", description="`next` or `position` of the previous page."),
]
Types = Annotated[
    tuple[Annotated[str, Meta(max_length=64)], ...],
    Meta(max_length=32, description="Such as `agent.suspended` or `agent.*`; empty: all types."),
]
Name = Annotated[str, Meta(pattern=rf"^{NAME_PATTERN}$(?!\n)")]
Agent = Annotated[str, Meta(max_length=63, description="A name or uid; empty: every agent.")]


class Events(ResponseBody, frozen=True):
    """A page of events in the order of their commits; `position` is the end of the page."""

    items: list[CloudEvent]
    next: str | None
    position: str
    missed: bool
    """Whether some events after the requested position are no longer stored."""


class ListEvents(RequestFields, frozen=True):
    """The events to list."""

    agent: Agent = ""
    type: Types = ()
    operation: Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?$(?!\n)")] = ""
    after: Position = ""
    limit: Limit = 100


class CreateSubscription(RequestFields, frozen=True):
    """The events that a subscriber requests, and their destination."""

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
    """A subscription with its secret, which is shown once; empty if it has none.

    It is also empty if an idempotency key is used again and the secret was rotated since.
    """

    secret: str


class Subscriptions(ResponseBody, frozen=True):
    """The tenant's subscriptions, oldest first."""

    items: list[Subscription]


class Letter(ResponseBody, frozen=True):
    """A dead letter: an event that its destination has not accepted."""

    position: int
    agent: str
    event: CloudEvent
    why: str
    attempts: int
    """How often it was sent; 0: it waits for an earlier event of the same agent."""
    parked_since: Instant
    due_at: Instant | None
    """The time of the next attempt; null: only a replay sends it again."""


class Letters(ResponseBody, frozen=True):
    """A page of dead letters, ordered by agent and then by position."""

    items: list[Letter]
    next: str | None


class ListLetters(RequestFields, frozen=True):
    """The page of dead letters to list."""

    after: Annotated[
        str,
        Meta(
            pattern=r"^([0-9A-Za-z_.-]{0,63}/[0-9]{1,18})?$(?!\n)",
            description="`next` of the previous page.",
        ),
    ] = ""
    limit: Limit = 100


class OfAgent(RequestFields, frozen=True):
    """The agent whose dead letters are meant."""

    agent: Annotated[str, Meta(max_length=63, description="A name or uid; empty: all.")] = ""


class Count(ResponseBody, frozen=True):
    """The number of agents whose parked streams are affected."""

    agents: int


class Acknowledge(RequestFields, frozen=True):
    """The operation of which the subscriber has done its part."""

    operation: Id
    override: (
        Annotated[
            str,
            Meta(
                max_length=500,
                description="The reason why an operator acknowledges for the subscriber.",
            ),
        ]
        | None
    ) = None


class Acknowledgement(ResponseBody, frozen=True):
    """An acknowledgement that is or was required of a subscriber."""

    operation: Id
    subscription: Id
    name: str
    agent: str
    since: Instant
    acknowledged_at: Instant | None
    principal: str


class Acknowledgements(ResponseBody, frozen=True):
    """Acknowledgements; the missing ones come first."""

    items: list[Acknowledgement]


class Tenant(ResponseBody, frozen=True):
    """The settings of the tenant, and the acknowledgements that it waits for."""

    strict: bool
    missing: list[Acknowledgement]


class SetTenant(RequestFields, frozen=True):
    """The new settings of the tenant."""

    strict: bool
