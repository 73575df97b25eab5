"""The relay: carries events to every destination while this process leads, each on its own.

It is woken by commits of this process, and by its own changes of subscriptions, and looks from time
to time for those of others.  A destination that hangs holds up nobody else, and one that nothing is
told of costs nobody anything.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from tenure.app.events import subscriptions
from tenure.app.events.acknowledgements import wanted_of
from tenure.app.plane import Plane
from tenure.concurrency import background, cancel_and_wait
from tenure.core.errors import LeaseLost, StoreError
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.dispatcher import (
    ALONE_SECONDS,
    LOOK_SECONDS,
    STRAIN_SECONDS,
    Concern,
    Dispatcher,
    look_seconds,
)
from tenure.delivery.outbox import NOTHING, Route, Tick, tick
from tenure.delivery.retention import Retention, RetentionLimits
from tenure.ports.bus import Bus, Destination, Outgoing, Receipt, Verdict
from tenure.ports.store import Change, Put, Row
from tenure.reconcilers.leader import TTL_SECONDS, Leader

log = logging.getLogger("tenure.reconcilers")
ROUTES_SECONDS: Final = 2.0
"""How old the list of destinations may be that other processes change."""
PAUSES: Final = 5
"""How many times as long as the look at thousands took all else has the loop, if they change."""
TRIM_SECONDS: Final = 30.0
FIRST_PAGE: Final = 8
"""Events of the first page: a process that soon dies again has moved the cursor by then."""
PAGE_SECONDS: Final = 1.0
"""How long a page may take, about; what a slow destination has had is repeated if we die."""


class _Nowhere:
    """Stands for a bus that this plane does not have."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def publish(self, _: Destination, events: Sequence[Outgoing]) -> Sequence[Receipt]:
        """Nothing is taken."""
        return [Receipt(Verdict.UNAVAILABLE, self._why)] * len(events)

    async def close(self) -> None:
        """There is nothing."""


NO_NATS: Final = _Nowhere("this control plane has no NATS server; see TENURE_BUS")


class _Carried(NamedTuple):
    revision: int
    concern: Concern
    task: "asyncio.Task[None]"


class _Dispatch(NamedTuple):
    dispatcher: Dispatcher
    task: "asyncio.Task[None]"


class Relay:
    """One process's part in publishing."""

    def __init__(
        self,
        plane: Plane,
        *,
        buses: Mapping[SubscriptionKind, Bus],
        always: Sequence[Route] = (),
        limits: RetentionLimits | None = None,
    ) -> None:
        """Carry to `always`, and to every subscription by the bus of its kind."""
        self.leader = Leader(plane, "relay")
        self._plane = plane
        self._buses = buses
        self._always = {route.id: route for route in always}
        self._routes: dict[str, tuple[int, Route]] = {}
        """As they were when they were last read."""
        self._carried: dict[str, _Carried] = {}
        self._dispatch: _Dispatch | None = None
        """While this process leads."""
        self.retention = Retention(
            plane, self.leader, self._destinations, limits or RetentionLimits()
        )
        self._told = 0
        """How often subscriptions had changed when this was last seen to."""

    async def routes(self) -> dict[str, tuple[int, Route]]:
        """Every destination there is now, with its revision."""
        found = {name: (0, route) for name, route in self._always.items()}
        for row in await subscriptions.rows_of(self._plane):
            if row["kind"] != SubscriptionKind.PULL:
                name, revision = str(row["id"]), int(str(row["revision"]))
                known = self._routes.get(name)
                if known is None or known[0] != revision:
                    known = (revision, self._route(row))
                found[name] = known
        self._routes = found
        return found

    async def _destinations(self) -> dict[str, Route]:
        return {name: route for name, (_, route) in (await self.routes()).items()}

    def _route(self, row: Row) -> Route:
        kind = SubscriptionKind(str(row["kind"]))
        bus = self._buses.get(kind, NO_NATS)
        secrets = partial(subscriptions.secrets_of, self._plane, row)
        tenant = str(row["tenant"])
        destination = Destination(str(row["id"]), str(row["target"]), tenant=tenant)
        return Route(destination, bus, wanted_of(row), tenant, secrets=secrets, kind=kind)

    async def begin(self) -> None:
        """See that the destinations which are always there have a cursor."""
        for name in self._always:
            fresh = Put("cursor", (name,), subscriptions.FRESH)
            await self._plane.store.commit(Change("", (), (fresh,)))

    async def tick(self) -> Tick:
        """Carry everything that can be carried now, one destination after the other."""
        seen = fixed = 0
        retry_at: float | None = None
        if not await self.leader.renew():
            return Tick()
        for _, route in (await self.routes()).values():
            done = Tick(more=True)
            while done.more:
                done = await tick(self._plane, self.leader, route, skimmed=done.skimmed)
                seen, fixed = seen + done.seen, fixed + done.fixed
            if done.retry_at is not None:
                retry_at = done.retry_at if retry_at is None else min(retry_at, done.retry_at)
        return Tick(seen, fixed, retry_at)

    async def run(self) -> None:
        """Lead whenever nobody else does, until cancelled."""
        begun = False
        trim_at = self._plane.store.now() + TRIM_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            number, began = self._plane.subscription_changes.number, loop.time()
            try:
                if not begun:
                    await self.begin()
                    begun = True
                # Of a plane that is held nothing leaves: it may be the wrong backup.
                if not self._plane.pause.why and await self.leader.renew():
                    await self._see_to_all()
                    if self._plane.store.now() >= trim_at:
                        trim_at = self._plane.store.now() + TRIM_SECONDS
                        if (await self.retention.trim()).more:
                            trim_at = 0.0
                else:
                    await self._drop_all()
            except LeaseLost:
                await self._drop_all()
            except StoreError as error:
                log.warning("the relay cannot use the store: %s", error)
            except Exception:
                log.exception("the relay failed; again soon")
            if self.leader.leads:
                pause = min(ROUTES_SECONDS, PAUSES * (loop.time() - began))
                await asyncio.sleep(pause)
                await self._plane.subscription_changes.beyond(
                    number, seconds=ROUTES_SECONDS - pause
                )
            else:
                await asyncio.sleep(TTL_SECONDS / 3)

    async def _see_to_all(self) -> None:
        """One task for each destination; one that has changed or died begins anew."""
        told, dispatcher = self._plane.subscription_changes.number, await self._dispatcher()
        wanted = await self.routes()
        for name, carried in list(self._carried.items()):
            known = wanted.get(name)
            if known is None or known[0] != carried.revision or carried.task.done():
                await self._drop(name)
        for name, (revision, route) in wanted.items():
            if name not in self._carried:
                concern = dispatcher.add(route)
                carry = self._carry(route, dispatcher, concern)
                task = asyncio.create_task(carry, name=f"tenure relay {name}")
                self._carried[name] = _Carried(revision, concern, task)
            elif told != self._told and self._carried[name].concern.parked:
                self._carried[
                    name
                ].concern.news.notify()  # it may be asked to try its letters again
        self._told = told

    async def _dispatcher(self) -> Dispatcher:
        if self._dispatch is None:
            dispatcher = Dispatcher(self._plane, await self._plane.feed.head())
            task = asyncio.create_task(dispatcher.run(), name="tenure dispatcher")
            self._dispatch = _Dispatch(dispatcher, task)
        return self._dispatch.dispatcher

    async def _carry(self, route: Route, dispatcher: Dispatcher, concern: Concern) -> None:
        """Send whatever there is to send, as soon as there is something."""
        plane, skimmed, most = self._plane, NOTHING, route.page
        route = replace(route, page=min(FIRST_PAGE, most))
        while self.leader.leads and not plane.pause.why:
            number, count, began = concern.news.number, dispatcher.count, plane.store.now()
            try:
                done = await tick(plane, self.leader, route, skimmed=skimmed)
                skimmed = done.skimmed
                page = _next_page(route.page, done, plane.store.now() - began)
                route = replace(route, page=min(page, most))
            except LeaseLost:
                return
            except Exception:
                log.exception("events were not carried to %s; again soon", route.id)
                await asyncio.sleep(STRAIN_SECONDS)
                continue
            concern.parked = done.parked
            if done.looked is not None:
                concern.looked = done.looked
            if done.more:
                continue
            wait = self._wait(done, concern)
            if done.rests:
                await asyncio.sleep(wait)
            else:
                await concern.news.beyond(number, seconds=wait)
                skimmed = dispatcher.skimmed(concern, done, count=count)

    def _wait(self, done: Tick, concern: Concern) -> float:
        """How long a destination may go without a look of its own."""
        plane = self._plane
        if done.rests or done.looked is None or concern.own > done.looked:
            wait = LOOK_SECONDS
        elif done.parked:  # another process may be asked to have its letters tried again
            wait = look_seconds(plane)
        else:  # not all of them at once
            wait = ALONE_SECONDS * (1.0 - plane.entropy.fraction() / 2.0)
        if done.retry_at is not None:
            wait = min(wait, max(0.0, done.retry_at - plane.store.now()))
        return wait

    async def _drop(self, name: str) -> None:
        _, concern, task = self._carried.pop(name)
        if self._dispatch is not None:
            self._dispatch.dispatcher.drop(concern)
        await cancel_and_wait(task)

    async def _drop_all(self) -> None:
        for name in list(self._carried):
            await self._drop(name)
        if self._dispatch is not None:
            task, self._dispatch = self._dispatch.task, None
            await cancel_and_wait(task)

    async def stop(self) -> None:
        """Let go, so that another process can lead at once."""
        await self._drop_all()
        try:
            await self.leader.resign()
        except StoreError as error:
            log.warning("the relay's lease is not given back (%s); it will lapse", error)


def _next_page(page: int, done: Tick, seconds: float) -> int:
    """Twice as many events, or as many as are taken in time.

    Where none is taken they grow too: what is others' may be taken, and so tell whose is not.
    """
    slow = done.fixed and seconds > PAGE_SECONDS
    return max(1, int(page * PAGE_SECONDS / seconds)) if slow else 2 * page


@asynccontextmanager
async def relaying(
    plane: Plane,
    *,
    buses: Mapping[SubscriptionKind, Bus],
    always: Sequence[Route] = (),
    limits: RetentionLimits | None = None,
) -> AsyncIterator[Relay]:
    """Publish what is committed until the block is left."""
    relay = Relay(plane, buses=buses, always=always, limits=limits)
    try:
        async with background(relay.run(), name="tenure relay"):
            yield relay
    finally:
        await relay.stop()
