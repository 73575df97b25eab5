"""What a create stands on: a runtime that can be started, a name that is free, who answers for it.

The verb itself is `tenure.app.agents.commands.create_agent`, which commits all of this in one
change.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from tenure.app.agents import ownership
from tenure.app.agents.spec import AgentSpec, plain
from tenure.app.agents.subject import agent_event_row
from tenure.app.agents.views import get_agent_row, holdings_of, stored_spec
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import AGENT, AgentState, Verb
from tenure.core.edge import REASSIGN, REVOKE, EdgeKind
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.ids import resource_key
from tenure.core.roles import Caller
from tenure.plans.agents.inputs import SpecParts
from tenure.ports.runtime import MISSING, RuntimeProvider
from tenure.ports.store import Is, Put, Row, Set, Writes

OURS = ("kind", "ready_seconds", "drain_seconds")
"""Parts of a runtime's spec that plans read, and the provider does not."""


async def resolved(plane: Plane, spec: Mapping[str, Any]) -> Mapping[str, object]:
    """The runtime's part with the digests of what it starts; Invalid if it cannot be enforced."""
    runtime = cast(RuntimeProvider, plane.providers["runtime"])
    wanted = {k: v for k, v in spec["runtime"].items() if k not in OURS}
    return await runtime.digest(wanted)


async def missing(plane: Plane, spec: AgentSpec) -> list[str]:
    """What an agent that is created now would fail for: its runtime does not find it."""
    digests = cast("Mapping[str, str]", (await resolved(plane, plain(spec))).get("digests", {}))
    return [one.removeprefix(MISSING) for one in digests.values() if one.startswith(MISSING)]


async def free_name(
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
    failed: Row = {"state": AgentState.CREATE_FAILED, "operation": None, "next": None}
    if row is None or any(row[column] != value for column, value in failed.items()):
        message = f"there is an agent called {name} already; choose another name, or delete it"
        raise Conflict(message, code=ConflictCode.NAME_TAKEN, holder=old)
    if await holdings_of(plane, caller.tenant, old):
        message = f"the agent called {name} was abandoned with something left behind; delete it"
        raise Conflict(message, code=ConflictCode.NAME_TAKEN, holder=old)
    then = AgentState(AGENT.after(AgentState.CREATE_FAILED, core.AgentTrigger.REPLACED))
    gone: Row = {"state": then, "updated_at": now}
    if msgspec.convert(stored_spec(row).spec, SpecParts).retention != "retain":
        gone["spec"] = None
    guards = (Is("agent_name", key, {"agent": old}), Is("agent", (old,), failed))
    return guards, (
        Set("agent_name", key, {"agent": uid}),
        Set("agent", (old,), gone),
        agent_event_row(caller.tenant, old, "", then, name=name, by=Verb.CREATE, now=now),
        *[ownership.dropped(one) for one in await ownership.owners_of(plane, old)],
    )


async def owned_edge(
    plane: Plane, caller: Caller, row: Row, uid: str, spec: AgentSpec, *, now: float
) -> Put:
    """The edge from its parent, and to whom it goes when that is deleted."""
    heir, on_delete = spec.on_delete.removeprefix(REASSIGN), REVOKE
    if heir != spec.on_delete:
        on_delete = REASSIGN + str((await get_agent_row(plane, caller, heir))["uid"])
    return ownership.edge(
        caller.tenant, str(row["parent"]), EdgeKind.AGENT, uid, on_delete=on_delete, now=now
    )


_SLOTS = {EdgeKind.GRANT: "access", EdgeKind.CREDENTIAL: "credentials"}


def edge_to(
    plane: Plane, caller: Caller, kind: EdgeKind, owner: str, uid: str, *, now: float
) -> Put:
    """The edge to what a new agent is given: access by who makes it, a registration of its own."""
    slot = _SLOTS[kind]
    key = resource_key(
        plane.id, tenant=caller.tenant, agent=uid, generation=1, slot=slot, name=slot
    )
    return ownership.edge(caller.tenant, owner, kind, key.text, now=now)
