"""Acknowledgements of required subscribers, for which a suspend or delete waits.

The commit that accepts an operation also writes a row for each subscriber that it waits for.  An
acknowledgement and the signal to its operation are one commit too.  A strict tenant can create no
agent while an acknowledgement is missing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, cast

from tenure.app.events import acknowledgement_rows as rows
from tenure.app.events.cloudevents import EventFilter
from tenure.app.events.subscription_rows import subscription_exists
from tenure.app.operations.entry_change import build_entry
from tenure.app.operations.handle import decode, load_handle
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import audit_line
from tenure.core.errors import Conflict, ConflictCode, Invalid, NotFound, PlanUnknown
from tenure.core.instant import in_utc
from tenure.core.limits import PAGE_MAX
from tenure.core.operation import EntryKind
from tenure.core.records import (
    AcknowledgementRecord,
    OperationRecord,
    SubscriptionRecord,
    TenancyRecord,
)
from tenure.core.roles import Caller, Role, require
from tenure.core.subscription import ACKNOWLEDGED
from tenure.plans.agents.lifecycle import WAITED_FOR
from tenure.ports.plane_api import MissingAcknowledgement
from tenure.ports.store import Change, ChangePart, Is, Value, WakeHint, Writes


class AcknowledgementView(NamedTuple):
    """One subscriber for whom one operation waits, or waited."""

    operation: str
    subscription: str
    name: str
    agent: str
    since: float
    acknowledged_at: float | None
    principal: str


class AcknowledgementState(StrEnum):
    """Whether an operation still waits for an acknowledgement that has not come."""

    MISSING = "its operation waits for it"
    OPERATION_ENDED = "its operation has ended"
    SUBSCRIBER_DELETED = "its subscriber was deleted"


class Strictness(NamedTuple):
    """Whether a tenant is strict, and which acknowledgements are missing."""

    strict: bool
    missing: Sequence[AcknowledgementView]


# --- with the acceptance of an operation ----------------------------------------------------------


async def rows_for_subscribers(
    plane: Plane, tenant: str, verb: str, *, agent: str, operation: str, now: float
) -> ChangePart:
    """The rows that make this operation wait for its required subscribers."""
    event = WAITED_FOR.get(verb)
    if event is None:
        return ChangePart()
    subscribers = await plane.store.list_rows(
        SubscriptionRecord, {"tenant": tenant}, limit=PAGE_MAX
    )
    required = [row for row in subscribers if _is_required(row, agent, event)]
    if not required:
        return ChangePart()
    puts = tuple(
        rows.put_acknowledgement(operation, row.id, tenant=tenant, agent=agent, now=now)
        for row in required
    )
    # Guards: a subscriber that was deleted meanwhile is not waited for.
    there = tuple(subscription_exists(row) for row in required)
    # A create that has read the tenancy before this commit cannot commit after it.
    tenancy = await plane.store.find(TenancyRecord, (tenant,))
    if tenancy is None:
        return ChangePart(there, puts)
    guards = (*there, rows.tenancy_is_unchanged(tenancy))
    return ChangePart(guards, (*puts, rows.raise_revision(tenancy)))


def _is_required(subscriber: SubscriptionRecord, agent: str, event: str) -> bool:
    """Whether an operation that begins with this event of this agent waits for the subscriber."""
    if not subscriber.required or subscriber.agent not in {"", agent}:
        return False
    return filter_of(subscriber).has_type(event)


async def require_acknowledgements(plane: Plane, tenant: str) -> ChangePart:
    """The guard of a create; Conflict if the tenant is strict and an acknowledgement is missing."""
    tenancy = await plane.store.find(TenancyRecord, (tenant,))
    if tenancy is None or not tenancy.strict:
        return ChangePart()
    missing = await _missing(plane, tenant)
    if missing:
        first = missing[0]
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = (
            f"no agent can be created before subscriber {first.name} has acknowledged operation"
            f" {first.operation}, which has waited since {in_utc(first.since)}{others}"
        )
        raise Conflict(message, code=ConflictCode.AWAITS_ACKNOWLEDGEMENT, holder=first.operation)
    return ChangePart((rows.tenancy_is_unchanged(tenancy),))


def filter_of(subscription: SubscriptionRecord) -> EventFilter:
    """The filter of a subscription's events."""
    types = cast("list[str]", decode(subscription.types))
    return EventFilter(subscription.agent, tuple(types))


# --- reads of the waiting step --------------------------------------------------------------------


async def missing_of(plane: Plane, operation: str) -> list[MissingAcknowledgement]:
    """Subscribers that have not acknowledged this operation yet; deleted ones do not count."""
    known = await plane.store.list_rows(
        AcknowledgementRecord, {"operation": operation}, limit=PAGE_MAX
    )
    missing = [row for row in known if row.acknowledged_at is None]
    found = [await _view(plane, row) for row in missing if await _subscriber_exists(plane, row)]
    return [MissingAcknowledgement(one.name, one.since) for one in found]


# --- acknowledging --------------------------------------------------------------------------------


async def acknowledge(
    plane: Plane,
    caller: Caller,
    subscription: str,
    *,
    operation: str,
    why: str | None = None,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> AcknowledgementView:
    """Record that a subscriber has done its part; with `why` an operator acknowledges in its place.

    A second acknowledgement succeeds and keeps the first time.  The
    acknowledgement of a deleted subscriber can be recorded too.  Invalid if `why` is blank.
    """
    require(caller, Role.OPERATOR)
    if why is not None and not why.strip():
        raise Invalid("override: the reason is empty; leave it out if the subscriber acknowledges")
    row = await plane.store.find(AcknowledgementRecord, (operation, subscription))
    if row is None or row.tenant != caller.tenant:
        known = await plane.store.find(SubscriptionRecord, (subscription,))
        if known is None or known.tenant != caller.tenant:
            raise NotFound(f"there is no subscription {subscription}")
        raise NotFound(f"operation {operation} does not wait for subscription {subscription}")
    action = "subscription.acknowledge" if why is None else "subscription.override"
    details = {} if why is None else {"why": why}
    await _record_acknowledgement(
        plane, caller, row, action=action, details=details, idempotency=idempotency
    )
    found = await plane.store.find(AcknowledgementRecord, (operation, subscription))
    return await _view(plane, found or row)


async def release(plane: Plane, caller: Caller, subscription: str) -> None:
    """Close the missing acknowledgements of a subscriber that was deleted."""
    for row in await _missing_rows(plane, caller.tenant):
        if row.subscription == subscription:
            await close_acknowledgement(plane, caller, row, AcknowledgementState.SUBSCRIBER_DELETED)


async def _record_acknowledgement(
    plane: Plane,
    caller: Caller,
    row: AcknowledgementRecord,
    *,
    action: str,
    details: dict[str, str],
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> None:
    """Record an acknowledgement and signal its operation in one commit; retry on a conflict."""
    operation, subscription = row.operation, row.subscription
    while True:
        now = plane.store.now()
        acknowledged = row._replace(acknowledged_at=now, principal=caller.principal)
        audit_row = audit_line(
            caller, action, target=subscription, now=now, operation=operation, **details
        )
        guards: tuple[Is, ...] = (rows.is_missing(row),)
        writes: Writes = (rows.set_acknowledged(acknowledged), audit_row)
        handle = await load_handle(plane.store, plane.catalogue, plane.id, operation)
        if handle is not None and handle.progress.end is None:
            body = {"signal": ACKNOWLEDGED, "payload": subscription, "by": caller.principal}
            change = build_entry(
                handle, EntryKind.SIGNALLED, "", body, now
            ).change.expand_prepared()
            guards += change.guards
            writes += change.writes
        change = Change("", guards, writes, wake_hint=WakeHint(operation))
        view = await _view(plane, acknowledged)
        refused = await idempotency.commit(plane, change, view)
        if refused is None:
            plane.engine.wake(operation)
            return
        if refused.what.table == "awaited":
            return  # it is acknowledged already


async def list_acknowledgements(
    plane: Plane, caller: Caller, subscription: str
) -> list[AcknowledgementView]:
    """The missing acknowledgements of a subscriber, oldest first; then some of its earlier ones."""
    require(caller, Role.VIEWER)
    known = await plane.store.find(SubscriptionRecord, (subscription,))
    if known is None or known.tenant != caller.tenant:
        raise NotFound(f"there is no subscription {subscription}")
    columns: dict[str, Value] = {"tenant": caller.tenant, "subscription": subscription}
    some = await plane.store.list_rows(AcknowledgementRecord, columns, limit=PAGE_MAX)
    still_open: dict[str, Value] = {**columns, "acknowledged_at": None}
    missing = [row async for row in every(plane.store, AcknowledgementRecord, still_open)]
    by_operation = {row.operation: row for row in (*some, *missing)}
    found = [await _view(plane, row) for row in by_operation.values()]
    return sorted(found, key=lambda one: (one.acknowledged_at is not None, one.since))


# --- strict tenants -------------------------------------------------------------------------------


async def get_strictness(plane: Plane, caller: Caller) -> Strictness:
    """Whether the tenant is strict, and whose acknowledgements are missing."""
    tenancy = await plane.store.find(TenancyRecord, (caller.tenant,))
    strict = tenancy is not None and bool(tenancy.strict)
    return Strictness(strict, await _missing(plane, caller.tenant))


async def set_strictness(
    plane: Plane, caller: Caller, *, strict: bool, idempotency: IdempotentRequest = WITHOUT_KEY
) -> Strictness:
    """Set whether creates are refused while an acknowledgement is missing."""
    require(caller, Role.ADMIN)
    while True:
        audit_row = audit_line(
            caller, "tenant.strict", target=caller.tenant, now=plane.store.now(), strict=strict
        )
        tenancy = await plane.store.find(TenancyRecord, (caller.tenant,))
        if tenancy is None:
            first = rows.put_tenancy(caller.tenant, strict=strict)
            change = Change("", (), (first, audit_row))
        else:
            write = rows.set_tenancy(tenancy, strict=strict)
            change = Change("", (rows.tenancy_is_unchanged(tenancy),), (write, audit_row))
        view = Strictness(strict, await _missing(plane, caller.tenant))
        if await idempotency.commit(plane, change, view) is None:
            return view


async def _missing(plane: Plane, tenant: str) -> list[AcknowledgementView]:
    """The acknowledgements that open operations of a tenant wait for."""
    return [
        await _view(plane, row)
        for row in await _missing_rows(plane, tenant)
        if await state_of(plane, row) is AcknowledgementState.MISSING
    ]


async def state_of(plane: Plane, row: AcknowledgementRecord) -> AcknowledgementState:
    """Whether an operation still waits for a subscriber."""
    operation = await plane.store.find(OperationRecord, (row.operation,))
    if operation is None or operation.ended_at is not None:
        return AcknowledgementState.OPERATION_ENDED
    return (
        AcknowledgementState.MISSING
        if await _subscriber_exists(plane, row)
        else AcknowledgementState.SUBSCRIBER_DELETED
    )


async def close_acknowledgement(
    plane: Plane, caller: Caller, row: AcknowledgementRecord, state: AcknowledgementState
) -> bool:
    """Close an acknowledgement whose operation has ended or whose subscriber was deleted.

    It may be repeated.

    False if it still waits, or if only a newer release can signal its operation: a leader of that
    release closes it.
    """
    if state is AcknowledgementState.OPERATION_ENDED:
        await plane.store.commit(Change("", (), (rows.drop_acknowledgement(row),)))
    elif state is AcknowledgementState.SUBSCRIBER_DELETED:
        try:
            await _record_acknowledgement(
                plane, caller, row, action="subscription.release", details={}
            )
        except PlanUnknown:
            return False
    return state is not AcknowledgementState.MISSING


async def _subscriber_exists(plane: Plane, row: AcknowledgementRecord) -> bool:
    """Whether the subscriber still exists."""
    return await plane.store.find(SubscriptionRecord, (row.subscription,)) is not None


async def _missing_rows(plane: Plane, tenant: str) -> Sequence[AcknowledgementRecord]:
    columns: dict[str, Value] = {"tenant": tenant, "acknowledged_at": None}
    return [row async for row in every(plane.store, AcknowledgementRecord, columns)]


async def close_stale(plane: Plane, caller: Caller) -> int:
    """Close the acknowledgements of a tenant that nobody waits for; return their number."""
    closed = 0
    for row in await _missing_rows(plane, caller.tenant):
        closed += await close_acknowledgement(plane, caller, row, await state_of(plane, row))
    return closed


async def _view(plane: Plane, row: AcknowledgementRecord) -> AcknowledgementView:
    known = await plane.store.find(SubscriptionRecord, (row.subscription,))
    return AcknowledgementView(
        row.operation, row.subscription, row.subscription if known is None else known.name,
        row.agent, row.since, row.acknowledged_at, row.principal or "",
    )  # fmt: skip
