"""Dead letters: what a destination has not taken, and what a person can do about it."""

from collections.abc import AsyncIterator
from typing import NamedTuple, cast

from tenure.app.events.subscriptions import get_subscription_row
from tenure.app.pages import every, page_of
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import entry
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Drop, Is, Key, Row, Set, Value

DROPPED = 500
"""Letters that go in one commit."""


BEHIND = "it waits for the event before it"


class LetterView(NamedTuple):
    """A dead letter as it is shown."""

    row: Row
    why: str
    """What the destination said to it, or that it was not sent."""
    attempts: int
    """How often it was sent in vain; 0: one before it of the same agent stands in its way."""
    parked_since: float
    due_at: float | None


async def list_letters(
    plane: Plane, caller: Caller, subscription: str, *, after: Key = (), limit: int = 100
) -> list[LetterView]:
    """Letters of a subscription, agent by agent, each agent's in the order of its events.

    An agent's next event leaves when the one before is taken: so of each only the first was sent.
    """
    require(caller, Role.VIEWER)
    await get_subscription_row(plane, caller, subscription)
    limit = page_of(limit)
    beyond = (subscription, *after) if after else ()
    rows = await plane.store.list_rows(
        "letter", {"destination": subscription}, after=beyond, limit=limit
    )
    streams = {row["agent"]: row async for row in _parked(plane, subscription)}
    found: list[LetterView] = []
    before: Value = after[0] if after else None
    for row in rows:
        parked = streams.get(row["agent"], {})
        was_sent, before = row["agent"] != before, row["agent"]
        found.append(
            LetterView(
                row, str(parked.get("why", "")) if was_sent else BEHIND,
                cast(int, parked.get("attempts", 0)) if was_sent else 0,
                cast(float, parked.get("since", row["at"])),
                cast("float | None", parked.get("due_at")),
            )
        )  # fmt: skip
    return found


async def replay(plane: Plane, caller: Caller, subscription: str, *, agent: str = "") -> int:
    """Have the letters tried again now; how many agents' streams that concerns.

    A destination that takes nothing at all, and so has no letters, is tried now as well.
    """
    require(caller, Role.OPERATOR)
    await get_subscription_row(plane, caller, subscription)
    now, count = plane.store.now(), 0
    cursor = None if agent else await plane.store.find("cursor", (subscription,))
    if cursor is not None and cursor["since"] is not None:
        failing = Is("cursor", (subscription,), {"attempts": cursor["attempts"]})
        told = entry(caller, "letters.replay", target=subscription, now=now)
        write = Set("cursor", (subscription,), {"due_at": now})
        await plane.store.commit(Change("", (failing,), (write, told)))
    async for row in _parked(plane, subscription, agent):
        key = (subscription, str(row["agent"]))
        guard = Is("parked", key, {"attempts": row["attempts"]})
        told = entry(caller, "letters.replay", target=subscription, now=now, agent=key[1])
        write = Set("parked", key, {"due_at": now, "attempts": 0})
        count += await plane.store.commit(Change("", (guard,), (write, told))) is None
    plane.subscription_changes.notify()
    return count


async def discard(plane: Plane, caller: Caller, subscription: str, *, agent: str) -> int:
    """Give up an agent's letters: its next event is sent as if they had been taken."""
    require(caller, Role.OPERATOR)
    await get_subscription_row(plane, caller, subscription)
    count = 0
    async for row in _parked(plane, subscription, agent):
        await _give_up(plane, caller, (subscription, str(row["agent"])))
        count += 1
    return count


async def _give_up(plane: Plane, caller: Caller, key: tuple[str, str]) -> None:
    """Drop a stream's letters, and with the last of them the stream; again if one came meanwhile.

    No letter comes without the cursor moving.
    """
    said: Row = {"destination": key[0], "agent": key[1]}
    gone = 0
    while True:
        cursor = await plane.store.find("cursor", (key[0],))
        letters = await plane.store.list_rows("letter", said, limit=DROPPED)
        drops = tuple(Drop("letter", (*key, cast(int, one["position"]))) for one in letters)
        if len(letters) == DROPPED:
            await plane.store.commit(Change("", (), drops))
            gone += len(letters)
            continue
        told = entry(
            caller, "letters.discard", target=key[0], now=plane.store.now(), agent=key[1],
            letters=gone + len(letters),
        )  # fmt: skip
        still: tuple[Is, ...] = ()
        if cursor is not None:
            still = (Is("cursor", (key[0],), {"position": cursor["position"]}),)
        change = Change("", still, (*drops, Drop("parked", key), told))
        if await plane.store.commit(change) is None:
            return


def _parked(plane: Plane, subscription: str, agent: str = "") -> AsyncIterator[Row]:
    said: Row = {"destination": subscription, **({"agent": agent} if agent else {})}
    return every(plane.store, "parked", said)
