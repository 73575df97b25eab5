"""Executes operations in this process: claims, leases, timers, concurrency, recovery, shutdown.

A claimed operation is in exactly one of four states.  It is *active* if a task performs its moves,
*ready* if it is due and the concurrency limit is reached, *waiting* if it has no move now (it then
costs a row and at most a heap entry), and *halted* after a defect, until its retry time has come
and it is claimed again.  The `MoveExecutor` decides which moves an operation has.

A worker has one lease row for all its operations.  The lease is for liveness alone.  A worker that
has lost its lease cannot write: the commit of every journal entry is guarded by the fence token.
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
from tenure.core.errors import Defect, StaleToken, StoreError
from tenure.core.ids import uuid7
from tenure.core.moves import Move, Moves
from tenure.core.operation import ENDED_OR_STUCK, OPERATION, OperationState
from tenure.core.records.plane import LeaseRecord
from tenure.core.retry import HALTED_OPERATION
from tenure.ports import lease_rows
from tenure.ports.clock import Clock
from tenure.ports.engine import Handle, MoveExecutor
from tenure.ports.entropy import Entropy
from tenure.ports.operation_rows import release_operation
from tenure.ports.store import Change, Drop, Is, Put, Queue, Store, WakeHint

log = logging.getLogger("tenure.engine")
CANCELLED_OUTSIDE = "operation %s: its task was cancelled from outside the engine; retrying later"
CANCEL_GRACE_SECONDS = 1.0
"""How long the engine waits for a cancelled call to end before it goes on without it."""


class EmbeddedEngine(Generic[Handle]):
    """Executes the operations that it has claimed; implements `tenure.ports.engine.Engine`."""

    def __init__(
        self,
        executor: MoveExecutor[Handle],
        *,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        settings: EngineSettings | None = None,
    ) -> None:
        """Use `executor` to move operations; nothing runs before `start`."""
        self._executor = executor
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._settings = settings or EngineSettings()
        self._worker = ""
        self._active: dict[str, ActiveOperation[Handle]] = {}
        self._ready: OrderedDict[str, tuple[int, Handle | None]] = OrderedDict()
        self._waiting_tokens: dict[str, int] = {}
        """The fence tokens of waiting operations."""
        self._halted_until: dict[str, float] = {}
        """Operations stopped by a defect, and the time after which each is claimed again."""
        self._defect_counts: dict[str, int] = {}
        self._unknown_plans = UnknownPlans(executor, store)
        self._timers = Timers(store.now, self._activate_due)
        self._waiters = Waiters()
        self._lease_task: asyncio.Task[None] | None = None
        self._claim_task: asyncio.Task[None] | None = None
        self._claim_requested = False
        """Another process has accepted an operation that no worker has claimed yet."""
        self._open = False

    @property
    def worker(self) -> str:
        """The worker id for which new operations are accepted; empty if this engine takes none."""
        return self._worker if self._open else ""

    @property
    def accepts(self) -> bool:
        """True also for an engine that was never started: other processes then do the work."""
        return self._open or not self._waiters.was_started

    @property
    def outage(self) -> str:
        """Always empty: the embedded engine is in this process."""
        return ""

    # --- start, leases and stop ------------------------------------------------------------------

    async def start(self) -> None:
        """Take the worker's lease and resume open operations that no live worker has claimed."""
        self._loop = asyncio.get_running_loop()  # cached: each call costs a system call
        self._waiters.begin()
        await self._register_worker()
        self._open = True
        await self._claim()
        self._lease_task = asyncio.create_task(self._keep_lease(), name="tenure lease")

    async def _register_worker(self) -> None:
        """Write the lease of a new worker id; operations of the earlier id are claimed again."""
        writes: list[Put | Drop] = [lease_rows.drop_lease(self._lease_name)] if self._worker else []
        self._worker = uuid7(self._store.now(), self._entropy.bits())
        self._renewed_at = self._clock.monotonic()
        until = self._store.now() + self._settings.lease_ttl_seconds
        row = LeaseRecord(self._lease_name, self._worker, token=1, until=until)
        writes.append(lease_rows.put_lease(row))
        await self._store.commit(Change("", (), tuple(writes)))

    @property
    def _lease_name(self) -> str:
        return f"worker/{self._worker}"

    async def _claim(self) -> None:
        """Claim until no operation is left that is unclaimed or belongs to a dead worker."""
        limit, unknown_plans = self._settings.claim_max, self._unknown_plans.plans
        while True:
            claimed = await self._store.claim(
                Queue.OPERATIONS, self._worker, limit=limit, except_plans=unknown_plans
            )
            now = self._store.now()
            for operation, token, due_at in claimed:
                if due_at is not None and due_at <= now:
                    self._activate(operation, token, None)
                else:
                    self._add_waiting(operation, token, due_at)
            if len(claimed) < limit:
                return
            late = self._clock.monotonic() - self._renewed_at > self._settings.lease_ttl_seconds / 3
            if late and not await self._renew():  # a take-over may last longer than the lease
                return

    async def _keep_lease(self) -> None:
        """Run a maintenance pass every third of the lease time; stop the engine if it fails."""
        ttl = self._settings.lease_ttl_seconds
        try:
            while self._open:
                await self._clock.sleep(ttl / 3)
                try:
                    await self._maintain()
                except StoreError as error:  # nothing was stored; a full or busy disk may recover
                    log.warning("cannot renew the lease: %s; next attempt in %g s", error, ttl / 3)
        except asyncio.CancelledError:
            if self._open:
                self._fail(Defect("the engine's lease task was cancelled from outside the engine"))
            raise
        except BaseException as error:  # noqa: BLE001 (after any error the engine must not seem alive)
            self._fail(error)

    async def _maintain(self) -> None:
        """Renew the lease, take over from dead workers, and activate operations that are due.

        An operation may be due without this engine's knowledge: another process has recorded
        something for it, or has accepted it for this worker and ended before the hand-over.
        """
        if not await self._renew():
            await self._start_over()
        self._halt_uncancellable()
        await self._claim()
        await self._release_halted()
        for operation, token, _ in await self._store.list_due(self._worker):
            if operation in self._waiting_tokens:
                self._activate_due(operation)
            elif not self._has(operation):
                self._activate(operation, token, None)

    def _halt_uncancellable(self) -> None:
        """Halt operations with a cancelled call that does not end; they are claimed again later."""
        for operation, active in list(self._active.items()):
            tasks = (active.task, *active.running)
            uncancellable = [task for task in tasks if self._executor.ignores_cancellation(task)]
            if not uncancellable or active.is_released:
                continue
            log.warning("operation %s: a cancelled call has not ended", operation)
            self._halt(operation, active)
            active.is_released = True
            for task in tasks:
                if task not in uncancellable:
                    task.cancel()
            del self._active[operation]
            self._start_next_ready()

    async def _release_halted(self) -> None:
        """Unclaim halted operations whose retry time has come.

        The next claim marks the outcome of their running calls as unknown and retries them.  Until
        this engine's next pass another worker may claim them first, perhaps with more success.
        """
        now = self._clock.monotonic()
        for operation in [name for name, until in self._halted_until.items() if until <= now]:
            guard = Is("operation", (operation,), {"worker": self._worker})
            nobody = release_operation(operation)
            wake_hint = WakeHint(operation, unclaimed=True)
            await self._store.commit(Change("", (guard,), (nobody,), wake_hint=wake_hint))
            del self._halted_until[operation]

    def _halt(self, operation: str, active: ActiveOperation[Handle]) -> None:
        """Stop executing it after a defect; each further defect doubles the retry delay."""
        if active.is_released:
            return
        defects = self._defect_counts[operation] = self._defect_counts.get(operation, 0) + 1
        policy = HALTED_OPERATION._replace(first_seconds=self._settings.lease_ttl_seconds / 3)
        self._halted_until[operation] = self._clock.monotonic() + policy.delay_seconds(defects - 1)

    def _has(self, operation: str) -> bool:
        """Whether this engine has the operation in any of the four states."""
        return (
            operation in self._active
            or operation in self._waiting_tokens
            or operation in self._ready
            or operation in self._halted_until
        )

    async def _renew(self) -> bool:
        """Renew the lease, counted from before the renewal was sent; False if it may be lost."""
        sent_at = self._clock.monotonic()
        ttl = self._settings.lease_ttl_seconds
        if sent_at - self._renewed_at > ttl * 0.9:
            return False  # paused for too long: another worker may have claimed our work
        until = self._store.now() + ttl
        guard = lease_rows.lease_has_token(self._lease_name, 1)
        change = Change("", (guard,), (lease_rows.extend_lease(self._lease_name, until),))
        if await self._store.commit(change) is not None:
            return False
        self._renewed_at = sent_at
        return True

    async def _start_over(self) -> None:
        """After a possibly lost lease: release everything and register as a new worker."""
        log.warning("the lease of worker %s lapsed; starting over as a new worker", self._worker)
        self._ready.clear()
        self._waiting_tokens.clear()
        self._halted_until.clear()
        self._timers.close()
        for active in self._active.values():
            active.is_released = True
        await self._end_all([active.task for active in self._active.values()])
        # A task cancelled before its first step has not run its own clean-up.
        self._active = {name: one for name, one in self._active.items() if not one.task.done()}
        await self._register_worker()

    async def _end_all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel the tasks and wait until they have ended, for a bounded time."""
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(CANCEL_GRACE_SECONDS):
                shielded = (asyncio.shield(task) for task in tasks)
                await asyncio.gather(*shielded, return_exceptions=True)
        except TimeoutError:
            unfinished = sum(not task.done() for task in tasks)
            log.warning("%d cancelled calls have not ended", unfinished)

    def _fail(self, error: BaseException) -> None:
        """Stop after a failure of the store: nothing may be acknowledged any more."""
        self._open = False
        self._timers.close()
        for active in self._active.values():
            active.task.cancel()
        self._waiters.fail(error)

    async def join(self) -> None:
        """Return when the engine was stopped; if it failed, raise the failure."""
        await self._waiters.join()

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start nothing new, let running calls end within the grace period, drop the lease."""
        if not self._open:
            return
        self._open = False
        self._ready.clear()
        self._timers.close()
        for task in filter(None, (self._lease_task, self._claim_task)):
            await cancel_and_wait(task)
        tasks = [active.task for active in self._active.values()]
        try:
            async with asyncio.timeout(grace_seconds):
                shielded = (asyncio.shield(task) for task in tasks)
                await asyncio.gather(*shielded, return_exceptions=True)
        except TimeoutError:
            pass
        finally:  # also if the task that stops the engine is cancelled
            await self._end_all([task for task in tasks if not task.done()])
        try:
            await self._store.commit(Change("", (), (lease_rows.drop_lease(self._lease_name),)))
        except StoreError as error:
            log.warning("cannot drop the lease: %s; it will expire", error)
        except BaseException as error:
            self._fail(error)
            raise
        self._waiters.end()

    # --- calls from outside ----------------------------------------------------------------------

    def execute(self, handle: Handle) -> None:
        """Move an operation that was just accepted, if it was accepted for this worker."""
        if handle.worker and not self._has(handle.id):
            self._activate(handle.id, handle.token, handle)

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Re-read an operation now, because something was recorded for it."""
        active = self._active.get(operation)
        if active is not None:
            active.needs_refresh = True
            if active.wake_event is not None:
                active.wake_event.set()
            if interrupt and active.handle is not None:
                self._executor.interrupt(active.handle)
        elif operation in self._waiting_tokens:
            self._activate_due(operation)
        elif operation in self._halted_until:
            self._halted_until[operation] = self._clock.monotonic()
        elif operation in self._ready:
            token, _ = self._ready[operation]
            self._ready[operation] = (token, None)  # it is read again before it runs
        else:  # another process has the operation: waiters here re-read it
            self._waiters.notify(operation, None)

    def on_notification(
        self, operation: str, *, interrupt: bool = False, unclaimed: bool = False
    ) -> None:
        """Re-read an operation, because another process has recorded something for it."""
        self.wake(operation, interrupt=interrupt)
        if unclaimed and self._open:
            self._claim_requested = True
            if self._claim_task is None or self._claim_task.done():
                self._claim_task = asyncio.create_task(
                    self._claim_requested_work(), name="tenure claim"
                )

    async def _claim_requested_work(self) -> None:
        """Claim unclaimed operations; the next maintenance pass finds any that are missed here."""
        try:
            while self._claim_requested and self._open:
                self._claim_requested = False
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
        """Wait until the operation ends or is stuck and return its state; None after `seconds`."""
        return self._waiters.wait(operation, seconds)

    # --- executing operations --------------------------------------------------------------------

    def _activate_due(self, operation: str) -> None:
        """Activate a waiting operation: its time has come, or something was recorded for it."""
        self._activate(operation, self._waiting_tokens[operation], None)

    def _activate(self, operation: str, token: int, handle: Handle | None) -> None:
        """Make a claimed operation active, or ready if the concurrency limit is reached.

        If an older task of it is still running, that task is cancelled and ends first.
        """
        if not self._open:
            return
        if self._waiting_tokens.pop(operation, None) is not None:
            self._timers.forget(operation)
        before = self._active.get(operation)
        if before is not None and not before.task.done():
            # It was accepted while this worker started over, and was claimed again.  Records under
            # the older token would be refused; its calls end before new ones start.
            before.task.add_done_callback(lambda _: self._activate(operation, token, handle))
            if not before.is_released:  # a second cancel would interrupt the call's own clean-up
                before.is_released = True
                before.task.cancel()
            return
        if len(self._active) >= self._settings.concurrency_max:
            self._ready[operation] = (token, handle)
            return
        active = ActiveOperation(token, handle)
        self._active[operation] = active
        active.task = self._loop.create_task(self._run(operation, active))

    def _add_waiting(self, operation: str, token: int, wake_at: float | None) -> None:
        """Let a claimed operation wait until `wake_at`; None: until something is recorded."""
        if self._open:
            self._waiting_tokens[operation] = token
            if wake_at is not None:
                self._timers.set(operation, wake_at)

    async def _run(self, operation: str, active: ActiveOperation[Handle]) -> None:
        """Execute one operation until it ends, waits or is lost; then start one that is ready."""
        moves_left: Moves | None = None
        executor, load = self._executor, self._unknown_plans.load
        try:
            handle = active.handle = active.handle or await load(
                operation, active.token, self._worker
            )
            while handle is not None and not active.is_released:
                if active.needs_refresh:
                    active.needs_refresh = False
                    await executor.refresh(handle)
                due, wake_at = moves = executor.moves(handle)
                if not due or not self._open:
                    if not active.needs_refresh:
                        moves_left = moves
                        break
                elif len(due) == 1 and wake_at is None:
                    await executor.perform(handle, due[0], active.task)
                else:
                    await self._perform_concurrently(active, handle, due)
        except StaleToken:
            log.info("operation %s: another worker has claimed it", operation)
        except Exception:
            self._halt(operation, active)
            log.exception("operation %s: stopped by a defect; retrying later", operation)
        except asyncio.CancelledError:
            if self._open and not active.is_released:
                self._halt(operation, active)
                log.warning(CANCELLED_OUTSIDE, operation)
            raise
        except BaseException as error:  # noqa: BLE001 (the store failed)
            self._fail(error)
        else:
            self._defect_counts.pop(operation, None)
        finally:
            if self._active.get(operation) is active:
                del self._active[operation]
                self._start_next_ready()
        if moves_left is not None and active.handle is not None:
            self._wait_or_notify(operation, active.handle, moves_left)

    def _start_next_ready(self) -> None:
        """Start the oldest ready operation, now that the concurrency limit allows it."""
        if self._ready and self._open:
            operation, (token, handle) = self._ready.popitem(last=False)
            self._activate(operation, token, handle)

    def _wait_or_notify(self, operation: str, handle: Handle, moves_left: Moves) -> None:
        """Let an open operation without a move wait; notify waiters if it ended or is stuck."""
        state = handle.state
        if state not in OPERATION.final:
            self._add_waiting(operation, handle.token, moves_left.wake_at)
        if state in ENDED_OR_STUCK:
            self._waiters.notify(operation, state)

    async def _perform_concurrently(
        self, active: ActiveOperation[Handle], handle: Handle, first: tuple[Move, ...]
    ) -> None:
        """Perform several moves concurrently until none is running."""
        wake_event = active.wake_event = asyncio.Event()
        running: list[asyncio.Task[None]] = []
        active.running = running
        timer: asyncio.TimerHandle | None = None
        starting = first
        try:
            while True:
                for move in starting:
                    task = asyncio.create_task(self._executor.perform(handle, move))
                    task.add_done_callback(lambda _: wake_event.set())
                    running.append(task)
                if not running:
                    return
                await wake_event.wait()
                wake_event.clear()
                if timer is not None:
                    timer.cancel()
                for task in [task for task in running if task.done()]:
                    running.remove(task)
                    task.result()
                if active.needs_refresh:
                    active.needs_refresh = False
                    await self._executor.refresh(handle)
                moves = self._executor.moves(handle)
                starting = moves.due if self._open and not active.is_released else ()
                timer = self._set_event_at(moves.wake_at, wake_event)
        finally:
            active.wake_event = None
            if timer is not None:
                timer.cancel()
            await cancel_and_wait(*running)

    def _set_event_at(
        self, at: float | None, wake_event: asyncio.Event
    ) -> asyncio.TimerHandle | None:
        """Set the event at this time."""
        if at is None:
            return None
        delay = max(0.0, at - self._store.now())
        return self._loop.call_later(delay, wake_event.set)
