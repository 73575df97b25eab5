"""Runs the reconcilers in the process that leads, each at its own interval.

A pass that fails is repeated at the next interval.  The changes that it made before stay, as each
of them is complete by itself.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from tenure.app.leader import Leader
from tenure.app.plane import Plane
from tenure.app.safety.reconcile_status import PassReport
from tenure.concurrency import background, cancel_and_wait
from tenure.core.errors import Conflict, ConflictCode, Invalid, StoreError
from tenure.ports.clock import Clock
from tenure.reconcilers import (
    acknowledgements,
    dead_letters,
    drift,
    grants,
    late_arrivals,
    leases,
    operations,
    orphans,
    retention,
)
from tenure.reconcilers.passes import DEFAULT_RETENTION, LEADERS, Pass, RetentionPeriods, Tick

log = logging.getLogger("tenure.reconcilers")
ITEMS_MAX = 500
"""How many items one pass may check one by one, or change."""
TTL_SECONDS = 15.0
"""The time to live of the leader's lease; it is renewed after a third of it."""
SOON_SECONDS = 1.0
"""The shortest time between two passes of one reconciler."""


class Reconciler(Protocol):
    """A module that keeps one sentence true."""

    SENTENCE: str
    NAME: str
    """Its name in findings and commands; `late` is `late_arrivals`, `letters` `dead_letters`."""

    def tick(self, plane: Plane, *, limit: int, this_pass: Pass) -> Awaitable[Tick]:
        """Make one pass: compare states and repair.  It may run at any time."""
        ...


_MODULES: Final[tuple[Reconciler, ...]] = (
    late_arrivals, orphans, drift, operations, grants, leases, acknowledgements, dead_letters,
    retention,
)  # fmt: skip
RECONCILERS: Final[dict[str, Reconciler]] = {module.NAME: module for module in _MODULES}
"""Every reconciler by its name, in the order of one pass."""


@dataclass(frozen=True, slots=True)
class ReconcilePolicy:
    """The policy of a plane's reconcilers.

    Args:
        seconds: the interval between passes, minus a random part of up to a quarter.
        repairs: whether drift is repaired if the agent's spec does not say; else it is reported.
        retention: how long resolved findings and ended operations are kept.
    """

    seconds: float = 30.0
    repairs: bool = True
    retention: RetentionPeriods = DEFAULT_RETENTION


@asynccontextmanager
async def reconciling(
    plane: Plane, *, clock: Clock, seconds: float = 30.0, policy: ReconcilePolicy | None = None
) -> AsyncIterator[None]:
    """Run the reconcilers while this process leads, until the block is left."""
    driver = Driver(plane, clock=clock, policy=policy or ReconcilePolicy(seconds))
    plane.reconcile_state.run_now = driver.run_now
    async with background(driver.drive(), name="tenure reconcilers"):
        try:
            yield
        finally:
            plane.reconcile_state.run_now = None


def _not_leading() -> Conflict:
    message = "another process has received the same request and leads now: send the request again"
    return Conflict(message, code=ConflictCode.NOT_LEADING)


class Driver:
    """The reconcilers of one process."""

    def __init__(self, plane: Plane, *, clock: Clock, policy: ReconcilePolicy) -> None:
        self._plane = plane
        self._clock = clock
        self._policy = policy
        self.leader = Leader(plane, LEADERS, ttl_seconds=TTL_SECONDS)
        self._lock = asyncio.Lock()
        """Held during a pass: two passes at the same time would count the same changes."""

    async def drive(self) -> None:
        """Try to lead, and run the reconcilers while this process leads; never returns."""
        running: asyncio.Task[None] | None = None
        try:
            while True:
                if running is not None and running.done():
                    running = None  # it failed, and has logged why
                if await self._lead() and running is None:
                    running = asyncio.ensure_future(self._run_forever())
                elif not self.leader.token and running is not None:
                    await cancel_and_wait(running)  # the fence refuses its further changes
                    running = None
                self._plane.reconcile_state.leads = bool(self.leader.token)
                await self._clock.sleep(TTL_SECONDS / 3)
        finally:
            if running is not None:
                await cancel_and_wait(running)
            self._plane.reconcile_state.leads = False
            await self._resign()

    async def _lead(self) -> bool:
        try:
            return await self.leader.renew()
        except StoreError as error:
            log.warning("reconcilers: the leader's lease was not renewed: %s", error)
            return bool(self.leader.token)

    async def _resign(self) -> None:
        try:
            await self.leader.resign()
        except StoreError as error:
            log.warning("reconcilers: the leader's lease was not released (%s); it lapses", error)

    async def _run_forever(self) -> None:
        """Run each reconciler when it is due, one after the other."""
        now = self._clock.monotonic()
        due = {name: now + self._pause() for name in RECONCILERS}
        while True:
            name = min(due, key=lambda one: due[one])
            await self._clock.sleep(max(0.0, due[name] - self._clock.monotonic()))
            try:
                report, again = await self._tick(name, dry_run=False)
            except Conflict:
                return  # another process leads by now
            pause = self._pause()
            if again is not None and not report.error:
                pause = min(pause, max(SOON_SECONDS, again - self._plane.store.now()))
            due[name] = self._clock.monotonic() + pause

    def _pause(self) -> float:
        return self._policy.seconds * (1.0 - self._plane.entropy.fraction() / 4.0)

    async def run_now(self, name: str, dry_run: bool) -> Sequence[PassReport]:  # noqa: FBT001 (see RunNow)
        """Run one reconciler now, or all of them.

        This process takes the lead, since the process that has it may have no HTTP API or may be
        dead.  Conflict if a third process takes the lead at the same time.
        """
        if name and name not in RECONCILERS:
            known = ", ".join(RECONCILERS)
            raise Invalid(f"name: there is no reconciler {name!r}; the reconcilers are {known}")
        if not dry_run and not await self.leader.take_over():
            raise _not_leading()
        names = [name] if name else list(RECONCILERS)
        return [(await self._tick(one, dry_run=dry_run))[0] for one in names]

    async def _tick(self, name: str, *, dry_run: bool) -> tuple[PassReport, float | None]:
        plane, one = self._plane, RECONCILERS[name]
        sentence = one.SENTENCE
        began = self._clock.monotonic()
        async with self._lock:
            if not dry_run and not self.leader.token:
                raise _not_leading()  # without a fence token the changes would not be guarded
            this_pass = Pass(
                plane,
                name,
                token=self.leader.token,
                dry_run=dry_run,
                repairs=self._policy.repairs,
                retention=self._policy.retention,
            )
            try:
                done = await one.tick(plane, limit=ITEMS_MAX, this_pass=this_pass)
            except Exception as error:
                plane.reconcile_state.fail(name)
                log.exception(
                    "reconciler %s failed; next attempt in %g s", name, self._policy.seconds
                )
                return PassReport(
                    name, sentence, sightings=this_pass.sightings, error=repr(error)
                ), None
        if not dry_run:
            seconds = self._clock.monotonic() - began
            now = plane.store.now()
            plane.reconcile_state.add(
                name, seen=done.seen, fixed=done.fixed, seconds=seconds, now=now
            )
        return PassReport(name, sentence, done.seen, done.fixed, this_pass.sightings), done.retry_at
