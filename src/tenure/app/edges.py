"""Edges: what an agent owns or has granted, and whether somebody still answers for it.

An edge is written in the commit that makes its target, and dropped in the one that ends it.  An
agent that others own is open only while a chain of open owners leads up from it to one that nobody
owns: so the one commit that closes an agent closes everything below it, however much that is, and a
close that is taken back opens it again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tenure.app.audit import entry
from tenure.app.pages import every, page_of
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import CONDUCT, State
from tenure.core.edge import REASSIGN, REVOKE, EdgeKind
from tenure.core.errors import Conflict, Invalid, LimitExceeded
from tenure.core.limits import OWNERS_MAX, PAGE_MAX
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Drop, Is, Put, Row, Set

GOING: Final = frozenset({State.DELETING, State.DELETE_FAILED, State.DELETED})
"""States in which an agent answers for nothing any more."""
_UID = re.compile(r"[0-9a-f]{32}")


class EdgeView(NamedTuple):
    """An edge as it is shown."""

    owner: str
    kind: str
    target: str
    on_delete: str
    at: float


def edge(
    tenant: str, owner: str, kind: EdgeKind, target: str, *, on_delete: str = REVOKE, now: float
) -> Put:
    """The row of an edge, to be committed with its target."""
    return Put("edge", (owner, kind, target), {"tenant": tenant, "on_delete": on_delete, "at": now})


def reassigned(row: Row) -> str:
    """The agent that gets the target when the owner goes; empty: nobody."""
    return str(row["on_delete"]).removeprefix(REASSIGN) if _moves(row) else ""


def refuse_heir(kind: EdgeKind) -> None:
    """Invalid if what stands at the end of such an edge cannot be another's."""
    if kind not in {EdgeKind.AGENT, EdgeKind.WEBHOOK}:
        message = f"on_delete: a {kind} ends with its owner; agents and webhooks can be reassigned"
        raise Invalid(message)


def _moves(row: Row) -> bool:
    return str(row["on_delete"]).startswith(REASSIGN)


async def owners_of(
    plane: Plane, target: str, kind: EdgeKind = EdgeKind.AGENT
) -> Sequence[Row]:
    """The edges by which agents own this agent, or another thing."""
    said: Row = {"target": target, "kind": kind}
    return await plane.store.list_rows("edge", said, limit=PAGE_MAX)


async def edges_of(plane: Plane, uid: str) -> list[Row]:
    """Every edge that begins at an agent, agents that it owns first."""
    found = [row async for row in every(plane.store, "edge", {"owner": uid})]
    return [*await _unwritten(plane, uid, {str(row["target"]) for row in found}), *found]


async def _unwritten(plane: Plane, uid: str, known: set[str]) -> list[Row]:
    """The edges of agents that the release before this one has made: it wrote the parent alone."""
    children = await plane.store.list_rows("agent", {"parent": uid}, limit=PAGE_MAX)
    return [
        {"owner": uid, "kind": EdgeKind.AGENT, "target": child["uid"], "tenant": child["tenant"],
         "on_delete": REVOKE, "at": child["created_at"]}
        for child in children
        if child["uid"] not in known and child["state"] != State.DELETED
    ]  # fmt: skip


async def owned_by(plane: Plane, uid: str) -> list[Row]:
    """The edges from an agent to those that it owns."""
    return [row for row in await edges_of(plane, uid) if row["kind"] == EdgeKind.AGENT]


async def agent_that_asks(plane: Plane, caller: Caller) -> Row | None:
    """The agent that asks, if it is one: what it makes or grants goes with it."""
    if not _UID.fullmatch(caller.principal):
        return None
    row = await plane.store.find("agent", (caller.principal,))
    return None if row is None or row["tenant"] != caller.tenant else row


class Vouching:
    """Whether somebody open answers for an agent, as of one reading; each agent is read once."""

    def __init__(self, plane: Plane) -> None:
        """Nothing is read yet."""
        self.plane = plane
        self._known: dict[str, bool] = {}
        self._rows: dict[str, Row | None] = {}

    async def find(self, uid: str) -> Row | None:
        """The agent's row, as this reading knows it."""
        if uid not in self._rows:
            self._rows[uid] = await self.plane.store.find("agent", (uid,))
        return self._rows[uid]

    async def guards(self, uid: str) -> tuple[Is, ...] | None:
        """The chain of owners that answers for this agent, as guards; None: nobody does.

        Of an agent that nobody owns the chain is empty.
        """
        seen: dict[str, None] = {uid: None}
        chain = await self._up(uid, seen)
        if chain is None:
            self._known.update(dict.fromkeys(seen, False))
        return None if chain is None else tuple(chain)

    async def vouched(self, uid: str) -> bool:
        """Whether there is such a chain."""
        if uid not in self._known:
            self._known[uid] = await self.guards(uid) is not None
        return self._known[uid]

    async def _up(self, uid: str, seen: dict[str, None]) -> list[Is] | None:
        edges = await owners_of(self.plane, uid)
        if not edges:
            return []
        for above in _above(edges):
            if above in seen or self._known.get(above) is False:
                continue
            seen[above] = None
            row = await self.find(above)
            if row is None or row["state"] in GOING:
                continue
            chain = await self._up(above, seen)
            if chain is not None:
                return [Is("agent", (above,), {"state": row["state"]}), *chain]
        return None


def _above(edges: Sequence[Row]) -> Iterator[str]:
    """Those who own it, and those who are to own it when these go."""
    for row in edges:
        yield str(row["owner"])
    for row in edges:
        if _moves(row):
            yield reassigned(row)


async def guards_below(plane: Plane, row: Row) -> tuple[Is, ...]:
    """What must hold for something new below this agent: it and its owners stay as they are.

    Conflict `wrong_state` if the agent is closed, by itself or by an owner.
    """
    uid, state = str(row["uid"]), State(str(row["state"]))
    if not CONDUCT[state].serves:
        message = f"agent {row['name']!s} is {state} and can own nothing new"
        raise Conflict(message, code="wrong_state", holder=uid)
    chain = await guards_of(plane, row)
    if len(chain) >= OWNERS_MAX:
        raise LimitExceeded(f"agents own each other at most {OWNERS_MAX} deep")
    return (Is("agent", (uid,), {"state": state}), *chain)


async def guards_of(plane: Plane, row: Row) -> tuple[Is, ...]:
    """The owners that answer for an agent, as guards; Conflict `wrong_state` if none does."""
    if row["parent"] is None:
        return ()
    chain = await Vouching(plane).guards(str(row["uid"]))
    if chain is None:
        message = f"agent {row['name']!s} is closed: an agent that owns it is being deleted"
        raise Conflict(message, code="wrong_state", holder=str(row["uid"]))
    return chain


# --- what callers ask -----------------------------------------------------------------------------


async def list_edges(
    plane: Plane, row: Row, *, after: str = "", limit: int = 100
) -> list[EdgeView]:
    """What an agent owns or has granted, beyond the edge `after` (`kind target`)."""
    uid = str(row["uid"])
    kind, _, target = after.partition(" ")
    rows = await plane.store.list_rows(
        "edge", {"owner": uid}, after=(uid, kind, target), limit=page_of(limit)
    )
    return [_view(one) for one in rows]


async def add_edge(
    plane: Plane, caller: Caller, owner: Row, *, kind: EdgeKind, target: Row | str, on_delete: str
) -> EdgeView:
    """Let an agent own one more thing; what it owns already is changed to this `on_delete`."""
    require(caller, Role.OPERATOR)
    uid = str(owner["uid"])
    name = target if isinstance(target, str) else str(target["uid"])
    if name == uid:
        raise Invalid("target: an agent does not own itself")
    while True:
        now = plane.store.now()
        guards = await guards_below(plane, owner)
        put = edge(caller.tenant, uid, kind, name, on_delete=on_delete, now=now)
        told = entry(caller, "edge.add", target=name, now=now, owner=uid, kind=kind)
        known = await plane.store.find("edge", (uid, kind, name))
        write: Put | Set = put if known is None else Set("edge", put.key, {"on_delete": on_delete})  # type: ignore[arg-type]
        also: tuple[Set, ...] = ()
        if not isinstance(target, str):
            as_read = {"state": target["state"], "parent": target["parent"]}
            guards += (Is("agent", (name,), as_read),)
            if not core.CONDUCT[State(str(target["state"]))].serves:
                message = f"agent {target['name']!s} is {target['state']!s} and can be given nobody"
                raise Conflict(message, code="wrong_state", holder=name)
            if target["parent"] is None:
                also = (Set("agent", (name,), {"parent": uid}),)
        change = Change("", guards, (write, *also, told))
        if await plane.store.commit(change) is None:
            at = now if known is None else float(str(known["at"]))
            return EdgeView(uid, kind, name, on_delete, at)
        owner, target = await _again(plane, owner, target)


async def _again(plane: Plane, owner: Row, target: Row | str) -> tuple[Row, Row | str]:
    """Both as they are now."""
    row = await plane.store.find("agent", (str(owner["uid"]),))
    if not isinstance(target, str):
        target = await plane.store.find("agent", (str(target["uid"]),)) or target
    return row or owner, target


def _view(row: Mapping[str, object]) -> EdgeView:
    return EdgeView(
        str(row["owner"]), str(row["kind"]), str(row["target"]), str(row["on_delete"]),
        float(str(row["at"])),
    )  # fmt: skip


def without(row: Row, owner: str, others: Sequence[str]) -> tuple[Set, ...]:
    """The child's row once this owner lets go of it: another is shown as its parent."""
    if row["parent"] != owner:
        return ()
    left = [one for one in others if one != owner]
    return (Set("agent", (str(row["uid"]),), {"parent": left[0] if left else None}),)


def dropped(row: Row) -> Drop:
    """An edge that is no longer."""
    return Drop("edge", (str(row["owner"]), str(row["kind"]), str(row["target"])))
