"""The cascade: the deletion of everything that only a deleted agent owns, and its preview.

Only the operation that a caller requested walks the graph.  It requests the deletion of all agents
below that have no other owner, and waits for them.  The operations that it requests wait for no
other deletion, so a cycle of owners does not block.  Two callers' deletions in one cycle would wait
for each other: of those the one that began later does not wait.
"""

import asyncio
from typing import NamedTuple

from tenure.app.agents import edge_rows, ownership
from tenure.app.agents.owned_kinds import kind_of, request_delete
from tenure.app.agents.ownership import DELETION_STATES, ReachabilityWithout
from tenure.app.agents.subject import typed_input_of
from tenure.app.plane import Plane
from tenure.core.agent import AgentState
from tenure.core.edge import EdgeKind
from tenure.core.records import AgentRecord, EdgeRecord, OperationRecord
from tenure.core.verb import VerbName
from tenure.plans.agents.delete import DeleteInput
from tenure.ports.plane_api import OwnedAgents
from tenure.ports.store import Change, Drop, Is

REQUESTS_AT_ONCE = 250
"""Deletions that are requested at the same time; their commits share transactions."""
REQUEST_SECONDS = 8.0
"""How long one call of the step requests deletions; it must end before its own time limit."""
DROPS_AT_ONCE = 500
"""Edges that are dropped in one change."""
YIELD_EVERY = 64
"""After reading so many agents the event loop is given to others."""


class CascadeEdge(NamedTuple):
    """One edge below a deleted agent, and what the deletion does to its target."""

    owner: str
    kind: str
    target: str
    name: str
    """The name of an agent; for other kinds the target of the edge."""
    depth: int
    effect: str
    """delete, revoke, keep (another owner stays), or reassign:<uid>."""


async def tree(plane: Plane, row: AgentRecord, *, limit: int) -> list[CascadeEdge]:
    """Preview the deletion of this agent: each edge once, every owner before its own edges."""
    uid = row.uid
    reachability = ReachabilityWithout(plane, uid)
    found: list[CascadeEdge] = []
    queue, seen = [(uid, 0)], {uid}
    while queue and len(found) < limit:
        owner, depth = queue.pop()
        below: list[tuple[str, int]] = []
        for edge in await ownership.edges_from(plane, owner):
            kind, target = edge.kind, edge.target
            name, effect = await kind_of(edge).preview(reachability, edge)
            found.append(CascadeEdge(edge.owner, kind, target, name, depth + 1, effect))
            if effect == "delete" and target not in seen:
                seen.add(target)
                below.append((target, depth + 1))
        queue += reversed(below)
        await asyncio.sleep(0)
    return found[:limit]


async def delete_owned(plane: Plane, agent: str, operation: str) -> OwnedAgents:
    """Release things that have another owner, and request the deletion of all others below."""
    reachability = ReachabilityWithout(plane, agent)
    edges = await ownership.edges_from(plane, agent)
    for edge in edges:
        await kind_of(edge).release(plane, reachability, edge)
    if all(edge.kind != EdgeKind.AGENT for edge in edges):
        return OwnedAgents(())  # a closed agent gets no new ones
    mine = await plane.store.find(OperationRecord, (operation,))
    if mine is not None and _is_part_of_cascade(mine):
        return OwnedAgents(())  # the operation that requested this one walks the graph
    unowned = await _unowned_below(plane, agent)
    already_requested = {AgentState.DELETING, AgentState.DELETED}
    to_request = [row for row in unowned if row.state not in already_requested]
    count = await _request_deletes(plane, to_request, operation)
    all_owners = await _all_owners(plane, agent) if unowned else frozenset[str]()
    remaining = [
        row.name or row.uid
        for row in unowned
        if row.state != AgentState.DELETED
        and not (row.uid in all_owners and await _has_older_delete(plane, row, operation))
    ]
    if not remaining:
        await _drop_edges_between(plane, [agent, *(row.uid for row in unowned)])
    return OwnedAgents(remaining, has_unrequested=len(to_request) > count)


async def _request_deletes(plane: Plane, rows: list[AgentRecord], operation: str) -> int:
    """Request the deletion of these agents while there is time; returns how many were requested."""
    until, count = plane.store.now() + REQUEST_SECONDS, 0
    while count < len(rows):
        part = rows[count : count + REQUESTS_AT_ONCE]
        await asyncio.gather(*(request_delete(plane, row, operation) for row in part))
        count += len(part)
        if plane.store.now() >= until:
            break
    return count


async def _drop_edges_between(plane: Plane, owners: list[str]) -> None:
    """Drop the edges between the first agent and the deleted ones; no walk needs them any more."""
    gone = set(owners[1:])
    drops: list[Drop] = []
    for uid in owners:
        drops += [
            edge_rows.drop_edge(row)
            for row in await ownership.agent_edges_from(plane, uid)
            if row.target in gone
        ]
        if len(drops) >= DROPS_AT_ONCE:
            await plane.store.commit(Change("", (), tuple(drops)))
            drops = []
    await plane.store.commit(Change("", (), tuple(drops)))


async def _unowned_below(plane: Plane, root: str) -> list[AgentRecord]:
    """Every agent below this one that is not reachable without it, in the order of the walk."""
    reachability = ReachabilityWithout(plane, root)
    found: list[AgentRecord] = []
    queue, seen = [root], {root}
    for uid in queue:
        for edge in await ownership.agent_edges_from(plane, uid):
            target = edge.target
            if target in seen:
                continue
            seen.add(target)
            if len(seen) % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            row = await reachability.find(target)
            if row is None or (
                row.state not in DELETION_STATES and await reachability.is_reachable(target)
            ):
                continue
            found.append(row)
            queue.append(target)
    return found


async def _all_owners(plane: Plane, uid: str) -> frozenset[str]:
    """Every agent that owns this one, directly or through others, and this one itself."""
    queue, seen = [uid], {uid}
    for one in queue:
        for row in await ownership.edges_to(plane, one):
            owner = row.owner
            if owner not in seen:
                seen.add(owner)
                queue.append(owner)
    return frozenset(seen)


async def _has_older_delete(plane: Plane, row: AgentRecord, operation: str) -> bool:
    """Whether a caller requested a delete of the agent `row` before our delete `operation`.

    That older delete waits for ours.
    """
    for other in (row.next or "", row.operation or ""):
        theirs = await plane.store.find(OperationRecord, (other,)) if other else None
        if theirs is None or typed_input_of(theirs).queued:
            continue  # a queued operation has not begun
        if theirs.plan_name != VerbName.DELETE or other > operation:
            return False
        return not _is_part_of_cascade(theirs)
    return False


def _is_part_of_cascade(operation: OperationRecord) -> bool:
    """Whether another operation requested this delete, and not a caller."""
    values = typed_input_of(operation)
    return isinstance(values, DeleteInput) and bool(values.cascade_operation)


async def end_edge(plane: Plane, edge: EdgeRecord, *, guards: tuple[Is, ...] = ()) -> bool:
    """End an edge whose owner is deleted, as its kind says; False if that is not done yet."""
    return await kind_of(edge).end(plane, edge, guards)
