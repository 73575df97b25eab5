"""Publishes every committed event to its destinations.

The relay sends the events after a destination's cursor.  It publishes an event first and moves the
cursor afterwards, so a crash between the two repeats events and skips none.  The events of one
agent are sent one after the other.

If a destination accepts events of other agents but not those of one agent, that agent's stream is
parked: its events become dead letters and are sent again in order later, and events of other agents
do not wait for them.  If a destination accepts nothing, all deliveries to it back off.  Every
commit guards the leader's fence token.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tenure.app.events import delivery_rows
from tenure.app.events.cloudevents import EventFilter, outgoing
from tenure.app.leader import Leader
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.errors import StaleToken, TenureError
from tenure.core.limits import (
    DETAIL_CHARACTERS_MAX,
    LETTERS_MAX,
)
from tenure.core.records import (
    CursorRecord,
    EventRecord,
    LetterRecord,
    OutboxRecord,
    ParkedRecord,
)
from tenure.core.retry import DESTINATION, PARKED_STREAM, RetryPolicy
from tenure.core.subscription import REACTION
from tenure.ports.bus import Bus, DeliveryVerdict, Destination, Outgoing, Receipt
from tenure.ports.store import Change, Drop, Is, Put, Set

log = logging.getLogger("tenure.delivery")
PAGE = 500
"""Events that one commit of a cursor covers."""
SKIPPED_MAX = 1_000
"""After so many events that a destination does not subscribe to, its cursor is moved."""
PARKED_ATTEMPTS_MAX = 20
"""After so many attempts a parked stream waits for an operator, who replays or discards it."""
ISOLATION_ATTEMPTS = 5
"""After so many attempts without a delivery, an event of another agent is tried."""
EVENTS_PER_YIELD = 32
"""Events that are encoded before other tasks get the loop."""


class SkippedRange(NamedTuple):
    """Events after a cursor that its destination does not subscribe to."""

    position: int = 0
    """Position of the last of them."""
    events: int = 0
    """Their number."""


NONE_SKIPPED = SkippedRange()


class DeliveryResult(NamedTuple):
    """The result of delivering one page of events to one destination."""

    seen: int = 0
    """Events that it subscribes to, and streams that were tried again."""
    delivered: int = 0
    retry_at: float | None = None
    """When there is something to send that cannot be sent now."""
    more: bool = False
    """Whether there is more to send at once."""
    backs_off: bool = False
    """Whether nothing is sent before `retry_at`, whatever is committed."""
    skipped: SkippedRange = NONE_SKIPPED
    """Events after the cursor that it does not subscribe to; the cursor was not moved for them."""
    read_to: int | None = None
    """Position up to which nothing is left to send; None: this page did not find out."""
    parked: bool = False
    """Whether it has parked streams."""


@dataclass(frozen=True, slots=True)
class DestinationRoute:
    """One destination: where it is, by which bus it is reached, which events it subscribes to."""

    destination: Destination
    bus: Bus
    event_filter: EventFilter = field(default_factory=EventFilter)
    tenant: str = ""
    """The tenant whose events it receives; empty: all tenants."""
    page: int = PAGE
    """Events that one commit of its cursor covers at most."""
    secrets: Callable[[], tuple[bytes, ...]] | None = None
    """Returns the keys that sign deliveries now; they change with time."""
    kind: str = REACTION
    """The label of its metrics."""

    @property
    def id(self) -> str:
        """The key of its cursor."""
        return self.destination.id

    def has(self, event: EventRecord) -> bool:
        """Whether it subscribes to this event."""
        return (not self.tenant or event.tenant == self.tenant) and self.event_filter.has(event)


# --- one destination ------------------------------------------------------------------------------


async def deliver_page(
    plane: Plane, leader: Leader, route: DestinationRoute, *, skipped: SkippedRange = NONE_SKIPPED
) -> DeliveryResult:
    """Send the next page of events after the cursor of one destination.

    `skipped` is the range after the cursor that an earlier call has found.  StaleToken if another
    process leads now; then nothing was written.
    """
    limit, now = route.page, plane.store.now()
    cursor = await plane.store.find(CursorRecord, (route.id,))
    if cursor is None:
        return DeliveryResult()
    if not _is_due(cursor.due_at, now):
        return DeliveryResult(retry_at=cursor.due_at, backs_off=True)
    retried = await _retry_parked(plane, leader, route, now)
    start = skipped.position or cursor.position
    rows = await plane.feed.after(start, limit=limit + 1)
    if not rows:
        result = retried._replace(skipped=skipped, read_to=start)
        return await _skip_events(plane, leader, cursor, result)
    parked = {stream.agent: stream for stream in await _list_parked(plane, route)}
    letters = await _count_letters(plane, route) if parked else 0
    limit = _count_with_room(route, rows[:limit], LETTERS_MAX - letters)
    if not limit:
        return await _back_off(plane, leader, cursor, NO_ROOM)
    more, rows = len(rows) > limit, rows[:limit]
    mine = [row for row in rows if route.has(row)]
    last = rows[-1].position
    if not mine:
        skipped = SkippedRange(last, skipped.events + len(rows))
        result = retried._replace(skipped=skipped, read_to=last, more=more)
        return await _skip_events(plane, leader, cursor, result)
    due = [row for row in mine if row.agent not in parked]
    _count_retries(plane, route, due, cursor)
    isolates = more and cursor.attempts + 1 >= ISOLATION_ATTEMPTS
    is_alive = isolates and await _accepts_other_agents(plane, route, due, parked.keys(), last)
    sent = await _send(plane, route, due)
    if sent.failed and not (sent.delivered or sent.refused or is_alive):
        return await _back_off(plane, leader, cursor, sent)
    unsent = [row for row in mine if row.agent in parked or row.position in sent.unsent]
    parks = [_park(plane, route, agent, receipt, now) for agent, receipt in sent.failed.items()]
    writes: list[Put | Set | Drop] = [delivery_rows.put_letter(route.id, row) for row in unsent]
    writes += [delivery_rows.put_stream(stream) for stream in parks]
    writes.append(delivery_rows.advance_cursor(cursor, last))
    # Guards: no letter is added to a stream that was discarded meanwhile.
    agents = {row.agent for row in unsent} & parked.keys()
    streams = [delivery_rows.stream_is_parked(parked[agent]) for agent in agents]
    if not await _commit(plane, leader, cursor, writes, guards=streams):
        return retried._replace(more=True)
    seen, delivered = retried.seen + len(mine), retried.delivered + sent.delivered
    times = [stream.due_at for stream in parks if stream.due_at is not None]
    times += [] if retried.retry_at is None else [retried.retry_at]
    has_parked, retry_at = retried.parked or bool(parks), min(times, default=None)
    return DeliveryResult(seen, delivered, retry_at, more=more, read_to=last, parked=has_parked)


async def _skip_events(
    plane: Plane, leader: Leader, cursor: CursorRecord, result: DeliveryResult
) -> DeliveryResult:
    """The page had no event for this destination: move the cursor only if many were skipped."""
    if result.skipped.events < SKIPPED_MAX:
        return result
    moved = delivery_rows.advance_cursor(cursor, result.skipped.position)
    await _commit(plane, leader, cursor, [moved])
    return result._replace(skipped=NONE_SKIPPED)


async def _accepts_other_agents(
    plane: Plane,
    route: DestinationRoute,
    due: Sequence[OutboxRecord],
    parked: Collection[str],
    last: int,
) -> bool:
    """Whether the destination accepts an event of an agent that is not failing.

    Then the failing agents are at fault, not the destination.  That event is sent early, and once
    more in its order.  If no other agent has events, a single failing agent counts as at fault.
    """
    failing = {row.agent for row in due}
    rows = [row for row in await plane.feed.after(last, limit=SKIPPED_MAX) if route.has(row)]
    others = [row for row in rows if row.agent not in failing and row.agent not in parked]
    if not others:
        return len(failing) == 1
    sent = await _send(plane, route, others[:1])
    return bool(sent.delivered or sent.refused)


class SendResult(NamedTuple):
    """The result of handing events to a bus."""

    delivered: int = 0
    refused: int = 0
    failed: Mapping[str, Receipt] = {}
    """Agents that had an event which was not accepted, with its receipt."""
    unsent: frozenset[int] = frozenset()
    """Positions of events that were not accepted, or not sent because an earlier one was not."""


NO_ROOM = SendResult(
    failed={
        "": Receipt(
            DeliveryVerdict.UNAVAILABLE,
            f"it has {LETTERS_MAX} dead letters, its maximum; replay or discard some",
        )
    }
)
"""Nothing was sent, since there is no room for dead letters."""
E = TypeVar("E", OutboxRecord, LetterRecord)
AgentQueues = dict[str, list[E]]
"""The events of each agent, in their order."""


async def _send(plane: Plane, route: DestinationRoute, rows: Sequence[E]) -> SendResult:
    """Send each agent's events one after the other, and those of different agents together."""
    queues: AgentQueues[E] = {}
    for row in rows:
        queues.setdefault(row.agent, []).append(row)
    delivered = refused = 0
    failed: dict[str, Receipt] = {}
    unsent: list[int] = []
    while queues:
        batch = next_of_each_agent(queues)
        receipts = await publish(route, await _encode_events(plane, batch))
        _count(plane, route, batch, receipts)
        for row, receipt in zip(batch, receipts, strict=True):
            agent = row.agent
            if receipt.verdict is DeliveryVerdict.DELIVERED:
                delivered += 1
                queues[agent].remove(row)
                if not queues[agent]:
                    del queues[agent]
                continue
            refused += receipt.verdict is DeliveryVerdict.REFUSED
            failed[agent] = receipt
            unsent += [one.position for one in queues.pop(agent)]
    return SendResult(delivered, refused, failed, frozenset(unsent))


def _count_retries(
    plane: Plane, route: DestinationRoute, rows: Sequence[OutboxRecord], cursor: CursorRecord
) -> None:
    """After a failed attempt the first event of each agent was sent before."""
    if cursor.attempts:
        plane.deliveries.retries[route.kind] += len({row.agent for row in rows})


def _count(
    plane: Plane, route: DestinationRoute, batch: Sequence[EventRecord], receipts: Sequence[Receipt]
) -> None:
    now = plane.store.now()
    for row, receipt in zip(batch, receipts, strict=True):
        plane.deliveries.add(route.kind, receipt.verdict, now - row.at)


def next_of_each_agent(queues: AgentQueues[E]) -> list[E]:
    """The next event of each agent: an agent's second one waits for the receipt of its first."""
    return [queue[0] for queue in queues.values()]


async def _encode_events(plane: Plane, rows: Sequence[EventRecord]) -> list[Outgoing]:
    """Encode events for the bus; other tasks get the loop from time to time."""
    encoded: list[Outgoing] = []
    for start in range(0, len(rows), EVENTS_PER_YIELD):
        encoded += [outgoing(plane.id, row) for row in rows[start : start + EVENTS_PER_YIELD]]
        await asyncio.sleep(0)
    return encoded


async def publish(route: DestinationRoute, events: Sequence[Outgoing]) -> Sequence[Receipt]:
    """Hand events to the bus; a bus that raises, against its contract, has accepted nothing."""
    destination = route.destination
    try:
        if route.secrets is not None:
            destination = destination._replace(secrets=route.secrets())
    except TenureError as error:
        return [Receipt(DeliveryVerdict.UNAVAILABLE, str(error))] * len(events)
    try:
        return await route.bus.publish(destination, events)
    except Exception as error:
        log.exception("the bus of destination %s raised an error; it is tried again", route.id)
        return [Receipt(DeliveryVerdict.UNAVAILABLE, f"{type(error).__name__}: {error}")] * len(
            events
        )


async def _back_off(
    plane: Plane, leader: Leader, cursor: CursorRecord, sent: SendResult
) -> DeliveryResult:
    """The destination accepts nothing: pause, longer each time, and store the reason and start."""
    now, attempts = plane.store.now(), cursor.attempts + 1
    requested = max(receipt.retry_seconds for receipt in sent.failed.values())
    why = next(receipt.why for receipt in sent.failed.values())
    wait = _wait(plane, DESTINATION, attempts)
    due_at = now + max(wait, min(requested, PARKED_STREAM.cap_seconds))
    write = delivery_rows.back_off_cursor(
        cursor, attempts=attempts, due_at=due_at, why=why[:DETAIL_CHARACTERS_MAX], now=now
    )
    await _commit(plane, leader, cursor, [write])
    return DeliveryResult(seen=len(sent.failed), retry_at=due_at, backs_off=True)


async def _commit(
    plane: Plane,
    leader: Leader,
    cursor: CursorRecord,
    writes: Sequence[Put | Set | Drop],
    *,
    guards: Sequence[Is] = (),
) -> bool:
    """Commit if this process leads and the cursor and `guards` still hold; return whether."""
    all_guards = (leader.guard, delivery_rows.cursor_is_at(cursor), *guards)
    refused = await plane.store.commit(Change("", all_guards, tuple(writes)))
    if refused is not None and refused.what.table == "lease":
        raise StaleToken(cursor.destination)
    return refused is None


def _is_due(due_at: float, now: float) -> bool:
    """Whether it is due now.

    A time later than the longest delay was computed before the clock was set back: it is due too.
    """
    return due_at <= now or due_at > now + PARKED_STREAM.cap_seconds


def _wait(plane: Plane, policy: RetryPolicy, attempts: int) -> float:
    return policy.delay_seconds(attempts - 1, plane.entropy.fraction())


# --- parked streams -------------------------------------------------------------------------------


def _park(
    plane: Plane, route: DestinationRoute, agent: str, receipt: Receipt, now: float
) -> ParkedRecord:
    """The row that parks an agent's stream: its events become dead letters of this destination."""
    due_at = now + _wait(plane, PARKED_STREAM, 1)
    why = receipt.why[:DETAIL_CHARACTERS_MAX]
    return ParkedRecord(route.id, agent, attempts=1, due_at=due_at, why=why, since=now)


async def _list_parked(plane: Plane, route: DestinationRoute) -> list[ParkedRecord]:
    return [row async for row in every(plane.store, ParkedRecord, {"destination": route.id})]


async def _count_letters(plane: Plane, route: DestinationRoute) -> int:
    return await plane.store.count_rows(LetterRecord, {"destination": route.id})


def _count_with_room(route: DestinationRoute, rows: Sequence[OutboxRecord], room: int) -> int:
    """How many of the rows to send, so that there is room if all of them become dead letters."""
    if len(rows) <= room:
        return len(rows)
    for place, row in enumerate(rows):
        room -= route.has(row)
        if room < 0:
            return place
    return len(rows)


async def _retry_parked(
    plane: Plane, leader: Leader, route: DestinationRoute, now: float
) -> DeliveryResult:
    """Send the dead letters of every parked stream again whose time has come."""
    seen = delivered = 0
    retry_at: float | None = None
    streams = await _list_parked(plane, route)
    for stream in streams:
        due_at = stream.due_at
        if due_at is None:
            continue
        if _is_due(due_at, now):
            sent, due_at = await _retry(plane, leader, route, stream, now)
            seen += 1
            delivered += sent
        if due_at is not None:
            retry_at = due_at if retry_at is None else min(retry_at, due_at)
    return DeliveryResult(seen, delivered, retry_at, parked=bool(streams))


async def _retry(
    plane: Plane, leader: Leader, route: DestinationRoute, stream: ParkedRecord, now: float
) -> tuple[int, float | None]:
    """Send a stream's dead letters again: how many were delivered, and when to try the rest."""
    columns = {"destination": route.id, "agent": stream.agent}
    rows = await plane.store.list_rows(LetterRecord, columns, limit=PAGE)
    plane.deliveries.retries[route.kind] += bool(rows)
    sent = await _send(plane, route, rows)
    writes: list[Put | Set | Drop] = [
        delivery_rows.drop_letter(row) for row in rows if row.position not in sent.unsent
    ]
    due_at: float | None = None
    if sent.failed:
        attempts = stream.attempts + 1
        wait = _wait(plane, PARKED_STREAM, attempts)
        due_at = now + wait if attempts < PARKED_ATTEMPTS_MAX else None
        why = sent.failed[stream.agent].why[:DETAIL_CHARACTERS_MAX]
        writes.append(
            delivery_rows.retry_stream_later(stream, attempts=attempts, due_at=due_at, why=why)
        )
    elif len(rows) < PAGE:
        writes.append(delivery_rows.drop_stream(stream))
    else:
        due_at = now  # there are more letters
    guards = (leader.guard, delivery_rows.stream_was_tried(stream))
    refused = await plane.store.commit(Change("", guards, tuple(writes)))
    if refused is not None and refused.what.table == "lease":
        raise StaleToken(route.id)
    return sent.delivered, due_at
