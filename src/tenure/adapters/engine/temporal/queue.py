"""The task queue of a plane: its own, named once and kept in its store.

So all processes of one plane work at the same, and no other plane in the namespace is asked for its
operations.
"""

from collections.abc import Awaitable, Callable

from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Key, Put, Row, Store

KEPT = ("temporal queue",)
LEASE = ("worker/temporal",)
FIRST = "tenure"
"""What every plane had before each had its own; those keep it, and so the runs that are open."""
Find = Callable[[str, Key], Awaitable[Row | None]]


async def known_queue(find: Find) -> str:
    """The queue of a plane as its store has it; empty: Temporal has never moved its operations."""
    kept = await find("plane", KEPT)
    if kept is not None:
        return str(kept["name"])
    return FIRST if await find("lease", LEASE) is not None else ""


async def queue_of(store: Store, entropy: Entropy) -> str:
    """The same, named now if it has none; of two who name it the first counts."""
    name = await known_queue(store.find) or f"tenure-{entropy.secret()[:6].hex()}"
    refused = await store.commit(Change("", (), (Put("plane", KEPT, {"name": name}),)))
    return name if refused is None or refused.row is None else str(refused.row["name"])
