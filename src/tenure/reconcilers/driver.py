"""Drives the reconcilers: who leads, how often they look, and what happens when one fails.

One that fails is tried again at its next turn; what it did before that stays, since each step of a
reconciler stands for itself.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

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
from tenure.reconcilers.leader import Leader
from tenure.reconcilers.term import KEPT_FOR, LEADERS, KeptFor, Term, Tick

log = logging.getLogger("tenure.reconcilers")
LIMIT = 500
"""What one look may see of what is looked at one by one, or do."""
TTL_SECONDS = 15.0
"""How long the lead is taken for; it is renewed at a third of that."""
SOON_SECONDS = 1.0
"""The least between two looks of one reconciler."""


class Reconciler(Protocol):
    """A module that keeps one sentence true."""

    SENTENCE: str

    def tick(self, plane: Plane, *, limit: int, term: Term) -> Awaitable[Tick]:
        """Look, and put right what can be; level-based, so it may be done at any time again."""
        ...


RECONCILERS: Final[dict[str, Reconciler]] = {
    "late": late_arrivals, "orphans": orphans, "drift": drift, "operations": operations,
    "grants": grants,
    "leases": leases, "acknowledgements": acknowledgements, "letters": dead_letters,
    "retention": retention,
}  # fmt: skip
"""Every reconciler by its name."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How the reconcilers of a plane are to act.

    Args:
        seconds: how often each looks, less up to a quarter by chance.
        repairs: whether drift is repaired where an agent does not say; else it is reported.
        kept: how long what is over is kept.
    """

    seconds: float = 30.0
    repairs: bool = True
    kept: KeptFor = KEPT_FOR


@asynccontextmanager
async def reconciling(
    plane: Plane, *, clock: Clock, seconds: float = 30.0, ways: Ways | None = None
) -> AsyncIterator[None]:
    """Look every so many seconds for as long as this process leads, until the block is left."""
    driver = Driver(plane, clock=clock, ways=ways or Ways(seconds))
    plane.reconciled.look = driver.look
    async with background(driver.drive(), name="tenure reconcilers"):
        try:
            yield
        finally:
            plane.reconciled.look = None


def _not_leading() -> Conflict:
    message = "another process has just been asked the same, and leads: ask again"
    return Conflict(message, code=ConflictCode.NOT_LEADING)


class Driver:
    """The reconcilers of one process."""

    def __init__(self, plane: Plane, *, clock: Clock, ways: Ways) -> None:
        self._plane = plane
        self._clock = clock
        self._ways = ways
        self.leader = Leader(plane, LEADERS, ttl_seconds=TTL_SECONDS)
        self._one = asyncio.Lock()
        """Two looks of one process take turns: each would count what the other is about to do."""

    async def drive(self) -> None:
        """Lead if nobody else does, and look; for ever."""
        looking: asyncio.Task[None] | None = None
        try:
            while True:
                if looking is not None and looking.done():
                    looking = None  # it failed, and said so
                if await self._lead() and looking is None:
                    looking = asyncio.ensure_future(self._look_for_ever())
                elif not self.leader.token and looking is not None:
                    await cancel_and_wait(looking)  # its fence refuses what it still intends
                    looking = None
                self._plane.reconciled.leads = bool(self.leader.token)
                await self._clock.sleep(TTL_SECONDS / 3)
        finally:
            if looking is not None:
                await cancel_and_wait(looking)
            self._plane.reconciled.leads = False
            await self._give_back()

    async def _lead(self) -> bool:
        try:
            return await self.leader.renew()
        except StoreError as error:
            log.warning("the lead was not renewed: %s", error)
            return bool(self.leader.token)

    async def _give_back(self) -> None:
        try:
            await self.leader.resign()
        except StoreError as error:
            log.warning("the lead is not given back (%s); it will lapse", error)

    async def _look_for_ever(self) -> None:
        """Each reconciler at its own time, one after the other."""
        now = self._clock.monotonic()
        due = {name: now + self._pause() for name in RECONCILERS}
        while True:
            name = min(due, key=lambda one: due[one])
            await self._clock.sleep(max(0.0, due[name] - self._clock.monotonic()))
            try:
                look, again = await self._tick(name, dry_run=False)
            except Conflict:
                return  # somebody else leads by now
            pause = self._pause()
            if again is not None and not look.error:
                pause = min(pause, max(SOON_SECONDS, again - self._plane.store.now()))
            due[name] = self._clock.monotonic() + pause

    def _pause(self) -> float:
        return self._ways.seconds * (1.0 - self._plane.entropy.fraction() / 4.0)

    async def look(self, name: str, dry_run: bool) -> Sequence[PassReport]:  # noqa: FBT001 (see LookNow)
        """Let one reconciler look now, or all of them.

        This process takes the lead for it: who had it, or has died with it, may have no face that
        could be asked.  Conflict if yet another one did the same at the same time.
        """
        if name and name not in RECONCILERS:
            known = ", ".join(RECONCILERS)
            raise Invalid(f"name: there is no reconciler {name!r}; known are {known}")
        if not dry_run and not await self.leader.take_over():
            raise _not_leading()
        names = [name] if name else list(RECONCILERS)
        return [(await self._tick(one, dry_run=dry_run))[0] for one in names]

    async def _tick(self, name: str, *, dry_run: bool) -> tuple[PassReport, float | None]:
        plane, one = self._plane, RECONCILERS[name]
        sentence = one.SENTENCE
        began = self._clock.monotonic()
        async with self._one:
            if not dry_run and not self.leader.token:
                raise _not_leading()  # deposed meanwhile: without a token nothing would be fenced
            term = Term(
                plane,
                name,
                token=self.leader.token,
                dry_run=dry_run,
                repairs=self._ways.repairs,
                kept=self._ways.kept,
            )
            try:
                done = await one.tick(plane, limit=LIMIT, term=term)
            except Exception as error:
                plane.reconciled.fail(name)
                log.exception("%s: this could not be seen to; again in a while", sentence)
                return PassReport(name, sentence, told=term.told, error=repr(error)), None
        if not dry_run:
            seconds = self._clock.monotonic() - began
            now = plane.store.now()
            plane.reconciled.add(name, seen=done.seen, fixed=done.fixed, seconds=seconds, now=now)
        return PassReport(name, sentence, done.seen, done.fixed, term.told), done.retry_at
