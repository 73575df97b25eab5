"""Routes of findings: list, show, resolve, remove; and reconcile passes on demand."""

from typing import cast

from tenure.app.safety import findings, reconcile_status, unknown_resources
from tenure.core.roles import Role
from tenure.faces.api.schemas import findings as schemas
from tenure.faces.http.route_table import HttpRequest, Route


async def list_findings(request: HttpRequest) -> schemas.Findings:
    """A page of the tenant's findings."""
    query = cast(schemas.ListFindings, request.query)
    found = await findings.list_findings(
        request.plane,
        request.caller,
        resolved=query.resolved,
        reconciler=query.reconciler,
        after=query.after,
        limit=query.limit,
    )
    items = [_finding(one) for one in found]
    return schemas.Findings(items=items, next=items[-1].id if len(items) == query.limit else None)


async def get_finding(request: HttpRequest) -> schemas.Finding:
    """One finding."""
    return _finding(
        await findings.get_finding(request.plane, request.caller, request.names["finding"])
    )


def _finding(view: findings.FindingView) -> schemas.Finding:
    return schemas.Finding(**view._asdict())


async def resolve_finding(request: HttpRequest) -> schemas.Finding:
    """Resolve a finding by hand."""
    return _finding(
        await findings.resolve_finding(
            request.plane,
            request.caller,
            request.names["finding"],
            idempotency=request.answered_by(_finding),
        )
    )


async def remove_resource(request: HttpRequest) -> schemas.Finding:
    """Remove the unknown resource of a finding."""
    body = cast(schemas.OfTenant, request.body)
    name = request.names["finding"]
    return _finding(
        await unknown_resources.remove_resource(
            request.plane,
            request.caller,
            name,
            tenant=body.tenant,
            idempotency=request.idempotency,
        )
    )


async def reconcile(request: HttpRequest) -> schemas.ReconcilePasses:
    """Run reconcile passes now."""
    body = cast(schemas.Reconcile, request.body)
    reports = await reconcile_status.run_reconcilers(
        request.plane,
        request.caller,
        body.name,
        dry_run=body.dry_run,
        idempotency=request.idempotency,
    )
    return schemas.ReconcilePasses(
        items=[
            schemas.ReconcilePass(
                reconciler=report.reconciler,
                sentence=report.sentence,
                seen=report.seen,
                fixed=report.fixed,
                error=report.error,
                findings=[
                    schemas.PassFinding(
                        kind=one.kind,
                        agent=one.agent,
                        resource=one.resource,
                        body=dict(one.details),
                    )
                    for one in report.sightings
                ],
            )
            for report in reports
        ]
    )


ROUTES = (
    Route(
        "GET", "/v1/findings", list_findings, "List findings of the reconcilers", role=Role.VIEWER,
        answer=schemas.Findings, query=schemas.ListFindings,
    ),
    Route(
        "GET", "/v1/findings/{finding}", get_finding, "Show a finding", role=Role.VIEWER,
        answer=schemas.Finding,
    ),
    Route(
        "POST", "/v1/findings/{finding}:resolve", resolve_finding,
        "Resolve a finding by hand; it comes back if its cause persists", role=Role.OPERATOR,
        answer=schemas.Finding, problems=("resolved",),
    ),
    Route(
        "POST", "/v1/findings/{finding}:remove", remove_resource,
        "Remove the resource of a finding, if no record of the plane knows it",
        role=Role.ADMIN, answer=schemas.Finding, body=schemas.OfTenant, empty_body=True,
        problems=("invalid", "resolved", "provider"),
    ),
    Route(
        "POST", "/v1/findings:reconcile", reconcile,
        "Run reconcilers now; only for admins of the tenant `default`", role=Role.ADMIN,
        answer=schemas.ReconcilePasses, body=schemas.Reconcile, empty_body=True,
        problems=("invalid", "not_leading"),
    ),
)  # fmt: skip
