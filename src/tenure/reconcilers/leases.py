"""No lease outlives its holder.

A worker that is gone leaves its row behind.  Its operations are claimed as soon as its lease
lapses; this reconciler only drops the row, some minutes later.  The row of a leader's lease stays,
as its token may only grow.
"""

from tenure.app.leader import PREFIX
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.records import LeaseRecord
from tenure.ports import lease_rows
from tenure.ports.store import Change
from tenure.reconcilers.passes import ABOUT_PLANE, Pass, Tick

SENTENCE = "No lease outlives its holder."
NAME = "leases"
RETENTION_SECONDS = 300.0
"""How long the row of a lapsed lease stays, for operators who want to read it."""


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Drop the rows of leases that lapsed some minutes ago."""
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    before = plane.store.now() - RETENTION_SECONDS
    async for row in every(plane.store, LeaseRecord):
        seen += 1
        if row.name.startswith(PREFIX) or row.until >= before:
            continue
        effect = ""
        if not this_pass.read_only and fixed < limit:
            guard = lease_rows.lease_has_lapsed(row, before)
            change = Change("", (guard,), (lease_rows.drop_lease(row.name),))
            if await plane.store.commit(change) is not None:
                continue  # it was renewed meanwhile
            fixed, effect = fixed + 1, "; it was dropped"
        what = f"lease {row.name} lapsed at {in_utc(row.until)}: its holder is gone{effect}"
        await this_pass.report(FindingKind.CONFIRMED, row.name, what, about=ABOUT_PLANE)
    await this_pass.resolve_unseen()
    return Tick(seen, fixed)
