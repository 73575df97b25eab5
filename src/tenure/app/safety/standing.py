"""How an agent that is READY in our records stands with its providers: what drift does about it.

A new runtime has a new key, which nobody has burned.  So a dead one is replaced only if at the same
look all else of the agent is there and open: else it was deleted or suspended where our records do
not tell of it, as after a restore, and does not come back.  What was made since the last restore
has no life that our records do not tell of: there it is enough that the agent is open and nothing
else of it is known to differ, so that one silent provider holds up no other.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, cast

from tenure.app.agents.views import holdings_of, key_of, serving_of
from tenure.app.plane import Plane
from tenure.app.safety.pause import SPAN
from tenure.core.ids import ResourceKey
from tenure.ports.credentials import Credentials
from tenure.ports.provider import Observation, Presence
from tenure.ports.store import Row

RUNTIME, CREDENTIALS = "runtime", "credentials"
THERE = (Presence.READY, Presence.STARTING)
DEAD = (Presence.ABSENT, Presence.BROKEN)


class Standing(StrEnum):
    """What becomes of an agent's runtime."""

    RUNS = "runs"
    REPLACED = "replaced"
    """It is dead, and drift starts another where it repairs."""
    DELETED = "deleted"
    """It is gone with other things of the agent, which looks deleted elsewhere: none comes back."""
    SHUT = "shut"
    """The agent looks suspended elsewhere: a runtime that is dead is not replaced."""
    UNTOLD = "untold"
    """Nobody can tell, since a provider says nothing or something else is not as recorded."""


class AgentResource(NamedTuple):
    """Something an agent holds by our records, and what its provider says of it."""

    slot: str
    key: ResourceKey
    operation: str
    seen: Observation | None = None
    """None: it could not be asked, or was not."""
    error: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether its provider says that it is not there."""
        return self.seen is not None and self.seen.presence is Presence.ABSENT

    @property
    def is_dead(self) -> bool:
        """Whether it is a runtime that runs no more."""
        return self.slot == RUNTIME and self.seen is not None and self.seen.presence in DEAD


def is_at_rest(row: Row) -> bool:
    """Whether no operation works on the agent, or waits to: then what it holds stays as it is."""
    return row["operation"] is None and row["next"] is None


async def held_by(plane: Plane, row: Row) -> list[AgentResource]:
    """What our records say that the agent holds; nobody was asked yet."""
    serving = serving_of(row)
    return [
        AgentResource(slot, key_of(plane, row, slot, one), one.operation)
        for slot, holds in (await holdings_of(plane, str(row["tenant"]), str(row["uid"]))).items()
        for one in holds
        if one.key != serving.instead_of and slot in plane.providers
    ]


async def is_open(plane: Plane, row: Row) -> bool:
    """Whether anything may be minted for the agent, by its provider's word."""
    credentials = cast("Credentials | None", plane.providers.get(CREDENTIALS))
    return credentials is None or await credentials.is_open(str(row["tenant"]), str(row["uid"]))


def standing(row: Row, held: Iterable[AgentResource], *, is_open: bool | None) -> Standing:
    """How the agent stands by what was seen at one look; `is_open` None: that cannot be told.

    While its runtime is not dead nothing else of it needs to be seen.
    """
    runtimes, others = list[AgentResource](), list[AgentResource]()
    for one in held:
        (runtimes if one.slot == RUNTIME else others).append(one)
    dead = [one for one in runtimes if one.is_dead]
    if any(one.is_gone for one in dead) and any(one.is_gone for one in others):
        return Standing.DELETED
    if is_open is False:
        return Standing.SHUT
    if is_open is None or any(one.seen is None for one in runtimes):
        return Standing.UNTOLD
    if not dead:
        return Standing.RUNS
    known = all(_is_since_the_restore(row, one) for one in dead)
    rest = all(known if one.seen is None else one.seen.presence in THERE for one in others)
    return Standing.REPLACED if rest else Standing.UNTOLD


def _is_since_the_restore(row: Row, held: AgentResource) -> bool:
    """Whether it was made in the epoch to which the agent's own number was raised last, if ever."""
    return held.key.generation // SPAN == cast(int, row["generation"]) // SPAN
