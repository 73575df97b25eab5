"""Subscriptions: which subscriber receives which events, and by which transport.

A webhook is called, a NATS subject is published to, a pull subscription reads `/v1/events` itself.
A secret is shown once, when it is made, and is stored sealed.  For a day after a rotation the
previous secret signs as well.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec

from tenure.app.agents import edge_rows, ownership
from tenure.app.agents.views import get_agent_row
from tenure.app.events import acknowledgements, delivery_rows, subscription_rows
from tenure.app.events.cloudevents import EventFilter, parse_types
from tenure.app.operations.handle import decode, encode
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest, request_under_key
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.app.tenancy import quota_rows
from tenure.app.tenancy.audit import audit_line
from tenure.core.edge import EdgeKind
from tenure.core.egress import target_of
from tenure.core.errors import Conflict, ConflictCode, Invalid, NotFound
from tenure.core.ids import uuid7
from tenure.core.limits import PAGE_MAX, SUBSCRIPTIONS_MAX
from tenure.core.records import (
    AgentRecord,
    CursorRecord,
    LetterRecord,
    ParkedRecord,
    QuotaRecord,
    SubscriptionRecord,
)
from tenure.core.roles import Caller, Role, require
from tenure.core.subscription import NAME, SUBJECT, SubscriptionKind
from tenure.plans.agents.lifecycle import WAITED_FOR
from tenure.ports.store import Change, ChangePart, Is, Put

SECRET_PREFIX = "whsec_"  # noqa: S105 (the prefix that Standard Webhooks define)
OVERLAP_SECONDS = 86_400.0
"""How long the previous secret continues to sign beside a new one."""
LAST_EVENT_SECONDS = 4 * 3_600.0
"""How long a subscription to a deleted agent waits for the delivery of its last event."""
NO_SEAL = "this control plane cannot store secrets, so it has no webhooks"
SUBSCRIPTIONS = "subscriptions"
"""The kind of quota that counts subscriptions."""


class SubscriptionRequest(NamedTuple):
    """A request for a subscription.

    Args:
        target: a URL for a webhook, a subject for NATS, nothing for pull.
        agent: a name or uid; empty: every agent of the tenant.
        types: such as `agent.suspended` or `agent.*`; none: all.
        required: whether suspend and delete wait for its acknowledgement.
        from_start: also receive the events that the outbox has now.
    """

    name: str
    kind: SubscriptionKind
    target: str = ""
    agent: str = ""
    types: tuple[str, ...] = ()
    required: bool = False
    from_start: bool = False


class SubscriptionView(NamedTuple):
    """A subscription as callers see it, without its secret."""

    id: str
    name: str
    kind: SubscriptionKind
    target: str
    agent: str
    types: tuple[str, ...]
    required: bool
    principal: str
    created_at: float
    updated_at: float
    position: int | None
    """Its cursor; None for a pull subscription, which reads the events itself."""
    failing_since: float | None
    next_try: float | None
    why: str
    """The last answer of its destination, while it fails."""
    parked: int
    """Agents whose stream is parked."""
    missed: int
    """Events that were dropped from the outbox before it received them."""


async def create_subscription(
    plane: Plane, caller: Caller, request: SubscriptionRequest, *, idempotency_key: str = ""
) -> tuple[SubscriptionView, str]:
    """Create a subscription; return it and its secret.

    The same key and request give the same subscription for a day, with the secret unless it was
    rotated since.  If the subscription was deleted since, the first answer is given again.
    """
    require(caller, Role.OPERATOR)
    who, hook = (caller.tenant, caller.principal), request.kind is SubscriptionKind.WEBHOOK
    idempotent = request_under_key(
        *who, SUBSCRIPTIONS, idempotency_key, request._asdict(), has_secret=hook
    )
    now = plane.store.now()
    if earlier := await idempotent.find_named_id(plane, now):
        return await _repeat_answer(plane, caller, earlier, idempotent)
    agent = await _check_request(plane, caller, request)
    name = uuid7(now, plane.entropy.bits())
    secret = plane.entropy.secret() if hook else b""
    secret_shown = secret_text(secret) if secret else ""
    row = SubscriptionRecord(
        id=name, tenant=caller.tenant, principal=caller.principal, name=request.name,
        kind=request.kind, target=request.target, agent=agent,
        types=encode(parse_types(request.types)), required=int(request.required),
        secret=_seal_secret(plane, name, secret) if secret else None, secret_before=None,
        before_until=None, revision=1, created_at=now, updated_at=now,
    )  # fmt: skip
    audit_row = audit_line(
        caller, "subscription.create", target=name, now=now, name=request.name, kind=request.kind,
        where=request.target, required=request.required,
    )  # fmt: skip
    writes: tuple[Put, ...] = (subscription_rows.put_subscription(row),)
    view = await _view(plane, row)
    if request.kind is not SubscriptionKind.PULL:
        # All events that are committed from here on lie after this position.
        start = 0 if request.from_start else await plane.feed.head()
        writes += (delivery_rows.put_cursor(name, position=start),)
        view = view._replace(position=start)
    writes += _key_rows(plane, idempotent, 1, view, secret_shown, now=now)
    while True:
        try:
            place = await _reserve(plane, caller.tenant)
            owned = await _ownership_edges(plane, caller, agent, name, now=now)
        except Conflict:
            # The conflict may be with the same request, carried out since we read its key.
            if earlier := await idempotent.find_named_id(plane, now):
                return await _repeat_answer(plane, caller, earlier, idempotent)
            raise
        guards = (*place.guards, *owned.guards)
        change = Change("", guards, (*writes, *place.writes, *owned.writes, audit_row))
        if await plane.store.commit(change) is None:
            break
        # Another subscription was created, or one of the agents has changed: read again.
        if earlier := await idempotent.find_named_id(plane, now):
            return await _repeat_answer(plane, caller, earlier, idempotent)
    plane.subscription_changes.notify()
    return await get_subscription(plane, caller, name), secret_shown


def _key_rows(
    plane: Plane, idempotent: IdempotentRequest, revision: int, view: SubscriptionView, secret: str,
    *, now: float,
) -> tuple[Put, ...]:  # fmt: skip
    """The row of the request's key, if it has one; it names the subscription and its secret."""
    if not idempotent.has_key:
        return ()
    answer = idempotent.encode_stored_answer(plane, msgspec.json.encode((view, secret)))
    return idempotent.rows(f"{view.id}/{revision}", now, answer=answer)


async def _repeat_answer(
    plane: Plane, caller: Caller, earlier: str, idempotent: IdempotentRequest
) -> tuple[SubscriptionView, str]:
    """The answer to the earlier request with this key: its subscription, and its secret.

    If the secret was rotated since, it is not returned: only the request that rotated it has it.
    """
    name, _, revision = earlier.partition("/")
    try:
        row = await get_subscription_row(plane, caller, name)
    except NotFound as error:
        stored = await idempotent.find_answer(plane)
        if stored is not None:
            return msgspec.json.decode(stored.body, type=tuple[SubscriptionView, str])
        message = f"{error}: this idempotency key was given for it, and it was deleted since"
        raise NotFound(message) from None
    is_current = row.secret is not None and str(row.revision) == revision
    secret = secret_text(secrets_of(plane, row)[0]) if is_current else ""
    return await _view(plane, row), secret


async def _reserve(plane: Plane, tenant: str) -> ChangePart:
    """Reserve a place in the tenant's quota; Conflict `quota_exceeded` if it has as many as it may.

    If two requests take the last place at the same time, the guard on the revision refuses one.
    The limit is a constant of this release, and not the value that the quota's row has stored.
    """
    quota = await plane.store.find(QuotaRecord, (tenant, SUBSCRIPTIONS))
    count = await plane.store.count_rows(SubscriptionRecord, {"tenant": tenant})
    if count >= SUBSCRIPTIONS_MAX:
        message = f"the tenant has {count} subscriptions, its maximum; delete one"
        raise Conflict(message, code=ConflictCode.QUOTA_EXCEEDED, holder=SUBSCRIPTIONS)
    if quota is None:
        first = quota_rows.put_quota(tenant, SUBSCRIPTIONS, SUBSCRIPTIONS_MAX)
        return ChangePart((), (first,))
    return quota_rows.use_quota(quota)


async def _ownership_edges(
    plane: Plane, caller: Caller, agent: str, name: str, *, now: float
) -> ChangePart:
    """The edges to a subscription: from its agent, and from the agent that sends the request.

    Conflict `wrong_state` if either is being deleted: it can own nothing new.
    """
    guards: tuple[Is, ...] = ()
    writes: tuple[Put, ...] = ()
    asks = await ownership.requesting_agent(plane, caller)
    if asks is not None:
        guards += await ownership.guards_of_new_owner(plane, asks)
    about = await plane.store.find(AgentRecord, (agent,)) if agent else None
    if about is not None:
        if about.state in ownership.DELETION_STATES:
            message = f"agent {about.name} is {about.state}: it accepts no new subscriptions"
            raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=agent)
        guards += (Is("agent", (agent,), {"tenant": caller.tenant, "state": about.state}),)
    for uid in dict.fromkeys(one.uid for one in (about, asks) if one is not None):
        writes += (edge_rows.put_edge(caller.tenant, uid, EdgeKind.WEBHOOK, name, now=now),)
    return ChangePart(guards, writes)


async def list_subscriptions(plane: Plane, caller: Caller) -> list[SubscriptionView]:
    """The tenant's subscriptions, oldest first."""
    require(caller, Role.VIEWER)
    rows = await rows_of(plane, caller.tenant)
    return [await _view(plane, row) for row in rows]


async def rows_of(plane: Plane, tenant: str = "") -> list[SubscriptionRecord]:
    """The rows of a tenant's subscriptions, or of all subscriptions."""
    columns = {"tenant": tenant} if tenant else {}
    return [row async for row in every(plane.store, SubscriptionRecord, columns)]


async def get_subscription(plane: Plane, caller: Caller, name: str) -> SubscriptionView:
    """One subscription; NotFound if this tenant has none of that id."""
    return await _view(plane, await get_subscription_row(plane, caller, name))


async def get_subscription_row(plane: Plane, caller: Caller, name: str) -> SubscriptionRecord:
    """The row of one subscription; NotFound if this tenant has none of that id."""
    row = await plane.store.find(SubscriptionRecord, (name,))
    if row is None or row.tenant != caller.tenant:
        raise NotFound(f"there is no subscription {name}")
    return row


async def rotate_secret(
    plane: Plane, caller: Caller, name: str, *, idempotency_key: str = ""
) -> tuple[SubscriptionView, str]:
    """Make a new secret; the previous one signs beside it for a day.

    The same key gives the same secret for a day, unless it was rotated again since.  So a repeated
    request does not replace the secret that receivers still know.
    """
    require(caller, Role.OPERATOR)
    who = caller.tenant, caller.principal
    idempotent = request_under_key(*who, "rotate", idempotency_key, name, has_secret=True)
    now = plane.store.now()
    if earlier := await idempotent.find_named_id(plane, now):
        return await _repeat_answer(plane, caller, earlier, idempotent)
    row = await get_subscription_row(plane, caller, name)
    if row.secret is None:
        raise Invalid("only a webhook subscription has a secret")
    secret = plane.entropy.secret()
    audit_row = audit_line(caller, "subscription.rotate", target=name, now=now)
    guard = subscription_rows.subscription_is_unchanged(row)
    write = subscription_rows.rotate_subscription_secret(
        row, _seal_secret(plane, name, secret), before_until=now + OVERLAP_SECONDS, now=now
    )
    view = (await _view(plane, row))._replace(updated_at=now)
    key = _key_rows(plane, idempotent, row.revision + 1, view, secret_text(secret), now=now)
    if await plane.store.commit(Change("", (guard,), (write, *key, audit_row))) is not None:
        # Another request has changed the subscription first, or the same request was repeated.
        return await rotate_secret(plane, caller, name, idempotency_key=idempotency_key)
    plane.subscription_changes.notify()
    return await get_subscription(plane, caller, name), secret_text(secret)


async def delete_subscription(
    plane: Plane, caller: Caller, name: str, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> SubscriptionView:
    """Delete a subscription with its dead letters; operations no longer wait for it."""
    require(caller, Role.OPERATOR)
    row = await get_subscription_row(plane, caller, name)
    view = await _view(plane, row)
    await remove(plane, caller, row, idempotency=idempotency, view=view)
    return view


async def remove(
    plane: Plane,
    caller: Caller,
    row: SubscriptionRecord,
    *,
    guards: tuple[Is, ...] = (),
    idempotency: IdempotentRequest = WITHOUT_KEY,
    view: SubscriptionView | None = None,
) -> bool:
    """Remove a subscription with its cursor, dead letters and edges; may be repeated.

    False if a guard refused: then it still exists.  `view` is the answer to a request with an
    idempotency key.
    """
    name, now = row.id, plane.store.now()
    audit_row = audit_line(caller, "subscription.delete", target=name, now=now, name=row.name)
    exists = subscription_rows.subscription_exists(row)
    drops = [subscription_rows.drop_subscription(row), delivery_rows.drop_cursor(name)]
    owners = await ownership.edges_to(plane, name, EdgeKind.WEBHOOK)
    drops += [edge_rows.drop_edge(one) for one in owners]
    change = Change("", (exists, *guards), (*drops, audit_row))
    refused = await idempotency.commit(plane, change, view)
    if refused is not None and refused.what.table != "subscription":
        return False
    plane.subscription_changes.notify()
    await drop_letters(plane, name)
    # No new operation waits for it now.  If the process dies here, a reconciler closes the waits.
    await acknowledgements.release(plane, caller, name)
    return True


async def has_received_all(plane: Plane, subscription: SubscriptionRecord) -> bool:
    """Whether it has received all its events; always true for a pull subscription."""
    cursor = await plane.store.find(CursorRecord, (subscription.id,))
    if cursor is None:
        return True
    if await plane.store.count_rows(ParkedRecord, {"destination": subscription.id}):
        return False
    event_filter = acknowledgements.filter_of(subscription)
    rows = await plane.feed.after(cursor.position, limit=PAGE_MAX)
    return len(rows) < PAGE_MAX and not any(event_filter.has(row) for row in rows)


async def may_be_removed(
    plane: Plane, subscription: SubscriptionRecord, agent: AgentRecord | None
) -> bool:
    """Whether a subscription to a deleted agent may be removed.

    It may be removed when it has received all its events, or LAST_EVENT_SECONDS after the deletion.
    """
    since = (agent.updated_at or 0.0) if agent else 0.0
    return plane.store.now() > since + LAST_EVENT_SECONDS or await has_received_all(
        plane, subscription
    )


async def drop_letters(plane: Plane, destination: str, *, guards: tuple[Is, ...] = ()) -> bool:
    """Drop the dead letters of a destination that is gone; False if a guard refused.

    The streams are dropped last: after a crash a reconciler finds the remaining letters by them.
    """
    store, columns, limit = (
        plane.store,
        {"destination": destination},
        delivery_rows.LETTERS_PER_COMMIT,
    )
    while letters := await store.list_rows(LetterRecord, columns, limit=limit):
        drops = tuple(delivery_rows.drop_letter(letter) for letter in letters)
        if await store.commit(Change("", guards, drops)) is not None:
            return False
    while streams := await store.list_rows(ParkedRecord, columns, limit=limit):
        drops = tuple(delivery_rows.drop_stream(stream) for stream in streams)
        if await store.commit(Change("", guards, drops)) is not None:
            return False
    return True


def secrets_of(plane: Plane, row: SubscriptionRecord) -> tuple[bytes, ...]:
    """The keys with which a subscription's deliveries are signed now, the newest first.

    The previous secret may be sealed with a key that is lost: then only the newest signs.
    """
    if row.secret is None:
        return ()
    name, seal = row.id, plane.require_seal(NO_SEAL)
    try:
        newest = seal.decrypt(row.secret, label=_label(name))
    except Invalid as error:
        raise Invalid(f"{error}; make a new secret: tenure subscription rotate {name}") from None
    if row.before_until is None or row.before_until <= plane.store.now():
        return (newest,)
    try:
        return newest, seal.decrypt(str(row.secret_before), label=_label(name))
    except Invalid:
        return (newest,)


def secret_text(secret: bytes) -> str:
    """A secret in the form of the Standard Webhooks."""
    return SECRET_PREFIX + b64encode(secret).decode()


async def _check_request(plane: Plane, caller: Caller, request: SubscriptionRequest) -> str:
    """Check a request, and return the uid of its agent or ""; Invalid if a field is wrong."""
    if not NAME.fullmatch(request.name):
        raise Invalid("name: a lower-case letter, then such letters, digits and -; 63 at most")
    match request.kind:
        case SubscriptionKind.WEBHOOK:
            target_of(request.target, loopback=plane.allow_local_webhooks)
        case SubscriptionKind.NATS:
            if not SUBJECT.fullmatch(request.target):
                raise Invalid("target: a subject is words of letters, digits, _ and -, with dots")
        case SubscriptionKind.PULL:
            if request.target:
                raise Invalid("target: a pull subscription has no target: it reads /v1/events")
    event_filter, ends = EventFilter(types=parse_types(request.types)), WAITED_FOR.values()
    if request.required and not any(event_filter.has_type(event) for event in ends):
        raise Invalid(
            f"required: its types include neither {' nor '.join(ends)}, so no operation would wait"
            " for it"
        )
    if not request.agent:
        return ""
    return (await get_agent_row(plane, caller, request.agent)).uid


def _seal_secret(plane: Plane, name: str, secret: bytes) -> str:
    return plane.require_seal(NO_SEAL).encrypt(secret, label=_label(name))


def _label(name: str) -> str:
    return f"subscription/{name}"


async def _view(plane: Plane, row: SubscriptionRecord) -> SubscriptionView:
    cursor = await plane.store.find(CursorRecord, (row.id,))
    parked = await plane.store.count_rows(ParkedRecord, {"destination": row.id})
    return SubscriptionView(
        row.id,
        row.name,
        SubscriptionKind(row.kind),
        row.target,
        row.agent,
        tuple(cast("Sequence[str]", decode(row.types))),
        bool(row.required),
        row.principal,
        row.created_at,
        row.updated_at,
        position=None if cursor is None else cursor.position,
        failing_since=None if cursor is None else cursor.since,
        next_try=None if cursor is None or cursor.since is None else cursor.due_at,
        why="" if cursor is None else cursor.why,
        parked=parked,
        missed=0 if cursor is None else cursor.missed,
    )
