"""A verb on an agent that is there: whether it may be asked, and what is written when it is.

The commit that accepts a suspend, stop or delete closes the agent, also while another operation
works on it: that one is cancelled, and the new one waits for its turn.  A verb that would be
refused because another works may be queued instead: it waits in the same place and changes nothing
before its turn, at which it is judged by how the agent stands then.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from tenure.app.agents import ownership
from tenure.app.agents.subject import QUEUED, agent_event_row
from tenure.app.agents.views import holdings_of, kept_spec
from tenure.app.events import acknowledgements
from tenure.app.operations.admission import Admission, refuse_locked
from tenure.app.operations.commands import turned_back
from tenure.app.operations.handle import encode, input_of, load_handle
from tenure.app.operations.record_change import build_record
from tenure.app.plane import Plane
from tenure.app.tenancy import audit
from tenure.core import agent as core
from tenure.core.agent import AGENT, AgentState, AgentTrigger, Verb
from tenure.core.errors import Conflict, ConflictCode, IllegalTransition, PlanUnknown
from tenure.core.operation import CLOSED, RecordKind
from tenure.core.roles import Caller, Role
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents.lifecycle import VERBS
from tenure.ports.store import Change, Is, Put, Ring, Row, Set, Writes

DRAIN_SECONDS = 30.0


async def ground(
    plane: Plane,
    caller: Caller,
    verb: LifecycleVerb,
    row: Row,
    body: Mapping[str, Any],
    *,
    now: float,
    operation: str,
    queue: bool,
) -> Admission:
    """What must hold and be written for a verb on this agent, as it stands.

    `queue`: where another operation works on it, the verb waits in line.
    """
    uid, state, holder = str(row["uid"]), row["state"], row["operation"]
    audited = audit.entry(
        caller, verb.audit, target=uid, now=now, name=row["name"], operation=operation
    )
    queued = await _queued(plane, row)
    try:
        then = _after(verb, row, queued=queued)
    except Conflict as refused:
        if not queue or refused.code != ConflictCode.OPERATION_IN_PROGRESS:
            raise
        return _in_line(caller, verb, row, body, operation=operation, audited=audited)
    generation = cast(int, row["generation"]) + 1
    begun = await _begun(plane, caller, verb, row, body, then=then, operation=operation, now=now)
    place: Row = {"next": operation} if holder else {"operation": operation, "next": None}
    told: Row = {"generation": row["generation"], "state": state, "operation": holder}
    guards = (Is("agent", (uid,), {**told, "next": row["next"]}), *begun.guards)
    change = {"generation": generation, **begun.change, **place}
    writes: Writes = (Set("agent", (uid,), change), *begun.writes, audited)
    closed = [str(one) for one in (holder, queued) if one]
    for one in closed:
        writing = await _closing(plane, one, by=operation, now=now)
        guards += writing.guards
        writes += writing.writes
    rings = tuple(Ring(one, interrupt=True) for one in closed)
    return Admission(uid, generation, guards, writes, {**body, **begun.given}, rings)


class _Begun(NamedTuple):
    """What a verb means once it has the agent: for its row, beside it, and for its steps."""

    guards: tuple[Is, ...]
    change: Row
    writes: Writes
    given: dict[str, object]


async def _begun(
    plane: Plane,
    caller: Caller,
    verb: LifecycleVerb,
    row: Row,
    body: Mapping[str, Any],
    *,
    then: AgentState,
    operation: str,
    now: float,
) -> _Begun:
    uid, epoch = str(row["uid"]), cast(int, row["epoch"]) + 1
    guards = await ownership.guards_of(plane, row) if verb.needs_open_owner else ()
    given = {**await _given(plane, caller, row, body), "epoch": epoch}
    if verb.name is Verb.DELETE and not body.get("cascade"):  # else the way down to it must stay
        owners = await ownership.owners_of(plane, uid) if row["parent"] else ()
        given["owners"] = [str(one["owner"]) for one in owners]
    waits = await acknowledgements.awaited_by(
        plane, caller.tenant, verb.name, agent=uid, operation=operation, now=now
    )
    writes: Writes = waits.writes
    if verb.is_announced:
        name = str(row["name"])
        told = agent_event_row(
            caller.tenant, uid, operation, then, name=name, by=verb.name, now=now
        )
        writes = (told, *writes)
    change: Row = {"epoch": epoch, "state": then, "updated_at": now}
    return _Begun((*guards, *waits.guards), change, writes, given)


def _after(verb: LifecycleVerb, row: Row, *, queued: str = "") -> AgentState:
    """The state that the verb leads to; Conflict if it cannot be asked of the agent as it is.

    What closes the agent does not wait for what is merely queued, but takes its place.
    """
    state = AgentState(str(row["state"]))
    if (row["next"] is not None and not queued) or not verb.interrupts(state):
        refuse_locked(row)
    try:
        return AgentState(AGENT.after(state, cast(AgentTrigger, verb.request)))
    except IllegalTransition:
        if row["operation"] is not None:
            refuse_locked(row)
        word = verb.name.removesuffix("_agent")
        message = f"agent {row['name']!s} is {state}, from where there is no {word}"
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=str(row["uid"])) from None


async def _given(
    plane: Plane, caller: Caller, row: Row, body: Mapping[str, Any]
) -> dict[str, object]:
    """What the steps of a verb are given of an agent that is there."""
    kept = kept_spec(row)
    spec = kept.get("spec", {})
    drain_seconds = body.get("drain_seconds")
    if drain_seconds is None:
        drain_seconds = spec.get("runtime", {}).get("drain_seconds", DRAIN_SECONDS)
    holds = await holdings_of(plane, caller.tenant, str(row["uid"]))
    return {
        "name": row["name"],
        "was": core.settled_as(AgentState(str(row["state"]))),
        "after": row["operation"] or "",
        "spec": spec,
        "runtime": kept.get("runtime", {}),
        "runtimes": holds.get("runtime", []),
        "drain_seconds": drain_seconds,
        "retention": body.get("retention") or spec.get("retention", "remove"),
        "principal": caller.principal,
    }


async def _closing(plane: Plane, holder: str, *, by: str, now: float) -> Change:
    """Tell the operation that works on the agent that it was closed, and cancel it if it can be."""
    try:
        live = await load_handle(plane.store, plane.catalogue, plane.id, holder)
    except PlanUnknown as unknown:
        told = f"operation {holder} works on this agent, and {unknown}; nothing was changed,"
        advice = "ask a process of the newer release"
        raise PlanUnknown(f"{told} {advice}", plan=unknown.plan) from None
    if live is None or live.progress.end is not None:
        return Change("", (), ())  # it has ended since: the agent's row refuses, and is read anew
    live.due_at = None
    if live.progress.compensating_at is None:
        why = {"why": f"the agent was closed by operation {by}", "closed": by}
        if (back := turned_back(live, why, now)) is not None:
            return back.change.plain()
    body = {"signal": CLOSED, "payload": by, "by": by}
    return build_record(live, RecordKind.SIGNALLED, "", body, now).change.plain()


# --- a verb that waits in the queue ---------------------------------------------------------------


async def _queued(plane: Plane, row: Row) -> str:
    """The operation that waits for this agent and has not closed it; empty: there is none."""
    waiting = await plane.store.find("operation", (str(row["next"]),)) if row["next"] else None
    return str(waiting["id"]) if waiting is not None and input_of(waiting).get(QUEUED) else ""


def _in_line(
    caller: Caller,
    verb: LifecycleVerb,
    row: Row,
    body: Mapping[str, Any],
    *,
    operation: str,
    audited: Put,
) -> Admission:
    """The one place behind the operation that works on the agent, which stays as it is."""
    uid, holder, generation = str(row["uid"]), row["operation"], cast(int, row["generation"]) + 1
    if row["next"] is not None:
        message = f"operation {row['next']!s} waits for this agent already, and one can wait"
        raise Conflict(message, code=ConflictCode.QUEUE_FULL, holder=str(row["next"]))
    if not verb.can_queue:
        message = (
            f"operation {holder!s} works on this agent, and a stop is never queued;"
            " cancel it, or delete the agent"
        )
        raise Conflict(message, code=ConflictCode.OPERATION_IN_PROGRESS, holder=str(holder))
    free: Row = {"generation": row["generation"], "operation": holder, "next": None}
    taken: Row = {"generation": generation, "next": operation}
    given = {
        **body, QUEUED: True, "name": row["name"], "principal": caller.principal,
        "was": core.settled_as(AgentState(str(row["state"]))), "after": holder,
    }  # fmt: skip
    guards, writes = (Is("agent", (uid,), free),), (Set("agent", (uid,), taken), audited)
    return Admission(uid, generation, guards, writes, given)


async def begin_queued(plane: Plane, row: Row, operation: Row) -> Change:
    """What begins a queued verb, now that its agent is free; Conflict if there is no such verb now.

    From then on it is as if it had been asked for at this moment.
    """
    verb, name, now = VERBS[str(operation["kind"])], str(operation["id"]), plane.store.now()
    caller = Caller(str(operation["tenant"]), str(operation["principal"]), Role.OPERATOR)
    body = {key: value for key, value in input_of(operation).items() if key != QUEUED}
    then = _after(verb, {**row, "next": None})
    begun = await _begun(plane, caller, verb, row, body, then=then, operation=name, now=now)
    revision, key = cast(int, operation["revision"]), (str(row["uid"]),)
    waits: Row = {"state": row["state"], "operation": None, "next": name}
    mine: Row = {"input": encode({**body, **begun.given}), "revision": revision + 1}
    return Change(
        "",
        (Is("agent", key, waits), Is("operation", (name,), {"revision": revision}), *begun.guards),
        (
            Set("agent", key, {**begun.change, "operation": name, "next": None}),
            Set("operation", (name,), mine),
            *begun.writes,
        ),
    )
