"""Reads the backlogs of destinations for metrics, by kind of destination.

A process counts what it sends (`tenure.telemetry.counters`).  The backlog is read from the store at
each scrape, and is the same in every process.
"""

from dataclasses import dataclass

from tenure.app.events.subscriptions import rows_of
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.records import CursorRecord, LetterRecord, ParkedRecord
from tenure.core.subscription import REACTION, SubscriptionKind
from tenure.ports.bus import DeliveryVerdict

OWN_NATS = "tenure:nats"
"""The destination of every event where the plane has a NATS server."""
KINDS = (REACTION, str(SubscriptionKind.WEBHOOK), str(SubscriptionKind.NATS))
AGE, BOUND = TRIM_REASONS = ("age", "bound")
"""Why the relay dropped an event: it was old, or its tenant had too many."""
RESULTS = tuple(str(verdict) for verdict in DeliveryVerdict)


@dataclass(slots=True)
class Backlog:
    """The events that destinations of one kind have not accepted."""

    letters: int = 0
    """Dead letters."""
    failing: int = 0
    """Destinations that reject events or do not answer."""
    since: float | None = None
    """Start of the longest current outage among these destinations."""


async def read_backlog(plane: Plane) -> dict[str, Backlog]:
    """The backlog by kind of destination; the cost grows with destinations and dead letters."""
    kinds = {row.id: row.kind for row in await rows_of(plane)}
    kinds[OWN_NATS] = str(SubscriptionKind.NATS)
    found = {kind: Backlog() for kind in KINDS}
    since: dict[str, float] = {}
    parked = set[str]()
    async for stream in every(plane.store, ParkedRecord):
        name = stream.destination
        parked.add(name)
        since[name] = min(since.get(name, float("inf")), stream.since)
    async for cursor in every(plane.store, CursorRecord):
        if cursor.since is not None:
            name = cursor.destination
            since[name] = min(since.get(name, float("inf")), cursor.since)
    for name, at in since.items():
        one = found[kinds.get(name, REACTION)]
        one.failing += 1
        one.since = at if one.since is None else min(one.since, at)
        if name in parked:
            one.letters += await plane.store.count_rows(LetterRecord, {"destination": name})
    return found
