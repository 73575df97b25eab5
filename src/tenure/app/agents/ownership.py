"""Edges: which agents and resources an agent owns, and whether an agent still has an open owner.

An edge is written in the commit that creates its target, or later at a caller's request.

An agent that nobody owns is a root.  As in a garbage collector, an agent is *reachable* if a chain
of owners leads to it from a root and none of them is being deleted (`DELETION_STATES`).  An agent
with owners is open only while it is reachable.  So the commit that accepts a delete closes all
agents below, and a cancelled delete opens them again.  A suspended owner closes only itself.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from tenure.app.agents import agent_rows, edge_rows
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import list_all, page_of
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import audit_line
from tenure.core import agent as core
from tenure.core.agent import PERMISSIONS, AgentState
from tenure.core.edge import REASSIGN, REVOKE, EdgeKind
from tenure.core.errors import Conflict, ConflictCode, Invalid, LimitExceeded
from tenure.core.limits import OWNERS_MAX, PAGE_MAX
from tenure.core.records import AgentRecord, EdgeRecord, NamedAgentRecord, is_agent
from tenure.core.roles import Caller, Role, require
from tenure.plans.agents.inputs import AgentInput
from tenure.ports.store import Change, Is, Put, Set

DELETION_STATES: Final = frozenset(
    {AgentState.DELETING, AgentState.DELETE_FAILED, AgentState.DELETED}
)
"""States of an agent that is being deleted: it keeps no other agent reachable."""
TOO_DEEP: Final = f"agents own each other at most {OWNERS_MAX} deep"
_UID = re.compile(r"[0-9a-f]{32}")


class EdgeView(NamedTuple):
    """An edge as it is shown."""

    owner: str
    kind: str
    target: str
    on_delete: str
    at: float


def new_owner_of(row: EdgeRecord) -> str:
    """The uid of the agent that owns the target after its owner is deleted; empty: none."""
    return row.on_delete.removeprefix(REASSIGN) if _is_reassigned(row) else ""


def _is_reassigned(row: EdgeRecord) -> bool:
    return row.on_delete.startswith(REASSIGN)


async def edges_to(
    plane: Plane, target: str, kind: EdgeKind = EdgeKind.AGENT
) -> Sequence[EdgeRecord]:
    """The edges by which agents own this agent, or another thing."""
    return await plane.store.list_rows(EdgeRecord, {"target": target, "kind": kind}, limit=PAGE_MAX)


async def edges_from(plane: Plane, uid: str) -> list[EdgeRecord]:
    """Every edge from an agent to what it owns, agents first."""
    found = await list_all(plane.store, EdgeRecord, {"owner": uid})
    return [*await _edges_from_parent_column(plane, uid, {row.target for row in found}), *found]


async def _edges_from_parent_column(
    plane: Plane, uid: str, known_targets: set[str]
) -> list[EdgeRecord]:
    """The edges to agents that an earlier release made: it wrote the column `parent` alone."""
    children = await plane.store.list_rows(AgentRecord, {"parent": uid}, limit=PAGE_MAX)
    return [
        EdgeRecord(uid, EdgeKind.AGENT, child.uid, child.tenant, REVOKE, child.created_at or 0.0)
        for child in children
        if child.uid not in known_targets and child.state != AgentState.DELETED
    ]


async def agent_edges_from(plane: Plane, uid: str) -> list[EdgeRecord]:
    """The edges from an agent to the agents that it owns."""
    return [row for row in await edges_from(plane, uid) if row.kind == EdgeKind.AGENT]


async def requesting_agent(plane: Plane, caller: Caller) -> NamedAgentRecord | None:
    """The agent that sends the request, or None; its edges and grants end with that agent."""
    if not _UID.fullmatch(caller.principal):
        return None
    row = await plane.store.find(AgentRecord, (caller.principal,))
    return row if row is not None and row.tenant == caller.tenant and is_agent(row) else None


async def without_ended_grants(plane: Plane, values: object) -> object:
    """The input of an operation, without roles and teams that a deleted agent has granted."""
    if not isinstance(values, AgentInput):
        return values
    granter = await plane.store.find(AgentRecord, (values.principal,))
    if granter is None or granter.state not in DELETION_STATES:
        return values
    return replace(values, spec={**values.spec, "roles": [], "teams": []})


class Reachability:
    """Whether agents are reachable from an open root; each agent is read once."""

    def __init__(self, plane: Plane, *, extra_edge: EdgeRecord | None = None) -> None:
        """`extra_edge` is an edge that counts as if it were written already."""
        self.plane = plane
        self.closed_owner: AgentRecord | None = None
        """The first closed owner that was found."""
        self._extra_edge = extra_edge
        self._answers: dict[str, bool] = {}
        self._rows: dict[str, AgentRecord | None] = {}

    async def find(self, uid: str) -> AgentRecord | None:
        """The agent's row, read from the store once."""
        if uid not in self._rows:
            self._rows[uid] = await self.plane.store.find(AgentRecord, (uid,))
        return self._rows[uid]

    async def guards(self, uid: str) -> tuple[Is, ...] | None:
        """Guards on the shortest chain of open owners up to a root; None if there is no such chain.

        An agent that nobody owns has an empty chain.  The last guard checks that its agent is still
        a root.
        """
        came_from: dict[str, tuple[str, tuple[Is, ...]]] = {uid: ("", ())}
        queue = [uid]
        for one in queue:
            edges = await self._edges_to(one)
            if not edges:
                return await self._chain(one, came_from)
            for owner, guards in self._present_and_next_owners(edges):
                if owner in came_from or self._answers.get(owner) is False:
                    continue
                came_from[owner] = one, guards
                row = await self.find(owner)
                if row is not None and row.state not in DELETION_STATES:
                    queue.append(owner)
                else:
                    self.closed_owner = self.closed_owner or row
        self._answers.update(dict.fromkeys(came_from, False))
        return None

    async def is_reachable(self, uid: str) -> bool:
        """Whether a chain of open owners leads up to a root."""
        if uid not in self._answers:
            self._answers[uid] = await self.guards(uid) is not None
        return self._answers[uid]

    async def _edges_to(self, uid: str) -> Sequence[EdgeRecord]:
        found, new = await edges_to(self.plane, uid), self._extra_edge
        if new is None or new.target != uid:
            return found
        return [*(row for row in found if row.owner != new.owner), new]

    def _present_and_next_owners(
        self, edges: Sequence[EdgeRecord]
    ) -> Iterator[tuple[str, tuple[Is, ...]]]:
        """The owners, then the owners after them, with a guard on the edge that names them."""
        for row in edges:
            yield row.owner, ()
        for row in edges:
            if _is_reassigned(row):
                guard = Is.of(row, "on_delete")
                yield new_owner_of(row), () if row is self._extra_edge else (guard,)

    async def _chain(
        self, top: str, came_from: Mapping[str, tuple[str, tuple[Is, ...]]]
    ) -> tuple[Is, ...]:
        """Guards from the owner next to the agent up to the top."""
        chain: list[Is] = []
        one, columns = top, ["state", "parent"]
        while came_from[one][0]:
            row = cast(AgentRecord, await self.find(one))
            chain += (Is.of(row, *columns), *came_from[one][1])
            one, columns = came_from[one][0], ["state"]
        return tuple(reversed(chain))


class ReachabilityWithout(Reachability):
    """Whether agents would be reachable from an open root if `deleted_agent` were deleted."""

    def __init__(self, plane: Plane, deleted_agent: str) -> None:
        super().__init__(plane)
        self.deleted_agent = deleted_agent

    async def find(self, uid: str) -> AgentRecord | None:
        """The agent's row; that of `deleted_agent` has the state DELETING."""
        row = await super().find(uid)
        if row is None or uid != self.deleted_agent:
            return row
        return row._replace(state=AgentState.DELETING)

    async def find_open_owner(self, uid: str) -> AgentRecord | None:
        """The row of an agent that can become an owner; None if it or its owners are deleted."""
        row = await self.find(uid) if uid else None
        stays = (
            row is not None and row.state not in DELETION_STATES and await self.is_reachable(uid)
        )
        return row if stays else None


def _depth(chain: Sequence[Is]) -> int:
    """How many agents there are in a chain of owners."""
    return sum(guard.table == "agent" for guard in chain)


async def guards_of_new_owner(plane: Plane, row: NamedAgentRecord) -> tuple[Is, ...]:
    """Guards for a new edge from this agent: the agent and its owners have not changed.

    Conflict `wrong_state` if the agent is closed, by itself or by an owner.
    """
    uid, state = row.uid, AgentState(row.state)
    if not PERMISSIONS[state].serves:
        message = f"agent {row.name} is {state} and can own nothing new"
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=uid)
    chain = await require_open_owner(plane, row)
    if _depth(chain) >= OWNERS_MAX:
        raise LimitExceeded(TOO_DEEP)
    return (Is.of(row, "state"), *chain)


async def require_open_owner(plane: Plane, row: AgentRecord) -> tuple[Is, ...]:
    """Guards on a chain of owners that reaches the agent; Conflict `wrong_state` if none does."""
    if row.parent is None:
        return ()
    reachability = Reachability(plane)
    chain = await reachability.guards(row.uid)
    if chain is None:
        why = "its owners own only each other; let another agent own one of them"
        if reachability.closed_owner is not None:
            name, state = reachability.closed_owner.name, reachability.closed_owner.state
            why = f"agent {name}, which is an owner of it, is {state}"
        message = f"agent {row.name} is closed: {why}"
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=row.uid)
    return chain


# --- requests of callers --------------------------------------------------------------------------


async def list_edges(
    plane: Plane, row: AgentRecord, *, after: str = "", limit: int = 100
) -> list[EdgeView]:
    """The edges of an agent after the edge `after` (`kind target`)."""
    uid = row.uid
    kind, _, target = after.partition(" ")
    rows = await plane.store.list_rows(
        EdgeRecord, {"owner": uid}, after=(uid, kind, target), limit=page_of(limit)
    )
    return [_view(one) for one in rows]


async def add_edge(
    plane: Plane,
    caller: Caller,
    owner: NamedAgentRecord,
    *,
    kind: EdgeKind,
    target: NamedAgentRecord | str,
    on_delete: str,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> EdgeView:
    """Add an edge from an agent to a thing; an edge that exists gets this `on_delete`."""
    require(caller, Role.OPERATOR)
    uid = owner.uid
    name = target if isinstance(target, str) else target.uid
    if name == uid:
        raise Invalid("target: an agent does not own itself")
    while True:
        now = plane.store.now()
        guards = await guards_of_new_owner(plane, owner)
        audit_row = audit_line(caller, "edge.add", target=name, now=now, owner=uid, kind=kind)
        known = await plane.store.find(EdgeRecord, (uid, kind, name))
        write: Put | Set = (
            edge_rows.put_edge(caller.tenant, uid, kind, name, on_delete=on_delete, now=now)
            if known is None
            else edge_rows.set_on_delete(known, on_delete)
        )
        parent: tuple[Set, ...] = ()
        if not isinstance(target, str):
            guards += (Is.of(target, "state", "parent"),)
            if not core.PERMISSIONS[AgentState(target.state)].serves:
                message = f"agent {target.name} is {target.state} and cannot get a new owner"
                raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=name)
            new = EdgeRecord(uid, kind, name, caller.tenant, on_delete, now)
            guards += await _guards_of_new_edge(plane, target, new)
            if target.parent is None:
                parent = (agent_rows.set_parent(name, uid),)
        change = Change("", guards, (write, *parent, audit_row))
        view = EdgeView(uid, kind, name, on_delete, now if known is None else known.at)
        if await idempotency.commit(plane, change, view) is None:
            return view
        owner = await _read_again(plane, owner)
        if not isinstance(target, str):
            target = await _read_again(plane, target)


async def _guards_of_new_edge(plane: Plane, target: AgentRecord, new: EdgeRecord) -> tuple[Is, ...]:
    """Guards on a chain of owners that reaches an agent once it has this edge.

    Conflict `wrong_state` if there are none: its owners would own only each other.  LimitExceeded
    if it and all below it would be too deep; edges that are added at the same time are not seen.
    """
    name, uid = target.name, target.uid
    chain = await Reachability(plane, extra_edge=new).guards(uid)
    if chain is None:
        message = (
            f"agent {name} would be owned only by agents that it owns itself, and would not be"
            " reachable from any agent without an owner: let such an agent own one of them first"
        )
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=uid)
    if target.parent is None:  # all below it is further down from now on
        await _refuse_deep(plane, uid, OWNERS_MAX - _depth(chain))
    return chain


async def _refuse_deep(plane: Plane, top: str, most: int) -> None:
    """LimitExceeded if agents own each other more than so deep below this one."""
    level, seen = [top], {top}
    for _ in range(most + 1):
        below: list[str] = []
        for uid in level:
            owned = [row.target for row in await agent_edges_from(plane, uid)]
            below += [one for one in dict.fromkeys(owned) if one not in seen]
            seen.update(below)
            await asyncio.sleep(0)
        if not below:
            return
        level = below
    raise LimitExceeded(TOO_DEEP)


async def _read_again(plane: Plane, row: NamedAgentRecord) -> NamedAgentRecord:
    """The agent of this row as it is now."""
    found = await plane.store.find(AgentRecord, (row.uid,))
    return found if found is not None and is_agent(found) else row


def _view(row: EdgeRecord) -> EdgeView:
    return EdgeView(
        row.owner, row.kind, row.target, row.on_delete,
        float(row.at),
    )  # fmt: skip


def parent_without(row: AgentRecord, owner: str, others: Sequence[str]) -> tuple[Set, ...]:
    """The change of an agent that loses this owner: another one becomes its parent."""
    if row.parent != owner:
        return ()
    left = [one for one in others if one != owner]
    return (agent_rows.set_parent(row.uid, left[0] if left else None),)
