"""The results of reconcile passes in this process, and the request to run a pass now."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.safety.findings import Sighting
from tenure.app.tenancy.audit import audit_line
from tenure.app.tenancy.tokens import require_plane_admin
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.roles import Caller
from tenure.ports.store import Change


class PassReport(NamedTuple):
    """The result of one pass of a reconciler."""

    reconciler: str
    sentence: str
    seen: int = 0
    fixed: int = 0
    sightings: Sequence[Sighting] = ()
    """The sightings of the pass; a dry run has them too, but does not write them."""
    error: str = ""
    """Why the pass failed; empty if it succeeded."""


RunNow = Callable[[str, bool], Awaitable[Sequence[PassReport]]]
"""Runs the reconciler of this name now, or all of them; the flag asks for a dry run."""


async def run_reconcilers(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    dry_run: bool,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> Sequence[PassReport]:
    """Run reconcilers now; Conflict `not_leading` if none run here or another process leads."""
    require_plane_admin(caller)
    run_now = plane.reconcile_state.run_now
    if run_now is None:
        message = "no reconciler runs in this process; send the request to the process that leads"
        raise Conflict(message, code=ConflictCode.NOT_LEADING)
    if not dry_run:
        audit_row = audit_line(caller, "reconcile", target=name or "all", now=plane.store.now())
        await idempotency.begin(plane, Change("", (), (audit_row,)))
    reports: Sequence[PassReport] = await run_now(name, dry_run)
    return reports
