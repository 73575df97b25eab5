"""Decides WHEN: claims, leases, timers, bounded concurrency, recovery, shutdown.

A claimed operation is in exactly one of four places: *driven* (a task performs its moves),
*queued* (it is due, and all places are taken), *parked* (a row, and at most a heap entry) or, after
a defect, *halted* (left alone until someone claims it).  What its moves are is not known here.

The lease is the worker's, one row for all its operations.  It is for liveness alone: what keeps a
worker that lost its lease from writing is the fence token that every record guards.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Generic

from tenure.adapters.engine.embedded.active_operation import ActiveOperation
from tenure.adapters.engine.embedded.settings import EngineSettings
from tenure.adapters.engine.embedded.timers import Timers
from tenure.adapters.engine.embedded.unknown_plans import UnknownPlans
from tenure.adapters.engine.waiters import Waiters
from tenure.concurrency import cancel_and_wait
from tenure.core.errors import Defect, LeaseLost, StoreError
from tenure.core.ids import uuid7
from tenure.core.moves import Move, Moves
from tenure.core.operation import OPERATION, SETTLED, OperationState
from tenure.core.retry import HALTED_OPERATION
from tenure.ports.clock import Clock
from tenure.ports.engine import L, MoveExecutor
from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Drop, Is, Put, Queue, Ring, Row, Set, Store

log = logging.getLogger("tenure.engine")
CANCELLED_OUTSIDE = "operation %s: its task was cancelled from outside the engine; retrying later"
DEAF_SECONDS = 1.0
"""How long a call that was cancelled may take to end before it is left to itself."""


class EmbeddedEngine(Generic[L]):
    """Moves every operation it has claimed, as `tenure.ports.engine.Engine` promises."""

    def __init__(
        self,
        work: MoveExecutor[L],
        *,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        settings: EngineSettings | None = None,
    ) -> None:
        """Use `work` to move operations; nothing runs before `start`."""
        self._work = work
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._settings = settings or EngineSettings()
        self._worker = ""
        self._driven: dict[str, ActiveOperation[L]] = {}
        self._queued: OrderedDict[str, tuple[int, L | None]] = OrderedDict()
        self._parked: dict[str, int] = {}
        self._halted: dict[str, float] = {}
        """Stopped by a defect, and until when each is left alone: then it is claimed anew."""
        self._falls: dict[str, int] = {}
        self._unknown_plans = UnknownPlans(work, store)
        self._timers = Timers(store.now, self._due)
        self._waiters = Waiters()
        self._keeper: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._called = False
        """Something was accepted for whoever claims it first."""
        self._open = False

    @property
    def worker(self) -> str:
        """The worker for whom operations are accepted here; empty while it takes none."""
        return self._worker if self._open else ""

    @property
    def accepts(self) -> bool:
        """Also if it was never started, and so leaves the work to other processes."""
        return self._open or not self._waiters.has_begun

    @property
    def away(self) -> str:
        """Never: it is here."""
        return ""

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the worker's lease and resume every open operation that nobody alive holds."""
        self._loop = asyncio.get_running_loop()  # asked once: it costs a system call each time
        self._waiters.begin()
        await self._enlist()
        self._open = True
        await self._claim()
        self._keeper = asyncio.create_task(self._keep(), name="tenure keeper")

    async def _enlist(self) -> None:
        """A new worker with a lease of its own: what an earlier one held is claimed anew."""
        writes: list[Put | Drop] = [Drop("lease", (self._lease,))] if self._worker else []
        self._worker = uuid7(self._store.now(), self._entropy.bits())
        self._renewed_at = self._clock.monotonic()
        until = self._store.now() + self._settings.lease_ttl_seconds
        row: Row = {"holder": self._worker, "token": 1, "until": until}
        writes.append(Put("lease", (self._lease,), row))
        await self._store.commit(Change("", (), tuple(writes)))

    @property
    def _lease(self) -> str:
        return f"worker/{self._worker}"

    async def _claim(self) -> None:
        """Claim until nothing is left that nobody alive holds."""
        limit, but = self._settings.claim_max, self._unknown_plans.plans
        while True:
            claimed = await self._store.claim(
                Queue.OPERATIONS, self._worker, limit=limit, but_plans=but
            )
            now = self._store.now()
            for operation, token, due_at in claimed:
                if due_at is not None and due_at <= now:
                    self._drive(operation, token, None)
                else:
                    self._park(operation, token, due_at)
            if len(claimed) < limit:
                return
            late = self._clock.monotonic() - self._renewed_at > self._settings.lease_ttl_seconds / 3
            if late and not await self._renew():  # a take-over may last longer than the lease
                return

    async def _keep(self) -> None:
        """Renew the lease at a third of its time, take over from the dead, end with the store."""
        ttl = self._settings.lease_ttl_seconds
        try:
            while self._open:
                await self._clock.sleep(ttl / 3)
                try:
                    await self._look_round()
                except StoreError as error:  # nothing was kept: a full or busy disk may get better
                    log.warning("cannot renew the lease: %s; next attempt in %g s", error, ttl / 3)
        except asyncio.CancelledError:
            if self._open:
                self._fail(Defect("the engine's keeper was cancelled by someone else"))
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it is, the engine must not seem alive)
            self._fail(error)

    async def _look_round(self) -> None:
        """Renew, take over from the dead, and drive what is due and was not known here to be.

        Something was recorded for it elsewhere, or whoever accepted it left before handing it over.
        """
        if not await self._renew():
            await self._start_over()
        self._leave_deaf()
        await self._claim()
        await self._let_go_of_halted()
        for operation, token, _ in await self._store.list_due(self._worker):
            if operation in self._parked:
                self._due(operation)
            elif not self._has(operation):
                self._drive(operation, token, None)

    def _leave_deaf(self) -> None:
        """Halt operations with a call that does not end: it is left to itself, and claimed anew."""
        for operation, driven in list(self._driven.items()):
            tasks = (driven.task, *driven.running)
            deaf = [task for task in tasks if self._work.ignores_cancellation(task)]
            if not deaf or driven.dropped:
                continue
            log.warning("operation %s: a cancelled call has not ended", operation)
            self._halt(operation, driven)
            driven.dropped = True
            for task in tasks:
                if task not in deaf:
                    task.cancel()
            del self._driven[operation]
            self._fill()

    async def _let_go_of_halted(self) -> None:
        """Belong to nobody, so that a claim makes their calls unknown and they are tried again.

        Others come first, until the next look here: one of them may do better.
        """
        now = self._clock.monotonic()
        for operation in [name for name, until in self._halted.items() if until <= now]:
            guard = Is("operation", (operation,), {"worker": self._worker})
            nobody = Set("operation", (operation,), {"worker": ""})
            ring = Ring(operation, unclaimed=True)
            await self._store.commit(Change("", (guard,), (nobody,), ring=ring))
            del self._halted[operation]

    def _halt(self, operation: str, driven: ActiveOperation[L]) -> None:
        """What it has called is known to nobody now: it is left alone, longer each time."""
        if driven.dropped:
            return
        falls = self._falls[operation] = self._falls.get(operation, 0) + 1
        policy = HALTED_OPERATION._replace(first_seconds=self._settings.lease_ttl_seconds / 3)
        self._halted[operation] = self._clock.monotonic() + policy.delay_seconds(falls - 1)

    def _has(self, operation: str) -> bool:
        """Whether it is driven, parked, queued or halted here."""
        return (
            operation in self._driven
            or operation in self._parked
            or operation in self._queued
            or operation in self._halted
        )

    async def _renew(self) -> bool:
        """Whether the lease is ours for another term; measured from before the renewal was sent."""
        sent_at = self._clock.monotonic()
        ttl = self._settings.lease_ttl_seconds
        if sent_at - self._renewed_at > ttl * 0.9:
            return False  # paused for too long: someone may hold what we held
        until = self._store.now() + ttl
        guard = Is("lease", (self._lease,), {"token": 1})
        change = Change("", (guard,), (Set("lease", (self._lease,), {"until": until}),))
        if await self._store.commit(change) is not None:
            return False
        self._renewed_at = sent_at
        return True

    async def _start_over(self) -> None:
        """The lease may be lost: let go of everything and come back as a new worker."""
        log.warning("the lease of worker %s lapsed; starting over as a new worker", self._worker)
        self._queued.clear()
        self._parked.clear()
        self._halted.clear()
        self._timers.close()
        for driven in self._driven.values():
            driven.dropped = True
        await self._end_all([driven.task for driven in self._driven.values()])
        # One that was stopped before its first step tidies nothing up.
        self._driven = {name: one for name, one in self._driven.items() if not one.task.done()}
        await self._enlist()

    async def _end_all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel them and wait, but not for ever, until their calls have ended."""
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(DEAF_SECONDS):
                shielded = (asyncio.shield(task) for task in tasks)
                await asyncio.gather(*shielded, return_exceptions=True)
        except TimeoutError:
            left = sum(not task.done() for task in tasks)
            log.warning("%d cancelled calls have not ended", left)

    def _fail(self, error: BaseException) -> None:
        """The store failed: nothing may be acknowledged any more."""
        self._open = False
        self._timers.close()
        for driven in self._driven.values():
            driven.task.cancel()
        self._waiters.fail(error)

    async def join(self) -> None:
        """Return when the engine has stopped; raise what stopped it, if nobody asked it to."""
        await self._waiters.join()

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start nothing new, let calls under way end within the grace, give the lease back."""
        if not self._open:
            return
        self._open = False
        self._queued.clear()
        self._timers.close()
        for kept in filter(None, (self._keeper, self._claiming)):
            await cancel_and_wait(kept)
        tasks = [driven.task for driven in self._driven.values()]
        try:
            async with asyncio.timeout(grace_seconds):
                shielded = (asyncio.shield(task) for task in tasks)
                await asyncio.gather(*shielded, return_exceptions=True)
        except TimeoutError:
            pass
        finally:  # also when whoever stops it is stopped
            await self._end_all([task for task in tasks if not task.done()])
        try:
            await self._store.commit(Change("", (), (Drop("lease", (self._lease,)),)))
        except StoreError as error:
            log.warning("cannot give the lease back: %s; it will expire", error)
        except BaseException as error:
            self._fail(error)
            raise
        self._waiters.end()

    # --- what others ask -------------------------------------------------------------------------

    def take(self, live: L) -> None:
        """Move an operation that was just accepted for this worker; others are to be claimed."""
        if live.worker and not self._has(live.id):
            self._drive(live.id, live.token, live)

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Something was recorded for this operation: look at it now."""
        driven = self._driven.get(operation)
        if driven is not None:
            driven.woken = True
            if driven.pulse is not None:
                driven.pulse.set()
            if interrupt and driven.live is not None:
                self._work.interrupt(driven.live)
        elif operation in self._parked:
            self._due(operation)
        elif operation in self._halted:
            self._halted[operation] = self._clock.monotonic()
        elif operation in self._queued:
            token, _ = self._queued[operation]
            self._queued[operation] = (token, None)  # it is read anew when its turn comes
        else:  # another process has it: who waits for it here looks at it again
            self._waiters.tell(operation, None)

    def heard(self, operation: str, *, interrupt: bool = False, unclaimed: bool = False) -> None:
        """Another process has recorded something for this operation: look at it now."""
        self.wake(operation, interrupt=interrupt)
        if unclaimed and self._open:
            self._called = True
            if self._claiming is None or self._claiming.done():
                self._claiming = asyncio.create_task(self._claim_called(), name="tenure claim")

    async def _claim_called(self) -> None:
        """Claim what was accepted for nobody; what is missed here is found by the next look."""
        try:
            while self._called and self._open:
                self._called = False
                await self._claim()
        except StoreError as error:
            log.warning("cannot claim operations: %s", error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 (the store failed)
            self._fail(error)

    def wait(
        self, operation: str, seconds: float | None = None
    ) -> Coroutine[None, None, OperationState | None]:
        """The state in which this operation ended or got stuck here; None if that took longer."""
        return self._waiters.wait(operation, seconds)

    # --- moving operations -----------------------------------------------------------------------

    def _due(self, operation: str) -> None:
        self._drive(operation, self._parked[operation], None)

    def _drive(self, operation: str, token: int, live: L | None) -> None:
        if not self._open:
            return
        if self._parked.pop(operation, None) is not None:
            self._timers.forget(operation)
        before = self._driven.get(operation)
        if before is not None and not before.task.done():
            # It was accepted while this worker started over, and claimed anew.  What is done under
            # the older token is in vain; its calls end before others begin.
            before.task.add_done_callback(lambda _: self._drive(operation, token, live))
            if not before.dropped:  # a second cancel would cut short how a call ends
                before.dropped = True
                before.task.cancel()
            return
        if len(self._driven) >= self._settings.concurrency_max:
            self._queued[operation] = (token, live)
            return
        driven = ActiveOperation(token, live)
        self._driven[operation] = driven
        driven.task = self._loop.create_task(self._run(operation, driven))

    def _park(self, operation: str, token: int, wake_at: float | None) -> None:
        if self._open:
            self._parked[operation] = token
            if wake_at is not None:
                self._timers.set(operation, wake_at)

    async def _run(self, operation: str, driven: ActiveOperation[L]) -> None:
        """Drive one operation until it ends, parks or is lost; then make room for a queued one."""
        rest: Moves | None = None
        work, load = self._work, self._unknown_plans.load
        try:
            live = driven.live = driven.live or await load(operation, driven.token, self._worker)
            while live is not None and not driven.dropped:
                if driven.woken:
                    driven.woken = False
                    await work.refresh(live)
                now, wake_at = moves = work.moves(live)
                if not now or not self._open:
                    if not driven.woken:
                        rest = moves
                        break
                elif len(now) == 1 and wake_at is None:
                    await work.perform(live, now[0], driven.task)
                else:
                    await self._together(driven, live, now)
        except LeaseLost:
            log.info("operation %s: another worker has claimed it", operation)
        except Exception:
            self._halt(operation, driven)
            log.exception("operation %s: stopped by a defect; retrying later", operation)
        except asyncio.CancelledError:
            if self._open and not driven.dropped:
                self._halt(operation, driven)
                log.warning(CANCELLED_OUTSIDE, operation)
            raise
        except BaseException as error:  # noqa: BLE001 (the store failed)
            self._fail(error)
        else:
            self._falls.pop(operation, None)
        finally:
            if self._driven.get(operation) is driven:
                del self._driven[operation]
                self._fill()
        if rest is not None and driven.live is not None:
            self._settle(operation, driven.live, rest)

    def _fill(self) -> None:
        """There is a place: drive the oldest that is queued."""
        if self._queued and self._open:
            operation, (token, live) = self._queued.popitem(last=False)
            self._drive(operation, token, live)

    def _settle(self, operation: str, live: L, rest: Moves) -> None:
        """It ended, or there is nothing to do now."""
        state = live.state
        if state not in OPERATION.final:
            self._park(operation, live.token, rest.wake_at)
        if state in SETTLED:
            self._waiters.tell(operation, state)

    async def _together(self, driven: ActiveOperation[L], live: L, first: tuple[Move, ...]) -> None:
        """Perform several moves at the same time, each at its own pace, until none is under way."""
        pulse = driven.pulse = asyncio.Event()
        running: list[asyncio.Task[None]] = []
        driven.running = running
        timer: asyncio.TimerHandle | None = None
        starting = first
        try:
            while True:
                for move in starting:
                    task = asyncio.create_task(self._work.perform(live, move))
                    task.add_done_callback(lambda _: pulse.set())
                    running.append(task)
                if not running:
                    return
                await pulse.wait()
                pulse.clear()
                if timer is not None:
                    timer.cancel()
                for task in [task for task in running if task.done()]:
                    running.remove(task)
                    task.result()
                if driven.woken:
                    driven.woken = False
                    await self._work.refresh(live)
                moves = self._work.moves(live)
                starting = moves.now if self._open and not driven.dropped else ()
                timer = self._later(moves.wake_at, pulse)
        finally:
            driven.pulse = None
            if timer is not None:
                timer.cancel()
            await cancel_and_wait(*running)

    def _later(self, at: float | None, pulse: asyncio.Event) -> asyncio.TimerHandle | None:
        """Set the pulse at this time."""
        if at is None:
            return None
        delay = max(0.0, at - self._store.now())
        return self._loop.call_later(delay, pulse.set)
