"""A plane whose reconcilers see a later time than the rest of it."""

from dataclasses import replace
from typing import Any, cast

from tenure.app.operations import admission, reads
from tenure.app.operations.admission import OperationRequest
from tenure.app.plane import Plane
from tenure.core.plan import Plan
from tenure.core.records import IdempotencyRecord, IntentRecord, JournalRecord, OperationRecord
from tenure.ports.store import Change, Put, Row, Store
from tenure.reconcilers import retention
from tests.unit.support.scripted_planes import Script, step

DAY = 86_400.0


class LaterStore:
    """A store whose clock is ahead."""

    def __init__(self, inner: Store, days: float) -> None:
        self._inner = inner
        self._days = days

    def now(self) -> float:
        return self._inner.now() + self._days * DAY

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def with_later_clock(plane: Plane, days: float) -> Plane:
    return replace(plane, store=cast(Store, LaterStore(plane.store, days)))


def keys(count: int) -> tuple[Put, ...]:
    """Expired idempotency keys."""
    row: Row = {"operation": "o", "fingerprint": "f", "at": 0.0}
    return tuple(Put("idempotency", ("default", "p", "r", f"{n:06} x"), row) for n in range(count))


async def on_any_store(plane: Plane) -> tuple[object, ...]:
    """The result of retention over operations, some with resources, and keys, on any store."""
    for name in ("made", "empty"):
        for number in range(3):
            command = OperationRequest(name, idempotency_key=f"{name} {number}")
            await reads.wait(plane, "default", (await admission.accept(plane, command)).id)
    await plane.store.commit(Change("", (), keys(300)))
    future = with_later_clock(plane, 100)
    done = await retention.tick(future)
    store = plane.store
    keys_left = await store.count_rows(IdempotencyRecord, {})
    operations = await store.list_rows(OperationRecord, {}, limit=1_000)
    journal = await store.list_rows(JournalRecord, {}, limit=1_000)
    intents = await store.list_rows(IntentRecord, {}, limit=1_000)
    left = {row.operation for row in journal} | {row.operation for row in intents}
    kinds = [row.plan_name for row in operations]
    return done.fixed, kinds, keys_left, left == {row.id for row in operations}


PLANS = (
    Plan("made", stages=(step("made", Script(), slot="shelf"),)),
    Plan("empty", stages=(step("nothing", Script()),)),
)
RETENTION_RESULT = (309, ["made"] * 3, 0, True)
