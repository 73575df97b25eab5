"""The relay: delivers events to every destination while this process leads.

Each destination has a task of its own, so one that hangs does not delay the others.  Commits and
changes of subscriptions in this process wake the relay; for those of other processes it polls.  An
idle destination costs nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from tenure.app.events import delivery_rows, subscriptions
from tenure.app.events.acknowledgements import filter_of
from tenure.app.leader import TTL_SECONDS, Leader
from tenure.app.plane import Plane
from tenure.concurrency import background, cancel_and_wait
from tenure.core.errors import StaleToken, StoreError
from tenure.core.records import SubscriptionRecord
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.dispatcher import (
    ERROR_PAUSE_SECONDS,
    IDLE_POLL_SECONDS,
    POLL_SECONDS,
    DestinationWatch,
    Dispatcher,
    poll_seconds,
)
from tenure.delivery.outbox import NONE_SKIPPED, DeliveryResult, DestinationRoute, deliver_page
from tenure.delivery.retention import Retention, RetentionLimits
from tenure.ports.bus import Bus, DeliveryVerdict, Destination, Outgoing, Receipt
from tenure.ports.store import Change

log = logging.getLogger("tenure.delivery")
ROUTES_SECONDS: Final = 2.0
"""How long a change of subscriptions in another process may go unnoticed."""
PAUSE_FACTOR: Final = 5
"""After re-reading the destinations, sleep PAUSE_FACTOR times as long as that took, so that
thousands of changing subscriptions cost at most 1/(1 + PAUSE_FACTOR) of the loop.
"""
TRIM_SECONDS: Final = 30.0
FIRST_PAGE: Final = 8
"""Events of the first page: it is small, so that even a process that dies soon after its start has
moved the cursor.
"""
PAGE_SECONDS: Final = 1.0
"""How long one page takes at most, about; after a crash the page is sent again."""


class _MissingBus:
    """A bus that this plane does not have: it accepts nothing, and gives the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def publish(self, _: Destination, events: Sequence[Outgoing]) -> Sequence[Receipt]:
        """Accept nothing."""
        return [Receipt(DeliveryVerdict.UNAVAILABLE, self._why)] * len(events)

    async def close(self) -> None:
        """There is nothing to close."""


NO_NATS: Final = _MissingBus("this control plane has no NATS server; see TENURE_BUS")


class _Delivery(NamedTuple):
    revision: int
    watch: DestinationWatch
    task: "asyncio.Task[None]"


class _RunningDispatcher(NamedTuple):
    dispatcher: Dispatcher
    task: "asyncio.Task[None]"


class Relay:
    """Delivers events while this process leads."""

    def __init__(
        self,
        plane: Plane,
        *,
        buses: Mapping[SubscriptionKind, Bus],
        fixed_routes: Sequence[DestinationRoute] = (),
        limits: RetentionLimits | None = None,
    ) -> None:
        """Deliver to the `fixed_routes`, and to each subscription by the bus of its kind."""
        self.leader = Leader(plane, "relay")
        self.plane = plane
        self._buses = buses
        self._fixed_routes = {route.id: route for route in fixed_routes}
        self._routes: dict[str, tuple[int, DestinationRoute]] = {}
        """The destinations when they were last read, with their revisions."""
        self._deliveries: dict[str, _Delivery] = {}
        self._dispatch: _RunningDispatcher | None = None
        """None while another process leads."""
        self.retention = Retention(
            plane, self.leader, self._destinations, limits or RetentionLimits()
        )
        self._changes_seen = 0
        """The number of subscription changes when the deliveries were last updated."""

    async def routes(self) -> dict[str, tuple[int, DestinationRoute]]:
        """Every destination, with its revision."""
        found = {name: (0, route) for name, route in self._fixed_routes.items()}
        for row in await subscriptions.rows_of(self.plane):
            if row.kind != SubscriptionKind.PULL:
                known = self._routes.get(row.id)
                if known is None or known[0] != row.revision:
                    known = (row.revision, self._route(row))
                found[row.id] = known
        self._routes = found
        return found

    async def _destinations(self) -> dict[str, DestinationRoute]:
        return {name: route for name, (_, route) in (await self.routes()).items()}

    def _route(self, row: SubscriptionRecord) -> DestinationRoute:
        kind = SubscriptionKind(row.kind)
        bus = self._buses.get(kind, NO_NATS)
        secrets = partial(subscriptions.secrets_of, self.plane, row)
        destination = Destination(row.id, row.target, tenant=row.tenant)
        return DestinationRoute(
            destination, bus, filter_of(row), row.tenant, secrets=secrets, kind=kind
        )

    async def create_cursors(self) -> None:
        """Create the cursors of the destinations of `fixed_routes`, unless they exist."""
        for name in self._fixed_routes:
            put = delivery_rows.put_cursor(name)
            await self.plane.store.commit(Change("", (), (put,)))

    async def run(self) -> None:
        """Lead whenever no other process does, until cancelled."""
        has_cursors = False
        trim_at = self.plane.store.now() + TRIM_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            number, began = self.plane.subscription_changes.number, loop.time()
            try:
                if not has_cursors:
                    await self.create_cursors()
                    has_cursors = True
                # A plane that is paused after a restore sends nothing: it may be the wrong backup.
                if not self.plane.pause.why and await self.leader.renew():
                    await self._update_deliveries()
                    if self.plane.store.now() >= trim_at:
                        trim_at = self.plane.store.now() + TRIM_SECONDS
                        if (await self.retention.trim()).more:
                            trim_at = 0.0
                else:
                    await self._drop_all()
            except StaleToken:
                await self._drop_all()
            except StoreError as error:
                log.warning("the relay cannot use the store: %s", error)
            except Exception:
                log.exception("the relay failed; next attempt in a few seconds")
            if self.leader.leads:
                pause = min(ROUTES_SECONDS, PAUSE_FACTOR * (loop.time() - began))
                await asyncio.sleep(pause)
                await self.plane.subscription_changes.wait_for_newer(
                    number, seconds=ROUTES_SECONDS - pause
                )
            else:
                await asyncio.sleep(TTL_SECONDS / 3)

    async def _update_deliveries(self) -> None:
        """Run one task for each destination; replace that of a destination that has changed."""
        changes, dispatcher = self.plane.subscription_changes.number, await self._dispatcher()
        routes = await self.routes()
        for name, delivery in list(self._deliveries.items()):
            known = routes.get(name)
            if known is None or known[0] != delivery.revision or delivery.task.done():
                await self._drop(name)
        for name, (revision, route) in routes.items():
            running = self._deliveries.get(name)
            if running is None:
                watch = dispatcher.add(route)
                deliver = self._deliver(route, dispatcher, watch)
                task = asyncio.create_task(deliver, name=f"tenure relay {name}")
                self._deliveries[name] = _Delivery(revision, watch, task)
            elif changes != self._changes_seen and running.watch.parked:
                running.watch.wakeup.notify()  # a caller may have requested a replay
        self._changes_seen = changes

    async def _dispatcher(self) -> Dispatcher:
        if self._dispatch is None:
            dispatcher = Dispatcher(self.plane, await self.plane.feed.head())
            task = asyncio.create_task(dispatcher.run(), name="tenure dispatcher")
            self._dispatch = _RunningDispatcher(dispatcher, task)
        return self._dispatch.dispatcher

    async def _deliver(
        self, route: DestinationRoute, dispatcher: Dispatcher, watch: DestinationWatch
    ) -> None:
        """Deliver events to one destination while this process leads."""
        plane, skipped, most = self.plane, NONE_SKIPPED, route.page
        route = replace(route, page=min(FIRST_PAGE, most))
        while self.leader.leads and not plane.pause.why:
            number, count, began = watch.wakeup.number, dispatcher.count, plane.store.now()
            try:
                result = await deliver_page(plane, self.leader, route, skipped=skipped)
                skipped = result.skipped
                page = _next_page(route.page, result, plane.store.now() - began)
                route = replace(route, page=min(page, most))
            except StaleToken:
                return
            except Exception:
                log.exception(
                    "delivery to destination %s failed; next attempt in %g s",
                    route.id,
                    ERROR_PAUSE_SECONDS,
                )
                await asyncio.sleep(ERROR_PAUSE_SECONDS)
                continue
            watch.parked = result.parked
            if result.read_to is not None:
                watch.read_to = result.read_to
            if result.more:
                continue
            wait = self._wait(result, watch)
            if result.backs_off:
                await asyncio.sleep(wait)
            else:
                await watch.wakeup.wait_for_newer(number, seconds=wait)
                skipped = dispatcher.skip_after(watch, result, count=count)

    def _wait(self, result: DeliveryResult, watch: DestinationWatch) -> float:
        """How long a destination waits for a wakeup before it polls."""
        plane = self.plane
        if result.backs_off or result.read_to is None or watch.newest_own > result.read_to:
            wait = POLL_SECONDS
        elif result.parked:  # a caller may request a replay from another process
            wait = poll_seconds(plane)
        else:  # with jitter, so that not all of them poll at once
            wait = IDLE_POLL_SECONDS * (1.0 - plane.entropy.fraction() / 2.0)
        if result.retry_at is not None:
            wait = min(wait, max(0.0, result.retry_at - plane.store.now()))
        return wait

    async def _drop(self, name: str) -> None:
        _, watch, task = self._deliveries.pop(name)
        if self._dispatch is not None:
            self._dispatch.dispatcher.drop(watch)
        await cancel_and_wait(task)

    async def _drop_all(self) -> None:
        for name in list(self._deliveries):
            await self._drop(name)
        if self._dispatch is not None:
            task, self._dispatch = self._dispatch.task, None
            await cancel_and_wait(task)

    async def stop(self) -> None:
        """Stop all deliveries and resign, so that another process can lead at once."""
        await self._drop_all()
        try:
            await self.leader.resign()
        except StoreError as error:
            log.warning("the relay's lease was not released (%s); it expires by itself", error)


def _next_page(page: int, result: DeliveryResult, seconds: float) -> int:
    """The size of the next page: twice as many events, or as many as fit into PAGE_SECONDS.

    If nothing was delivered it grows as well: a larger page may have events of agents that the
    destination accepts, which shows whose events fail.
    """
    slow = result.delivered and seconds > PAGE_SECONDS
    return max(1, int(page * PAGE_SECONDS / seconds)) if slow else 2 * page


@asynccontextmanager
async def relaying(
    plane: Plane,
    *,
    buses: Mapping[SubscriptionKind, Bus],
    fixed_routes: Sequence[DestinationRoute] = (),
    limits: RetentionLimits | None = None,
) -> AsyncIterator[Relay]:
    """Run a relay until the block is left."""
    relay = Relay(plane, buses=buses, fixed_routes=fixed_routes, limits=limits)
    try:
        async with background(relay.run(), name="tenure relay"):
            yield relay
    finally:
        await relay.stop()
