"""The name of a plane's task queue: chosen once at random and stored in the plane's store.

All processes of the plane use the same queue.  Other planes in the namespace use other queues, so
no worker receives an operation of another plane.
"""

from collections.abc import Awaitable, Callable

from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Key, Put, Row, Store

QUEUE_KEY = ("temporal queue",)
LEASE_KEY = ("worker/temporal",)
SHARED_QUEUE = "tenure"
"""The queue of all planes of early releases; such a plane stays there, as do its open runs."""
Find = Callable[[str, Key], Awaitable[Row | None]]


async def find_queue(find: Find) -> str:
    """Return the stored queue of a plane; empty if it has never used Temporal."""
    row = await find("plane", QUEUE_KEY)
    if row is not None:
        return str(row["name"])
    return SHARED_QUEUE if await find("lease", LEASE_KEY) is not None else ""


async def find_or_name_queue(store: Store, entropy: Entropy) -> str:
    """Return the plane's queue, and store a new name first if it has none.

    If two processes store a name at the same time, both use the first.
    """
    name = await find_queue(store.find) or f"tenure-{entropy.secret()[:6].hex()}"
    refusal = await store.commit(Change("", (), (Put("plane", QUEUE_KEY, {"name": name}),)))
    return name if refusal is None or refusal.row is None else str(refusal.row["name"])
