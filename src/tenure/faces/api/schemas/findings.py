"""Findings of reconcilers on the wire."""

from typing import Annotated, Any

from msgspec import Meta

from tenure.core.finding import FindingKind
from tenure.faces.api.schemas.forms import Cursor, Id, Instant, Limit, RequestFields, ResponseBody

Reconciler = Annotated[str, Meta(pattern=r"^[a-z]{0,20}$(?!\n)")]


class Finding(ResponseBody, frozen=True):
    """Something a reconciler has seen."""

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
    """Which findings."""

    reconciler: Annotated[Reconciler, Meta(description="Only of this reconciler.")] = ""
    resolved: Annotated[bool, Meta(description="Also what is resolved.")] = False
    after: Cursor = ""
    limit: Limit = 100


class Reconcile(RequestFields, frozen=True):
    """Which reconciler is to look now, and whether it may do anything about what it sees."""

    name: Annotated[Reconciler, Meta(description="Empty: every one of them.")] = ""
    dry_run: Annotated[bool, Meta(description="Look and say; change nothing.")] = False


class OfTenant(RequestFields, frozen=True):
    """Whose resource it is."""

    tenant: Annotated[str, Meta(max_length=63, description="Empty: the caller's own.")] = ""


class PassFinding(ResponseBody, frozen=True):
    """What is a finding now; of a dry run what would be one."""

    kind: FindingKind
    agent: str
    resource: str
    body: Any


class ReconcilePass(ResponseBody, frozen=True):
    """What one look came to."""

    reconciler: str
    sentence: str
    seen: int
    fixed: int
    findings: list[PassFinding]
    error: str


class ReconcilePasses(ResponseBody, frozen=True):
    """What every look came to."""

    items: list[ReconcilePass]
