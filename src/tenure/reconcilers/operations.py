"""Every open operation moves, waits or is reported.

What is stuck needs a person and is told as long as it is so.  An operation whose time came long ago
and that nobody has moved since is told too, and woken.  What an operator abandoned was told when
that was recorded; it stays told until nothing is left of it.  One whose records lie in the future
is told as well: the clock was set back since, and what it waits for comes as much later.
"""

from collections.abc import Mapping

from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.findings import abandoned_subject
from tenure.core import agent as agents
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.operation import OperationState
from tenure.core.records import OperationRecord
from tenure.reconcilers.term import FindingSubject, Term, Tick

SENTENCE = "Every open operation moves, waits or is reported."
NAME = "operations"
OVERDUE_SECONDS = 300.0
"""How long after its time an operation may stand still: longer than any one call takes."""
AHEAD_SECONDS = 60.0
"""How far in the future a record may lie: more than clocks that are kept right differ."""


async def tick(plane: Plane, *, limit: int = 500, term: Term | None = None) -> Tick:
    """Look at what is open, as far as one look goes; then at what was abandoned."""
    term = term or Term(plane, NAME)
    seen = fixed = 0
    after = plane.reconciled.cursors.get(NAME, "")
    rows = await plane.store.list_open(after=after, limit=limit)
    for row in rows:
        seen += 1
        if row.state == OperationState.STUCK:
            await _stuck(plane, term, row)
        elif _stands_still(row, plane.store.now()):
            await _still(term, row)
            if not term.read_only:
                plane.engine.wake(row.id)
                fixed += 1
        elif _is_ahead(row, plane.store.now()):
            await _ahead(term, row)
    plane.reconciled.cursors[NAME] = rows[-1].id if len(rows) == limit else ""
    await _abandoned(plane, term)
    for finding in await findings.list_open(plane, term.reconciler):
        if not await _is_so(plane, findings.body_of(finding)):
            await term.settle(finding)
    return Tick(seen, fixed)


async def _is_so(plane: Plane, said: Mapping[str, object]) -> bool:
    """Whether what was told of an open operation is so; it may not have been this look's turn."""
    row = await plane.store.find(OperationRecord, (str(said["operation"]),))
    if said.get("abandoned") or row is None or row.ended_at is not None:
        return False
    now = plane.store.now()
    return row.state == OperationState.STUCK or _stands_still(row, now) or _is_ahead(row, now)


async def _stuck(plane: Plane, term: Term, row: OperationRecord) -> None:
    name = row.id
    left = [
        {"step": one.step, "key": one.key, "state": one.state}
        for one in await plane.store.list_resources(row.tenant, row.agent)
        if one.operation == name and one.slot
    ]
    await term.report(
        FindingKind.CONFIRMED, name,
        f"operation {name} ({row.kind!s}) is stuck: {row.error or 'see its steps'!s}",
        about=FindingSubject(row.tenant, row.agent),
        said={"operation": name, "left": left},
    )  # fmt: skip


def _stands_still(row: OperationRecord, now: float) -> bool:
    """Whether its time came long ago and nothing was recorded since."""
    due_at = row.due_at
    latest = max(row.updated_at, due_at or 0.0)
    return due_at is not None and latest < now - OVERDUE_SECONDS


async def _still(term: Term, row: OperationRecord) -> None:
    name = row.id
    await term.report(
        FindingKind.UNVERIFIABLE, name,
        f"operation {name} ({row.kind!s}) is due and nobody moves it; it is woken",
        about=FindingSubject(row.tenant, row.agent),
        said={"operation": name, "worker": row.worker},
    )  # fmt: skip


def _is_ahead(row: OperationRecord, now: float) -> bool:
    """Whether it was accepted, or last recorded, at a time that has not come yet."""
    return _recorded_at(row) > now + AHEAD_SECONDS


def _recorded_at(row: OperationRecord) -> float:
    return max(row.created_at, row.updated_at)


async def _ahead(term: Term, row: OperationRecord) -> None:
    name = row.id
    until = max(_recorded_at(row), row.due_at or 0.0)
    await term.report(
        FindingKind.CONFIRMED, name,
        f"operation {name} ({row.kind!s}) has records of a time yet to come: the clock was set"
        f" back since, and it may stand until {in_utc(until)}, from when its deadlines count; set"
        " the clock right if it is wrong now, or cancel the operation",
        about=FindingSubject(row.tenant, row.agent),
        said={"operation": name, "until": until},
    )  # fmt: skip


async def _abandoned(plane: Plane, term: Term) -> None:
    """Say again what is still left behind by abandoned operations."""
    for row in await findings.list_open(plane, term.reconciler):
        said = findings.body_of(row)
        if not said.get("abandoned"):
            continue
        tenant, uid = row.tenant, row.agent
        agent = await plane.store.find("agent", (uid,))
        slots = _LEFT.get(str(agent["state"])) if agent is not None else None
        if slots is None:
            continue  # it is gone, or in use again
        left = [
            {"slot": one.slot, "key": one.key}
            for one in await plane.store.list_resources(tenant, uid)
            if one.slot and (not slots or one.slot in slots)
        ]
        if left:
            operation = str(said["operation"])
            await term.report(
                FindingKind.CONFIRMED, abandoned_subject(operation), str(said["what"]),
                about=FindingSubject(tenant, uid),
                said={"abandoned": True, "operation": operation, "left": left},
            )  # fmt: skip


_LEFT: dict[str, tuple[str, ...]] = {
    agents.AgentState.CREATE_FAILED: (), agents.AgentState.DELETE_FAILED: (),
    agents.AgentState.SUSPENDED: ("runtime",),
}  # fmt: skip
"""States in which what an agent holds was left behind, and in which slots; none: in any."""
