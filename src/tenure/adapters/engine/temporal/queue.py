"""The name of a plane's task queue: chosen once at random and stored in the plane's store.

All processes of the plane use the same queue.  Other planes in the namespace use other queues, so
no worker receives an operation of another plane.
"""

from typing import Protocol

from tenure.core.records.plane import LeaseRecord, PlaneRecord
from tenure.ports import plane_rows
from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Key, R, Store

QUEUE_KEY = ("temporal queue",)
LEASE_KEY = ("worker/temporal",)
SHARED_QUEUE = "tenure"
"""The queue of all planes of early releases; such a plane stays there, as do its open runs."""


class FindRow(Protocol):
    """Reads one row of a store, which need not be open."""

    async def __call__(self, record: type[R], key: Key, /) -> R | None:
        """The row with this key in the table of this record type."""
        ...


async def find_queue(find: FindRow) -> str:
    """Return the stored queue of a plane; empty if it has never used Temporal."""
    row = await find(PlaneRecord, QUEUE_KEY)
    if row is not None:
        return row.text
    return SHARED_QUEUE if await find(LeaseRecord, LEASE_KEY) is not None else ""


async def find_or_name_queue(store: Store, entropy: Entropy) -> str:
    """Return the plane's queue, and store a new name first if it has none.

    If two processes store a name at the same time, both use the first.
    """
    name = await find_queue(store.find) or f"tenure-{entropy.secret()[:6].hex()}"
    refusal = await store.commit(Change("", (), (plane_rows.put_plane_value(QUEUE_KEY, name),)))
    first = None if refusal is None else refusal.found(PlaneRecord)
    return name if first is None else first.text
