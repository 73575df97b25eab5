"""The relay: carries events to every destination while this process leads, each on its own.

It is woken by commits of this process, and by its own changes of subscriptions, and looks from time
to time for those of others.  A destination that hangs holds up nobody else.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from tenure.app import subscriptions
from tenure.app.acknowledgements import wanted_of
from tenure.app.plane import Plane
from tenure.core.errors import LeaseLost, StoreError
from tenure.core.subscription import Kind
from tenure.ports.bus import Bus, Destination, Outgoing, Receipt, Verdict
from tenure.ports.store import Change, Put, Row
from tenure.reconcilers.leader import TTL_SECONDS, Leader
from tenure.reconcilers.outbox import NOTHING, Route, Tick, tick, trim

log = logging.getLogger("tenure.reconcilers")
LOOK_SECONDS, ALONE_SECONDS = 1.0, 30.0
"""How often it is looked for what nobody here has told of; the second where all is told of."""
ROUTES_SECONDS: Final = 2.0
"""How old the list of destinations may be that other processes change."""
TRIM_SECONDS: Final = 30.0
LINGER_SECONDS: Final = 0.01
"""How long events gather before they are carried together: a commit wakes us for each batch."""
BUSY_EVENTS: Final = 16
BUSY_LINGER_SECONDS: Final = 0.04
"""After a look that carried so many: each look costs the loop more than most events do."""
FIRST_PAGE: Final = 8
"""Events of the first page: a process that soon dies again has moved the cursor by then."""
PAGE_SECONDS: Final = 1.0
"""How long a page may take, about; what a slow destination has had is repeated if we die."""
STRAIN_SECONDS: Final = 1.0
"""How long a destination is left alone after something unforeseen."""


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
    task: "asyncio.Task[None]"


class Relay:
    """One process's part in publishing."""

    def __init__(
        self, plane: Plane, *, buses: Mapping[Kind, Bus], always: Sequence[Route] = ()
    ) -> None:
        """Carry to `always`, and to every subscription by the bus of its kind."""
        self.leader = Leader(plane, "relay")
        self._plane = plane
        self._buses = buses
        self._always = {route.id: route for route in always}
        self._carried: dict[str, _Carried] = {}

    async def routes(self) -> dict[str, tuple[int, Route]]:
        """Every destination there is now, with its revision."""
        found = {name: (0, route) for name, route in self._always.items()}
        for row in await subscriptions.rows_of(self._plane):
            if row["kind"] != Kind.PULL:
                found[str(row["id"])] = (int(str(row["revision"])), self._route(row))
        return found

    def _route(self, row: Row) -> Route:
        bus = self._buses.get(Kind(str(row["kind"])), NO_NATS)
        secrets = partial(subscriptions.secrets_of, self._plane, row)
        tenant = str(row["tenant"])
        destination = Destination(str(row["id"]), str(row["target"]), tenant=tenant)
        return Route(destination, bus, wanted_of(row), tenant, secrets=secrets)

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
        while True:
            number = self._plane.subscribed.number
            try:
                if not begun:
                    await self.begin()
                    begun = True
                # Of a plane that is held nothing leaves: it may be the wrong backup.
                if not self._plane.hold.why and await self.leader.renew():
                    await self._see_to_all()
                    if self._plane.store.now() >= trim_at:
                        trim_at = self._plane.store.now() + TRIM_SECONDS
                        await self._trim()
                else:
                    await self._drop_all()
            except LeaseLost:
                await self._drop_all()
            except StoreError as error:
                log.warning("the relay cannot use the store: %s", error)
            except Exception:
                log.exception("the relay failed; again soon")
            if self.leader.leads:
                await self._plane.subscribed.beyond(number, seconds=ROUTES_SECONDS)
            else:
                await asyncio.sleep(TTL_SECONDS / 3)

    async def _trim(self) -> None:
        while (await trim(self._plane, self.leader)).more:
            pass

    async def _see_to_all(self) -> None:
        """One task for each destination; one that has changed or died begins anew."""
        wanted = await self.routes()
        for name, carried in list(self._carried.items()):
            known = wanted.get(name)
            if known is None or known[0] != carried.revision or carried.task.done():
                await self._drop(name)
        for name, (revision, route) in wanted.items():
            if name not in self._carried:
                task = asyncio.create_task(self._carry(route), name=f"tenure relay {name}")
                self._carried[name] = _Carried(revision, task)

    async def _carry(self, route: Route) -> None:
        """Send whatever there is to send, as soon as there is something."""
        plane, skimmed, most = self._plane, NOTHING, route.page
        route = replace(route, page=min(FIRST_PAGE, most))
        while self.leader.leads and not plane.hold.why:
            number, began = plane.news.number, plane.store.now()
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
            if done.more:
                continue
            # Where every commit is told of, nothing is there to be found without.
            told = plane.news.number and not plane.shared and not done.rests
            wait = ALONE_SECONDS if told else LOOK_SECONDS
            if done.retry_at is not None:
                wait = min(wait, max(0.0, done.retry_at - plane.store.now()))
            if done.rests:
                await asyncio.sleep(wait)
            else:
                await plane.news.beyond(number, seconds=wait)
                busy = done.seen >= BUSY_EVENTS
                await asyncio.sleep(BUSY_LINGER_SECONDS if busy else LINGER_SECONDS)

    async def _drop(self, name: str) -> None:
        task = self._carried.pop(name).task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _drop_all(self) -> None:
        for name in list(self._carried):
            await self._drop(name)

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
    plane: Plane, *, buses: Mapping[Kind, Bus], always: Sequence[Route] = ()
) -> AsyncIterator[Relay]:
    """Publish what is committed until the block is left."""
    relay = Relay(plane, buses=buses, always=always)
    task = asyncio.create_task(relay.run(), name="tenure relay")
    try:
        yield relay
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await relay.stop()
