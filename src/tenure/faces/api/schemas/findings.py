"""Findings of reconcilers on the wire."""

from typing import Annotated, Any

from msgspec import Meta

from tenure.core.finding import FindingKind
from tenure.faces.api.schemas.forms import Cursor, Id, Instant, Limit, RequestFields, ResponseBody

Reconciler = Annotated[str, Meta(pattern=r"^[a-z]{0,20}$(?!\n)")]


class Finding(ResponseBody, frozen=True):
    """A discrepancy that a reconciler has seen."""

    id: Id
    reconciler: str
    kind: FindingKind
    agent: str
    resource: str
    first_seen: Instant
    last_seen: Instant
    sightings: int
    resolved_at: Instant | None
    resolved_by: str
    body: Any


class Findings(ResponseBody, frozen=True):
    """A page of findings."""

    items: list[Finding]
    next: str | None


class ListFindings(RequestFields, frozen=True):
    """The findings to list."""

    reconciler: Annotated[Reconciler, Meta(description="Only of this reconciler.")] = ""
    resolved: Annotated[bool, Meta(description="Include resolved findings.")] = False
    after: Cursor = ""
    limit: Limit = 100


class Reconcile(RequestFields, frozen=True):
    """The reconciler to run now, and whether it may repair what it finds."""

    name: Annotated[Reconciler, Meta(description="Empty: all reconcilers.")] = ""
    dry_run: Annotated[bool, Meta(description="Only report; change nothing.")] = False


class OfTenant(RequestFields, frozen=True):
    """The tenant of the resource."""

    tenant: Annotated[str, Meta(max_length=63, description="Empty: the caller's tenant.")] = ""


class PassFinding(ResponseBody, frozen=True):
    """A finding of this pass; after a dry run, one that a real pass would record."""

    kind: FindingKind
    agent: str
    resource: str
    body: Any


class ReconcilePass(ResponseBody, frozen=True):
    """The result of one reconcile pass."""

    reconciler: str
    sentence: str
    seen: int
    fixed: int
    findings: list[PassFinding]
    error: str


class ReconcilePasses(ResponseBody, frozen=True):
    """The results of all reconcile passes."""

    items: list[ReconcilePass]
