"""The cascade: what goes with an agent that is deleted, seen before and carried out after.

Only the operation that a caller asked for walks the graph.  It asks for the deletion of everything
that nobody else answers for, all at once, and waits for all of it; the operations that it asks for
wait for nothing, so a cycle holds nobody up.  Two callers' deletions in one cycle would wait for
each other: of those the younger does not wait.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple, cast

from tenure.app.agents import commands as agents
from tenure.app.agents import ownership
from tenure.app.agents.commands import Asked
from tenure.app.agents.ownership import GOING, Vouching
from tenure.app.agents.subject import input_of_row
from tenure.app.events import subscriptions
from tenure.app.plane import Plane
from tenure.core.agent import AgentState, Verb
from tenure.core.edge import EdgeKind
from tenure.core.errors import Conflict, PlanUnknown
from tenure.core.roles import Caller, Role
from tenure.plans.agents.delete import DeleteInput
from tenure.ports.access import Access
from tenure.ports.plane_api import OwnedAgents
from tenure.ports.store import Change, Drop, Is, Row, Writes

ASKED_AT_ONCE = 250
"""Deletions asked for side by side; their commits share transactions."""
ASKING_SECONDS = 8.0
"""How long one look goes on asking: it must be over before its call is taken for lost."""
DROPPED_AT_ONCE = 500
"""Edges that are dropped in one change."""
LATER = frozenset({EdgeKind.CREDENTIAL})
"""Edges that end with the deletion itself: what they stand for is removed by steps of its own."""
BREATH = 64
"""Agents read before others have the loop."""


class Branch(NamedTuple):
    """One edge of a cascade as it would be, or is, carried out."""

    owner: str
    kind: str
    target: str
    name: str
    """The agent's name; of anything else the target itself."""
    depth: int
    fate: str
    """delete, revoke, keep (others answer for it), or reassign:<uid>."""


async def tree(plane: Plane, row: Row, *, limit: int) -> list[Branch]:
    """What would go with this agent, each edge once, every owner before what it owns."""
    uid = str(row["uid"])
    vouching = _Without(plane, uid)
    found: list[Branch] = []
    queue, seen = [(uid, 0)], {uid}
    while queue and len(found) < limit:
        owner, depth = queue.pop()
        below: list[tuple[str, int]] = []
        for one in await ownership.edges_of(plane, owner):
            branch = await _branch(vouching, one, depth + 1)
            found.append(branch)
            if branch.fate == "delete" and branch.target not in seen:
                seen.add(branch.target)
                below.append((branch.target, depth + 1))
        queue += reversed(below)
        await asyncio.sleep(0)
    return found[:limit]


class _Without(Vouching):
    """Who would answer for an agent if this one were being deleted."""

    def __init__(self, plane: Plane, root: str) -> None:
        super().__init__(plane)
        self.root = root

    async def find(self, uid: str) -> Row | None:
        """As it is; but the root is as good as gone."""
        row = await super().find(uid)
        return (
            {**row, "state": AgentState.DELETING} if row is not None and uid == self.root else row
        )

    async def takes(self, heir: str) -> Row | None:
        """The agent that can be given something: it is not going itself, nor are its owners."""
        row = await self.find(heir) if heir else None
        stays = row is not None and row["state"] not in GOING and await self.vouched(heir)
        return row if stays else None


async def _branch(vouching: _Without, one: Row, depth: int) -> Branch:
    owner, kind, target = str(one["owner"]), str(one["kind"]), str(one["target"])
    heir = ownership.reassigned(one)
    if kind != EdgeKind.AGENT:
        keeper = await _keeper(vouching, one) if kind == EdgeKind.WEBHOOK else None
        fate = "revoke" if keeper is None else "keep"
        if keeper is not None and keeper["uid"] == heir:
            fate = f"reassign:{heir}"
        return Branch(owner, kind, target, target, depth, fate)
    row = await vouching.find(target)
    name = target if row is None else str(row["name"])
    fate = "delete"
    if target == vouching.root:
        fate = "keep"  # it is what is being deleted
    elif await vouching.vouched(target):
        fate = f"reassign:{heir}" if heir else "keep"
    return Branch(owner, kind, target, name, depth, fate)


# --- carrying it out ------------------------------------------------------------------------------


async def delete_below(plane: Plane, agent: str, operation: str) -> OwnedAgents:
    """Let go of what others answer for, and have everything else below this agent deleted."""
    mine = await plane.store.find("operation", (operation,))
    await _let_go(plane, agent)
    if mine is not None and _is_part_of_cascade(mine):
        return OwnedAgents(())  # the operation that requested this one walks the graph
    doomed = await _doomed(plane, agent)
    wanted = [
        row for row in doomed if row["state"] not in {AgentState.DELETING, AgentState.DELETED}
    ]
    asked = await _ask(plane, wanted, operation)
    above = await _above(plane, agent) if doomed else frozenset[str]()
    left = [
        str(row["name"])
        for row in doomed
        if row["state"] != AgentState.DELETED
        and not (str(row["uid"]) in above and await _is_older(plane, row, operation))
    ]
    if not left:
        await _drop(plane, [agent, *(str(row["uid"]) for row in doomed)])
    return OwnedAgents(left, more=len(wanted) > asked)


async def _ask(plane: Plane, wanted: list[Row], operation: str) -> int:
    """Have these deleted, as many as there is time for; how many that were."""
    until, asked = plane.store.now() + ASKING_SECONDS, 0
    while asked < len(wanted):
        part = wanted[asked : asked + ASKED_AT_ONCE]
        await asyncio.gather(*(_delete(plane, row, operation) for row in part))
        asked += len(part)
        if plane.store.now() >= until:
            break
    return asked


async def _drop(plane: Plane, owners: list[str]) -> None:
    """End the edges between agents that are all gone: until now they were the way down."""
    gone = set(owners[1:])
    drops: list[Drop] = []
    for uid in owners:
        drops += [
            ownership.dropped(row)
            for row in await ownership.owned_by(plane, uid)
            if str(row["target"]) in gone
        ]
        if len(drops) >= DROPPED_AT_ONCE:
            await plane.store.commit(Change("", (), tuple(drops)))
            drops = []
    await plane.store.commit(Change("", (), tuple(drops)))


async def _let_go(plane: Plane, agent: str) -> None:
    """End every edge of this agent but those to agents that go with it."""
    vouching = _Without(plane, agent)
    for row in await ownership.edges_of(plane, agent):
        if row["kind"] != EdgeKind.AGENT:
            if row["kind"] not in LATER:
                await take_away(plane, row)
            continue
        target = str(row["target"])
        chain = await vouching.guards(target)
        child = await plane.store.find("agent", (target,))
        if child is None:
            await plane.store.commit(Change("", (), (ownership.dropped(row),)))
        elif chain:
            await _hand_on(plane, row, child, chain)


async def _hand_on(plane: Plane, row: Row, child: Row, chain: tuple[Is, ...]) -> None:
    """The child stays: it loses this owner, and gets the one that was named instead."""
    owner, target, heir = str(row["owner"]), str(row["target"]), ownership.reassigned(row)
    others = [str(one["owner"]) for one in await ownership.owners_of(plane, target)]
    guards = (*chain, Is("agent", (target,), {"parent": child["parent"]}))
    writes: Writes = (ownership.dropped(row),)
    takes = await plane.store.find("agent", (heir,)) if heir and heir not in others else None
    if takes is not None and takes["state"] not in GOING and await Vouching(plane).vouched(heir):
        now = plane.store.now()
        guards += (Is("agent", (heir,), {"state": takes["state"]}),)
        writes += (ownership.edge(str(row["tenant"]), heir, EdgeKind.AGENT, target, now=now),)
        others = [heir, *others]
    writes += ownership.without(child, owner, others)
    await plane.store.commit(Change("", guards, writes))


async def _doomed(plane: Plane, root: str) -> list[Row]:
    """Every agent below this one that nobody open answers for, in the order of the walk."""
    vouching = _Without(plane, root)
    found: list[Row] = []
    queue, seen = [root], {root}
    for uid in queue:
        for one in await ownership.owned_by(plane, uid):
            target = str(one["target"])
            if target in seen:
                continue
            seen.add(target)
            if len(seen) % BREATH == 0:
                await asyncio.sleep(0)
            row = await vouching.find(target)
            if row is None or (row["state"] not in GOING and await vouching.vouched(target)):
                continue
            found.append(row)
            queue.append(target)
    return found


async def _above(plane: Plane, uid: str) -> frozenset[str]:
    """Everyone who owns this agent, however far up."""
    queue, seen = [uid], {uid}
    for one in queue:
        for row in await ownership.owners_of(plane, one):
            owner = str(row["owner"])
            if owner not in seen:
                seen.add(owner)
                queue.append(owner)
    return frozenset(seen)


async def _is_older(plane: Plane, row: Row, operation: str) -> bool:
    """Whether a caller's own deletion of this agent began before ours, and waits for us."""
    for holder in (str(row["next"] or ""), str(row["operation"] or "")):
        theirs = await plane.store.find("operation", (holder,)) if holder else None
        if theirs is None or input_of_row(theirs).queued:
            continue  # a queued operation has not begun
        if theirs["kind"] != Verb.DELETE or holder > operation:
            return False
        return not _is_part_of_cascade(theirs)
    return False


def _is_part_of_cascade(operation: Row) -> bool:
    """Whether another operation requested this delete, and not a caller."""
    values = input_of_row(operation)
    return isinstance(values, DeleteInput) and bool(values.cascade)


async def _delete(plane: Plane, row: Row, operation: str) -> None:
    """Under a key that is new once an earlier delete of the child was cancelled."""
    child = str(row["uid"])
    caller = Caller(str(row["tenant"]), f"operation {operation}", Role.OPERATOR)
    asked = Asked(idempotency_key=f"{operation}/{child}/{row['generation']!s}")
    # Another operation closes it, or only a newer release can: it is asked again at the next look.
    with suppress(Conflict, PlanUnknown):
        await agents.delete_agent(plane, caller, child, cascade=operation, asked=asked)


async def take_away(plane: Plane, row: Row, *, guards: tuple[Is, ...] = ()) -> bool:
    """End an edge whose owner is going, with what it stands for; False if that is not done yet.

    What somebody else has granted too stays with them: only what this owner gave is taken.
    """
    owner, kind, target = str(row["owner"]), str(row["kind"]), str(row["target"])
    if kind == EdgeKind.GRANT:
        access = cast(Access, plane.providers["access"])
        await access.revoke_granter(str(row["tenant"]), owner)
    elif kind == EdgeKind.WEBHOOK:
        return await _take_webhook(plane, row, guards=guards)
    elif kind == EdgeKind.AGENT:
        child = await plane.store.find("agent", (target,))
        if child is not None and child["state"] != AgentState.DELETED:
            chain = await Vouching(plane).guards(target)
            if chain:
                await _hand_on(plane, row, child, (*guards, *chain))
                return True
            if child["state"] != AgentState.DELETING:
                await _delete(plane, child, f"deletion of {owner}")
            return False
    return await plane.store.commit(Change("", guards, (ownership.dropped(row),))) is None


async def _take_webhook(plane: Plane, row: Row, *, guards: tuple[Is, ...]) -> bool:
    """A subscription goes with who made it, or to who was named instead.

    One that is about its owner stays until it was told of the end, which is yet to come.
    """
    owner, tenant = str(row["owner"]), str(row["tenant"])
    subscription = await plane.store.find("subscription", (str(row["target"]),))
    if subscription is None or subscription["tenant"] != tenant:
        return await plane.store.commit(Change("", guards, (ownership.dropped(row),))) is None
    if subscription["agent"] == owner:
        agent = await plane.store.find("agent", (owner,))
        gone = agent is None or agent["state"] == AgentState.DELETED
        if not gone or not await subscriptions.may_go(plane, subscription, agent):
            return False
    elif keeper := await _keeper(_Without(plane, owner), row):
        uid, target = str(keeper["uid"]), str(row["target"])
        guards += (Is("agent", (uid,), {"state": keeper["state"]}),)
        writes: Writes = (ownership.dropped(row),)
        if await plane.store.find("edge", (uid, EdgeKind.WEBHOOK, target)) is None:
            now = plane.store.now()
            writes += (ownership.edge(tenant, uid, EdgeKind.WEBHOOK, target, now=now),)
        return await plane.store.commit(Change("", guards, writes)) is None
    caller = Caller(tenant, f"deletion of {owner}", Role.OPERATOR)
    return await subscriptions.remove(plane, caller, subscription, guards=guards)


async def _keeper(vouching: _Without, row: Row) -> Row | None:
    """Who has a subscription when this owner goes: who was named, or who owns it as well.

    The agent that it is about only ends it.
    """
    store, target = vouching.plane.store, str(row["target"])
    subscription = await store.find("subscription", (target,)) or {"agent": ""}
    owners = await ownership.owners_of(vouching.plane, target, EdgeKind.WEBHOOK)
    others = [str(one["owner"]) for one in owners if one["tenant"] == row["tenant"]]
    apart = {str(row["owner"]), str(subscription["agent"])}
    for uid in (ownership.reassigned(row), *(one for one in others if one not in apart)):
        if (keeper := await vouching.takes(uid)) is not None:
            return keeper
    return None
