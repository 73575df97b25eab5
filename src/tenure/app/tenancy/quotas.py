"""Quotas: how many things of a kind a tenant may have.

Each thing has a row, which is put in the commit that accepts the thing and dropped in the one that
ends it.  The rows are counted; there is no counter that could go wrong.  If two requests take the
last place at the same time, the guard on the quota's revision refuses one of them.
"""

from typing import NamedTuple

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.tenancy import quota_rows
from tenure.app.tenancy.audit import audit_line
from tenure.app.tenancy.quota_rows import AGENTS
from tenure.core.errors import Conflict, ConflictCode, Invalid
from tenure.core.records import QuotaRecord, ReservationRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, ChangePart


class QuotaView(NamedTuple):
    """A quota for callers; `most` is None if there is no limit."""

    kind: str
    most: int | None
    used: int


async def reserve(
    plane: Plane, tenant: str, *, agent: str, operation: str, now: float
) -> ChangePart:
    """Reserve one more agent for this tenant; Conflict `quota_exceeded` if its quota is used up."""
    put = quota_rows.put_reservation(tenant, AGENTS, agent, operation=operation, now=now)
    quota = await plane.store.find(QuotaRecord, (tenant, AGENTS))
    if quota is None:
        return ChangePart((), (put,))
    used = await plane.store.count_rows(ReservationRecord, {"tenant": tenant, "kind": AGENTS})
    if used >= quota.most:
        message = (
            f"the tenant has {used} of {quota.most} agents; delete one, or have the quota raised"
        )
        raise Conflict(message, code=ConflictCode.QUOTA_EXCEEDED, holder=AGENTS)
    use = quota_rows.use_quota(quota)
    return ChangePart(use.guards, (put, *use.writes))


async def get_quota(plane: Plane, caller: Caller) -> QuotaView:
    """How many agents the caller's tenant may have, and has."""
    quota = await plane.store.find(QuotaRecord, (caller.tenant, AGENTS))
    used = await plane.store.count_rows(
        ReservationRecord, {"tenant": caller.tenant, "kind": AGENTS}
    )
    return QuotaView(AGENTS, None if quota is None else quota.most, used)


async def set_quota(
    plane: Plane, caller: Caller, *, most: int, idempotency: IdempotentRequest = WITHOUT_KEY
) -> QuotaView:
    """Set how many agents the tenant may have; agents beyond a smaller quota stay."""
    require(caller, Role.ADMIN)
    if most < 0:
        raise Invalid("most: a quota is 0 or more")
    key = (caller.tenant, AGENTS)
    while True:
        now = plane.store.now()
        audit_row = audit_line(caller, "quota.set", target=AGENTS, now=now, most=most)
        quota = await plane.store.find(QuotaRecord, key)
        part = (
            ChangePart((), (quota_rows.put_quota(caller.tenant, AGENTS, most),))
            if quota is None
            else quota_rows.change_quota(quota, most=most)
        )
        change = Change("", part.guards, (*part.writes, audit_row))
        view = (await get_quota(plane, caller))._replace(most=most)
        if await idempotency.commit(plane, change, view) is None:
            return view
