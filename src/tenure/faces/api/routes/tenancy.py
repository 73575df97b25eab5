"""Routes for admins of a tenant: the audit log, the quota and the signing keys."""

from typing import cast

from tenure.app.agents import identities
from tenure.app.tenancy import audit, quotas, tokens
from tenure.core.roles import Role
from tenure.faces.api.schemas import tenancy as schemas
from tenure.faces.http.route_table import HttpRequest, Route


async def list_audit(request: HttpRequest) -> schemas.AuditEntries:
    """A page of the audit log."""
    query = cast(schemas.ListAudit, request.query)
    found = await audit.list_audit(
        request.plane, request.caller, after=int(query.after or 0), limit=query.limit
    )
    items = [schemas.AuditEntry(**entry._asdict()) for entry in found]
    return schemas.AuditEntries(
        items=items, next=str(items[-1].position) if len(items) == query.limit else None
    )


async def verify_audit(request: HttpRequest) -> schemas.AuditVerdict:
    """Verify the chain, which covers all tenants; only for admins of the tenant `default`."""
    tokens.require_plane_admin(request.caller)
    verdict = await audit.verify(request.plane, head=cast(schemas.VerifyAudit, request.query).head)
    broken = verdict.broken
    return schemas.AuditVerdict(
        entries=verdict.entries,
        head=verdict.head,
        broken=schemas.BrokenLine(**broken._asdict()) if broken else None,
    )


async def rotate_keys(request: HttpRequest) -> schemas.SigningKey:
    """Make a new signing key."""
    kid = await identities.rotate(request.plane, request.caller, idempotency=request.idempotency)
    return schemas.SigningKey(kid=kid)


async def get_quota(request: HttpRequest) -> schemas.Quota:
    """The quota of agents."""
    return _quota(await quotas.get_quota(request.plane, request.caller))


async def set_quota(request: HttpRequest) -> schemas.Quota:
    """Set the quota of agents."""
    most = cast(schemas.SetQuota, request.body).most
    view = await quotas.set_quota(
        request.plane, request.caller, most=most, idempotency=request.answered_by(_quota)
    )
    return _quota(view)


def _quota(view: quotas.QuotaView) -> schemas.Quota:
    return schemas.Quota(**view._asdict())


ROUTES = (
    Route(
        "GET", "/v1/audit", list_audit, "List the audit log, oldest first", role=Role.ADMIN,
        answer=schemas.AuditEntries, query=schemas.ListAudit,
    ),
    Route(
        "GET", "/v1/audit/verify", verify_audit, "Verify the chain of the audit log",
        role=Role.ADMIN, answer=schemas.AuditVerdict, query=schemas.VerifyAudit,
    ),
    Route(
        "POST", "/v1/keys:rotate", rotate_keys,
        "Make a new key that signs agents' tokens; older tokens stay valid",
        role=Role.ADMIN, answer=schemas.SigningKey,
        problems=("rejected", "unavailable", "outcome_unknown"),
    ),
    Route(
        "GET", "/v1/quotas/agents", get_quota, "Show the quota of agents", role=Role.VIEWER,
        answer=schemas.Quota,
    ),
    Route(
        "PUT", "/v1/quotas/agents", set_quota, "Set the quota of agents", role=Role.ADMIN,
        answer=schemas.Quota, body=schemas.SetQuota, problems=("invalid",),
    ),
)  # fmt: skip
