"""`TemporalEngine`: Temporal schedules the operations, and the store has their state.

An operation is accepted without a worker.  The engine starts a run with the operation's id, and the
run's first activity claims the operation.

Two leases without expiry keep embedded engines on the same store from claiming operations that
Temporal executes.  To go back to an embedded engine, stop every process of this engine and start
`tenure up --engine embedded --leave-temporal`.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.adapters.engine.temporal.activities import HEARTBEAT_SECONDS, Activities, answer_of
from tenure.adapters.engine.temporal.connection import connect, find_outage, register_attributes
from tenure.adapters.engine.temporal.messages import Answer
from tenure.adapters.engine.temporal.queue import find_or_name_queue
from tenure.adapters.engine.temporal.run_starter import RunStarter
from tenure.adapters.engine.temporal.runs import RunLabels, Runs
from tenure.adapters.engine.temporal.settings import TemporalSettings
from tenure.adapters.engine.temporal.workflow import OperationRun
from tenure.adapters.engine.waiters import Waiters
from tenure.core.errors import Defect, EngineError, StaleToken, StoreError
from tenure.core.operation import ENDED_OR_STUCK, OperationState
from tenure.core.records.operation import OperationRecord
from tenure.core.records.plane import LeaseRecord
from tenure.ports import lease_rows
from tenure.ports.clock import Clock
from tenure.ports.engine import Claims, Handle, MoveExecutor
from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Queue, Store

log = logging.getLogger("tenure.engine")
WORKER = "temporal"
"""The worker id of operations that Temporal executes."""
IDLE_WORKER = "temporal/rest"
"""The worker id of stuck operations that have no run."""
NO_EXPIRY = 1e11
"""The expiry of a lease that never expires."""
CLAIM_MAX = 1_000
TAKEOVER_SECONDS = 10.0
"""Interval of passes that take over operations of embedded engines that have ended."""
REQUESTS_MAX = 100
"""Concurrent requests to Temporal."""
CANCEL_GRACE_SECONDS = 5.0
"""How long the engine waits for cancelled calls to end before it goes on without them."""
STICKY_TIMEOUT = timedelta(seconds=5)
"""How long a run waits for the worker that has it in memory before another replays it."""


class TemporalEngine(Generic[Handle]):
    """Executes operations through Temporal, as `tenure.ports.engine.Engine` promises."""

    def __init__(
        self,
        executor: MoveExecutor[Handle],
        claims: Claims[Handle],
        *,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        settings: TemporalSettings | None = None,
    ) -> None:
        """`executor` moves operations and `claims` claims them; nothing runs before `start`."""
        self._executor = executor
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._settings = settings or TemporalSettings()
        self._activities: Activities[Handle] = Activities(
            executor,
            claims,
            store=store,
            idle_worker=IDLE_WORKER,
            monotonic=clock.monotonic,
            on_settled=self._notify_waiters,
            on_failure=self._fail,
        )
        self._runs = Runs(executor, store=store, settings=self._settings)
        self._run_starter = RunStarter(
            store,
            lambda name, wake: self._runs.start_or_wake(name, wake=wake),
            worker=WORKER,
            idle_worker=IDLE_WORKER,
            margin_seconds=self._settings.margin_seconds,
        )
        self._worker: Worker | None = None
        self._background: set[asyncio.Task[None]] = set()
        """Requests to Temporal that no caller waits for."""
        self._request_slots = asyncio.Semaphore(REQUESTS_MAX)
        self._waiters = Waiters()
        self._maintenance_task: asyncio.Task[None] | None = None
        self._worker_task: asyncio.Task[None] | None = None
        self._shutdown: asyncio.Future[None] | None = None
        """The shutdown of the worker after a failure; the reference keeps it from being freed."""
        self._open = False
        self._outage = ""
        self._has_embedded, self._embedded_checked_at = False, 0.0
        """Whether embedded engines have leases on this store, and when that was checked."""

    @property
    def worker(self) -> str:
        """Always empty: the first activity of a run claims its operation."""
        return ""

    @property
    def accepts(self) -> bool:
        """True while the engine runs; during an outage of Temporal, accepted operations wait."""
        return self._open

    @property
    def outage(self) -> str:
        """Why Temporal could not be used at the last probe; empty: it could."""
        return self._outage

    # --- start and maintenance -------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, start the worker, and start runs for open operations that have none.

        EngineError with the reason, after a bounded time, if Temporal cannot be used.
        """
        self._waiters.begin()
        client = await connect(self._settings)
        self._runs.has_attributes = await register_attributes(client, self._settings)
        # Before the leases: a lease without a stored queue means the queue of early releases.
        stored_queue = await find_or_name_queue(self._store, self._entropy)
        self._runs.queue = self._settings.task_queue or stored_queue
        for name in (WORKER, IDLE_WORKER):
            await self._write_lease(f"worker/{name}")
        await self._take_over()
        self._runs.client, self._open = client, True
        if self._settings.executes_operations:
            self._worker = self._make_worker(client)
            self._runs.has_worker = True
            self._worker_task = asyncio.create_task(
                self._run_worker(self._worker), name="tenure worker"
            )
        self._maintenance_task = asyncio.create_task(self._maintain(), name="tenure run starter")

    async def _take_over(self) -> None:
        """Take over the operations of embedded engines that have ended."""
        while (
            len(await self._store.claim(Queue.OPERATIONS, IDLE_WORKER, limit=CLAIM_MAX))
            == CLAIM_MAX
        ):
            pass

    async def _take_over_from_embedded(self) -> None:
        """Take over from time to time, but only if there is, or just was, an embedded engine.

        Otherwise this would take over operations that were just accepted.
        """
        now = self._clock.monotonic()
        if now < self._embedded_checked_at + TAKEOVER_SECONDS:
            return
        self._embedded_checked_at, had_embedded = now, self._has_embedded
        leases = await self._store.list_rows(LeaseRecord, {}, limit=CLAIM_MAX)
        workers = {name for row in leases if (name := str(row.name)).startswith("worker/")}
        self._has_embedded = bool(workers - {f"worker/{WORKER}", f"worker/{IDLE_WORKER}"})
        if had_embedded or self._has_embedded:
            await self._take_over()

    async def _write_lease(self, name: str) -> None:
        """Write a lease without expiry, over any earlier one."""
        row = LeaseRecord(name, WORKER, token=1, until=NO_EXPIRY)
        if await self._store.commit(Change("", (), (lease_rows.put_lease(row),))) is not None:
            await self._store.commit(Change("", (), (lease_rows.set_lease(row),)))

    def _make_worker(self, client: Client) -> Worker:
        settings, throttle = self._settings, timedelta(seconds=HEARTBEAT_SECONDS)
        return Worker(
            client,
            task_queue=self._runs.queue,
            workflows=[OperationRun],
            activities=self._activities.all(),
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=settings.runs_cached_max,
            max_concurrent_workflow_tasks=settings.workflow_tasks_max,
            max_concurrent_activities=settings.activities_max,
            max_heartbeat_throttle_interval=throttle,
            default_heartbeat_throttle_interval=throttle,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            graceful_shutdown_timeout=timedelta(hours=1),  # `stop` has its own grace period
        )

    async def _run_worker(self, worker: Worker) -> None:
        """Run the worker until it is shut down; if it ends by itself, stop the engine.

        A worker also ends when its namespace is gone.  It is then replaced once that is back.
        """
        while True:
            try:
                await worker.run()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 (the engine must not seem alive)
                client = self._runs.client
                if client is None or not await self._wait_for_end_of_outage(client):
                    self._fail(EngineError(f"the Temporal worker stopped: {error}"))
                    return
                worker = self._worker = self._make_worker(client)
                log.warning("the Temporal worker is restarted")
            else:
                return

    async def _wait_for_end_of_outage(self, client: Client) -> bool:
        """Wait while Temporal cannot be used; False if there is no outage, or the engine stops."""
        if not (reason := await find_outage(client, self._settings)):
            return False
        log.warning("%s, and its worker has stopped; it is restarted after that", reason)
        while self._open:
            await self._clock.sleep(self._settings.run_starter_seconds)
            if not await find_outage(client, self._settings):
                return self._open
        return False

    async def _maintain(self) -> None:
        """Run a maintenance pass at each interval; stop the engine if one fails."""
        try:
            while self._open:
                await self._probe()
                try:
                    if not self._outage:
                        await self._run_starter.run_pass()
                    await self._take_over_from_embedded()
                except StoreError as error:
                    log.warning("cannot read due operations: %s; retrying", error)
                await self._clock.sleep(self._settings.run_starter_seconds)
        except asyncio.CancelledError:
            if self._open:
                self._fail(Defect("the engine's run starter was cancelled from outside the engine"))
            raise
        except BaseException as error:  # noqa: BLE001 (after any error the engine must not seem alive)
            self._fail(error)

    async def _probe(self) -> None:
        """Probe Temporal, and log when its availability changes."""
        if self._runs.client is None:
            return
        before, self._outage = self._outage, await find_outage(self._runs.client, self._settings)
        address = self._settings.address
        if self._outage and not before:
            log.warning("%s, at %s: accepted operations wait for it", self._outage, address)
        elif before and not self._outage:
            log.warning("Temporal at %s is back: waiting operations continue", address)

    # --- stop ------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Stop after a failure of the store or the worker: nothing may be acknowledged any more."""
        self._open = False
        self._activities.drop()
        if self._worker is not None:
            self._shutdown = asyncio.ensure_future(self._worker.shutdown())
        self._waiters.fail(error)

    async def join(self) -> None:
        """Return when the engine was stopped; if it failed, raise the failure."""
        await self._waiters.join()

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start nothing new and let running calls end within the grace period."""
        self._open = False
        until = self._clock.monotonic() + grace_seconds
        if self._maintenance_task is not None:
            self._maintenance_task.cancel()
            tasks = (self._maintenance_task, *self._background)
            with suppress(TimeoutError):  # late requests are cancelled; another process retries
                async with asyncio.timeout(grace_seconds):
                    await asyncio.gather(*tasks, return_exceptions=True)
        if self._worker is not None and self._worker_task is not None:
            remaining = max(0.0, until - self._clock.monotonic())
            await self._shut_down(self._worker, self._worker_task, remaining)
        self._worker, self._runs.client, self._runs.has_worker = None, None, False
        self._waiters.end()

    async def _shut_down(
        self, worker: Worker, worker_task: asyncio.Task[None], grace_seconds: float
    ) -> None:
        """Stop the worker; moves that outlive the grace period are dropped and taken over later."""
        shutdown = asyncio.create_task(worker.shutdown())
        both = asyncio.gather(asyncio.shield(worker_task), shutdown, return_exceptions=True)
        try:
            async with asyncio.timeout(grace_seconds):
                await asyncio.shield(both)
        except TimeoutError:
            self._activities.drop()
            try:
                async with asyncio.timeout(CANCEL_GRACE_SECONDS):
                    await both
            except TimeoutError:
                log.warning("some cancelled calls have not ended")

    # --- operations ------------------------------------------------------------------------------

    def execute(self, handle: Handle) -> None:
        """Start a run for a newly accepted operation; if this fails, the run starter does so."""
        if handle.worker or not self._open:
            return
        answer: Answer | None = answer_of(self._executor, handle, self._store.now())
        if answer is not None and len(answer.moves) > 1:
            answer = None  # of several first moves only one could claim the operation: load first
        if answer is not None and self._worker is not None:
            self._activities.cache(handle)
        labels = RunLabels(handle.plan_name, handle.agent, handle.agent_name)
        self._run_in_background(self._runs.start(handle.id, labels, answer))

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Make the run re-read its operation, because something was recorded for it."""
        self._activities.discard_cached(operation)
        if not self._open:
            return
        if interrupt:
            self._activities.interrupt(operation)
        self._run_in_background(self._runs.start_or_wake(operation, interrupt=interrupt))

    def on_notification(
        self,
        operation: str,
        *,
        interrupt: bool = False,
        unclaimed: bool = False,  # noqa: ARG002 (the process that accepted it has started its run)
    ) -> None:
        """Wake waiters here after another process has recorded something and signalled the run."""
        self._activities.discard_cached(operation)
        if interrupt:
            self._activities.interrupt(operation)
        if operation in self._waiters and self._open:
            self._run_in_background(self._read_state_for_waiters(operation))

    async def _read_state_for_waiters(self, operation: str) -> None:
        row = await self._store.find(OperationRecord, (operation,))
        if row is not None:
            self._notify_waiters(operation, OperationState(str(row.state)))

    async def wait(self, operation: str, seconds: float | None = None) -> OperationState | None:
        """Wait until the operation ends or is stuck and return its state; None after `seconds`."""
        return await self._waiters.wait(operation, seconds)

    def _notify_waiters(self, operation: str, state: OperationState) -> None:
        if state in ENDED_OR_STUCK:
            self._waiters.notify(operation, state)

    def _run_in_background(self, request: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._log_failure(request))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _log_failure(self, request: Coroutine[Any, Any, None]) -> None:
        """Await the request and log its failure; the run starter retries."""
        async with self._request_slots:
            try:
                await request
            except (EngineError, StoreError) as error:
                if not (self._outage and isinstance(error, EngineError)):  # else it was logged
                    log.warning("%s; the run starter tries again", error)
            except Exception:
                log.exception("a run was not started or woken; the run starter tries again")
            except (StaleToken, asyncio.CancelledError):
                raise
            except BaseException as error:  # noqa: BLE001 (the store failed)
                self._fail(error)
