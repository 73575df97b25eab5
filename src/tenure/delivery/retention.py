"""Drops events from the outbox by two rules.

Rule 1: an event that no destination needs any more is dropped when it is a day old.
Rule 2: a tenant has a bounded number of events, and so have all tenants together.  Beyond the bound
the oldest events of the tenant are dropped, delivered or not.  If all tenants together have too
many, the tenants that have most lose theirs first.

A destination needs the events of its own tenant that it subscribes to and that lie after its
cursor.  So a destination that accepts nothing keeps only those events in the outbox, up to the
bound of its tenant.  The commit that drops an undelivered event counts it as missed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tenure.app.events import delivery_rows
from tenure.app.events.cloudevents import TRIMMED, EventFilter, trimmed_cursor
from tenure.app.events.deliveries import AGE, BOUND
from tenure.app.leader import Leader
from tenure.app.operations.outbox_rows import drop_event
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.errors import StaleToken
from tenure.core.limits import OUTBOX_MAX, OUTBOX_SECONDS, OUTBOX_TENANT_MAX
from tenure.core.records import CursorRecord, OutboxRecord
from tenure.core.subscription import REACTION
from tenure.delivery.event_count import EventCounts, bound_for_each
from tenure.delivery.outbox import DestinationRoute
from tenure.ports.store import Change, Drop, Put, Set

log = logging.getLogger("tenure.delivery")
PAGE = 500
"""Events that are read together and dropped in one commit."""
IDLE_PAGES_MAX = 20
"""A round ends after so many pages without an event to drop; the next round continues there."""
ROUND_SECONDS = 5.0
"""A round that takes longer ends and is followed by another, so that the lease is renewed."""


class RetentionLimits(NamedTuple):
    """The limits of the outbox."""

    seconds: float = OUTBOX_SECONDS
    """Age at which an event that no destination needs is dropped."""
    tenant_max: int = OUTBOX_TENANT_MAX
    """Events of one tenant."""
    all_max: int = OUTBOX_MAX
    """Events of all tenants together."""


class TrimResult(NamedTuple):
    """How many events one round has dropped."""

    old: int = 0
    beyond_bound: int = 0
    more: bool = False
    """Whether the round ended before everything was dropped that can be."""


class Subscriber(NamedTuple):
    """A destination with its filter and cursor."""

    name: str
    kind: str
    tenant: str
    """Empty: all tenants."""
    event_filter: EventFilter
    position: int
    """Its cursor."""

    def needs(self, row: OutboxRecord) -> bool:
        """Whether it is still to receive this event."""
        return (
            self.position < row.position
            and (not self.tenant or self.tenant == row.tenant)
            and self.event_filter.has(row)
        )


class Retention:
    """Drops events from the outbox while this process leads."""

    def __init__(
        self,
        plane: Plane,
        leader: Leader,
        routes: Callable[[], Awaitable[Mapping[str, DestinationRoute]]],
        limits: RetentionLimits = RetentionLimits(),  # noqa: B008 (a value that nothing can change)
    ) -> None:
        """`routes` reads all current destinations."""
        self.limits = limits
        self._plane = plane
        self._leader = leader
        self._routes = routes
        self._counts = EventCounts()
        self._walk_position = 0
        """Position at which the next round continues to read old events; 0: at the oldest."""
        self._missed_events = Counter[str]()
        """Events that each destination has missed in this round."""
        self._ends_at = 0.0
        """When this round ends, by the clock of the loop."""

    async def trim(self) -> TrimResult:
        """Do one round.  StaleToken if another process leads now; then nothing was written."""
        first = await self._plane.store.list_events(limit=1)
        if not first:
            return TrimResult()
        excess = await self._excess(first[0])
        before = self._plane.store.now() - self.limits.seconds
        if not excess and not _count_old(first, before):
            return TrimResult()
        self._ends_at = asyncio.get_running_loop().time() + ROUND_SECONDS
        subscribers = await self._subscribers()
        self._missed_events.clear()
        try:
            beyond_bound = await self._keep_to_bounds(excess, subscribers)
        finally:
            for name, count in self._missed_events.items():
                log.warning(
                    "destination %s has missed %d events: their tenant had more than the outbox"
                    " keeps of one tenant, so its oldest were dropped", name, count,
                )  # fmt: skip
        old = await self._drop_old(before, subscribers)
        return TrimResult(old, beyond_bound, more=self._is_over())

    def _is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._ends_at

    async def _subscribers(self) -> "Subscribers":
        """Every destination with a cursor; cursors are read first, so that each finds its route."""
        cursors = [row async for row in every(self._plane.store, CursorRecord)]
        routes = await self._routes()
        return Subscribers(cursors, routes)

    async def _drop_old(self, before: float, subscribers: "Subscribers") -> int:
        """Rule 1: walk over the old events, and drop those that no destination needs."""
        store, dropped, idle_pages = self._plane.store, 0, 0
        while idle_pages < IDLE_PAGES_MAX and not self._is_over():
            page = await store.list_events(after=self._walk_position, limit=PAGE)
            old = page[: _count_old(page, before)]
            drops = [row for row in old if not any(subscribers.needing(row))]
            if drops:
                if not await self._drop(drops, subscribers, AGE):
                    break
                dropped += len(drops)
            else:
                idle_pages += 1
            if len(old) < PAGE:
                self._walk_position = 0
                break
            self._walk_position = old[-1].position
            await asyncio.sleep(0)
        return dropped

    async def _keep_to_bounds(self, excess: Counter[str], subscribers: "Subscribers") -> int:
        """Rule 2: drop the oldest events of every tenant that has too many."""
        dropped, position = 0, min(map(self._counts.before_oldest, excess), default=0)
        while excess:
            page = await self._plane.store.list_events(after=position, limit=PAGE)
            drops: list[OutboxRecord] = []
            for row in page:
                if excess[row.tenant]:
                    excess[row.tenant] -= 1
                    drops.append(row)
            if drops and not await self._drop(drops, subscribers, BOUND):
                return dropped
            dropped += len(drops)
            excess = +excess
            if len(page) < PAGE:
                break
            if self._is_over():
                return dropped
            position = page[-1].position
            await asyncio.sleep(0)
        if excess:  # there were fewer events than were counted
            self._counts.forget()
        return dropped

    async def _excess(self, first: OutboxRecord) -> Counter[str]:
        """How many events each tenant has beyond its bound.

        Positions grow by at least one for each event.  So if all positions span less than a bound,
        no tenant has more events than it, and nothing is counted.  Counting starts at half a bound.
        """
        _, tenant_max, all_max = self.limits
        span = await self._plane.feed.head() - first.position
        if 2 * span < min(tenant_max, all_max):
            self._counts.forget()
            return Counter()
        tenants = await self._counts.read(self._plane, self._leader.token)
        counts = [one.total for one in tenants.values()]
        bound = bound_for_each(counts, tenant_max=tenant_max, all_max=all_max)
        return +Counter({name: one.total - bound for name, one in tenants.items()})

    async def _drop(
        self, rows: Sequence[OutboxRecord], subscribers: "Subscribers", reason: str
    ) -> bool:
        """Drop these events in one commit that also counts them as missed where needed.

        False if a destination was deleted meanwhile: then nothing was written.
        """
        plane = self._plane
        writes: list[Put | Set | Drop] = [drop_event(row) for row in rows]
        missed = Counter(one for row in rows for one in subscribers.needing(row))
        counts, names = Counter[str](), Counter[str]()
        for one in missed:
            cursor = await plane.store.find(CursorRecord, (one.name,))
            if cursor is None:
                return False
            now = one._replace(position=cursor.position)
            if count := sum(now.needs(row) for row in rows):
                counts[one.kind] += count
                writes.append(delivery_rows.count_missed(cursor, count))
                names[one.name] += count
        newest = {row.tenant: row.position for row in rows}
        writes += [subscribers.mark(tenant, position) for tenant, position in newest.items()]
        refused = await plane.store.commit(Change("", (self._leader.guard,), tuple(writes)))
        if refused is not None and refused.what.table == "lease":
            raise StaleToken(TRIMMED)
        if refused is not None:
            return False
        for tenant, position in newest.items():
            subscribers.marks[tenant] = max(subscribers.marks.get(tenant, 0), position)
        self._missed_events.update(names)
        plane.deliveries.missed.update(counts)
        plane.deliveries.trimmed[reason] += len(rows)
        for tenant, count in Counter(row.tenant for row in rows).items():
            oldest = newest[tenant] + 1 if reason == BOUND else 0
            self._counts.drop(tenant, count, oldest=oldest)
        return True


class Subscribers:
    """All destinations, and up to where each tenant's events were dropped."""

    def __init__(
        self, cursors: Sequence[CursorRecord], routes: Mapping[str, DestinationRoute]
    ) -> None:
        """A cursor without a route may be of another release: it needs all events."""
        self.marks: dict[str, int] = {}
        """The position of the newest event that was dropped, by tenant."""
        self._of_tenant: dict[str, list[Subscriber]] = {}
        for row in cursors:
            name, position = row.destination, row.position
            if name == TRIMMED:
                continue
            if name.startswith(trimmed_cursor("")):
                self.marks[name.removeprefix(trimmed_cursor(""))] = position
                continue
            route = routes.get(name)
            one = Subscriber(name, REACTION, "", EventFilter(), position)
            if route is not None:
                one = Subscriber(name, route.kind, route.tenant, route.event_filter, position)
            self._of_tenant.setdefault(one.tenant, []).append(one)

    def needing(self, row: OutboxRecord) -> Iterator[Subscriber]:
        """Destinations that are still to receive this event."""
        for tenant in ("", row.tenant):
            yield from (one for one in self._of_tenant.get(tenant, ()) if one.needs(row))

    def mark(self, tenant: str, position: int) -> Put | Set:
        """The row which records that events of a tenant up to this position may be dropped."""
        name = trimmed_cursor(tenant)
        if tenant not in self.marks:
            return delivery_rows.put_cursor(name, position=position)
        return delivery_rows.move_cursor(name, max(position, self.marks[tenant]))


def _count_old(rows: Sequence[OutboxRecord], before: float) -> int:
    """How many of the first rows are from before this time."""
    return next((place for place, row in enumerate(rows) if row.at >= before), len(rows))
