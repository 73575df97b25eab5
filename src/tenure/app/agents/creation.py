"""The parts of a create: a runtime that can be started, a name that is free, edges of owners.

`tenure.app.agents.commands.create_agent` commits all of them in one change.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from tenure.app.agents import agent_rows, edge_rows, ownership
from tenure.app.agents.spec import AgentSpec, spec_to_dict
from tenure.app.agents.subject import agent_event_row
from tenure.app.agents.views import get_agent_row, holdings_of, stored_spec
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import AGENT, AgentState
from tenure.core.edge import REASSIGN, REVOKE, EdgeKind
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.ids import resource_key
from tenure.core.records import AgentNameRecord, AgentRecord
from tenure.core.roles import Caller
from tenure.core.verb import VerbName
from tenure.plans.agents.inputs import SpecParts
from tenure.ports.runtime import MISSING, RuntimeProvider
from tenure.ports.store import Is, Put, Writes

PLAN_SETTINGS = ("kind", "ready_seconds", "drain_seconds")
"""Settings of a runtime that plans read, and its provider does not."""


async def resolve_runtime(plane: Plane, spec: Mapping[str, Any]) -> Mapping[str, object]:
    """The spec's runtime settings with digests of the files; Invalid if they cannot be enforced."""
    runtime = cast(RuntimeProvider, plane.providers["runtime"])
    settings = {k: v for k, v in spec["runtime"].items() if k not in PLAN_SETTINGS}
    return await runtime.digest(settings)


async def missing_files(plane: Plane, spec: AgentSpec) -> list[str]:
    """The files of this spec that its runtime cannot find; without them a create would fail."""
    digests = cast(
        "Mapping[str, str]", (await resolve_runtime(plane, spec_to_dict(spec))).get("digests", {})
    )
    return [one.removeprefix(MISSING) for one in digests.values() if one.startswith(MISSING)]


async def claim_name(
    plane: Plane, caller: Caller, name: str, uid: str, *, now: float
) -> tuple[tuple[Is, ...], Writes]:
    """Guards and writes that give the name to this agent.

    Conflict `name_taken` if another agent has it, unless the create of that agent failed.  If that
    create was abandoned and has left resources behind, the agent must be deleted first.
    """
    named = await plane.store.find(AgentNameRecord, (caller.tenant, name))
    if named is None:
        return (), (agent_rows.put_name(caller.tenant, name, uid),)
    old = named.agent
    row = await plane.store.find(AgentRecord, (old,))
    failed = (AgentState.CREATE_FAILED, None, None)
    if row is None or (row.state, row.operation, row.next) != failed:
        message = f"there is an agent called {name} already; choose another name, or delete it"
        raise Conflict(message, code=ConflictCode.NAME_TAKEN, holder=old)
    if await holdings_of(plane, caller.tenant, old):
        message = f"the agent called {name} was abandoned with something left behind; delete it"
        raise Conflict(message, code=ConflictCode.NAME_TAKEN, holder=old)
    new_state = AgentState(AGENT.after(AgentState.CREATE_FAILED, core.AgentTrigger.REPLACED))
    retain = msgspec.convert(stored_spec(row).spec, SpecParts).retention == "retain"
    guards = (Is.of(named, "agent"), Is.of(row, "state", "operation", "next"))
    return guards, (
        agent_rows.move_name(named, uid),
        agent_rows.replace_agent(old, new_state, keep_spec=retain, now=now),
        agent_event_row(
            caller.tenant, old, "", new_state, name=name, verb=VerbName.CREATE, now=now
        ),
        *[edge_rows.drop_edge(one) for one in await ownership.edges_to(plane, old)],
    )


async def parent_edge(
    plane: Plane, caller: Caller, parent: str, uid: str, spec: AgentSpec, *, now: float
) -> Put:
    """The edge from the agent's parent, and the agent that the spec names as its next owner."""
    new_owner, on_delete = spec.on_delete.removeprefix(REASSIGN), REVOKE
    if new_owner != spec.on_delete:
        on_delete = REASSIGN + (await get_agent_row(plane, caller, new_owner)).uid
    return edge_rows.put_edge(
        caller.tenant, parent, EdgeKind.AGENT, uid, on_delete=on_delete, now=now
    )


def resource_edge(
    plane: Plane, caller: Caller, kind: EdgeKind, owner: str, uid: str, *, slot: str, now: float
) -> Put:
    """The edge to a resource that the create of this agent makes in a slot."""
    key = resource_key(
        plane.id, tenant=caller.tenant, agent=uid, generation=1, slot=slot, name=slot
    )
    return edge_rows.put_edge(caller.tenant, owner, kind, key.text, now=now)
