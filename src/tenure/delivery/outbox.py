"""Every committed event has been published.

Level-based: what is to be sent is what lies beyond a destination's cursor.  An event is published
first and its cursor moved after it, so a crash between the two repeats it and skips nothing.  The
events of one agent leave one after the other.  A destination that takes others' events and not one
agent's has that agent's stream parked: its events become dead letters, are tried again in order
later, and nobody else's wait for them.  A destination that takes nothing is left alone for a while,
longer each time.  Every commit guards the leader's fence token.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from tenure.app.events.cloudevents import Wanted, outgoing
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.errors import LeaseLost, TenureError
from tenure.core.limits import (
    DETAIL_CHARACTERS_MAX,
    LETTERS_MAX,
)
from tenure.core.retry import DESTINATION, PARKED_STREAM, RetryPolicy
from tenure.core.subscription import REACTION
from tenure.ports.bus import Bus, Destination, Outgoing, Receipt, Verdict
from tenure.ports.store import Change, Drop, Is, Put, Row, Set
from tenure.reconcilers.leader import Leader

log = logging.getLogger("tenure.reconcilers")
PAGE = 500
"""Events looked at in one commit of a cursor."""
SKIMMED = 1_000
"""Events that are none of a destination's, after which its cursor is moved all the same."""
PARKED_ATTEMPTS_MAX = 20
"""Then a parked stream waits for a person to replay or discard it."""
ALONE_ATTEMPTS = 5
"""How often the events of a page may all fail before it is asked whether others' are taken."""
BREATH = 32
"""Events written out before others have the loop."""


class Skimmed(NamedTuple):
    """Events beyond a cursor that are none of its destination's."""

    position: int = 0
    """Of the last of them."""
    passed: int = 0
    """How many there were."""


NOTHING = Skimmed()


class Tick(NamedTuple):
    """What one look came to."""

    seen: int = 0
    fixed: int = 0
    retry_at: float | None = None
    """When there is something to do that cannot be done now."""
    more: bool = False
    """Whether there is more to do at once."""
    rests: bool = False
    """Whether the destination is left alone until then, whatever is committed."""
    skimmed: Skimmed = NOTHING
    """What was looked at beyond the cursor and had not to be written down."""
    looked: int | None = None
    """Up to where nothing is left to be done for it; None: that was not found out."""
    parked: bool = False
    """Whether it has streams that are parked."""


@dataclass(frozen=True, slots=True)
class Route:
    """One destination: where it is, how it is reached, what it wants to hear of."""

    destination: Destination
    bus: Bus
    wanted: Wanted = field(default_factory=Wanted)
    tenant: str = ""
    """Whose events; empty: everybody's."""
    page: int = PAGE
    """Events that one commit of its cursor stands for at most."""
    secrets: Callable[[], tuple[bytes, ...]] | None = None
    """The keys to sign with now; they change with time."""
    kind: str = REACTION
    """Under which it is counted."""

    @property
    def id(self) -> str:
        """Under which its cursor is kept."""
        return self.destination.id

    def has(self, row: Row) -> bool:
        """Whether it is to hear of this event."""
        return (not self.tenant or row["tenant"] == self.tenant) and self.wanted.has(row)


# --- one destination ------------------------------------------------------------------------------


async def tick(plane: Plane, leader: Leader, route: Route, *, skimmed: Skimmed = NOTHING) -> Tick:
    """Send what lies beyond the cursor of one destination, one page of it.

    What was `skimmed` is none of its own, as an earlier look has found.  LeaseLost if somebody
    else leads by now; then nothing was written.
    """
    limit, now = route.page, plane.store.now()
    cursor = await plane.store.find("cursor", (route.id,))
    if cursor is None:
        return Tick()
    due_at = cast(float, cursor["due_at"])
    if not _is_due(due_at, now):
        return Tick(retry_at=due_at, rests=True)
    again = await _retry_parked(plane, leader, route, now)
    position = cast(int, cursor["position"])
    start = skimmed.position or position
    rows = await plane.feed.after(start, limit=limit + 1)
    if not rows:
        done = again._replace(skimmed=skimmed, looked=start)
        return await _passed_over(plane, leader, route, cursor, done)
    parked = {str(row["agent"]): row["since"] for row in await _parked(plane, route)}
    kept = await plane.store.count_rows("letter", {"destination": route.id}) if parked else 0
    limit = _with_room(route, rows[:limit], LETTERS_MAX - kept)
    if not limit:
        why = f"{LETTERS_MAX} dead letters are kept; replay or discard some"
        full_up = Sent(failed={"": Receipt(Verdict.UNAVAILABLE, why)})
        return await _back_off(plane, leader, route, cursor, full_up)
    more, rows = len(rows) > limit, rows[:limit]
    mine = [row for row in rows if route.has(row)]
    last = cast(int, rows[-1]["position"])
    if not mine:
        skimmed = Skimmed(last, skimmed.passed + len(rows))
        done = again._replace(skimmed=skimmed, looked=last, more=more)
        return await _passed_over(plane, leader, route, cursor, done)
    due = _counted(plane, route, [row for row in mine if row["agent"] not in parked], cursor)
    alone = more and cast(int, cursor["attempts"]) + 1 >= ALONE_ATTEMPTS
    past = alone and await _others_pass(plane, route, due, parked.keys(), last)
    sent = await _send(plane, route, due)
    if sent.failed and not (sent.delivered or sent.refused or past):
        return await _back_off(plane, leader, route, cursor, sent)
    letters = [row for row in mine if row["agent"] in parked or row["position"] in sent.left]
    parks = [_park(plane, route, agent, receipt, now) for agent, receipt in sent.failed.items()]
    writes: list[Put | Set | Drop] = [_letter(route, row) for row in letters]
    writes += [*parks, _moved(route, cursor, last)]
    # A stream that was discarded meanwhile takes no more letters: nobody would find them.
    agents = {str(row["agent"]) for row in letters} & parked.keys()
    held = [Is("parked", (route.id, agent), {"since": parked[agent]}) for agent in agents]
    if not await _commit(plane, leader, route, position, writes, held=held):
        return again._replace(more=True)
    seen, fixed = again.seen + len(mine), again.fixed + sent.delivered
    times = [cast(float, park.row["due_at"]) for park in parks]
    times += [] if again.retry_at is None else [again.retry_at]
    held_up, retry_at = again.parked or bool(parks), min(times, default=None)
    return Tick(seen, fixed, retry_at, more=more, looked=last, parked=held_up)


async def _passed_over(plane: Plane, leader: Leader, route: Route, cursor: Row, done: Tick) -> Tick:
    """Nothing was its own, which is remembered; if it was much, the cursor is moved."""
    if done.skimmed.passed < SKIMMED:
        return done
    moved = _moved(route, cursor, done.skimmed.position)
    await _commit(plane, leader, route, cast(int, cursor["position"]), [moved])
    return done._replace(skimmed=NOTHING)


async def _others_pass(
    plane: Plane, route: Route, due: Sequence[Row], parked: Collection[str], last: int
) -> bool:
    """Whether the next event of somebody else is taken, so that what fails is not the destination.

    It is sent before those that fail are, and again in its turn.  With nobody else in sight one
    agent alone is taken to be at fault.
    """
    failing = {str(row["agent"]) for row in due}
    rows = [row for row in await plane.feed.after(last, limit=SKIMMED) if route.has(row)]
    others = [row for row in rows if row["agent"] not in failing and row["agent"] not in parked]
    if not others:
        return len(failing) == 1
    sent = await _send(plane, route, others[:1])
    return bool(sent.delivered or sent.refused)


def _moved(route: Route, cursor: Row, last: int) -> Set:
    """Its destination has what is up to there, and lives."""
    there: Row = {"position": last}
    if cursor["attempts"]:
        there |= {"attempts": 0, "due_at": 0.0, "why": "", "since": None}
    return Set("cursor", (route.id,), there)


class Sent(NamedTuple):
    """What became of the events that were handed to a bus."""

    delivered: int = 0
    refused: int = 0
    failed: Mapping[str, Receipt] = {}
    """Agents of whose events one was not taken, and why."""
    left: frozenset[object] = frozenset()
    """Positions of what was not taken, or not sent because an earlier one was not taken."""


Lanes = dict[str, list[Row]]


async def _send(plane: Plane, route: Route, rows: Sequence[Row]) -> Sent:
    """Each agent's events one after the other, those of different agents together."""
    lanes: Lanes = {}
    for row in rows:
        lanes.setdefault(str(row["agent"]), []).append(row)
    delivered = refused = 0
    failed: dict[str, Receipt] = {}
    left: list[object] = []
    while lanes:
        batch = heads(lanes)
        receipts = await publish(route, await _told(plane, batch))
        _count(plane, route, batch, receipts)
        for row, receipt in zip(batch, receipts, strict=True):
            agent = str(row["agent"])
            if receipt.verdict is Verdict.DELIVERED:
                delivered += 1
                lanes[agent].remove(row)
                if not lanes[agent]:
                    del lanes[agent]
                continue
            refused += receipt.verdict is Verdict.REFUSED
            failed[agent] = receipt
            left += [one["position"] for one in lanes.pop(agent)]
    return Sent(delivered, refused, failed, frozenset(left))


def _counted(plane: Plane, route: Route, rows: list[Row], cursor: Row) -> list[Row]:
    """The same rows; if they were tried before, that is counted.

    Of each agent's events only the first was sent then.
    """
    if cursor["attempts"]:
        plane.deliveries.again[route.kind] += len({row["agent"] for row in rows})
    return rows


def _count(plane: Plane, route: Route, batch: Sequence[Row], receipts: Sequence[Receipt]) -> None:
    now = plane.store.now()
    for row, receipt in zip(batch, receipts, strict=True):
        plane.deliveries.add(route.kind, receipt.verdict, now - cast(float, row["at"]))


def heads(lanes: Lanes) -> list[Row]:
    """The next event of each agent: an agent's second one waits for the receipt of its first."""
    return [lane[0] for lane in lanes.values()]


async def _told(plane: Plane, rows: Sequence[Row]) -> list[Outgoing]:
    """Events as they leave; commits need not wait until many are written out."""
    told: list[Outgoing] = []
    for start in range(0, len(rows), BREATH):
        told += [outgoing(plane.id, row) for row in rows[start : start + BREATH]]
        await asyncio.sleep(0)
    return told


async def publish(route: Route, events: Sequence[Outgoing]) -> Sequence[Receipt]:
    """Hand events to the bus; one that breaks its promise and raises has taken nothing."""
    destination = route.destination
    try:
        if route.secrets is not None:
            destination = destination._replace(secrets=route.secrets())
    except TenureError as error:
        return [Receipt(Verdict.UNAVAILABLE, str(error))] * len(events)
    try:
        return await route.bus.publish(destination, events)
    except Exception as error:
        log.exception("the bus of %s broke", route.id)
        return [Receipt(Verdict.UNAVAILABLE, f"{type(error).__name__}: {error}")] * len(events)


async def _back_off(plane: Plane, leader: Leader, route: Route, cursor: Row, sent: Sent) -> Tick:
    """It takes nothing: leave it alone, longer each time, and say why and since when."""
    now, attempts = plane.store.now(), cast(int, cursor["attempts"]) + 1
    asked = max(receipt.retry_seconds for receipt in sent.failed.values())
    why = next(receipt.why for receipt in sent.failed.values())
    wait = _wait(plane, DESTINATION, attempts)
    due_at = now + max(wait, min(asked, PARKED_STREAM.cap_seconds))
    told: Row = {
        "attempts": attempts, "due_at": due_at, "why": why[:DETAIL_CHARACTERS_MAX],
        "since": cursor["since"] or now,
    }  # fmt: skip
    position = cast(int, cursor["position"])
    await _commit(plane, leader, route, position, [Set("cursor", (route.id,), told)])
    return Tick(seen=len(sent.failed), retry_at=due_at, rests=True)


async def _commit(
    plane: Plane,
    leader: Leader,
    route: Route,
    position: int,
    writes: Sequence[Put | Set | Drop],
    *,
    held: Sequence[Is] = (),
) -> bool:
    """Move a cursor, if we still lead and it and all else stands as we saw it; whether it did."""
    guards = (leader.guard, Is("cursor", (route.id,), {"position": position}), *held)
    refused = await plane.store.commit(Change("", guards, tuple(writes)))
    if refused is not None and refused.what.table == "lease":
        raise LeaseLost(route.id)
    return refused is None


def _is_due(due_at: float, now: float) -> bool:
    """Whether its time has come; one further off than any that is set is of a clock set back."""
    return due_at <= now or due_at > now + PARKED_STREAM.cap_seconds


def _wait(plane: Plane, policy: RetryPolicy, attempts: int) -> float:
    return policy.delay_seconds(attempts - 1, plane.entropy.fraction())


# --- parked streams -------------------------------------------------------------------------------


def _letter(route: Route, row: Row) -> Put:
    key = (route.id, str(row["agent"]), cast(int, row["position"]))
    said = ("tenant", "operation", "type", "at", "body", "sequence")
    return Put("letter", key, {name: row[name] for name in said})


def _park(plane: Plane, route: Route, agent: str, receipt: Receipt, now: float) -> Put:
    """From here on this agent's events go to the dead letters of this destination."""
    row: Row = {
        "attempts": 1, "due_at": now + _wait(plane, PARKED_STREAM, 1),
        "why": receipt.why[:DETAIL_CHARACTERS_MAX], "since": now,
    }  # fmt: skip
    return Put("parked", (route.id, agent), row)


async def _parked(plane: Plane, route: Route) -> list[Row]:
    return [row async for row in every(plane.store, "parked", {"destination": route.id})]


def _with_room(route: Route, rows: Sequence[Row], room: int) -> int:
    """How many of the rows to take, so that there is room if all of them become dead letters."""
    if len(rows) <= room:
        return len(rows)
    for place, row in enumerate(rows):
        room -= route.has(row)
        if room < 0:
            return place
    return len(rows)


async def _retry_parked(plane: Plane, leader: Leader, route: Route, now: float) -> Tick:
    """Try the dead letters of every parked stream whose time has come."""
    seen = fixed = 0
    retry_at: float | None = None
    streams = await _parked(plane, route)
    for stream in streams:
        due_at = cast("float | None", stream["due_at"])
        if due_at is None:
            continue
        if _is_due(due_at, now):
            sent, due_at = await _retry(plane, leader, route, stream, now)
            seen += 1
            fixed += sent
        if due_at is not None:
            retry_at = due_at if retry_at is None else min(retry_at, due_at)
    return Tick(seen, fixed, retry_at, parked=bool(streams))


async def _retry(
    plane: Plane, leader: Leader, route: Route, stream: Row, now: float
) -> tuple[int, float | None]:
    """How many letters were taken at last, and when to try again if some are left."""
    agent = str(stream["agent"])
    said: Row = {"destination": route.id, "agent": agent}
    rows = await plane.store.list_rows("letter", said, limit=PAGE)
    plane.deliveries.again[route.kind] += bool(rows)
    sent = await _send(plane, route, rows)
    key = (route.id, agent)
    writes: list[Put | Set | Drop] = [
        Drop("letter", (*key, cast(int, row["position"])))
        for row in rows
        if row["position"] not in sent.left
    ]
    due_at: float | None = None
    if sent.failed:
        attempts = cast(int, stream["attempts"]) + 1
        wait = _wait(plane, PARKED_STREAM, attempts)
        due_at = now + wait if attempts < PARKED_ATTEMPTS_MAX else None
        why = sent.failed[agent].why[:DETAIL_CHARACTERS_MAX]
        writes.append(Set("parked", key, {"attempts": attempts, "due_at": due_at, "why": why}))
    elif len(rows) < PAGE:
        writes.append(Drop("parked", key))
    else:
        due_at = now  # there are more letters
    guards = (leader.guard, Is("parked", key, {"attempts": stream["attempts"]}))
    refused = await plane.store.commit(Change("", guards, tuple(writes)))
    if refused is not None and refused.what.table == "lease":
        raise LeaseLost(route.id)
    return sent.delivered, due_at
