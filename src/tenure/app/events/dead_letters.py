"""Dead letters: events that a destination has not accepted; a person can replay or discard them."""

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
    """A dead letter as it is shown."""

    row: Row
    why: str
    """The answer of the destination, or that the event was not sent."""
    attempts: int
    """Failed attempts; 0: it waits behind an earlier letter of the same agent."""
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


async def replay(
    plane: Plane,
    caller: Caller,
    subscription: str,
    *,
    agent: str = "",
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> int:
    """Make letters due now; how many agents' streams these are.

    A destination that takes nothing at all, and so has no letters, is tried now as well.  A request
    that is repeated after a crash leaves the streams that were parked since it came first.
    """
    require(caller, Role.OPERATOR)
    await get_subscription_row(plane, caller, subscription)
    start = await _begin(plane, subscription, agent, idempotency)
    now, count = plane.store.now(), 0
    cursor = None if agent else await plane.store.find("cursor", (subscription,))
    if cursor is not None and cursor["since"] is not None and not _is_done(start, cursor, now):
        failing = Is("cursor", (subscription,), {"attempts": cursor["attempts"]})
        told = entry(caller, "letters.replay", target=subscription, now=now)
        write = Set("cursor", (subscription,), {"due_at": now})
        await plane.store.commit(Change("", (failing,), (write, told)))
    async for row in _parked_before(plane, subscription, agent, start):
        if _is_done(start, row, now):
            continue
        key = (subscription, str(row["agent"]))
        guard = Is("parked", key, {"attempts": row["attempts"]})
        told = entry(caller, "letters.replay", target=subscription, now=now, agent=key[1])
        write = Set("parked", key, {"due_at": now, "attempts": 0})
        count += await plane.store.commit(Change("", (guard,), (write, told))) is None
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

    A request that is repeated after a crash leaves the streams that were parked since it came
    first.
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

    No letter comes without the cursor moving.  False if the stream was gone already.
    """
    said: Row = {"destination": key[0], "agent": key[1]}
    gone = 0
    while True:
        cursor = await plane.store.find("cursor", (key[0],))
        letters = await plane.store.list_rows("letter", said, limit=LETTERS_PER_COMMIT)
        drops = tuple(Drop("letter", (*key, cast(int, one["position"]))) for one in letters)
        if len(letters) == LETTERS_PER_COMMIT:
            await plane.store.commit(Change("", (), drops))
            gone += len(letters)
            continue
        told = entry(
            caller, "letters.discard", target=key[0], now=plane.store.now(), agent=key[1],
            letters=gone + len(letters),
        )  # fmt: skip
        still: tuple[Is, ...] = (Is("parked", key, {"since": parked["since"]}),)
        if cursor is not None:
            still += (Is("cursor", (key[0],), {"position": cursor["position"]}),)
        refused = await plane.store.commit(Change("", still, (*drops, Drop("parked", key), told)))
        if refused is None or refused.what.table == "parked":
            return refused is None


def _parked(plane: Plane, subscription: str, agent: str = "") -> AsyncIterator[Row]:
    said: Row = {"destination": subscription, **({"agent": agent} if agent else {})}
    return every(plane.store, "parked", said)


async def _begin(
    plane: Plane, subscription: str, agent: str, idempotency: IdempotentRequest
) -> RequestStart:
    """Begin a request; the draft of one with a key is its answer, the number of streams now."""
    if not idempotency.has_key:
        return await idempotency.begin(plane, Change(""))
    count = len([row async for row in _parked(plane, subscription, agent)])
    return await idempotency.begin(plane, Change(""), str(count))


def _is_done(start: RequestStart, row: Row, now: float) -> bool:
    """Whether an earlier attempt of this request has replayed this: it is due."""
    due = cast("float | None", row["due_at"])
    return start.is_repeated and due is not None and due <= now


async def _parked_before(
    plane: Plane, subscription: str, agent: str, start: RequestStart
) -> AsyncIterator[Row]:
    """The streams that a request is about: a repeated one is not about those parked later."""
    async for row in _parked(plane, subscription, agent):
        if not start.is_repeated or cast(float, row["since"]) <= start.at:
            yield row
