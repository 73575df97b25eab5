"""The kinds of things that an agent can own: one row of a table for each kind.

A row says how a caller names such a thing, and what happens to it when its owner is deleted.  A new
kind is a member of `EdgeKind` and a row of `OWNED_KINDS`; the cascade and the reconciler of grants
know no kind by name.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from tenure.app.agents import commands as agents
from tenure.app.agents import edge_rows, ownership
from tenure.app.agents.commands import RequestOptions
from tenure.app.agents.ownership import DELETION_STATES, Reachability, ReachabilityWithout
from tenure.app.agents.views import get_agent_row
from tenure.app.events import subscriptions
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.core.agent import AgentState
from tenure.core.edge import REASSIGN, EdgeKind
from tenure.core.errors import Conflict, Invalid, PlanUnknown
from tenure.core.records import AgentRecord, EdgeRecord, NamedAgentRecord, SubscriptionRecord
from tenure.core.roles import Caller, Role
from tenure.ports.access import Access
from tenure.ports.store import Change, Is, Writes

Guards = tuple[Is, ...]


class EdgePreview(NamedTuple):
    """What would happen to a thing if an owner of it were deleted now."""

    name: str
    """The name of an agent; the target of the edge for anything else."""
    effect: str
    """`delete`, `revoke`, `keep` (another owner stays), or `reassign:` and a uid."""


@dataclass(frozen=True, slots=True)
class OwnedKind:
    """One kind of thing that an agent can own.

    Args:
        find: the thing that a caller names; NotFound if the caller's tenant has none of that name.
        preview: what would happen to it if `reachability.deleted_agent`, its owner, were deleted.
        release: called while the owner is being deleted; ends the edge now, or leaves it to `end`.
        end: ends the edge of an owner that is deleted, with the thing itself unless it has another
            owner.  False if that is not done yet.
        can_be_reassigned: another agent can own it after its owner.
    """

    find: Callable[[Plane, Caller, str], Awaitable[NamedAgentRecord | str]]
    preview: Callable[[ReachabilityWithout, EdgeRecord], Awaitable[EdgePreview]]
    release: Callable[[Plane, ReachabilityWithout, EdgeRecord], Awaitable[None]]
    end: Callable[[Plane, EdgeRecord, Guards], Awaitable[bool]]
    can_be_reassigned: bool = False


async def own(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    kind: EdgeKind,
    target: str,
    on_delete: str,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> ownership.EdgeView:
    """Let an agent own one more thing; the thing is deleted with the last of its owners."""
    owner, owned_kind = await get_agent_row(plane, caller, name), OWNED_KINDS[kind]
    new_owner = on_delete.removeprefix(REASSIGN)
    if new_owner != on_delete:
        if not owned_kind.can_be_reassigned:
            others = " and ".join(
                f"{one}s" for one in OWNED_KINDS if OWNED_KINDS[one].can_be_reassigned
            )
            message = f"on_delete: a {kind} ends with its owner; {others} can be reassigned"
            raise Invalid(message)
        on_delete = REASSIGN + (await get_agent_row(plane, caller, new_owner)).uid
    found = await owned_kind.find(plane, caller, target)
    return await ownership.add_edge(
        plane,
        caller,
        owner,
        kind=kind,
        target=found,
        on_delete=on_delete,
        idempotency=idempotency,
    )


def kind_of(edge: EdgeRecord) -> OwnedKind:
    """The kind of this edge's target; an edge of a kind that is unknown here is left as it is."""
    return OWNED_KINDS.get(edge.kind, _OF_A_NEWER_RELEASE)


# --- things without a lifecycle of their own ------------------------------------------------------


async def _by_name(_plane: Plane, _caller: Caller, name: str) -> str:
    return name


async def _preview_revoke(_: ReachabilityWithout, edge: EdgeRecord) -> EdgePreview:
    return EdgePreview(edge.target, "revoke")


async def _leave(_plane: Plane, _reachability: ReachabilityWithout, _edge: EdgeRecord) -> None:
    """Something else ends the edge."""


async def _drop(plane: Plane, edge: EdgeRecord, guards: Guards) -> bool:
    """End the edge alone."""
    return await plane.store.commit(Change("", guards, (edge_rows.drop_edge(edge),))) is None


async def _drop_now(plane: Plane, _: ReachabilityWithout, edge: EdgeRecord) -> None:
    await _drop(plane, edge, ())


async def _keep_edge(_plane: Plane, _edge: EdgeRecord, _guards: Guards) -> bool:
    return False


# --- grants ---------------------------------------------------------------------------------------


async def _end_grant(plane: Plane, edge: EdgeRecord, guards: Guards) -> bool:
    """Revoke the grants that this owner made; the same grant by another granter stays."""
    access = cast(Access, plane.providers["access"])
    await access.revoke_granter(edge.tenant, edge.owner)
    return await _drop(plane, edge, guards)


async def _release_grant(plane: Plane, _: ReachabilityWithout, edge: EdgeRecord) -> None:
    await _end_grant(plane, edge, ())


# --- webhooks -------------------------------------------------------------------------------------


async def _find_webhook(plane: Plane, caller: Caller, name: str) -> str:
    """Refuse another tenant's webhook: an owner of it could prevent its deletion."""
    await subscriptions.get_subscription_row(plane, caller, name)
    return name


async def _preview_webhook(reachability: ReachabilityWithout, edge: EdgeRecord) -> EdgePreview:
    target, new_owner = edge.target, ownership.new_owner_of(edge)
    owner = await _next_owner(reachability, edge)
    if owner is None:
        return EdgePreview(target, "revoke")
    return EdgePreview(target, f"reassign:{new_owner}" if owner.uid == new_owner else "keep")


async def _end_webhook(plane: Plane, edge: EdgeRecord, guards: Guards) -> bool:
    """Give a subscription to its next owner; remove it if there is none.

    A subscription about its owner stays until the event of that owner's end was delivered.
    """
    owner, tenant, target = edge.owner, edge.tenant, edge.target
    subscription = await plane.store.find(SubscriptionRecord, (target,))
    if subscription is None or subscription.tenant != tenant:
        return await _drop(plane, edge, guards)
    if subscription.agent == owner:
        agent = await plane.store.find(AgentRecord, (owner,))
        gone = agent is None or agent.state == AgentState.DELETED
        if not gone or not await subscriptions.may_be_removed(plane, subscription, agent):
            return False
    elif next_owner := await _next_owner(ReachabilityWithout(plane, owner), edge):
        uid = next_owner.uid
        guards += (Is.of(next_owner, "state"),)
        writes: Writes = (edge_rows.drop_edge(edge),)
        if await plane.store.find(EdgeRecord, (uid, EdgeKind.WEBHOOK, target)) is None:
            now = plane.store.now()
            writes += (edge_rows.put_edge(tenant, uid, EdgeKind.WEBHOOK, target, now=now),)
        return await plane.store.commit(Change("", guards, writes)) is None
    caller = Caller(tenant, f"deletion of {owner}", Role.OPERATOR)
    return await subscriptions.remove(plane, caller, subscription, guards=guards)


async def _release_webhook(plane: Plane, _: ReachabilityWithout, edge: EdgeRecord) -> None:
    await _end_webhook(plane, edge, ())


async def _next_owner(reachability: ReachabilityWithout, edge: EdgeRecord) -> AgentRecord | None:
    """The owner of a subscription after this one: the agent that was named, or another owner.

    The agent that the subscription is about does not count as an owner.
    """
    store, target = reachability.plane.store, edge.target
    subscription = await store.find(SubscriptionRecord, (target,))
    owners = await ownership.edges_to(reachability.plane, target, EdgeKind.WEBHOOK)
    others = [one.owner for one in owners if one.tenant == edge.tenant]
    excluded = {edge.owner, "" if subscription is None else subscription.agent}
    for uid in (ownership.new_owner_of(edge), *(one for one in others if one not in excluded)):
        if (row := await reachability.find_open_owner(uid)) is not None:
            return row
    return None


# --- agents ---------------------------------------------------------------------------------------


async def _preview_agent(reachability: ReachabilityWithout, edge: EdgeRecord) -> EdgePreview:
    target, new_owner = edge.target, ownership.new_owner_of(edge)
    row = await reachability.find(target)
    name = (row and row.name) or target
    if target == reachability.deleted_agent:
        return EdgePreview(name, "keep")  # it is the one that is being deleted
    if await reachability.is_reachable(target):
        return EdgePreview(name, f"reassign:{new_owner}" if new_owner else "keep")
    return EdgePreview(name, "delete")


async def _release_agent(plane: Plane, reachability: ReachabilityWithout, edge: EdgeRecord) -> None:
    """End the edge to an agent that stays; the cascade deletes the others, and then their edges."""
    target = edge.target
    chain = await reachability.guards(target)
    child = await plane.store.find(AgentRecord, (target,))
    if child is None:
        await _drop(plane, edge, ())
    elif chain:
        await _pass_on(plane, edge, child, chain)


async def _end_agent(plane: Plane, edge: EdgeRecord, guards: Guards) -> bool:
    """Pass the agent on if it has another owner; otherwise request its deletion."""
    owner, target = edge.owner, edge.target
    child = await plane.store.find(AgentRecord, (target,))
    if child is None or child.state == AgentState.DELETED:
        return await _drop(plane, edge, guards)
    chain = await Reachability(plane).guards(target)
    if chain:
        await _pass_on(plane, edge, child, (*guards, *chain))
        return True
    if child.state != AgentState.DELETING:
        await request_delete(plane, child, f"deletion of {owner}")
    return False


async def _pass_on(plane: Plane, edge: EdgeRecord, child: AgentRecord, guards: Guards) -> None:
    """Remove this owner of an agent that stays; add the next owner that the edge names, if any."""
    owner, target, new_owner = edge.owner, edge.target, ownership.new_owner_of(edge)
    others = [one.owner for one in await ownership.edges_to(plane, target)]
    guards = (*guards, Is.of(child, "parent"))
    writes: Writes = (edge_rows.drop_edge(edge),)
    row = (
        await plane.store.find(AgentRecord, (new_owner,))
        if new_owner and new_owner not in others
        else None
    )
    if (
        row is not None
        and row.state not in DELETION_STATES
        and await Reachability(plane).is_reachable(new_owner)
    ):
        now, tenant = plane.store.now(), edge.tenant
        guards += (Is.of(row, "state"),)
        writes += (edge_rows.put_edge(tenant, new_owner, EdgeKind.AGENT, target, now=now),)
        others = [new_owner, *others]
    writes += ownership.parent_without(child, owner, others)
    await plane.store.commit(Change("", guards, writes))


async def request_delete(plane: Plane, row: AgentRecord, operation: str) -> None:
    """Request the deletion of the agent of this row, for an operation that deletes its owner.

    The idempotency key has the agent's generation, so it is new after a delete was cancelled.
    """
    child = row.uid
    caller = Caller(row.tenant, f"operation {operation}", Role.OPERATOR)
    request_options = RequestOptions(idempotency_key=f"{operation}/{child}/{row.generation}")
    # Refused if another operation closes the agent, or if only a newer release can delete it.  The
    # next poll requests the deletion again.
    with suppress(Conflict, PlanUnknown):
        await agents.delete_agent(
            plane, caller, child, cascade_operation=operation, request_options=request_options
        )


# --- the table ------------------------------------------------------------------------------------

OWNED_KINDS: Final[Mapping[str, OwnedKind]] = {
    EdgeKind.AGENT: OwnedKind(
        get_agent_row, _preview_agent, _release_agent, _end_agent, can_be_reassigned=True
    ),
    EdgeKind.GRANT: OwnedKind(_by_name, _preview_revoke, _release_grant, _end_grant),
    EdgeKind.WEBHOOK: OwnedKind(
        _find_webhook, _preview_webhook, _release_webhook, _end_webhook, can_be_reassigned=True
    ),
    # Steps of the deletion itself remove an agent's credentials, and their edges with them.
    EdgeKind.CREDENTIAL: OwnedKind(_by_name, _preview_revoke, _leave, _drop),
    EdgeKind.SESSION: OwnedKind(_by_name, _preview_revoke, _drop_now, _drop),
}
_OF_A_NEWER_RELEASE = OwnedKind(_by_name, _preview_revoke, _leave, _keep_edge)
