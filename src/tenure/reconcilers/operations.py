"""Every open operation moves, waits or is reported.

A stuck operation needs an operator and is reported until it is resolved.  An overdue operation was
due long ago and has not moved since: it is reported and woken.  An abandoned operation was reported
in the commit that recorded its end; that finding stays open until none of its resources is left.
An operation whose journal entries lie in the future is reported too: the clock was set back since,
and its deadlines come later by the same time.
"""

from collections.abc import Mapping

from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.findings import abandoned_key
from tenure.core import agent as agents
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.operation import OperationState
from tenure.core.records import AgentRecord, OperationRecord
from tenure.reconcilers.passes import FindingAbout, Pass, Tick

SENTENCE = "Every open operation moves, waits or is reported."
NAME = "operations"
OVERDUE_SECONDS = 300.0
"""How long a due operation may go without a record: longer than any one call takes."""
AHEAD_SECONDS = 60.0
"""How far in the future a record may lie: more than synchronised clocks differ."""


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Check open operations, as many as one pass may; then check abandoned ones."""
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    after = plane.reconcile_state.cursors.get(NAME, "")
    rows = await plane.store.list_open(after=after, limit=limit)
    for row in rows:
        seen += 1
        if row.state == OperationState.STUCK:
            await _report_stuck(plane, this_pass, row)
        elif _is_overdue(row, plane.store.now()):
            await _report_overdue(this_pass, row)
            if not this_pass.read_only:
                plane.engine.wake(row.id)
                fixed += 1
        elif _is_ahead(row, plane.store.now()):
            await _report_ahead(this_pass, row)
    plane.reconcile_state.cursors[NAME] = rows[-1].id if len(rows) == limit else ""
    await _report_abandoned(plane, this_pass)
    for finding in await findings.list_open(plane, this_pass.reconciler):
        if not await _still_holds(plane, findings.body_of(finding)):
            await this_pass.resolve(finding)
    return Tick(seen, fixed)


async def _still_holds(plane: Plane, details: Mapping[str, object]) -> bool:
    """Whether a finding about an open operation still holds, also if this pass did not reach it."""
    row = await plane.store.find(OperationRecord, (str(details["operation"]),))
    if details.get("abandoned") or row is None or row.ended_at is not None:
        return False
    now = plane.store.now()
    return row.state == OperationState.STUCK or _is_overdue(row, now) or _is_ahead(row, now)


async def _report_stuck(plane: Plane, this_pass: Pass, row: OperationRecord) -> None:
    name = row.id
    left = [
        {"step": one.step, "key": one.key, "state": one.state}
        for one in await plane.store.list_resources(row.tenant, row.agent)
        if one.operation == name and one.slot
    ]
    await this_pass.report(
        FindingKind.CONFIRMED, name,
        f"operation {name} ({row.plan_name!s}) is stuck: {row.error or 'see its steps'!s}",
        about=FindingAbout(row.tenant, row.agent),
        details={"operation": name, "left": left},
    )  # fmt: skip


def _is_overdue(row: OperationRecord, now: float) -> bool:
    """Whether it was due long ago and nothing was recorded since."""
    due_at = row.due_at
    latest = max(row.updated_at, due_at or 0.0)
    return due_at is not None and latest < now - OVERDUE_SECONDS


async def _report_overdue(this_pass: Pass, row: OperationRecord) -> None:
    name = row.id
    await this_pass.report(
        FindingKind.UNVERIFIABLE, name,
        f"operation {name} ({row.plan_name!s}) is due and no worker moves it; it is woken",
        about=FindingAbout(row.tenant, row.agent),
        details={"operation": name, "worker": row.worker},
    )  # fmt: skip


def _is_ahead(row: OperationRecord, now: float) -> bool:
    """Whether its acceptance or its last record lies in the future."""
    return _recorded_at(row) > now + AHEAD_SECONDS


def _recorded_at(row: OperationRecord) -> float:
    return max(row.created_at, row.updated_at)


async def _report_ahead(this_pass: Pass, row: OperationRecord) -> None:
    name = row.id
    until = max(_recorded_at(row), row.due_at or 0.0)
    await this_pass.report(
        FindingKind.CONFIRMED, name,
        f"operation {name} ({row.plan_name!s}) has records with a future time: the clock was set"
        f" back since. The operation may not continue before {in_utc(until)}, and its deadlines"
        " count from then. Correct the clock if it is wrong now, or cancel the operation",
        about=FindingAbout(row.tenant, row.agent),
        details={"operation": name, "until": until},
    )  # fmt: skip


async def _report_abandoned(plane: Plane, this_pass: Pass) -> None:
    """Report again the resources that abandoned operations have left behind."""
    for row in await findings.list_open(plane, this_pass.reconciler):
        details = findings.body_of(row)
        if not details.get("abandoned"):
            continue
        tenant, uid = row.tenant, row.agent
        agent = await plane.store.find(AgentRecord, (uid,))
        slots = _LEFTOVER_SLOTS.get(agent.state or "") if agent is not None else None
        if slots is None:
            continue  # the agent is gone, or in use again
        left = [
            {"slot": one.slot, "key": one.key}
            for one in await plane.store.list_resources(tenant, uid)
            if one.slot and (not slots or one.slot in slots)
        ]
        if left:
            operation = str(details["operation"])
            await this_pass.report(
                FindingKind.CONFIRMED, abandoned_key(operation), str(details["what"]),
                about=FindingAbout(tenant, uid),
                details={"abandoned": True, "operation": operation, "left": left},
            )  # fmt: skip


_LEFTOVER_SLOTS: dict[str, tuple[str, ...]] = {
    agents.AgentState.CREATE_FAILED: (), agents.AgentState.DELETE_FAILED: (),
    agents.AgentState.SUSPENDED: ("runtime",),
}  # fmt: skip
"""States in which an agent's resources were left behind, and their slots; empty for all slots."""
