"""The dispatcher: reads what is committed once for all destinations, and wakes whom it concerns.

A destination that has looked at everything up to some position need not look again before there is
an event of its own: so thousands that hear of nothing cost a commit nothing.  How far the events
are none of its own it is told when it looks next.  A hint and no more, as news are: every
destination looks by itself from time to time.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, cast

from tenure.app.plane import Plane
from tenure.app.wakeups import Wakeup
from tenure.core.errors import StoreError
from tenure.delivery.outbox import Route, Skimmed, Tick
from tenure.ports.store import Row

log = logging.getLogger("tenure.reconcilers")
LOOK_SECONDS, ALONE_SECONDS = 1.0, 30.0
"""How often it is looked for what nobody here has told of; the second where all is told of."""
LINGER_SECONDS: Final = 0.01
"""How long events gather before they are carried together: a commit wakes us for each batch."""
BUSY_EVENTS: Final = 16
BUSY_LINGER_SECONDS: Final = 0.05
"""After a look that found so many: each look costs the loop more than most events do."""
STRAIN_SECONDS: Final = 1.0
"""How long all is left alone after something unforeseen."""
PAGE: Final = 200


def look_seconds(plane: Plane) -> float:
    """How long something may be there unseen; where every commit is told of, nothing is."""
    return ALONE_SECONDS if plane.commits.number and not plane.shared else LOOK_SECONDS


class Concern:
    """What is known of the events of one destination."""

    def __init__(self, route: Route) -> None:
        """Nothing yet."""
        self.route = route
        self.news = Wakeup()
        """Told when it is to look."""
        self.looked = 0
        """Up to where it has looked by itself."""
        self.own = 0
        """The position of the newest event that is its own."""
        self.clear = 0
        """Up to where there was none that it had not looked at, when it was woken."""
        self.parked = False
        """Whether some of its streams are parked."""


class Dispatcher:
    """What one leading process reads for all its destinations."""

    def __init__(self, plane: Plane, position: int) -> None:
        """All that is beyond the position will be read; destinations look at the rest themselves.

        Whoever looks from now on must find what is up to there, as the feed promises.
        """
        self._plane = plane
        self._position = position
        self._count = 0
        self._concerns: dict[str, dict[str, Concern]] = {}

    def add(self, route: Route) -> Concern:
        """From now on a destination is woken; it must look once after that."""
        concern = Concern(route)
        self._concerns.setdefault(route.tenant, {})[route.id] = concern
        return concern

    def drop(self, concern: Concern) -> None:
        """It is woken no more."""
        route = concern.route
        of_tenant = self._concerns[route.tenant]
        del of_tenant[route.id]
        if not of_tenant:
            del self._concerns[route.tenant]

    @property
    def count(self) -> int:
        """How many events were read."""
        return self._count

    def skimmed(self, concern: Concern, done: Tick, *, count: int) -> Skimmed:
        """What a destination need not look at, after a look that left nothing and began at `count`.

        That is all that was read, if nothing of its own is among it; else what was before.
        """
        if done.looked is None:
            return done.skimmed
        clear = self._position if concern.own <= done.looked else concern.clear
        if clear <= done.looked:
            return done.skimmed
        return Skimmed(clear, done.skimmed.passed + self._count - count)

    async def run(self) -> None:
        """Read whatever is committed, until cancelled."""
        plane = self._plane
        while True:
            number = plane.commits.number
            try:
                rows = await plane.feed.after(self._position, limit=PAGE)
                self._tell(rows)
            except StoreError as error:
                log.warning("the relay cannot use the store: %s", error)
                await asyncio.sleep(STRAIN_SECONDS)
                continue
            except Exception:
                log.exception("nobody was told of new events; again soon")
                await asyncio.sleep(STRAIN_SECONDS)
                continue
            if len(rows) < PAGE:
                await plane.commits.beyond(number, seconds=look_seconds(plane))
                busy = len(rows) >= BUSY_EVENTS
                await asyncio.sleep(BUSY_LINGER_SECONDS if busy else LINGER_SECONDS)
            else:
                await asyncio.sleep(0)

    def _tell(self, rows: Sequence[Row]) -> None:
        """Wake every destination of which one of these events is, and go on after them."""
        if not rows:
            return
        newest = rows[::-1]
        of_tenants: dict[str, list[Row]] = {}
        for row in newest:
            of_tenants.setdefault(str(row["tenant"]), []).append(row)
        for tenant, found in (("", newest), *of_tenants.items()):
            for concern in self._concerns.get(tenant, {}).values():
                own = next((row for row in found if concern.route.has(row)), None)
                if own is not None:
                    self._wake(concern, cast(int, own["position"]))
        self._position = cast(int, newest[0]["position"])
        self._count += len(rows)

    def _wake(self, concern: Concern, own: int) -> None:
        if concern.own <= concern.looked:  # else it has not looked since it was woken
            concern.clear = self._position
        concern.own = own
        if own > concern.looked:
            concern.news.notify()
