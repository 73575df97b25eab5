"""`TemporalEngine`: operations are executed by Temporal; the store stays the truth.

Operations are accepted for nobody.  A run is started for each under the operation's own id, and its
first activity claims it.  A lease without end in the name of this engine keeps embedded engines on
the same store from claiming what Temporal follows; to go back to one, stop every process of this
engine and start `tenure up --engine embedded --leave-temporal`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, NamedTuple

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.adapters.engine.temporal.activities import BEAT_SECONDS, Activities, answer_of
from tenure.adapters.engine.temporal.connection import (
    AGENT,
    KIND,
    NAME,
    STATE,
    away,
    connect,
    register_attributes,
)
from tenure.adapters.engine.temporal.messages import WAKE, WORKFLOW, Answer, Start
from tenure.adapters.engine.temporal.queue import queue_of
from tenure.adapters.engine.temporal.run_starter import RunStarter
from tenure.adapters.engine.temporal.settings import TemporalSettings
from tenure.adapters.engine.temporal.workflow import OperationRun
from tenure.adapters.engine.waiters import Waiters
from tenure.core.errors import Defect, EngineError, LeaseLost, StoreError
from tenure.core.operation import SETTLED, OperationState
from tenure.core.records import AgentRecord, LeaseRecord, OperationRecord
from tenure.ports.clock import Clock
from tenure.ports.engine import Claims, L, MoveExecutor
from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Put, Queue, Row, Set, Store

log = logging.getLogger("tenure.engine")
WORKER = "temporal"
RESTING = "temporal/rest"
"""The worker id of stuck operations that no run follows."""
FOR_EVER = 1e11
"""The expiry of a lease that never expires."""
CLAIM_MAX = 1_000
TAKE_SECONDS = 10.0
"""Interval of passes that take over operations of embedded engines that have ended."""
STARTS_MAX = 100
"""Concurrent requests to Temporal."""
CANCEL_GRACE_SECONDS = 5.0
"""How long the engine waits for cancelled calls to end before it goes on without them."""
STICKY = timedelta(seconds=5)
"""How long a run waits for the worker that has it in memory before any other replays it."""
RPC_SECONDS = timedelta(seconds=10)


class RunLabels(NamedTuple):
    """The search attributes of a run: its plan, its agent, and the agent's name."""

    kind: str
    agent: str
    name: str

    @property
    def title(self) -> str:
        """As it stands beside the run and each of its activities."""
        return f"{self.kind} of {f'{self.name} ({self.agent})' if self.name else self.agent}"


class TemporalEngine(Generic[L]):
    """Lets Temporal move operations, as `tenure.ports.engine.Engine` promises."""

    def __init__(
        self,
        work: MoveExecutor[L],
        claims: Claims[L],
        *,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        settings: TemporalSettings | None = None,
    ) -> None:
        """Use `work` to move operations and `claims` to hold them; nothing runs before `start`."""
        self._work = work
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._settings = settings or TemporalSettings()
        self._activities: Activities[L] = Activities(
            work,
            claims,
            store=store,
            resting=RESTING,
            monotonic=clock.monotonic,
            tell=self._tell,
            fail=self._fail,
        )
        self._relay = RunStarter(
            store,
            lambda name, wake: self._follow(name, wake=wake),
            worker=WORKER,
            resting=RESTING,
            margin_seconds=self._settings.margin_seconds,
        )
        self._queue = ""
        self._attributes = False
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(STARTS_MAX)
        self._waiters = Waiters()
        self._relaying: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._open = False
        self._away = ""
        self._beside, self._looked_at = False, 0.0

    @property
    def worker(self) -> str:
        """Always empty: the first activity of a run claims its operation."""
        return ""

    @property
    def accepts(self) -> bool:
        """True while the engine runs; if Temporal is away, accepted operations wait."""
        return self._open

    @property
    def away(self) -> str:
        """The reason why Temporal's namespace could not be used at the last request."""
        return self._away

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach Temporal, offer to work, and follow every open operation that nobody follows.

        EngineError with a sentence, within a bound, if Temporal cannot be used.
        """
        self._waiters.begin()
        client = await connect(self._settings)
        self._attributes = await register_attributes(client, self._settings)
        own = await queue_of(self._store, self._entropy)  # before the lease, which says it has one
        self._queue = self._settings.task_queue or own
        for name in (WORKER, RESTING):
            await self._hold_lease(f"worker/{name}")
        await self._take_over()
        self._client, self._open = client, True
        if self._settings.works:
            self._worker = self._made(client)
            self._polling = asyncio.create_task(self._poll(self._worker), name="tenure worker")
        self._relaying = asyncio.create_task(self._keep(), name="tenure relay")

    async def _take_over(self) -> None:
        """Take over the operations of embedded engines that have ended."""
        while len(await self._store.claim(Queue.OPERATIONS, RESTING, limit=CLAIM_MAX)) == CLAIM_MAX:
            pass

    async def _take_over_beside(self) -> None:
        """The same from one that runs beside, or did: else this would take what has just begun."""
        now = self._clock.monotonic()
        if now < self._looked_at + TAKE_SECONDS:
            return
        self._looked_at, before = now, self._beside
        leases = await self._store.list_rows(LeaseRecord, {}, limit=CLAIM_MAX)
        workers = {name for row in leases if (name := str(row.name)).startswith("worker/")}
        self._beside = bool(workers - {f"worker/{WORKER}", f"worker/{RESTING}"})
        if before or self._beside:
            await self._take_over()

    async def _hold_lease(self, name: str) -> None:
        """A lease without end, whether or not there is one."""
        row: Row = {"holder": WORKER, "token": 1, "until": FOR_EVER}
        if await self._store.commit(Change("", (), (Put("lease", (name,), row),))) is not None:
            await self._store.commit(Change("", (), (Set("lease", (name,), row),)))

    def _made(self, client: Client) -> Worker:
        settings, beat = self._settings, timedelta(seconds=BEAT_SECONDS)
        return Worker(
            client,
            task_queue=self._queue,
            workflows=[OperationRun],
            activities=self._activities.all(),
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=settings.runs_cached_max,
            max_concurrent_workflow_tasks=settings.workflow_tasks_max,
            max_concurrent_activities=settings.activities_max,
            max_heartbeat_throttle_interval=beat,
            default_heartbeat_throttle_interval=beat,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=timedelta(hours=1),  # `stop` has its own grace
        )

    async def _poll(self, worker: Worker) -> None:
        """Work until shut down; whatever else ends it ends the engine, but for what Temporal has.

        A worker whose namespace is gone gives up by itself: it is made anew once that is back.
        """
        while True:
            try:
                await worker.run()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 (the engine must not seem alive)
                client = self._client
                if client is None or not await self._is_back(client):
                    self._fail(EngineError(f"the Temporal worker stopped: {error}"))
                    return
                worker = self._worker = self._made(client)
                log.warning("the Temporal worker is restarted")
            else:
                return

    async def _is_back(self, client: Client) -> bool:
        """Wait while Temporal cannot be used; False if it could, or this engine stops."""
        if not (why := await away(client, self._settings)):
            return False
        log.warning("%s, and its worker has stopped; it is restarted after that", why)
        while self._open:
            await self._clock.sleep(self._settings.relay_seconds)
            if not await away(client, self._settings):
                return self._open
        return False

    async def _keep(self) -> None:
        """Start runs for operations that no run follows; stop the engine if the store fails."""
        try:
            while self._open:
                await self._see()
                try:
                    if not self._away:
                        await self._relay.run_pass()
                    await self._take_over_beside()
                except StoreError as error:
                    log.warning("cannot read due operations: %s; retrying", error)
                await self._clock.sleep(self._settings.relay_seconds)
        except asyncio.CancelledError:
            if self._open:
                self._fail(Defect("the engine's run starter was cancelled from outside the engine"))
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it is, the engine must not seem alive)
            self._fail(error)

    async def _see(self) -> None:
        """Probe Temporal, and log when its availability changes."""
        if self._client is None:
            return
        before, self._away = self._away, await away(self._client, self._settings)
        where = self._settings.address
        if self._away and not before:
            log.warning("%s, at %s: what is accepted waits until it is back", self._away, where)
        elif before and not self._away:
            log.warning("Temporal at %s is back: what has waited goes on", where)

    def _fail(self, error: BaseException) -> None:
        """Stop after a failure of the store or the worker: nothing may be acknowledged any more."""
        self._open = False
        self._activities.drop()
        if self._worker is not None:
            self._ending = asyncio.ensure_future(self._worker.shutdown())
        self._waiters.fail(error)

    async def join(self) -> None:
        """Return when the engine was stopped; if it failed, raise the failure."""
        await self._waiters.join()

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Start nothing new and let running calls end within the grace period."""
        self._open = False
        until = self._clock.monotonic() + grace_seconds
        if self._relaying is not None:
            self._relaying.cancel()
            with suppress(TimeoutError):  # what is late is cancelled: another relay tries again
                async with asyncio.timeout(grace_seconds):
                    await asyncio.gather(self._relaying, *self._tasks, return_exceptions=True)
        if self._worker is not None and self._polling is not None:
            left = max(0.0, until - self._clock.monotonic())
            await self._shut_down(self._worker, self._polling, left)
        self._worker, self._client = None, None
        self._waiters.end()

    async def _shut_down(
        self, worker: Worker, polling: asyncio.Task[None], grace_seconds: float
    ) -> None:
        """Stop polling; moves that do not end within the grace period are left to a takeover."""
        ending = asyncio.create_task(worker.shutdown())
        both = asyncio.gather(asyncio.shield(polling), ending, return_exceptions=True)
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

    # --- what others ask -------------------------------------------------------------------------

    def take(self, live: L) -> None:
        """Start a run for an operation that was just accepted; the relay does so if this fails."""
        if live.worker or not self._open:
            return
        answer: Answer | None = answer_of(self._work, live, self._store.now())
        if answer is not None and len(answer.moves) > 1:
            answer = None  # parallel moves cannot all claim it
        if answer is not None and self._worker is not None:
            self._activities.keep(live)
        about = RunLabels(live.kind, live.agent, live.agent_name)
        self._soon(self._start(live.id, about, answer))

    def wake(self, operation: str, *, interrupt: bool = False) -> None:
        """Make the run re-read its operation, because something was recorded for it."""
        self._activities.forget(operation)
        if not self._open:
            return
        if interrupt:
            self._activities.interrupt(operation)
        self._soon(self._follow(operation, interrupt=interrupt))

    def on_notification(
        self,
        operation: str,
        *,
        interrupt: bool = False,
        unclaimed: bool = False,  # noqa: ARG002 (the process that accepted it has started its run)
    ) -> None:
        """Wake waiters here after another process has recorded something and signalled the run."""
        self._activities.forget(operation)
        if interrupt:
            self._activities.interrupt(operation)
        if operation in self._waiters and self._open:
            self._soon(self._look(operation))

    async def _look(self, operation: str) -> None:
        row = await self._store.find(OperationRecord, (operation,))
        if row is not None:
            self._tell(operation, OperationState(str(row.state)))

    async def wait(self, operation: str, seconds: float | None = None) -> OperationState | None:
        """Wait until the operation ends or is stuck and return its state; None after `seconds`."""
        return await self._waiters.wait(operation, seconds)

    def _tell(self, operation: str, state: OperationState) -> None:
        if state in SETTLED:
            self._waiters.notify(operation, state)

    # --- runs ------------------------------------------------------------------------------------

    def _soon(self, asked: Coroutine[Any, Any, None]) -> None:
        """Run it as a background task."""
        task = asyncio.get_running_loop().create_task(self._surely(asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _surely(self, asked: Coroutine[Any, Any, None]) -> None:
        """Run it; after a failure the run starter retries."""
        async with self._room:
            try:
                await asked
            except (EngineError, StoreError) as error:
                if not (self._away and isinstance(error, EngineError)):  # else it was said
                    log.warning("%s; the run starter tries again", error)
            except Exception:
                log.exception("a run was not started or woken; the run starter tries again")
            except (LeaseLost, asyncio.CancelledError):
                raise
            except BaseException as error:  # noqa: BLE001 (the store failed)
                self._fail(error)

    async def _follow(self, operation: str, *, wake: bool = True, interrupt: bool = False) -> None:
        """Wake the run of an operation, or start one that reads it first."""
        row = await self._store.find(OperationRecord, (operation,))
        if row is None:
            return
        if row.ended_at is not None:
            await self._signal(operation, interrupt=interrupt)
            return
        agent = await self._store.find(AgentRecord, (row.agent,))
        about = RunLabels(row.kind, row.agent, (agent and agent.name) or "")
        stood = self._store.now() - row.updated_at > self._settings.margin_seconds
        if stood and await self._is_elsewhere(operation):
            await self._start(operation, about, None, anew=True)
            return
        await self._start(operation, about, None, wake=wake, interrupt=interrupt)

    async def _is_elsewhere(self, operation: str) -> bool:
        """Whether its run is at a task queue that this plane had before: nobody works there now."""
        if self._client is None:
            return False
        handle: WorkflowHandle[Any, Any] = self._client.get_workflow_handle(operation)
        try:
            found = await handle.describe(rpc_timeout=RPC_SECONDS)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            message = f"Temporal did not tell of operation {operation} ({error.message})"
            raise EngineError(message) from None
        running = found.status is WorkflowExecutionStatus.RUNNING
        if not running or found.task_queue == self._queue:
            return False
        log.warning(
            "operation %s stands still at task queue %s: a new run follows it at %s",
            operation, found.task_queue, self._queue,
        )  # fmt: skip
        return True

    async def _start(
        self,
        operation: str,
        about: RunLabels,
        answer: Answer | None,
        *,
        wake: bool = False,
        interrupt: bool = False,
        anew: bool = False,
    ) -> None:
        """Start a run under the operation's id; if there is one it stays, and is woken if asked.

        `anew`: it goes.  What it may have called is of unknown outcome to the next one.
        """
        client = self._client
        if client is None:
            return
        policies = WorkflowIDConflictPolicy
        conflict = policies.TERMINATE_EXISTING if anew else policies.USE_EXISTING
        signal: dict[str, Any] = {"start_signal": WAKE, "start_signal_args": [interrupt]}

        async def start(pairs: Sequence[SearchAttributePair[Any]]) -> None:
            await client.start_workflow(
                WORKFLOW,
                Start(operation, about.title, answer, attributes=bool(pairs)),
                id=operation,
                task_queue=self._queue,
                id_conflict_policy=conflict,
                search_attributes=TypedSearchAttributes(pairs),
                static_summary=about.title,
                static_details=(
                    f"One run of operation `{operation}`. Its journal is in the store of the "
                    f"control plane: `tenure operation show {operation}` says how it stands."
                ),
                rpc_timeout=RPC_SECONDS,
                # Its first task comes with the answer, if a worker here has room for it.
                request_eager_start=self._worker is not None and not wake,
                **(signal if wake else {}),
            )

        try:
            await self._with_attributes(start, about)
        except RPCError as error:
            message = f"Temporal did not start operation {operation} ({error.message})"
            raise EngineError(message) from None

    async def _with_attributes(
        self,
        start: Callable[[Sequence[SearchAttributePair[Any]]], Awaitable[None]],
        about: RunLabels,
    ) -> None:
        """Start it with its search attributes; without them where the namespace has lost them."""
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(AGENT, about.agent),
            SearchAttributePair(KIND, about.kind),
            SearchAttributePair(STATE, OperationState.RUNNING),
        ]
        if about.name:
            pairs.append(SearchAttributePair(NAME, about.name))
        given = pairs if self._attributes else []
        try:
            return await start(given)
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT or not given:
                raise
        if self._attributes and self._client is not None:  # else another start sees to it
            self._attributes = False
            self._attributes = await register_attributes(self._client, self._settings)
        return await start(())

    async def _signal(self, operation: str, *, interrupt: bool) -> None:
        """Wake the run of an ended operation, if it has one, so that it ends too."""
        if self._client is None:
            return
        handle: WorkflowHandle[Any, Any] = self._client.get_workflow_handle(operation)
        try:
            await handle.signal(WAKE, interrupt, rpc_timeout=RPC_SECONDS)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                message = f"Temporal did not wake operation {operation} ({error.message})"
                raise EngineError(message) from None
