"""No grant outlives its granter.

Each thing that an agent owns or has granted has an edge, and the agent's deletion removes its
edges.  If an edge remains although its owner is deleted, this reconciler removes the edge and its
target.
"""

from tenure.app.agents import cascade
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import ProviderError
from tenure.core.finding import FindingKind
from tenure.core.limits import PAGE_MAX
from tenure.core.records import AgentRecord, EdgeRecord
from tenure.reconcilers.circuit_breaker import ProviderBreaker
from tenure.reconcilers.passes import FindingAbout, Pass, Tick

SENTENCE = "No grant outlives its granter."
NAME = "grants"


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Check the edges, owner by owner, as many as one pass may."""
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    cursor = plane.reconcile_state.cursors.get(NAME, "  ")
    owner, kind, target = cursor.split(" ", 2)
    started_at_first = not owner
    known: dict[str, bool] = {}
    breaker = ProviderBreaker(plane, NAME)
    deferred: list[EdgeRecord] = []
    while fixed < limit:
        rows = await plane.store.list_rows(
            EdgeRecord, {}, after=(owner, kind, target), limit=PAGE_MAX
        )
        for row in rows:
            owner, kind, target = row.owner, row.kind, row.target
            seen += 1
            if owner not in known:
                agent = await plane.store.find(AgentRecord, (owner,))
                known[owner] = agent is not None and agent.state != AgentState.DELETED
            if known[owner]:
                continue
            if breaker.order_of(_finding_key(row)):
                deferred.append(row)
            else:
                fixed += await _end_edge(plane, this_pass, row, breaker)
        if len(rows) < PAGE_MAX:
            owner = ""
            break
        if seen >= limit * PAGE_MAX:
            break
    for row in sorted(deferred, key=lambda one: breaker.order_of(_finding_key(one))):
        fixed += await _end_edge(plane, this_pass, row, breaker)
    plane.reconcile_state.cursors[NAME] = f"{owner} {kind} {target}" if owner else "  "
    await _resolve_unseen(
        plane, this_pass, is_complete=started_at_first and not owner and breaker.is_complete
    )
    return Tick(seen, fixed)


async def _resolve_unseen(plane: Plane, this_pass: Pass, *, is_complete: bool) -> None:
    """Resolve findings that a complete pass has not reported again, or whose edge is gone.

    An edge that may not end yet is not reported: it waits, as the deletion of its owner would.
    """
    for row in await findings.list_open(plane, this_pass.reconciler):
        edge = (row.agent, str(findings.body_of(row).get("edge", "")), row.resource)
        if is_complete or await plane.store.find(EdgeRecord, edge) is None:
            await this_pass.resolve(row)


def _finding_key(row: EdgeRecord) -> str:
    return f"{row.owner} {row.kind} {row.target}"


async def _end_edge(
    plane: Plane, this_pass: Pass, row: EdgeRecord, breaker: ProviderBreaker
) -> int:
    """End this edge; return 1, or 0 if it was not ended."""
    owner, kind, target = row.owner, row.kind, row.target
    what = f"{kind} {target} still exists, and agent {owner}, which granted it, is deleted"
    about, details = FindingAbout(row.tenant, owner, target), {"edge": kind}
    finding_key = _finding_key(row)
    if this_pass.read_only:
        await this_pass.report(FindingKind.DRIFT, finding_key, what, about=about, details=details)
        return 0
    if breaker.skips(kind, finding_key):
        return 0
    try:
        async with breaker.call(kind, finding_key):
            gone = await cascade.end_edge(plane, row, guards=this_pass.fence())
    except (ProviderError, TimeoutError) as error:
        await this_pass.report(
            FindingKind.UNVERIFIABLE,
            finding_key,
            f"{what}: {error!r}",
            about=about,
            details=details,
        )
        return 0
    if gone:
        what = f"{what}; it was removed"
        await this_pass.report(
            FindingKind.CONFIRMED, finding_key, what, about=about, details=details
        )
    return int(gone)
