"""Dead letters: events that a destination has not accepted; callers can replay or discard them."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from tenure.app.events import delivery_rows
from tenure.app.events.subscriptions import get_subscription_row
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest, RequestStart
from tenure.app.pages import every, page_of
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import audit_line
from tenure.core.records import CursorRecord, LetterRecord, ParkedRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Is, Key, Value, Writes

BEHIND = "it waits for an earlier event of the same agent"


class LetterView(NamedTuple):
    """A dead letter as callers see it."""

    row: LetterRecord
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
        LetterRecord, {"destination": subscription}, after=beyond, limit=limit
    )
    streams = {row.agent: row async for row in _list_parked(plane, subscription)}
    found: list[LetterView] = []
    before: object = after[0] if after else None
    for row in rows:
        is_first, before = row.agent != before, row.agent
        found.append(_view(row, streams.get(row.agent), is_first=is_first))
    return found


def _view(row: LetterRecord, stream: ParkedRecord | None, *, is_first: bool) -> LetterView:
    """A letter; only the first letter of a stream was sent."""
    if stream is None:  # it was replayed or discarded after the letters were read
        return LetterView(row, "" if is_first else BEHIND, 0, row.at, None)
    if is_first:
        return LetterView(row, stream.why, stream.attempts, stream.since, stream.due_at)
    return LetterView(row, BEHIND, 0, stream.since, stream.due_at)


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
    cursor = None if agent else await plane.store.find(CursorRecord, (subscription,))
    if cursor is not None and cursor.since is not None and not _is_done(start, cursor, now):
        failing = delivery_rows.cursor_has_failed(cursor)
        audit_row = audit_line(caller, "letters.replay", target=subscription, now=now)
        write = delivery_rows.make_cursor_due(subscription, now)
        await plane.store.commit(Change("", (failing,), (write, audit_row)))
    async for row in _parked_before(plane, subscription, agent, start):
        if _is_done(start, row, now):
            continue
        guard = delivery_rows.stream_was_tried(row)
        audit_row = audit_line(
            caller, "letters.replay", target=subscription, now=now, agent=row.agent
        )
        write = delivery_rows.make_stream_due(row, now)
        count += await plane.store.commit(Change("", (guard,), (write, audit_row))) is None
    plane.subscription_changes.notify()
    return int(start.chosen_value or count)


async def discard(
    plane: Plane,
    caller: Caller,
    subscription: str,
    *,
    agent: str,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> int:
    """Discard an agent's dead letters, so that its later events are sent.

    An attempt after a crash leaves streams alone that were parked since the first attempt.
    """
    require(caller, Role.OPERATOR)
    await get_subscription_row(plane, caller, subscription)
    start = await _begin(plane, subscription, agent, idempotency)
    count = 0
    async for row in _parked_before(plane, subscription, agent, start):
        count += await _discard_stream(plane, caller, row)
    return int(start.chosen_value or count)


async def _discard_stream(plane: Plane, caller: Caller, stream: ParkedRecord) -> bool:
    """Drop a stream's letters, then the stream; repeat if a letter was added meanwhile.

    A letter is only added in a commit that moves the cursor.  False if the stream was gone already.
    """
    columns = {"destination": stream.destination, "agent": stream.agent}
    count = 0
    while True:
        cursor = await plane.store.find(CursorRecord, (stream.destination,))
        letters = await plane.store.list_rows(
            LetterRecord, columns, limit=delivery_rows.LETTERS_PER_COMMIT
        )
        drops = tuple(delivery_rows.drop_letter(one) for one in letters)
        if len(letters) == delivery_rows.LETTERS_PER_COMMIT:
            await plane.store.commit(Change("", (), drops))
            count += len(letters)
            continue
        audit_row = audit_line(
            caller, "letters.discard", target=stream.destination, now=plane.store.now(),
            agent=stream.agent, letters=count + len(letters),
        )  # fmt: skip
        guards: tuple[Is, ...] = (delivery_rows.stream_is_parked(stream),)
        if cursor is not None:
            guards += (delivery_rows.cursor_is_at(cursor),)
        writes: Writes = (*drops, delivery_rows.drop_stream(stream), audit_row)
        refused = await plane.store.commit(Change("", guards, writes))
        if refused is None or refused.what.table == "parked":
            return refused is None


def _list_parked(plane: Plane, subscription: str, agent: str = "") -> AsyncIterator[ParkedRecord]:
    columns: dict[str, Value] = {"destination": subscription}
    if agent:
        columns["agent"] = agent
    return every(plane.store, ParkedRecord, columns)


async def _begin(
    plane: Plane, subscription: str, agent: str, idempotency: IdempotentRequest
) -> RequestStart:
    """Begin a request; with a key, the chosen value is its answer: the number of streams now."""
    if not idempotency.has_key:
        return await idempotency.begin(plane, Change(""))
    count = len([row async for row in _list_parked(plane, subscription, agent)])
    return await idempotency.begin(plane, Change(""), str(count))


def _is_done(start: RequestStart, row: CursorRecord | ParkedRecord, now: float) -> bool:
    """Whether an earlier attempt of this request has made this stream due already."""
    return start.is_repeated and row.due_at is not None and row.due_at <= now


async def _parked_before(
    plane: Plane, subscription: str, agent: str, start: RequestStart
) -> AsyncIterator[ParkedRecord]:
    """The streams of a request; for a repeated one, without those that were parked later."""
    async for row in _list_parked(plane, subscription, agent):
        if not start.is_repeated or row.since <= start.at:
            yield row
