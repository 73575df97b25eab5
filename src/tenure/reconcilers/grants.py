"""No grant outlives its granter.

Whatever an agent owned or granted is an edge.  Its deletion takes them away; an edge whose owner is
deleted all the same, since that was lost on the way, is taken away here, with what it stands for.
"""

from tenure.app.agents import cascade
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import ProviderError
from tenure.core.finding import FindingKind
from tenure.core.limits import PAGE_MAX
from tenure.ports.store import Row
from tenure.reconcilers.circuit_breaker import Silence
from tenure.reconcilers.term import FindingSubject, Term, Tick

SENTENCE = "No grant outlives its granter."
NAME = "grants"


async def tick(plane: Plane, *, limit: int = 500, term: Term | None = None) -> Tick:
    """Look at every edge, owner by owner, as far as one look goes."""
    term = term or Term(plane, NAME)
    seen = fixed = 0
    cursor = plane.reconciled.cursors.get(NAME, "  ")
    owner, kind, target = cursor.split(" ", 2)
    began_at_the_start = not owner
    known: dict[str, bool] = {}
    silence = Silence(plane, NAME)
    put_off: list[Row] = []
    while fixed < limit:
        rows = await plane.store.list_rows("edge", {}, after=(owner, kind, target), limit=PAGE_MAX)
        for row in rows:
            owner, kind, target = str(row["owner"]), str(row["kind"]), str(row["target"])
            seen += 1
            if owner not in known:
                agent = await plane.store.find("agent", (owner,))
                known[owner] = agent is not None and agent["state"] != AgentState.DELETED
            if known[owner]:
                continue
            if silence.turn(_subject(row)):
                put_off.append(row)
            else:
                fixed += await _take_away(plane, term, row, silence)
        if len(rows) < PAGE_MAX:
            owner = ""
            break
        if seen >= limit * PAGE_MAX:
            break
    for row in sorted(put_off, key=lambda one: silence.turn(_subject(one))):
        fixed += await _take_away(plane, term, row, silence)
    plane.reconciled.cursors[NAME] = f"{owner} {kind} {target}" if owner else "  "
    await _settle(plane, term, whole=began_at_the_start and not owner and silence.whole)
    return Tick(seen, fixed)


async def _settle(plane: Plane, term: Term, *, whole: bool) -> None:
    """What a whole look has not told again is over, and so is what is about an edge that is gone.

    What may not go yet is told by nobody: it waits, as its owner's deletion would.
    """
    for row in await findings.list_open(plane, term.reconciler):
        edge = (row.agent, str(findings.body_of(row).get("edge", "")), row.resource)
        if whole or await plane.store.find("edge", edge) is None:
            await term.settle(row)


def _subject(row: Row) -> str:
    return f"{row['owner']!s} {row['kind']!s} {row['target']!s}"


async def _take_away(plane: Plane, term: Term, row: Row, silence: Silence) -> int:
    """How much was taken away: this edge, or nothing yet."""
    owner, kind, target = str(row["owner"]), str(row["kind"]), str(row["target"])
    what = f"{kind} {target} is still there, and agent {owner}, who granted it, is deleted"
    about, said = FindingSubject(str(row["tenant"]), owner, target), {"edge": kind}
    subject = _subject(row)
    if term.read_only:
        await term.report(FindingKind.DRIFT, subject, what, about=about, said=said)
        return 0
    if silence.passes_over(kind, subject):
        return 0
    try:
        async with silence.asking(kind, subject):
            gone = await cascade.end_edge(plane, row, guards=term.fence())
    except (ProviderError, TimeoutError) as error:
        await term.report(
            FindingKind.UNVERIFIABLE, subject, f"{what}: {error!r}", about=about, said=said
        )
        return 0
    if gone:
        done = f"{what}; it was taken away"
        await term.report(FindingKind.CONFIRMED, subject, done, about=about, said=said)
    return int(gone)
