"""Findings: discrepancies that reconcilers have seen, one row for each until it is resolved.

A reconciler reports its sightings in every pass.  After a complete pass it resolves those of its
findings that it has not seen again.  An operator may resolve a finding too; if the discrepancy
remains, the next pass opens it again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from tenure.app.operations.handle import decode, encode
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import list_all, page_of
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import audit_line
from tenure.core.errors import Conflict, ConflictCode, NotFound
from tenure.core.finding import FindingKind, finding_id
from tenure.core.limits import PAGE_MAX
from tenure.core.records import FindingRecord, columns_of
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Drop, Is, Put, Row, Set, Writes


class Sighting(NamedTuple):
    """A discrepancy that a reconciler has seen in one pass."""

    reconciler: str
    kind: FindingKind
    finding_key: str
    """Tells the findings of this reconciler apart: the same key is the same finding."""
    tenant: str
    agent: str
    """The agent's uid; empty if it is unknown."""
    resource: str
    """The key of the resource at its provider; empty if the finding is about none."""
    details: Mapping[str, object]
    """The stored body: a sentence for people under `what`, and further fields."""


class FindingView(NamedTuple):
    """A finding as callers see it."""

    id: str
    reconciler: str
    kind: FindingKind
    agent: str
    resource: str
    first_seen: float
    last_seen: float
    sightings: int
    resolved_at: float | None
    resolved_by: str
    body: Any


async def report(
    plane: Plane, sighting: Sighting, *, guards: tuple[Is, ...] = (), writes: Writes = ()
) -> FindingRecord | None:
    """Write a sighting together with `writes`; return the finding after it.

    None if one of the guards does not hold: then nothing was written.
    """
    key = (finding_id(sighting.reconciler, sighting.finding_key),)
    while True:
        row = await plane.store.find(FindingRecord, key)
        now = plane.store.now()
        finding = _seen_again(sighting, row, now)
        guard: tuple[Is, ...] = ()
        write: Put | Set = put_finding(finding)
        if row is not None:
            unchanged: Row = {"sightings": row.sightings, "resolved_at": row.resolved_at}
            guard = (Is("finding", key, unchanged),)
            write = Set("finding", key, columns_of(finding))
        refused = await plane.store.commit(Change("", (*guards, *guard), (write, *writes)))
        if refused is None:
            return finding
        if refused.what.table != "finding":
            return None


def _seen_again(sighting: Sighting, row: FindingRecord | None, now: float) -> FindingRecord:
    """The finding after one more sighting; a resolved finding starts again with one sighting."""
    before = None if row is None or row.resolved_at is not None else row
    return FindingRecord(
        id=finding_id(sighting.reconciler, sighting.finding_key),
        tenant=sighting.tenant,
        reconciler=sighting.reconciler,
        kind=sighting.kind,
        agent=sighting.agent,
        resource=sighting.resource,
        first_seen=now if before is None else before.first_seen,
        last_seen=now,
        sightings=1 if before is None else before.sightings + 1,
        resolved_at=None,
        resolved_by=None,
        body=encode(dict(sighting.details)),
    )


def abandoned_key(operation: str) -> str:
    """The key of the finding about an abandoned operation."""
    return f"abandoned {operation}"


def abandoned_finding(
    tenant: str, agent: str, operation: str, *, kind: str, by: str, now: float
) -> Put:
    """The finding about an abandoned operation, to be committed with its end."""
    advice = "delete the agent to remove its resources"
    what = f"operation {operation} ({kind}) was abandoned by {by}; {advice}"
    sighting = Sighting(
        "operations",
        FindingKind.CONFIRMED,
        abandoned_key(operation),
        tenant,
        agent,
        "",
        {"what": what, "abandoned": True, "operation": operation},
    )
    return put_finding(_seen_again(sighting, None, now))


def put_finding(row: FindingRecord) -> Put:
    """The first sighting of a discrepancy."""
    return Put.of(row)


def drop_finding(row: FindingRecord) -> Drop:
    """The finding is resolved, and its time is over."""
    return Drop("finding", (row.id,))


def finding_is_resolved(row: FindingRecord) -> Is:
    """Guard: the finding has not been opened again since it was resolved."""
    return Is("finding", (row.id,), {"resolved_at": row.resolved_at})


async def find(plane: Plane, reconciler: str, finding_key: str) -> FindingRecord | None:
    """The open finding of this key; None if there is none."""
    row = await plane.store.find(FindingRecord, (finding_id(reconciler, finding_key),))
    return None if row is None or row.resolved_at is not None else row


def body_of(row: FindingRecord) -> dict[str, Any]:
    """The body of a finding, decoded."""
    return cast("dict[str, Any]", decode(row.body))


async def list_open(plane: Plane, reconciler: str) -> list[FindingRecord]:
    """All open findings of one reconciler, of every tenant."""
    columns: Row = {"reconciler": reconciler, "resolved_at": None}
    return await list_all(plane.store, FindingRecord, columns)


async def resolve(
    plane: Plane, row: FindingRecord, *, by: str, guards: tuple[Is, ...] = ()
) -> bool:
    """Resolve a finding; False if it was seen again meanwhile, or a guard does not hold."""
    key = (row.id,)
    guard = Is("finding", key, {"sightings": row.sightings, "resolved_at": None})
    resolution: Row = {"resolved_at": plane.store.now(), "resolved_by": by}
    change = Change("", (*guards, guard), (Set("finding", key, resolution),))
    return await plane.store.commit(change) is None


# --- requests of callers --------------------------------------------------------------------------


async def list_findings(
    plane: Plane,
    caller: Caller,
    *,
    resolved: bool = False,
    reconciler: str = "",
    after: str = "",
    limit: int = 100,
) -> list[FindingView]:
    """Findings of the caller's tenant by id; with `resolved` also those that are resolved."""
    limit = page_of(limit)
    found: list[FindingView] = []
    last = after
    while len(found) < limit:
        page = await plane.store.list_rows(
            FindingRecord, {"tenant": caller.tenant}, after=(last,), limit=PAGE_MAX
        )
        for row in page:
            last = row.id
            if (resolved or row.resolved_at is None) and reconciler in {"", row.reconciler}:
                found.append(view(row))
                if len(found) == limit:
                    break
        if len(page) < PAGE_MAX:
            break
    return found


async def get_finding(plane: Plane, caller: Caller, name: str) -> FindingView:
    """One finding; NotFound if this tenant has none of that id."""
    return view(await get_finding_row(plane, caller, name))


async def resolve_finding(
    plane: Plane, caller: Caller, name: str, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> FindingView:
    """Resolve a finding for an operator; if it still holds, the next pass opens it again."""
    require(caller, Role.OPERATOR)
    while True:
        row = await get_finding_row(plane, caller, name)
        if row.resolved_at is not None:
            by = row.resolved_by
            message = f"finding {name} was resolved by {by!s} already"
            raise Conflict(message, code=ConflictCode.RESOLVED, holder=name)
        now = plane.store.now()
        audit_row = audit_line(caller, "finding.resolve", target=name, now=now, kind=row.kind)
        guard = Is("finding", (name,), {"sightings": row.sightings, "resolved_at": None})
        resolution: Row = {"resolved_at": now, "resolved_by": caller.principal}
        change = Change("", (guard,), (Set("finding", (name,), resolution), audit_row))
        resolved_view = view(row._replace(resolved_at=now, resolved_by=caller.principal))
        if await idempotency.commit(plane, change, resolved_view) is None:
            return resolved_view


async def count_open(plane: Plane, tenant: str) -> Mapping[str, int]:
    """How many open findings of a tenant there are of each kind."""
    return {
        kind: await plane.store.count_rows(
            FindingRecord, {"tenant": tenant, "kind": kind, "resolved_at": None}
        )
        for kind in FindingKind
    }


async def get_finding_row(plane: Plane, caller: Caller, name: str) -> FindingRecord:
    """The row of one finding; NotFound if this tenant has none of that id."""
    row = await plane.store.find(FindingRecord, (name,))
    if row is None or row.tenant != caller.tenant:
        raise NotFound(f"there is no finding {name}")
    return row


def view(row: FindingRecord) -> FindingView:
    """The finding as callers see it."""
    return FindingView(
        row.id,
        row.reconciler,
        FindingKind(row.kind),
        row.agent,
        row.resource,
        row.first_seen,
        row.last_seen,
        row.sightings,
        row.resolved_at,
        str(row.resolved_by or ""),
        body_of(row),
    )
