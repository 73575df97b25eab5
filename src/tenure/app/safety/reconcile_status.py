"""What reconcilers have come to in this process, and the way to have them look now."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.safety.findings import Sighting
from tenure.app.tenancy.audit import entry
from tenure.app.tenancy.tokens import require_owner
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.roles import Caller
from tenure.ports.store import Change


class PassReport(NamedTuple):
    """What one look of a reconciler came to."""

    reconciler: str
    sentence: str
    seen: int = 0
    fixed: int = 0
    sightings: Sequence[Sighting] = ()
    """What it has reported; if it was only to look, what it would have."""
    error: str = ""
    """Why it came to nothing; empty: it did not."""


RunNow = Callable[[str, bool], Awaitable[Sequence[PassReport]]]
"""Let the reconciler of this name look now, or all of them; it may be only to look."""


async def run_reconcilers(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    dry_run: bool,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> Sequence[PassReport]:
    """Let reconcilers look now; Conflict `not_leading` if none run here, or another leads now."""
    require_owner(caller)
    run_now = plane.reconcile_state.run_now
    if run_now is None:
        message = "no reconciler runs in this process; ask the one that leads"
        raise Conflict(message, code=ConflictCode.NOT_LEADING)
    if not dry_run:
        audit_row = entry(caller, "reconcile", target=name or "all", now=plane.store.now())
        await idempotency.begin(plane, Change("", (), (audit_row,)))
    reports: Sequence[PassReport] = await run_now(name, dry_run)
    return reports
