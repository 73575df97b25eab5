"""Agents as callers ask for them: create, suspend, stop, resume, delete.

Each verb reads, asks the table of `tenure.core.agent` whether it may, and commits one change with
the operation it starts.  The commit that accepts a suspend, stop or delete closes the agent, also
while another operation works on it: that one is cancelled, and the new one waits for its turn.
A verb that would be refused because another works may be queued instead: it waits in the same place
and changes nothing before its turn, at which it is judged by how the agent stands then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from tenure.app import acknowledgements, audit, edges, quotas, subscriptions
from tenure.app.agent_views import etag, get_agent_row, holdings_of, kept_spec
from tenure.app.changes import noted
from tenure.app.lifecycle import QUEUED, agent_told
from tenure.app.live import encode, input_of, read
from tenure.app.operations import IN_PROGRESS, Accept, Ground, refuse_held, submit, turned_back
from tenure.app.plane import Plane
from tenure.app.spec import AgentSpec, plain
from tenure.app.views import Operation
from tenure.core import agent as core
from tenure.core.agent import AGENT, State, Verb
from tenure.core.edge import REASSIGN, REVOKE, EdgeKind
from tenure.core.errors import Conflict, IllegalTransition, PlanUnknown, PreconditionFailed
from tenure.core.ids import resource_key, uuid7
from tenure.core.operation import CLOSED, Noted
from tenure.core.roles import Caller, Role, require
from tenure.ports.runtime import MISSING, RuntimeProvider
from tenure.ports.store import Add, Change, Drop, Is, Put, Ring, Row, Set

DRAIN_SECONDS = 30.0
OURS = ("kind", "ready_seconds", "drain_seconds")
"""Parts of a runtime's spec that plans read, and the provider does not."""
Writes = tuple[Put | Add | Set | Drop, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """How a caller asks for a verb.

    Args:
        idempotency_key: the same key and request answer with the same operation for a day.
        if_match: the agent's etag as the caller knows it; PreconditionFailed if it has changed.
        queue: wait for the operation that works on the agent, where it would be refused for that.
    """

    idempotency_key: str = ""
    if_match: str = ""
    queue: bool = False


PLAINLY = Asked()


async def create_agent(
    plane: Plane, caller: Caller, spec: AgentSpec, *, asked: Asked = PLAINLY
) -> Operation:
    """Make an agent under a name that is free, or whose last create has failed."""
    require(caller, Role.OPERATOR)
    kept = plain(spec)
    runtime: Mapping[str, object] = {}
    command = _command(Verb.CREATE, caller, agent="", body={"spec": kept}, asked=asked)

    async def prepare(now: float, operation: str) -> Ground:
        nonlocal runtime  # looked at once, and not at all for a key that has its operation
        runtime = runtime or await _resolved(plane, kept)
        uid = uuid7(now, plane.entropy.bits())
        guards, writes = await _free_name(plane, caller, spec.name, uid, now=now)
        guards += (await acknowledgements.nothing_missing(plane, caller.tenant)).guards
        parent = None if spec.parent is None else await get_agent_row(plane, caller, spec.parent)
        quota = await quotas.reserve(plane, caller.tenant, agent=uid, operation=operation, now=now)
        row: Row = {
            "tenant": caller.tenant, "generation": 1, "name": spec.name, "state": State.CREATING,
            "operation": operation, "epoch": 1, "created_at": now, "updated_at": now,
            "spec": encode({"spec": kept, "runtime": runtime}),
        }  # fmt: skip
        if parent is not None:
            row["parent"] = str(parent["uid"])
            guards += await edges.guards_below(plane, parent)
            owned = await _owned_edge(plane, caller, row, uid, spec, now=now)
            writes += (owned,)
        granter = await edges.agent_that_asks(plane, caller)
        if granter is not None:
            guards += await edges.guards_below(plane, granter)
            writes += (_edge_to(plane, caller, EdgeKind.GRANT, caller.principal, uid, now=now),)
        if spec.credentials:
            writes += (_edge_to(plane, caller, EdgeKind.CREDENTIAL, uid, uid, now=now),)
        given = {
            "name": spec.name, "spec": kept, "runtime": runtime, "principal": caller.principal,
        }  # fmt: skip
        also: Writes = (
            Put("agent", (uid,), row),
            agent_told(
                caller.tenant, uid, operation, State.CREATING, name=spec.name, by=Verb.CREATE,
                now=now,
            ),
            audit.entry(
                caller, "agent.create", target=uid, now=now, name=spec.name, operation=operation
            ),
        )
        return Ground(uid, 1, guards + quota.guards, writes + quota.writes + also, given)

    return await submit(plane, command, prepare)


async def suspend_agent(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    keep_runtime: bool = False,
    drain_seconds: float | None = None,
    asked: Asked = PLAINLY,
) -> Operation:
    """Close the agent now, let work in flight finish, shut its credentials, free its runtime."""
    body = {"keep_runtime": keep_runtime, "drain_seconds": drain_seconds}
    return await _ask(plane, caller, Verb.SUSPEND, name, body, asked=asked)


async def stop_agent(
    plane: Plane, caller: Caller, name: str, *, asked: Asked = PLAINLY
) -> Operation:
    """The emergency verb: revoke first, then fence, then kill; nothing is waited for."""
    return await _ask(plane, caller, Verb.STOP, name, {"keep_runtime": False}, asked=asked)


async def resume_agent(
    plane: Plane, caller: Caller, name: str, *, asked: Asked = PLAINLY
) -> Operation:
    """Bring a suspended agent back; exposed only when its runtime answers."""
    return await _ask(plane, caller, Verb.RESUME, name, {}, asked=asked)


async def delete_agent(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    drain_seconds: float | None = None,
    retention: str | None = None,
    cascade: str = "",
    asked: Asked = PLAINLY,
) -> Operation:
    """Close the agent now and take everything away; what it owns goes first.

    `cascade` is the operation that deletes an owner of it, and walks the graph for both.
    """
    body: dict[str, object] = {"drain_seconds": drain_seconds, "retention": retention}
    if cascade:
        body["cascade"] = cascade
    return await _ask(plane, caller, Verb.DELETE, name, body, asked=asked)


async def recover_runtime(
    plane: Plane, caller: Caller, name: str, *, asked: Asked = PLAINLY
) -> Operation:
    """Give a READY agent a new runtime in place of one that died, which goes last."""
    return await _ask(plane, caller, Verb.RECOVER, name, {}, asked=asked)


async def own(
    plane: Plane, caller: Caller, name: str, *, kind: EdgeKind, target: str, on_delete: str
) -> edges.EdgeView:
    """Let an agent own one more thing, also beside others; it goes with the last of them."""
    owner = await get_agent_row(plane, caller, name)
    heir = on_delete.removeprefix(REASSIGN)
    if heir != on_delete:
        edges.refuse_heir(kind)
        on_delete = REASSIGN + str((await get_agent_row(plane, caller, heir))["uid"])
    what = await get_agent_row(plane, caller, target) if kind is EdgeKind.AGENT else target
    if kind is EdgeKind.WEBHOOK:  # nobody keeps another tenant's alive
        await subscriptions.get_subscription_row(plane, caller, target)
    return await edges.add_edge(
        plane, caller, owner, kind=kind, target=what, on_delete=on_delete
    )


# --- a verb on an agent that is there -------------------------------------------------------------


async def _ask(
    plane: Plane, caller: Caller, verb: Verb, name: str, body: Mapping[str, Any], *, asked: Asked
) -> Operation:
    require(caller, Role.OPERATOR)
    command = _command(verb, caller, agent=name, body=body, asked=asked)

    async def prepare(now: float, operation: str) -> Ground:
        row = await get_agent_row(plane, caller, name)
        return await _ground(
            plane, caller, verb, row, body, now=now, operation=operation, asked=asked
        )

    return await submit(plane, command, prepare)


async def _ground(
    plane: Plane,
    caller: Caller,
    verb: Verb,
    row: Row,
    body: Mapping[str, Any],
    *,
    now: float,
    operation: str,
    asked: Asked,
) -> Ground:
    """What must hold and be written for a verb on this agent, as it stands."""
    uid, state, holder = str(row["uid"]), row["state"], row["operation"]
    if asked.if_match and asked.if_match != etag(row):
        raise PreconditionFailed(f"the agent is {etag(row)} now, not {asked.if_match}")
    audited = audit.entry(
        caller, _ACTIONS[verb], target=uid, now=now, name=row["name"], operation=operation
    )
    queued = await _queued(plane, row)
    try:
        then = _after(verb, row, queued=queued)
    except Conflict as refused:
        if not asked.queue or refused.code != IN_PROGRESS:
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
    return Ground(uid, generation, guards, writes, {**body, **begun.given}, rings)


class _Begun(NamedTuple):
    """What a verb means once it has the agent: for its row, beside it, and for its steps."""

    guards: tuple[Is, ...]
    change: Row
    writes: Writes
    given: dict[str, object]


async def _begun(
    plane: Plane,
    caller: Caller,
    verb: Verb,
    row: Row,
    body: Mapping[str, Any],
    *,
    then: State,
    operation: str,
    now: float,
) -> _Begun:
    uid, epoch = str(row["uid"]), cast(int, row["epoch"]) + 1
    guards = await edges.guards_of(plane, row) if verb in {Verb.RESUME, Verb.RECOVER} else ()
    given = {**await _given(plane, caller, row, body), "epoch": epoch}
    if verb is Verb.DELETE and not body.get("cascade"):  # else the way down to it must stay
        owners = await edges.owners_of(plane, uid) if row["parent"] else ()
        given["owners"] = [str(one["owner"]) for one in owners]
    waits = await acknowledgements.awaited_by(
        plane, caller.tenant, verb, agent=uid, operation=operation, now=now
    )
    writes: Writes = waits.writes
    if verb is not Verb.RECOVER:  # by that alone it is in no other state
        name = str(row["name"])
        told = agent_told(caller.tenant, uid, operation, then, name=name, by=verb, now=now)
        writes = (told, *writes)
    change: Row = {"epoch": epoch, "state": then, "updated_at": now}
    return _Begun((*guards, *waits.guards), change, writes, given)


# --- a verb that waits in the queue ---------------------------------------------------------------


async def _queued(plane: Plane, row: Row) -> str:
    """The operation that waits for this agent and has not closed it; empty: there is none."""
    waiting = await plane.store.find("operation", (str(row["next"]),)) if row["next"] else None
    return str(waiting["id"]) if waiting is not None and input_of(waiting).get(QUEUED) else ""


def _in_line(
    caller: Caller,
    verb: Verb,
    row: Row,
    body: Mapping[str, Any],
    *,
    operation: str,
    audited: Add | Put,
) -> Ground:
    """The one place behind the operation that works on the agent, which stays as it is."""
    uid, holder, generation = str(row["uid"]), row["operation"], cast(int, row["generation"]) + 1
    if row["next"] is not None:
        message = f"operation {row['next']!s} waits for this agent already, and one can wait"
        raise Conflict(message, code="queue_full", holder=str(row["next"]))
    if verb is Verb.STOP:  # revokes before its turn
        message = (
            f"operation {holder!s} works on this agent, and a stop is never queued;"
            " cancel it, or delete the agent"
        )
        raise Conflict(message, code=IN_PROGRESS, holder=str(holder))
    free: Row = {"generation": row["generation"], "operation": holder, "next": None}
    taken: Row = {"generation": generation, "next": operation}
    given = {
        **body, QUEUED: True, "name": row["name"], "principal": caller.principal,
        "was": core.settled_as(State(str(row["state"]))), "after": holder,
    }  # fmt: skip
    guards, writes = (Is("agent", (uid,), free),), (Set("agent", (uid,), taken), audited)
    return Ground(uid, generation, guards, writes, given)


async def begin_queued(plane: Plane, row: Row, operation: Row) -> Change:
    """What begins a queued verb, now that its agent is free; Conflict if there is no such verb now.

    From then on it is as if it had been asked for at this moment.
    """
    verb, name, now = Verb(str(operation["kind"])), str(operation["id"]), plane.store.now()
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


_ACTIONS = {
    Verb.SUSPEND: "agent.suspend",
    Verb.STOP: "agent.stop",
    Verb.RESUME: "agent.resume",
    Verb.DELETE: "agent.delete",
    Verb.RECOVER: "agent.recover",
}


def _after(verb: Verb, row: Row, *, queued: str = "") -> State:
    """The state that the verb leads to; Conflict if it cannot be asked of the agent as it is.

    What closes the agent does not wait for what is merely queued, but takes its place.
    """
    state = State(str(row["state"]))
    if (row["next"] is not None and not queued) or not core.interrupts(verb, state):
        refuse_held(row)
    try:
        return State(AGENT.after(state, core.ASKED[verb]))
    except IllegalTransition:
        if row["operation"] is not None:
            refuse_held(row)
        word = verb.removesuffix("_agent")
        message = f"agent {row['name']!s} is {state}, from where there is no {word}"
        raise Conflict(message, code="wrong_state", holder=str(row["uid"])) from None


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
        "was": core.settled_as(State(str(row["state"]))),
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
        live = await read(plane.store, plane.catalogue, plane.id, holder)
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
            return back.change
    body = {"signal": CLOSED, "payload": by, "by": by}
    return noted(live, Noted.SIGNALLED, "", body, now).change


# --- the ground of a create -----------------------------------------------------------------------


async def _resolved(plane: Plane, spec: Mapping[str, Any]) -> Mapping[str, object]:
    """The runtime's part with the digests of what it starts; Invalid if it cannot be enforced."""
    runtime = cast(RuntimeProvider, plane.providers["runtime"])
    wanted = {k: v for k, v in spec["runtime"].items() if k not in OURS}
    return await runtime.digest(wanted)


async def missing(plane: Plane, spec: AgentSpec) -> list[str]:
    """What an agent that is created now would fail for: its runtime does not find it."""
    digests = cast("Mapping[str, str]", (await _resolved(plane, plain(spec))).get("digests", {}))
    return [one.removeprefix(MISSING) for one in digests.values() if one.startswith(MISSING)]


async def _free_name(
    plane: Plane, caller: Caller, name: str, uid: str, *, now: float
) -> tuple[tuple[Is, ...], Writes]:
    """What makes the name this agent's; Conflict `name_taken` unless its last create has failed.

    One that was abandoned with something left behind has to be deleted, or nobody would remove it.
    """
    key = (caller.tenant, name)
    taken = await plane.store.find("agent_name", key)
    if taken is None:
        return (), (Put("agent_name", key, {"agent": uid}),)
    old = str(taken["agent"])
    row = await plane.store.find("agent", (old,))
    failed: Row = {"state": State.CREATE_FAILED, "operation": None, "next": None}
    if row is None or any(row[column] != value for column, value in failed.items()):
        message = f"there is an agent called {name} already; choose another name, or delete it"
        raise Conflict(message, code="name_taken", holder=old)
    if await holdings_of(plane, caller.tenant, old):
        message = f"the agent called {name} was abandoned with something left behind; delete it"
        raise Conflict(message, code="name_taken", holder=old)
    then = State(AGENT.after(State.CREATE_FAILED, core.Trigger.REPLACED))
    gone: Row = {"state": then, "updated_at": now}
    if kept_spec(row).get("spec", {}).get("retention") != "retain":
        gone["spec"] = None
    guards = (Is("agent_name", key, {"agent": old}), Is("agent", (old,), failed))
    return guards, (
        Set("agent_name", key, {"agent": uid}),
        Set("agent", (old,), gone),
        agent_told(caller.tenant, old, "", then, name=name, by=Verb.CREATE, now=now),
        *[edges.dropped(one) for one in await edges.owners_of(plane, old)],
    )


async def _owned_edge(
    plane: Plane, caller: Caller, row: Row, uid: str, spec: AgentSpec, *, now: float
) -> Put:
    """The edge from its parent, and to whom it goes when that is deleted."""
    heir, on_delete = spec.on_delete.removeprefix(REASSIGN), REVOKE
    if heir != spec.on_delete:
        on_delete = REASSIGN + str((await get_agent_row(plane, caller, heir))["uid"])
    return edges.edge(
        caller.tenant, str(row["parent"]), EdgeKind.AGENT, uid, on_delete=on_delete, now=now
    )


_SLOTS = {EdgeKind.GRANT: "access", EdgeKind.CREDENTIAL: "credentials"}


def _edge_to(
    plane: Plane, caller: Caller, kind: EdgeKind, owner: str, uid: str, *, now: float
) -> Put:
    """The edge to what a new agent is given: access by who makes it, a registration of its own."""
    slot = _SLOTS[kind]
    key = resource_key(
        plane.id, tenant=caller.tenant, agent=uid, generation=1, slot=slot, name=slot
    )
    return edges.edge(caller.tenant, owner, kind, key.text, now=now)


# --- small parts ----------------------------------------------------------------------------------


def _command(
    verb: Verb, caller: Caller, *, agent: str, body: Mapping[str, object], asked: Asked
) -> Accept:
    return Accept(
        plan=verb,
        agent=agent,
        input=dict(body),
        tenant=caller.tenant,
        principal=caller.principal,
        idempotency_key=asked.idempotency_key,
        route=verb,
    )
