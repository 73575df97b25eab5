"""Tracks how many events of each tenant the outbox has, without counting them in every round.

A process that starts to lead counts them once.  Then it keeps the counts up to date: it reads new
events from the feed, as every destination does, and only the leader drops events.
"""

from collections.abc import Collection, Mapping

from tenure.app.plane import Plane
from tenure.ports.store import TenantEvents

PAGE = 1_000
READER = "tenure:event-count"
"""The name that the feed uses as a tenant for these reads; no tenant can have this name."""


class EventCounts:
    """The number of events of each tenant, as one leader has counted them."""

    def __init__(self) -> None:
        self._token = 0
        """The fence token under which they were counted; 0 if they are not known."""
        self._position = 0
        """Position of the newest event that is counted."""
        self._tenants: dict[str, TenantEvents] = {}

    async def read(self, plane: Plane, token: int) -> Mapping[str, TenantEvents]:
        """The events of each tenant now.

        Under another token another process may have led and dropped events: count them again.
        """
        if self._token != token:
            position = await plane.feed.head()
            self._tenants = dict(await plane.store.count_events(until=position))
            self._token, self._position = token, position
        while rows := await plane.feed.more(self._position, limit=PAGE, tenant=READER):
            for row in rows:
                known = self._tenants.get(row.tenant, TenantEvents(0, row.position))
                self._tenants[row.tenant] = TenantEvents(known.total + 1, known.oldest)
            self._position = rows[-1].position
        return self._tenants

    def before_oldest(self, tenant: str) -> int:
        """A position beyond which all events of this tenant are."""
        return self._tenants[tenant].oldest - 1

    def drop(self, tenant: str, count: int, *, oldest: int = 0) -> None:
        """Count that so many events of a tenant were dropped; its others lie after `oldest`."""
        known = self._tenants.get(tenant)
        if known is None:
            return
        if known.total > count:
            self._tenants[tenant] = TenantEvents(known.total - count, max(known.oldest, oldest))
        else:
            del self._tenants[tenant]

    def forget(self) -> None:
        """Forget the counts; the next `read` counts all events again."""
        self._token = 0
        self._tenants = {}


def bound_for_each(counts: Collection[int], *, tenant_max: int, all_max: int) -> int:
    """How many events each tenant may have, so that all have `all_max` together at most.

    A tenant with fewer events than its equal share of `all_max` keeps them all, however many events
    the other tenants have.
    """
    room = all_max
    for place, count in enumerate(sorted(counts)):
        share = room // (len(counts) - place)
        if count > share:
            return min(tenant_max, share)
        room -= count
    return tenant_max
