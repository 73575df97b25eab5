"""Dead letters: events that a destination has not accepted; callers can replay or discard them."""

from collections.abc import AsyncIterator
from typing import NamedTuple, cast

from tenure.app.events.subscriptions import get_subscription_row
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest, RequestStart
from tenure.app.pages import every, page_of
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import entry
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Drop, Is, Key, Row, Set, Value

LETTERS_PER_COMMIT = 500
"""Letters that one commit drops."""


BEHIND = "it waits for the event before it"


class LetterView(NamedTuple):
    """A dead letter as callers see it."""

    row: Row
    why: str
    """The answer of the destination, or that the event was not sent."""
    attempts: int
    """Failed attempts; 0 if it waits behind an earlier letter of the same agent."""
    parked_since: float
    due_at: float | None


async def list_letters(
    plane: Plane, caller: Caller, subscription: str, *, after: Key = (), limit: int = 100
) -> list[LetterView]:
    """Letters of a subscription, agent by agent, each agent's in the order of its events.

    An agent's next event is sent when the one before was accepted, so only the first of each agent
    was sent.
    """
    require(caller, Role.VIEWER)
    await get_subscription_row(plane, caller, subscription)
    limit = page_of(limit)
    beyond = (subscription, *after) if after else ()
    rows = await plane.store.list_rows(
        "letter", {"destination": subscription}, after=beyond, limit=limit
    )
    streams = {row["agent"]: row async for row in _list_parked(plane, subscription)}
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


async def replay(
    plane: Plane,
    caller: Caller,
    subscription: str,
    *,
    agent: str = "",
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> int:
    """Make dead letters due now, and return the number of parked streams.

    A destination that accepts nothing has no letters; it is tried now as well.  An attempt after a
    crash leaves streams alone that were parked since the first attempt.
    """
    require(caller, Role.OPERATOR)
    await get_subscription_row(plane, caller, subscription)
    start = await _begin(plane, subscription, agent, idempotency)
    now, count = plane.store.now(), 0
    cursor = None if agent else await plane.store.find("cursor", (subscription,))
    if cursor is not None and cursor["since"] is not None and not _is_done(start, cursor, now):
        failing = Is("cursor", (subscription,), {"attempts": cursor["attempts"]})
        audit_row = entry(caller, "letters.replay", target=subscription, now=now)
        write = Set("cursor", (subscription,), {"due_at": now})
        await plane.store.commit(Change("", (failing,), (write, audit_row)))
    async for row in _parked_before(plane, subscription, agent, start):
        if _is_done(start, row, now):
            continue
        key = (subscription, str(row["agent"]))
        guard = Is("parked", key, {"attempts": row["attempts"]})
        audit_row = entry(caller, "letters.replay", target=subscription, now=now, agent=key[1])
        write = Set("parked", key, {"due_at": now, "attempts": 0})
        count += await plane.store.commit(Change("", (guard,), (write, audit_row))) is None
    plane.subscription_changes.notify()
    return int(start.draft or count)


async def discard(
    plane: Plane,
    caller: Caller,
    subscription: str,
    *,
    agent: str,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> int:
    """Discard an agent's letters: its next event is sent as if they had been accepted.

    An attempt after a crash leaves streams alone that were parked since the first attempt.
    """
    require(caller, Role.OPERATOR)
    await get_subscription_row(plane, caller, subscription)
    start = await _begin(plane, subscription, agent, idempotency)
    count = 0
    async for row in _parked_before(plane, subscription, agent, start):
        count += await _discard_stream(plane, caller, (subscription, str(row["agent"])), row)
    return int(start.draft or count)


async def _discard_stream(plane: Plane, caller: Caller, key: tuple[str, str], parked: Row) -> bool:
    """Drop a stream's letters, then the stream; repeat if a letter was added meanwhile.

    A letter is only added in a commit that moves the cursor.  False if the stream was gone already.
    """
    columns: Row = {"destination": key[0], "agent": key[1]}
    count = 0
    while True:
        cursor = await plane.store.find("cursor", (key[0],))
        letters = await plane.store.list_rows("letter", columns, limit=LETTERS_PER_COMMIT)
        drops = tuple(Drop("letter", (*key, cast(int, one["position"]))) for one in letters)
        if len(letters) == LETTERS_PER_COMMIT:
            await plane.store.commit(Change("", (), drops))
            count += len(letters)
            continue
        audit_row = entry(
            caller, "letters.discard", target=key[0], now=plane.store.now(), agent=key[1],
            letters=count + len(letters),
        )  # fmt: skip
        still: tuple[Is, ...] = (Is("parked", key, {"since": parked["since"]}),)
        if cursor is not None:
            still += (Is("cursor", (key[0],), {"position": cursor["position"]}),)
        refused = await plane.store.commit(
            Change("", still, (*drops, Drop("parked", key), audit_row))
        )
        if refused is None or refused.what.table == "parked":
            return refused is None


def _list_parked(plane: Plane, subscription: str, agent: str = "") -> AsyncIterator[Row]:
    columns: Row = {"destination": subscription, **({"agent": agent} if agent else {})}
    return every(plane.store, "parked", columns)


async def _begin(
    plane: Plane, subscription: str, agent: str, idempotency: IdempotentRequest
) -> RequestStart:
    """Begin a request; with a key, the draft is its answer: the number of streams now."""
    if not idempotency.has_key:
        return await idempotency.begin(plane, Change(""))
    count = len([row async for row in _list_parked(plane, subscription, agent)])
    return await idempotency.begin(plane, Change(""), str(count))


def _is_done(start: RequestStart, row: Row, now: float) -> bool:
    """Whether an earlier attempt of this request has made this stream due already."""
    due = cast("float | None", row["due_at"])
    return start.is_repeated and due is not None and due <= now


async def _parked_before(
    plane: Plane, subscription: str, agent: str, start: RequestStart
) -> AsyncIterator[Row]:
    """The streams of a request; for a repeated one, without those that were parked later."""
    async for row in _list_parked(plane, subscription, agent):
        if not start.is_repeated or cast(float, row["since"]) <= start.at:
            yield row
