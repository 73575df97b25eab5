"""Subscriptions, their dead letters and acknowledgements; and whether a tenant is strict."""

from typing import cast

from tenure.app import acknowledgements, letters, subscriptions
from tenure.app.acknowledgements import Awaited
from tenure.app.agent_views import get_agent_row
from tenure.app.events import cloud_event
from tenure.app.subscriptions import SubscriptionView
from tenure.core.limits import POSITION_MAX
from tenure.core.roles import Role
from tenure.faces.api.problems import Refusal
from tenure.faces.api.schemas import events as schemas
from tenure.faces.api.table import Ask, Route

ONE = "/v1/subscriptions/{subscription}"


def _shown(view: SubscriptionView) -> schemas.Subscription:
    return schemas.Subscription(**view._asdict())


def _awaited(one: Awaited) -> schemas.Acknowledgement:
    return schemas.Acknowledgement(**one._asdict())


async def create_subscription(ask: Ask) -> schemas.NewSubscription:
    """A new subscription, with its secret."""
    body = cast(schemas.Subscribe, ask.body)
    asked = subscriptions.Subscribe(
        body.name, body.kind, body.target, body.agent, body.types, body.required, body.from_start
    )
    view, secret = await subscriptions.create_subscription(
        ask.plane, ask.caller, asked, idempotency_key=ask.idempotency_key
    )
    return schemas.NewSubscription(**view._asdict(), secret=secret)


async def list_subscriptions(ask: Ask) -> schemas.Subscriptions:
    """The tenant's subscriptions."""
    views = await subscriptions.list_subscriptions(ask.plane, ask.caller)
    return schemas.Subscriptions(items=[_shown(view) for view in views])


async def get_subscription(ask: Ask) -> schemas.Subscription:
    """One subscription."""
    name = ask.names["subscription"]
    return _shown(await subscriptions.get_subscription(ask.plane, ask.caller, name))


async def delete_subscription(ask: Ask) -> schemas.Subscription:
    """Nothing more is sent."""
    name = ask.names["subscription"]
    return _shown(await subscriptions.delete_subscription(ask.plane, ask.caller, name))


async def rotate_secret(ask: Ask) -> schemas.NewSubscription:
    """A new secret; the one before signs beside it for a day."""
    name = ask.names["subscription"]
    view, secret = await subscriptions.rotate_secret(
        ask.plane, ask.caller, name, idempotency_key=ask.idempotency_key
    )
    return schemas.NewSubscription(**view._asdict(), secret=secret)


async def list_letters(ask: Ask) -> schemas.Letters:
    """A page of dead letters."""
    query = cast(schemas.ListLetters, ask.query)
    agent, _, position = query.after.partition("/")
    after = (agent, int(position)) if query.after else ()
    if after and int(position) > POSITION_MAX:
        raise Refusal("invalid_parameter", "after is `next` of the page before", "after")
    found = await letters.list_letters(
        ask.plane, ask.caller, ask.names["subscription"], after=after, limit=query.limit
    )
    items = [
        schemas.Letter(
            position=cast(int, one.row["position"]), agent=str(one.row["agent"]),
            event=cloud_event(ask.plane.id, one.row),
            why=one.why, attempts=one.attempts, parked_since=one.parked_since, due_at=one.due_at,
        )
        for one in found
    ]  # fmt: skip
    last = f"{items[-1].agent}/{items[-1].position}" if len(items) == query.limit else None
    return schemas.Letters(items=items, next=last)


async def _agent(ask: Ask) -> str:
    """The agent whose letters are meant, by name or uid; empty: everybody's."""
    named = cast(schemas.OfAgent, ask.body).agent
    return str((await get_agent_row(ask.plane, ask.caller, named))["uid"]) if named else ""


async def replay_letters(ask: Ask) -> schemas.Count:
    """Try them again now."""
    name, agent = ask.names["subscription"], await _agent(ask)
    count = await letters.replay(ask.plane, ask.caller, name, agent=agent)
    return schemas.Count(agents=count)


async def discard_letters(ask: Ask) -> schemas.Count:
    """Give them up."""
    name, agent = ask.names["subscription"], await _agent(ask)
    count = await letters.discard(ask.plane, ask.caller, name, agent=agent)
    return schemas.Count(agents=count)


async def acknowledge(ask: Ask) -> schemas.Acknowledgement:
    """The subscriber has done its part."""
    body = cast(schemas.Acknowledge, ask.body)
    return _awaited(
        await acknowledgements.acknowledge(
            ask.plane, ask.caller, ask.names["subscription"], operation=body.operation,
            why=body.override,
        )
    )  # fmt: skip


async def list_acknowledgements(ask: Ask) -> schemas.Acknowledgements:
    """What the subscriber is waited for."""
    found = await acknowledgements.list_acknowledgements(
        ask.plane, ask.caller, ask.names["subscription"]
    )
    return schemas.Acknowledgements(items=[_awaited(one) for one in found])


def _tenant(told: acknowledgements.Strictness) -> schemas.Tenant:
    return schemas.Tenant(strict=told.strict, missing=[_awaited(one) for one in told.missing])


async def get_tenant(ask: Ask) -> schemas.Tenant:
    """Whether it is strict, and who has not acknowledged."""
    return _tenant(await acknowledgements.get_strictness(ask.plane, ask.caller))


async def set_tenant(ask: Ask) -> schemas.Tenant:
    """Strict from now on, or no longer."""
    strict = cast(schemas.SetTenant, ask.body).strict
    return _tenant(await acknowledgements.set_strictness(ask.plane, ask.caller, strict=strict))


ROUTES = (
    Route(
        "POST", "/v1/subscriptions", create_subscription, "Subscribe to events",
        role=Role.OPERATOR, answer=schemas.NewSubscription, status=201, body=schemas.Subscribe,
        idempotent=True, problems=("invalid", "not_found", "quota_exceeded", "wrong_state"),
    ),
    Route(
        "GET", "/v1/subscriptions", list_subscriptions, "List subscriptions, oldest first",
        role=Role.VIEWER, answer=schemas.Subscriptions,
    ),
    Route(
        "GET", ONE, get_subscription, "Show a subscription and how far it is",
        role=Role.VIEWER, answer=schemas.Subscription,
    ),
    Route(
        "DELETE", ONE, delete_subscription, "Delete a subscription; nobody waits for it any more",
        role=Role.OPERATOR, answer=schemas.Subscription,
    ),
    Route(
        "POST", f"{ONE}:rotate", rotate_secret,
        "Sign with a new secret; the one before signs beside it for a day",
        role=Role.OPERATOR, answer=schemas.NewSubscription, idempotent=True,
        problems=("invalid",),
    ),
    Route(
        "GET", f"{ONE}/dead-letters", list_letters, "List events that were not taken",
        role=Role.VIEWER, answer=schemas.Letters, query=schemas.ListLetters,
    ),
    Route(
        "POST", f"{ONE}/dead-letters:replay", replay_letters, "Send them again, now",
        role=Role.OPERATOR, answer=schemas.Count, body=schemas.OfAgent, empty_body=True,
    ),
    Route(
        "POST", f"{ONE}/dead-letters:discard", discard_letters, "Give them up",
        role=Role.OPERATOR, answer=schemas.Count, body=schemas.OfAgent, empty_body=True,
    ),
    Route(
        "GET", f"{ONE}/acknowledgements", list_acknowledgements,
        "List what the subscriber is, or was, waited for",
        role=Role.VIEWER, answer=schemas.Acknowledgements,
    ),
    Route(
        "POST", f"{ONE}/acknowledgements", acknowledge,
        "Say that the subscriber has done its part of an operation",
        role=Role.OPERATOR, answer=schemas.Acknowledgement, body=schemas.Acknowledge,
        problems=("plan_unknown",),
    ),
    Route(
        "GET", "/v1/tenant", get_tenant, "Show whether the tenant is strict, and whom it waits for",
        role=Role.VIEWER, answer=schemas.Tenant,
    ),
    Route(
        "PUT", "/v1/tenant", set_tenant,
        "Let nothing new be made while an acknowledgement is missing, or let it",
        role=Role.ADMIN, answer=schemas.Tenant, body=schemas.SetTenant,
    ),
)  # fmt: skip
