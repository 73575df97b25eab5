"""Reactions: the plane's own subscribers to changes of agents' states.

They receive events at least once, like other subscribers, so each of them is idempotent.  The
wiring of a plane can leave out or replace each of them.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tenure.app.events import acknowledgements, subscriptions
from tenure.app.plane import Plane
from tenure.app.tenancy.quota_rows import AGENTS, drop_reservation
from tenure.core.agent import AgentState
from tenure.core.agent_events import agent_event
from tenure.core.errors import Unavailable
from tenure.core.records import AgentRecord, ReservationRecord
from tenure.core.roles import Caller, Role
from tenure.ports.bus import Outgoing
from tenure.ports.store import Change, Is

React = Callable[[Plane, Outgoing], Awaitable[None]]
DELETED_STATES: Final = (AgentState.DELETED, AgentState.CREATE_FAILED)


class Reaction(NamedTuple):
    """A function, and the events that it reacts to."""

    types: tuple[str, ...]
    react: React


async def remove_webhooks(plane: Plane, event: Outgoing) -> None:
    """Remove subscriptions to a deleted agent, once they have received its last event.

    Unavailable while one has not received it: the event is delivered again, for a limited time.
    """
    caller = Caller(event.tenant, f"event {event.id}", Role.OPERATOR)
    agent = await plane.store.find(AgentRecord, (event.agent,))
    waiting: list[str] = []
    for row in await subscriptions.rows_of(plane, event.tenant):
        if row.agent != event.agent:
            continue
        if await subscriptions.may_be_removed(plane, row, agent):
            await subscriptions.remove(plane, caller, row)
        else:
            waiting.append(row.name)
    if waiting:
        raise Unavailable(f"{', '.join(waiting)} has not received {event.id} yet")


async def release_quota(plane: Plane, event: Outgoing) -> None:
    """Release the quota of a deleted agent; usually the commit that deleted it has done so."""
    key = (event.tenant, AGENTS, event.agent)
    if await plane.store.find(ReservationRecord, key) is None:
        return
    agent = await plane.store.find(AgentRecord, (event.agent,))
    if agent is None or agent.state not in DELETED_STATES:
        return
    guard = Is.of(agent, "state")
    await plane.store.commit(Change("", (guard,), (drop_reservation(*key),)))


async def close_waits(plane: Plane, event: Outgoing) -> None:
    """Close acknowledgements of deleted subscribers and of operations that have ended."""
    caller = Caller(event.tenant, f"event {event.id}", Role.OPERATOR)
    await acknowledgements.close_stale(plane, caller)


_READY, _SUSPENDED = agent_event(AgentState.READY), agent_event(AgentState.SUSPENDED)
_DELETED, _CREATE_FAILED = agent_event(AgentState.DELETED), agent_event(AgentState.CREATE_FAILED)
REACTIONS: Final[Mapping[str, Reaction]] = MappingProxyType(
    {
        "remove-webhooks": Reaction((_DELETED,), remove_webhooks),
        "release-quota": Reaction((_DELETED, _CREATE_FAILED), release_quota),
        "close-waits": Reaction(
            (
                _READY,
                _SUSPENDED,
                _DELETED,
            ),
            close_waits,
        ),
    }
)
"""The plane's own subscribers, by name."""
