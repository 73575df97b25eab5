"""Judges the condition of a READY agent by what its providers report; drift repairs by it.

After a restore our records may not know that an agent was deleted or suspended since.  A new
runtime has a new key that no deletion has burned, so it would bring such an agent back.  Therefore
a dead runtime is replaced only if in the same pass every other resource of the agent exists and is
open.  A runtime that was made after the last restore is in our records completely.  For it, it is
enough that the agent is open and no other resource is known to differ, so that one unresponsive
provider does not block the repair.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, cast

from tenure.app.agents.views import holdings_of, key_of, serving_of
from tenure.app.plane import Plane
from tenure.app.safety.pause import GENERATIONS_PER_EPOCH
from tenure.core.ids import ResourceKey
from tenure.core.records import AgentRecord
from tenure.ports.credentials import Credentials
from tenure.ports.provider import Observation, Presence

RUNTIME, CREDENTIALS = "runtime", "credentials"
PRESENT = (Presence.READY, Presence.STARTING)
DEAD = (Presence.ABSENT, Presence.BROKEN)


class AgentCondition(StrEnum):
    """Whether the runtime of an agent runs, and whether a dead one is replaced."""

    RUNS = "runs"
    NEEDS_RUNTIME = "needs_runtime"
    """The runtime is dead; drift starts a new one if it may repair."""
    DELETED = "deleted"
    """Other resources are gone too: the agent seems deleted elsewhere, and nothing is repaired."""
    CLOSED = "closed"
    """The agent seems suspended elsewhere, so a dead runtime is not replaced."""
    UNVERIFIED = "unverified"
    """Unknown, because a provider does not answer or another resource differs from its record."""


class AgentResource(NamedTuple):
    """A resource that an agent has by our records, and what its provider reports about it."""

    slot: str
    key: ResourceKey
    operation: str
    seen: Observation | None = None
    """The provider's report; None if the provider was not called or did not answer."""
    error: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether its provider reports that it does not exist."""
        return self.seen is not None and self.seen.presence is Presence.ABSENT

    @property
    def is_dead(self) -> bool:
        """Whether it is a runtime that no longer runs."""
        return self.slot == RUNTIME and self.seen is not None and self.seen.presence in DEAD


def is_idle(row: AgentRecord) -> bool:
    """Whether no operation has the agent's lock or waits for it: its resources do not change."""
    return row.operation is None and row.next is None


async def resources_of(plane: Plane, row: AgentRecord) -> list[AgentResource]:
    """The resources that the agent has by our records; no provider is called."""
    serving = serving_of(row)
    return [
        AgentResource(slot, key_of(plane, row, slot, one), one.operation)
        for slot, holds in (await holdings_of(plane, row.tenant, row.uid)).items()
        for one in holds
        if one.key != serving.unused_key and slot in plane.providers
    ]


async def is_open(plane: Plane, row: AgentRecord) -> bool:
    """Whether the credentials provider issues credentials for the agent."""
    credentials = cast("Credentials | None", plane.providers.get(CREDENTIALS))
    return credentials is None or await credentials.is_open(row.tenant, row.uid)


def condition_of(
    row: AgentRecord, resource: Iterable[AgentResource], *, is_open: bool | None
) -> AgentCondition:
    """The agent's condition by the reports of one pass; `is_open` is None if it is unknown.

    While the runtime is not dead, the reports about other resources are not needed.
    """
    runtimes, others = list[AgentResource](), list[AgentResource]()
    for one in resource:
        (runtimes if one.slot == RUNTIME else others).append(one)
    dead = [one for one in runtimes if one.is_dead]
    if any(one.is_gone for one in dead) and any(one.is_gone for one in others):
        return AgentCondition.DELETED
    if is_open is False:
        return AgentCondition.CLOSED
    if is_open is None or any(one.seen is None for one in runtimes):
        return AgentCondition.UNVERIFIED
    if not dead:
        return AgentCondition.RUNS
    known = all(_was_made_after_restore(row, one) for one in dead)
    rest = all(known if one.seen is None else one.seen.presence in PRESENT for one in others)
    return AgentCondition.NEEDS_RUNTIME if rest else AgentCondition.UNVERIFIED


def _was_made_after_restore(row: AgentRecord, resource: AgentResource) -> bool:
    """Whether it was made in the epoch to which the agent's generation was raised last."""
    return (
        resource.key.generation // GENERATIONS_PER_EPOCH == row.generation // GENERATIONS_PER_EPOCH
    )
