"""The dispatcher: reads new events once for all destinations, and wakes their subscribers.

A destination that has read the feed up to a position need not read it again before there is an
event that it subscribes to.  So a commit costs the same with thousands of idle destinations.  When
a destination reads next, the dispatcher gives it the range of events that it can skip.  A wakeup is
a hint: it may be lost, and every destination also polls from time to time.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tenure.app.plane import Plane
from tenure.app.wakeups import Wakeup
from tenure.core.errors import StoreError
from tenure.core.records import OutboxRecord
from tenure.delivery.outbox import DeliveryResult, DestinationRoute, SkippedRange

log = logging.getLogger("tenure.delivery")
POLL_SECONDS, IDLE_POLL_SECONDS = 1.0, 30.0
"""Poll intervals: the second one applies if this process is notified of every commit."""
LINGER_SECONDS: Final = 0.01
"""How long events are collected before they are sent together: each commit wakes the dispatcher."""
BUSY_EVENTS: Final = 16
BUSY_LINGER_SECONDS: Final = 0.05
"""The same after a read that found BUSY_EVENTS: fewer and larger reads cost the loop less."""
ERROR_PAUSE_SECONDS: Final = 1.0
"""Pause after an unexpected error."""
PAGE: Final = 200


def poll_seconds(plane: Plane) -> float:
    """How often to poll for events that this process was not notified of."""
    return IDLE_POLL_SECONDS if plane.commits.number and not plane.shared else POLL_SECONDS


class DestinationWatch:
    """The dispatcher's state for one destination."""

    def __init__(self, route: DestinationRoute) -> None:
        self.route = route
        self.wakeup = Wakeup()
        """Notified when the destination is to read the feed."""
        self.read_to = 0
        """Position up to which the destination has read the feed."""
        self.newest_own = 0
        """Position of the newest event that it subscribes to."""
        self.clear_to = 0
        """When it was woken, no event up to this position was its own and unread."""
        self.parked = False
        """Whether it has parked streams."""


class Dispatcher:
    """Reads the feed for all destinations of the process that leads."""

    def __init__(self, plane: Plane, position: int) -> None:
        """Read events after the position; destinations read the earlier ones themselves.

        The feed promises that a destination which reads from now on finds all events up to the
        position.
        """
        self._plane = plane
        self._position = position
        self._count = 0
        self._watches: dict[str, dict[str, DestinationWatch]] = {}

    def add(self, route: DestinationRoute) -> DestinationWatch:
        """Wake this destination from now on; it must read the feed once after that."""
        watch = DestinationWatch(route)
        self._watches.setdefault(route.tenant, {})[route.id] = watch
        return watch

    def drop(self, watch: DestinationWatch) -> None:
        """Stop waking this destination."""
        route = watch.route
        of_tenant = self._watches[route.tenant]
        del of_tenant[route.id]
        if not of_tenant:
            del self._watches[route.tenant]

    @property
    def count(self) -> int:
        """How many events this dispatcher has read."""
        return self._count

    def skip_after(
        self, watch: DestinationWatch, result: DeliveryResult, *, count: int
    ) -> SkippedRange:
        """The range that a destination can skip after a read that began at `count`.

        If the dispatcher has read no event of its own since, that is everything the dispatcher has
        read; else it is everything before the first event of its own.
        """
        if result.read_to is None:
            return result.skipped
        clear = self._position if watch.newest_own <= result.read_to else watch.clear_to
        if clear <= result.read_to:
            return result.skipped
        return SkippedRange(clear, result.skipped.events + self._count - count)

    async def run(self) -> None:
        """Read new events until cancelled."""
        plane = self._plane
        while True:
            number = plane.commits.number
            try:
                rows = await plane.feed.after(self._position, limit=PAGE)
                self._wake_subscribers(rows)
            except StoreError as error:
                log.warning("the dispatcher cannot read events: %s", error)
                await asyncio.sleep(ERROR_PAUSE_SECONDS)
                continue
            except Exception:
                log.exception(
                    "reading new events failed; next attempt in %g s", ERROR_PAUSE_SECONDS
                )
                await asyncio.sleep(ERROR_PAUSE_SECONDS)
                continue
            if len(rows) < PAGE:
                await plane.commits.wait_for_newer(number, seconds=poll_seconds(plane))
                busy = len(rows) >= BUSY_EVENTS
                await asyncio.sleep(BUSY_LINGER_SECONDS if busy else LINGER_SECONDS)
            else:
                await asyncio.sleep(0)

    def _wake_subscribers(self, rows: Sequence[OutboxRecord]) -> None:
        """Wake every destination that subscribes to one of these events, and advance."""
        if not rows:
            return
        newest = rows[::-1]
        of_tenants: dict[str, list[OutboxRecord]] = {}
        for row in newest:
            of_tenants.setdefault(row.tenant, []).append(row)
        for tenant, found in (("", newest), *of_tenants.items()):
            for watch in self._watches.get(tenant, {}).values():
                own = next((row for row in found if watch.route.has(row)), None)
                if own is not None:
                    self._wake(watch, own.position)
        self._position = newest[0].position
        self._count += len(rows)

    def _wake(self, watch: DestinationWatch, own: int) -> None:
        if watch.newest_own <= watch.read_to:  # else it has not read since it was woken
            watch.clear_to = self._position
        watch.newest_own = own
        if own > watch.read_to:
            watch.wakeup.notify()
