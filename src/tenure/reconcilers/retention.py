"""What is over is kept as long as it was promised, and no longer.

Four sorts of rows are over one day: idempotency keys, acknowledgements, findings that are resolved,
and operations that have ended, these with their journals and intents.  Each is looked through a
part at a time and goes on there at the next look.  An operation stays as long as anything that it
made may be there, since what an agent holds is found through it: until every key of it is burned
and no tombstone watches one.  Its time is counted from when the last key was burned: what turns up
once more is still known, however old the agent was.  The audit log is never shortened.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple, cast

from tenure.app.operations.handle import decode, encode
from tenure.app.plane import Plane
from tenure.core.finding import FindingKind
from tenure.core.limits import IDEMPOTENCY_SECONDS
from tenure.core.operation import IntentState
from tenure.core.records import IntentRecord, OperationRecord, TombstoneRecord, key_of
from tenure.ports.store import TABLES, Change, Drop, Is, Key, Row
from tenure.reconcilers.term import NOBODY, KeptFor, Term, Tick

SENTENCE = "What is over is kept as long as it was promised, and no longer."
NAME = "retention"
PAGE = 50
"""Rows that are read at once, with the loop waiting."""
LOOKED = 10_000
"""Rows of one sort that one look passes."""
DROPPED = 200
"""Rows that go in one commit."""
WORTH = 0.1
"""It goes on at once if this part of what a look may drop was over, and it saw no end."""


class Over(NamedTuple):
    """Something that is over: what must still hold when it goes, and its rows."""

    guard: Is
    drops: tuple[Drop, ...]


class Sort(NamedTuple):
    """One sort of what is over one day."""

    table: str
    words: str
    seconds: Callable[[KeptFor], float]
    """How long it is kept; 0: for ever."""
    judge: Callable[[Plane, Row, float], Awaitable[Over | None]]
    """What goes with this row, if it was over before that; None: it stays."""
    looked: int = LOOKED
    by: str = ""
    """The column that grows with the key: what lies beyond the first young row is young too."""


async def tick(plane: Plane, *, limit: int = 500, term: Term | None = None) -> Tick:
    """Look through a part of each sort, and drop what is over, so much of each at most."""
    term = term or Term(plane, NAME)
    seen = fixed = 0
    more = False
    for sort in SORTS:
        seconds = sort.seconds(term.kept)
        if not seconds:
            continue
        before = plane.store.now() - seconds
        looked, over, ended = await _look(plane, term, sort, limit, before)
        seen += looked
        if over and term.read_only:
            what = f"{len(over)} {sort.words} or more are over and still kept"
            await term.report(FindingKind.CONFIRMED, sort.table, what, about=NOBODY)
        elif over:
            fixed += await _drop(plane, term, over)
            more = more or (not ended and len(over) >= WORTH * limit)
    await term.settle_unseen()
    return Tick(seen, fixed, plane.store.now() if more else None)


async def _look(
    plane: Plane, term: Term, sort: Sort, limit: int, before: float
) -> tuple[int, list[Over], bool]:
    """How many rows were looked at from where the last look ended, and what of them is over.

    And whether it came to the end, from which the next look begins anew.
    """
    where = f"{NAME} {sort.table}"
    last = _key_of(plane.reconciled.cursors.get(where, "[]"))
    seen, over = 0, list[Over]()
    while seen < sort.looked and len(over) < limit:
        rows = await plane.store.list_rows(sort.table, {}, after=last, limit=PAGE)
        old = [row for row in rows if not sort.by or cast(float, row[sort.by]) < before]
        judged = [await sort.judge(plane, row, before) for row in old]
        over += [one for one in judged if one is not None]
        seen += len(old)
        if len(old) < PAGE:
            last = ()
            break
        last = _key(sort.table, old[-1])
        await asyncio.sleep(0)
    if not term.read_only:
        plane.reconciled.cursors[where] = encode(last)
    return seen, over, not last


async def _drop(plane: Plane, term: Term, over: list[Over]) -> int:
    """Drop what is still over, for as long as this process leads; how much that was."""
    fixed = 0
    for part in _parts(over):
        left = part
        while left:
            guards = (*term.fence(), *(one.guard for one in left))
            drops = tuple(drop for one in left for drop in one.drops)
            refused = await plane.store.commit(Change("", guards, drops))
            if refused is None:
                fixed += len(left)
                break
            if refused.what.table == "lease":
                return fixed
            left = [one for one in left if one.guard != refused.what]
    return fixed


def _parts(over: list[Over]) -> Iterator[list[Over]]:
    """So many that their rows go in one commit."""
    part: list[Over] = []
    for one in over:
        if part and sum(len(each.drops) for each in part) + len(one.drops) > DROPPED:
            yield part
            part = []
        part.append(one)
    yield part


def _key(table: str, row: Row) -> Key:
    return tuple(cast("str | int", row[column]) for column in TABLES[table].key)


def _key_of(text: str) -> Key:
    return tuple(cast("list[Any]", decode(text)))


def _alone(table: str, row: Row, column: str) -> Over:
    """One row, if this column of it is as it was."""
    key = _key(table, row)
    return Over(Is(table, key, {column: row[column]}), (Drop(table, key),))


# --- what is over ---------------------------------------------------------------------------------


async def _idempotency(_: Plane, row: Row, before: float) -> Over | None:
    return _alone("idempotency", row, "at") if cast(float, row["at"]) < before else None


async def _awaited(plane: Plane, row: Row, before: float) -> Over | None:
    """An operation that is open looks at its rows again whenever it is moved."""
    at = cast("float | None", row["acknowledged_at"])
    if at is None or at >= before:
        return None
    operation = await plane.store.find(OperationRecord, (str(row["operation"]),))
    if operation is not None and operation.ended_at is None:
        return None
    return _alone("awaited", row, "acknowledged_at")


async def _finding(_: Plane, row: Row, before: float) -> Over | None:
    at = cast("float | None", row["resolved_at"])
    return _alone("finding", row, "resolved_at") if at is not None and at < before else None


async def _operation(plane: Plane, row: Row, before: float) -> Over | None:
    """A key is burned and its tombstone put in one commit, so they are read in this order.

    The same commit says that the operation was updated, though it has ended.
    """
    name, over = str(row["id"]), row["ended_at"] is not None
    old = over and cast(float, row["updated_at"]) < before
    loaded = await plane.store.load(name) if old else None
    if loaded is None or any(may_hold(intent) for intent in loaded.intents):
        return None
    if await plane.store.list_rows(TombstoneRecord, {"operation": name}, limit=1):
        return None
    drops = [Drop("journal", key_of(one)) for one in loaded.journal]
    drops += [Drop("intent", key_of(one)) for one in loaded.intents]
    as_it_was: Row = {"revision": row["revision"], "updated_at": row["updated_at"]}
    guard = Is("operation", (name,), as_it_was)
    return Over(guard, (*drops, Drop("operation", (name,))))


def may_hold(intent: IntentRecord) -> bool:
    """Whether something may be there that this made."""
    return bool(intent.slot) and intent.state != IntentState.BURNED


def _of_operations(kept: KeptFor) -> float:
    """While its idempotency key answers with an operation, that is there."""
    return max(kept.operations, IDEMPOTENCY_SECONDS) if kept.operations else 0.0


SORTS = (
    Sort("idempotency", "idempotency keys", lambda _: IDEMPOTENCY_SECONDS, _idempotency),
    Sort("awaited", "acknowledgements", lambda _: IDEMPOTENCY_SECONDS, _awaited),
    Sort("finding", "resolved findings", lambda kept: kept.findings, _finding),
    Sort("operation", "ended operations", _of_operations, _operation, 500, "created_at"),
)
