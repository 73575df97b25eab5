"""Finished rows are kept for the promised time, and then dropped.

Four kinds of rows are dropped: idempotency keys, acknowledgements, resolved findings, and ended
operations with their journals and intents.  One pass reads a part of each table, and the next pass
continues there.  The resources of an agent are found through its operations.  So an operation stays
while any of its resources may exist: until all of its keys are burned and no tombstone watches one.
Its time is counted from the burning of its last key, so a late arrival is still recognised however
old the agent was.  The audit log is never shortened.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, NamedTuple, cast

from tenure.app.events import acknowledgement_rows
from tenure.app.operations import idempotency
from tenure.app.operations.handle import decode, encode
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.finding import FindingKind
from tenure.core.limits import IDEMPOTENCY_SECONDS
from tenure.core.operation import IntentState
from tenure.core.records import (
    AcknowledgementRecord,
    FindingRecord,
    IdempotencyRecord,
    IntentRecord,
    OperationRecord,
    TombstoneRecord,
    key_of,
    table_of,
)
from tenure.ports.operation_rows import drop_operation
from tenure.ports.store import Change, Drop, Is, Key, R
from tenure.reconcilers.passes import ABOUT_PLANE, Pass, RetentionPeriods, Tick

SENTENCE = "Finished rows are kept for the promised time, and then dropped."
NAME = "retention"
PAGE = 50
"""Rows that are read before the event loop is given to others."""
ROWS_MAX = 10_000
"""Rows of one table that one pass reads."""
DROPS_MAX = 200
"""Rows that are dropped in one commit."""
CONTINUE_SHARE = 0.1
"""The next pass follows at once if this share of `limit` was dropped before the table's end."""


class Removal(NamedTuple):
    """Rows to drop together, and the guard that must hold at that commit."""

    guard: Is
    drops: tuple[Drop, ...]


class RetentionRule(NamedTuple, Generic[R]):
    """How long the rows of one table are kept."""

    record: type[R]
    description: str
    """The rows in a report, such as `idempotency keys`."""
    seconds: Callable[[RetentionPeriods], float]
    """How long a row is kept; 0 means for ever."""
    removal_of: Callable[[Plane, R, float], Awaitable[Removal | None]]
    """The rows to drop with this one if it was finished before that time; None if it stays."""
    rows_max: int = ROWS_MAX
    time_of: Callable[[R], float] | None = None
    """A time that grows with the key: all rows after the first young row are young too."""

    @property
    def table(self) -> str:
        """The table whose rows it drops."""
        return table_of(self.record).name


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Read a part of each table, and drop at most `limit` finished rows of each."""
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    more = False
    for rule in RULES:
        seconds = rule.seconds(this_pass.retention)
        if not seconds:
            continue
        before = plane.store.now() - seconds
        count, over, reached_end = await _find_removals(plane, this_pass, rule, limit, before)
        seen += count
        if over and this_pass.read_only:
            what = f"{len(over)} or more {rule.description} are past their retention time"
            await this_pass.report(FindingKind.CONFIRMED, rule.table, what, about=ABOUT_PLANE)
        elif over:
            fixed += await _drop(plane, this_pass, over)
            more = more or (not reached_end and len(over) >= CONTINUE_SHARE * limit)
    await this_pass.resolve_unseen()
    return Tick(seen, fixed, plane.store.now() if more else None)


async def _find_removals(
    plane: Plane, this_pass: Pass, rule: RetentionRule[R], limit: int, before: float
) -> tuple[int, list[Removal], bool]:
    """How many rows were read from where the last pass ended, and which of them to drop.

    The third value says whether the end was reached; then the next pass begins at the start.
    """
    where = f"{NAME} {rule.table}"
    last = _decode_key(plane.reconcile_state.cursors.get(where, "[]"))
    seen, over = 0, list[Removal]()
    while seen < rule.rows_max and len(over) < limit:
        rows = await plane.store.list_rows(rule.record, {}, after=last, limit=PAGE)
        old = [row for row in rows if rule.time_of is None or rule.time_of(row) < before]
        removals = [await rule.removal_of(plane, row, before) for row in old]
        over += [one for one in removals if one is not None]
        seen += len(old)
        if len(old) < PAGE:
            last = ()
            break
        last = key_of(old[-1])
        await asyncio.sleep(0)
    if not this_pass.read_only:
        plane.reconcile_state.cursors[where] = encode(last)
    return seen, over, not last


async def _drop(plane: Plane, this_pass: Pass, over: list[Removal]) -> int:
    """Drop these rows while this process leads, and return how many removals were committed."""
    fixed = 0
    for part in _batches(over):
        left = part
        while left:
            guards = (*this_pass.fence(), *(one.guard for one in left))
            drops = tuple(drop for one in left for drop in one.drops)
            refused = await plane.store.commit(Change("", guards, drops))
            if refused is None:
                fixed += len(left)
                break
            if refused.what.table == "lease":
                return fixed
            left = [one for one in left if one.guard != refused.what]
    return fixed


def _batches(over: list[Removal]) -> Iterator[list[Removal]]:
    """Removals in groups whose rows fit into one commit."""
    part: list[Removal] = []
    for one in over:
        if part and sum(len(each.drops) for each in part) + len(one.drops) > DROPS_MAX:
            yield part
            part = []
        part.append(one)
    yield part


def _decode_key(text: str) -> Key:
    return tuple(cast("list[Any]", decode(text)))


# --- which rows are dropped -----------------------------------------------------------------------


async def _idempotency(_: Plane, row: IdempotencyRecord, before: float) -> Removal | None:
    if row.at >= before:
        return None
    return Removal(idempotency.key_is_unchanged(row), (idempotency.drop_key(row),))


async def _acknowledgement(
    plane: Plane, row: AcknowledgementRecord, before: float
) -> Removal | None:
    """An open operation reads its acknowledgements again at every move, so those stay."""
    if row.acknowledged_at is None or row.acknowledged_at >= before:
        return None
    operation = await plane.store.find(OperationRecord, (row.operation,))
    if operation is not None and operation.ended_at is None:
        return None
    return Removal(
        acknowledgement_rows.is_unchanged(row), (acknowledgement_rows.drop_acknowledgement(row),)
    )


async def _finding(_: Plane, row: FindingRecord, before: float) -> Removal | None:
    if row.resolved_at is None or row.resolved_at >= before:
        return None
    return Removal(findings.finding_is_resolved(row), (findings.drop_finding(row),))


async def _operation(plane: Plane, row: OperationRecord, before: float) -> Removal | None:
    """One commit burns a key and puts its tombstone, so the keys are read before the tombstones.

    That commit also sets `updated_at` of the operation, although the operation has ended.
    """
    old = row.ended_at is not None and row.updated_at < before
    loaded = await plane.store.load(row.id) if old else None
    if loaded is None or any(may_hold(intent) for intent in loaded.intents):
        return None
    if await plane.store.list_rows(TombstoneRecord, {"operation": row.id}, limit=1):
        return None
    return Removal(Is.of(row, "revision", "updated_at"), drop_operation(loaded))


def may_hold(intent: IntentRecord) -> bool:
    """Whether the resource of this intent may still exist."""
    return bool(intent.slot) and intent.state != IntentState.BURNED


def _operation_seconds(periods: RetentionPeriods) -> float:
    """How long operations are kept: at least while their idempotency key answers with them."""
    return max(periods.operations, IDEMPOTENCY_SECONDS) if periods.operations else 0.0


def _idempotency_seconds(_: RetentionPeriods) -> float:
    return IDEMPOTENCY_SECONDS


RULES: tuple[RetentionRule[Any], ...] = (
    RetentionRule(IdempotencyRecord, "idempotency keys", _idempotency_seconds, _idempotency),
    RetentionRule(
        AcknowledgementRecord, "acknowledgements", _idempotency_seconds, _acknowledgement
    ),
    RetentionRule(FindingRecord, "resolved findings", lambda periods: periods.findings, _finding),
    RetentionRule(
        OperationRecord,
        "ended operations",
        _operation_seconds,
        _operation,
        rows_max=500,
        time_of=lambda row: row.created_at,
    ),
)
