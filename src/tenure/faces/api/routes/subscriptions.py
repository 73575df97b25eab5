"""Routes of subscriptions, dead letters and acknowledgements, and of a tenant's strictness."""

from typing import cast

from tenure.app.agents.views import get_agent_row
from tenure.app.events import acknowledgements, dead_letters, subscriptions
from tenure.app.events.acknowledgements import AcknowledgementView
from tenure.app.events.cloudevents import cloud_event
from tenure.app.events.subscriptions import SubscriptionView
from tenure.core.limits import POSITION_MAX
from tenure.core.roles import Role
from tenure.faces.api.schemas import events as schemas
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import HttpRequest, Repeat, Route

ONE = "/v1/subscriptions/{subscription}"


def _subscription(view: SubscriptionView) -> schemas.Subscription:
    return schemas.Subscription(**view._asdict())


def _acknowledgement(one: AcknowledgementView) -> schemas.Acknowledgement:
    return schemas.Acknowledgement(**one._asdict())


async def create_subscription(request: HttpRequest) -> schemas.NewSubscription:
    """Make a subscription; the answer has its secret."""
    body = cast(schemas.CreateSubscription, request.body)
    fields = subscriptions.SubscriptionRequest(
        body.name, body.kind, body.target, body.agent, body.types, body.required, body.from_start
    )
    view, secret = await subscriptions.create_subscription(
        request.plane, request.caller, fields, idempotency_key=request.idempotency_key
    )
    return schemas.NewSubscription(**view._asdict(), secret=secret)


async def list_subscriptions(request: HttpRequest) -> schemas.Subscriptions:
    """The tenant's subscriptions."""
    views = await subscriptions.list_subscriptions(request.plane, request.caller)
    return schemas.Subscriptions(items=[_subscription(view) for view in views])


async def get_subscription(request: HttpRequest) -> schemas.Subscription:
    """One subscription."""
    name = request.names["subscription"]
    return _subscription(await subscriptions.get_subscription(request.plane, request.caller, name))


async def delete_subscription(request: HttpRequest) -> schemas.Subscription:
    """Delete a subscription; nothing more is sent to it."""
    name = request.names["subscription"]
    view = await subscriptions.delete_subscription(
        request.plane, request.caller, name, idempotency=request.answered_by(_subscription)
    )
    return _subscription(view)


async def rotate_secret(request: HttpRequest) -> schemas.NewSubscription:
    """Make a new secret; deliveries carry a signature by the previous one too, for a day."""
    name = request.names["subscription"]
    view, secret = await subscriptions.rotate_secret(
        request.plane, request.caller, name, idempotency_key=request.idempotency_key
    )
    return schemas.NewSubscription(**view._asdict(), secret=secret)


async def list_letters(request: HttpRequest) -> schemas.Letters:
    """A page of dead letters."""
    query = cast(schemas.ListLetters, request.query)
    agent, _, position = query.after.partition("/")
    after = (agent, int(position)) if query.after else ()
    if after and int(position) > POSITION_MAX:
        raise ProblemError("invalid_parameter", "after must be `next` of a page", "after")
    found = await dead_letters.list_letters(
        request.plane, request.caller, request.names["subscription"], after=after, limit=query.limit
    )
    items = [
        schemas.Letter(
            position=one.row.position, agent=one.row.agent,
            event=cloud_event(request.plane.id, one.row),
            why=one.why, attempts=one.attempts, parked_since=one.parked_since, due_at=one.due_at,
        )
        for one in found
    ]  # fmt: skip
    last = f"{items[-1].agent}/{items[-1].position}" if len(items) == query.limit else None
    return schemas.Letters(items=items, next=last)


async def _agent(request: HttpRequest) -> str:
    """The uid of the agent whose dead letters are meant; empty: those of all agents."""
    agent = cast(schemas.OfAgent, request.body).agent
    return (await get_agent_row(request.plane, request.caller, agent)).uid if agent else ""


async def replay_letters(request: HttpRequest) -> schemas.Count:
    """Send the dead letters again now."""
    name, agent = request.names["subscription"], await _agent(request)
    count = await dead_letters.replay(
        request.plane, request.caller, name, agent=agent, idempotency=request.idempotency
    )
    return schemas.Count(agents=count)


async def discard_letters(request: HttpRequest) -> schemas.Count:
    """Discard the dead letters."""
    name, agent = request.names["subscription"], await _agent(request)
    count = await dead_letters.discard(
        request.plane, request.caller, name, agent=agent, idempotency=request.idempotency
    )
    return schemas.Count(agents=count)


async def acknowledge(request: HttpRequest) -> schemas.Acknowledgement:
    """Record that the subscriber has done its part of an operation."""
    body = cast(schemas.Acknowledge, request.body)
    return _acknowledgement(
        await acknowledgements.acknowledge(
            request.plane, request.caller, request.names["subscription"], operation=body.operation,
            why=body.override, idempotency=request.answered_by(_acknowledgement),
        )
    )  # fmt: skip


async def list_acknowledgements(request: HttpRequest) -> schemas.Acknowledgements:
    """The acknowledgements that are or were required of the subscriber."""
    found = await acknowledgements.list_acknowledgements(
        request.plane, request.caller, request.names["subscription"]
    )
    return schemas.Acknowledgements(items=[_acknowledgement(one) for one in found])


def _tenant(strictness: acknowledgements.Strictness) -> schemas.Tenant:
    return schemas.Tenant(
        strict=strictness.strict, missing=[_acknowledgement(one) for one in strictness.missing]
    )


async def get_tenant(request: HttpRequest) -> schemas.Tenant:
    """Whether the tenant is strict, and which acknowledgements are missing."""
    return _tenant(await acknowledgements.get_strictness(request.plane, request.caller))


async def set_tenant(request: HttpRequest) -> schemas.Tenant:
    """Make the tenant strict, or no longer strict."""
    strict = cast(schemas.SetTenant, request.body).strict
    return _tenant(
        await acknowledgements.set_strictness(
            request.plane, request.caller, strict=strict, idempotency=request.answered_by(_tenant)
        )
    )


ROUTES = (
    Route(
        "POST", "/v1/subscriptions", create_subscription, "Subscribe to events",
        role=Role.OPERATOR, answer=schemas.NewSubscription, status=201,
        body=schemas.CreateSubscription,
        repeat=Repeat.RESULT, shows_secret=True,
        problems=("invalid", "not_found", "quota_exceeded", "wrong_state"),
    ),
    Route(
        "GET", "/v1/subscriptions", list_subscriptions, "List subscriptions, oldest first",
        role=Role.VIEWER, answer=schemas.Subscriptions,
    ),
    Route(
        "GET", ONE, get_subscription, "Show a subscription and its position",
        role=Role.VIEWER, answer=schemas.Subscription,
    ),
    Route(
        "DELETE", ONE, delete_subscription,
        "Delete a subscription; its acknowledgements are no longer required",
        role=Role.OPERATOR, answer=schemas.Subscription,
    ),
    Route(
        "POST", f"{ONE}:rotate", rotate_secret,
        "Rotate the secret; the previous one stays valid for a day",
        role=Role.OPERATOR, answer=schemas.NewSubscription, repeat=Repeat.RESULT,
        shows_secret=True, problems=("invalid",),
    ),
    Route(
        "GET", f"{ONE}/dead-letters", list_letters,
        "List events that the destination did not accept",
        role=Role.VIEWER, answer=schemas.Letters, query=schemas.ListLetters,
    ),
    Route(
        "POST", f"{ONE}/dead-letters:replay", replay_letters, "Send the dead letters again now",
        role=Role.OPERATOR, answer=schemas.Count, body=schemas.OfAgent, empty_body=True,
    ),
    Route(
        "POST", f"{ONE}/dead-letters:discard", discard_letters, "Discard the dead letters",
        role=Role.OPERATOR, answer=schemas.Count, body=schemas.OfAgent, empty_body=True,
    ),
    Route(
        "GET", f"{ONE}/acknowledgements", list_acknowledgements,
        "List acknowledgements that are or were required",
        role=Role.VIEWER, answer=schemas.Acknowledgements,
    ),
    Route(
        "POST", f"{ONE}/acknowledgements", acknowledge,
        "Acknowledge that the subscriber has done its part of an operation",
        role=Role.OPERATOR, answer=schemas.Acknowledgement, body=schemas.Acknowledge,
        problems=("plan_unknown",),
    ),
    Route(
        "GET", "/v1/tenant", get_tenant,
        "Show whether the tenant is strict, and its missing acknowledgements",
        role=Role.VIEWER, answer=schemas.Tenant,
    ),
    Route(
        "PUT", "/v1/tenant", set_tenant,
        "Set whether creates are refused while an acknowledgement is missing",
        role=Role.ADMIN, answer=schemas.Tenant, body=schemas.SetTenant,
    ),
)  # fmt: skip
