"""The activities of a worker: perform one move, then answer what the run does next.

An activity returns how a step ended and never raises it.  So Temporal retries only an attempt that
was lost with its worker, or that could not reach the store.

A second attempt first raises the token of the step's intent, so that the first attempt can record
nothing more.  Then it inspects the provider before it repeats a call.  It skips this if every
earlier attempt has left a heartbeat that says it called no provider: a worker of another release
that does not know the plan, or a worker of another plane.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic

from msgspec.structs import replace
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from tenure.adapters.engine.temporal.messages import (
    CANCEL,
    LOAD,
    REST,
    ActivityInput,
    Answer,
    DueMove,
)
from tenure.adapters.engine.temporal.sticky_cache import StickyCache
from tenure.concurrency import cancel_and_wait
from tenure.core.errors import CallerError, PlanUnknown, StaleToken
from tenure.core.moves import Move
from tenure.core.operation import ENDED_OR_STUCK, OperationState
from tenure.core.records.operation import OperationRecord
from tenure.core.retry import TEMPORAL_UNKNOWN_PLAN
from tenure.ports.engine import Claims, Handle, MoveExecutor
from tenure.ports.store import Store

log = logging.getLogger("tenure.engine")
ERROR_CHARACTERS_MAX = 2_000
"""Characters of an error that are sent to Temporal; the log has all of it."""
SUMMARY_CHARACTERS_MAX = 200
"""Characters of a provider's message in an answer; the journal has the rest."""
HEARTBEAT_SECONDS = 1.0
"""Interval of heartbeats; a cancel arrives with the reply to a heartbeat."""
UNKNOWN_LOGGED_MAX = 1_000
"""How many unknown plans and operations are remembered as logged."""


class OperationUnknown(Exception):
    """An operation that is not in the store of this plane."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"operation {operation} is not in the store of this plane: either another plane's"
            " workers share this task queue (give each its own: --temporal-queue), or the store"
            " has lost it (then terminate its workflow)"
        )


class Activities(Generic[Handle]):
    """The activities of one engine."""

    def __init__(
        self,
        executor: MoveExecutor[Handle],
        claims: Claims[Handle],
        *,
        store: Store,
        idle_worker: str,
        monotonic: Callable[[], float],
        on_settled: Callable[[str, OperationState], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`idle_worker` is the worker id of operations that wait and have no running call.

        `on_settled` is called when an operation ends or is stuck, `on_failure` if the store fails.
        """
        self._executor = executor
        self._claims = claims
        self._store = store
        self._idle_worker = idle_worker
        self._on_settled = on_settled
        self._on_failure = on_failure
        self._in_flight: dict[asyncio.Future[None], Handle] = {}
        """Moves that are being performed here."""
        self._cache: StickyCache[Handle] = StickyCache(monotonic)
        self._logged_unknown: set[str] = set()
        """Errors about unknown plans and operations that were logged; each is logged once."""
        self._is_dropped = False

    def all(self) -> list[Callable[..., object]]:
        """Return the activities that a worker registers."""
        return [self.move, self.load, self.cancel, self.rest]

    def cache(self, handle: Handle) -> None:
        """Cache an accepted operation, so that its first move need not read it."""
        self._cache.put(handle, "")

    def discard_cached(self, operation: str) -> None:
        """Make the next move re-read the operation, because something was recorded for it."""
        self._cache.discard(operation)

    def interrupt(self, operation: str) -> None:
        """Cancel the operation's do calls that run here."""
        for handle in [one for one in self._in_flight.values() if one.id == operation]:
            self._executor.interrupt(handle)

    def drop(self) -> None:
        """Cancel every move and record nothing, as if this worker had died."""
        self._is_dropped = True
        for performing in list(self._in_flight):
            performing.cancel()

    # --- activities ------------------------------------------------------------------------------

    @activity.defn(dynamic=True)
    async def move(self, arguments: Sequence[RawValue]) -> Answer:
        """Perform one move; the activity is named after its step."""
        task: ActivityInput = activity.payload_converter().from_payload(
            arguments[0].payload, ActivityInput
        )
        return await self._run(self._move(task))

    @activity.defn(name=LOAD)
    async def load(self, task: ActivityInput) -> Answer:
        """Read the operation, and claim it if this run has not claimed it yet."""
        return await self._run(self._load(task))

    @activity.defn(name=CANCEL)
    async def cancel(self, task: ActivityInput) -> Answer:
        """Record a cancel that was requested in Temporal, as if it was requested from us."""
        return await self._run(self._cancel(task))

    @activity.defn(name=REST)
    async def rest(self, task: ActivityInput) -> Answer:
        """Release a stuck operation; a new run starts when its retry is due."""
        return await self._run(self._rest(task))

    async def _run(self, performing: Coroutine[Any, Any, Answer]) -> Answer:
        """Send heartbeats while it runs; convert its errors to ones of a size Temporal accepts."""
        heartbeat = Heartbeat()
        try:
            return await performing
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except (PlanUnknown, OperationUnknown) as error:
            raise self._retry_elsewhere(error) from None
        except Exception as error:
            log.exception("an activity was stopped by a defect or a store error; retrying")
            raise _application_error(error) from None
        except BaseException as error:  # noqa: BLE001 (the store failed)
            self._on_failure(error)
            raise _application_error(error) from None
        finally:
            heartbeat.stop()

    def _retry_elsewhere(self, error: Exception) -> ApplicationError:
        """Make Temporal retry soon: a worker of another release or of the right plane may succeed.

        The number of this attempt in a heartbeat says that no attempt has called a provider.
        """
        if str(error) not in self._logged_unknown:
            if len(self._logged_unknown) == UNKNOWN_LOGGED_MAX:
                self._logged_unknown.clear()
            self._logged_unknown.add(str(error))
            log.warning("%s; retrying until another worker takes it", error)
        if _nothing_was_called():
            activity.heartbeat(activity.info().attempt)
        benign = ApplicationErrorCategory.BENIGN  # Temporal's library does not log it again
        delay = unknown_delay(activity.info().attempt)
        return _application_error(error, next_retry_delay=delay, category=benign)

    # --- implementations -------------------------------------------------------------------------

    async def _move(self, task: ActivityInput) -> Answer:
        handle: Handle | None
        cached = self._cache.take(task.operation, task.token, task.cache_key)
        cached = cached if _nothing_was_called() else None
        try:
            if task.token == 0:  # of two concurrent claims the second gets StaleToken
                handle = await self._claims.begin(task.operation, cached)
                move = None if handle is None else self._current_move(handle, task.step)
            else:
                handle = cached
                move = None if handle is None else self._requested_move(handle, task)
                if handle is None or move is None:  # a cached "no" may be stale: read it
                    handle, move = await self._load_with_move(task)
            if handle is not None and move is not None:
                await self._perform(handle, move)
        except StaleToken:
            return await self._answer_after_lease_lost(task)
        if handle is None:
            return await self._answer_ended(task)
        status = "" if move is None else first_line(handle.describe_step(task.step))
        return replace(self._answer_with_moves(handle), step_status=status)

    async def _load_with_move(self, task: ActivityInput) -> tuple[Handle | None, Move | None]:
        """The stored operation, and the requested move if it still has to be performed."""
        handle = await self._executor.load(task.operation, task.token)
        if handle is None or _nothing_was_called():
            return handle, None if handle is None else self._requested_move(handle, task)
        if self._current_move(handle, task.step) is None:
            return handle, None
        token = task.fence + activity.info().attempt - 1
        handle = await self._claims.raise_token(handle, task.step, token)
        return handle, None if handle is None else self._current_move(handle, task.step)

    def _requested_move(self, handle: Handle, task: ActivityInput) -> Move | None:
        """The requested move, if it is still the current one; else None."""
        move = self._current_move(handle, task.step)
        same = move and move.act == task.act and handle.token_of(task.step) == task.fence
        return move if same else None

    def _current_move(self, handle: Handle, step: str) -> Move | None:
        """The current move of this step, if it has one."""
        return next((m for m in self._executor.moves(handle).due if m.step.name == step), None)

    async def _perform(self, handle: Handle, move: Move) -> None:
        """Perform the move; a cancel of the activity interrupts the call and awaits its end."""
        performing = asyncio.ensure_future(self._executor.perform(handle, move))
        self._in_flight[performing] = handle
        try:
            while not performing.done():
                try:
                    await asyncio.wait([performing])  # sorted: there is but one
                except asyncio.CancelledError:
                    details = activity.cancellation_details()
                    if details is None or not details.cancel_requested:
                        raise  # the run is gone or this worker stops: end like a dead worker
                    self._executor.interrupt(handle)
            if self._is_dropped and performing.cancelled():
                raise ApplicationError("this worker stops", type="WorkerStops")
            performing.result()
        finally:
            del self._in_flight[performing]
            if not performing.done():
                await cancel_and_wait(performing)

    async def _load(self, task: ActivityInput) -> Answer:
        try:
            handle: Handle | None = None
            if task.token:
                handle = await self._executor.load(task.operation, task.token)
            if task.token == 0 or (handle is not None and handle.worker == self._idle_worker):
                handle = await self._claims.take_over(task.operation)
        except StaleToken:
            return await self._answer_claimed_by_other(task)
        return await self._answer_ended(task) if handle is None else self._answer_with_moves(handle)

    async def _cancel(self, task: ActivityInput) -> Answer:
        interrupt = False
        try:
            await self._claims.cancel(task.operation)
            interrupt = True
        except CallerError as error:
            log.info("operation %s is not cancelled: %s", task.operation, error)
        except StaleToken:  # the store has no such operation
            raise OperationUnknown(task.operation) from None
        return replace(await self._load(task), interrupt=interrupt)

    async def _rest(self, task: ActivityInput) -> Answer:
        try:
            handle = await self._executor.load(task.operation, task.token)
        except StaleToken:
            return await self._answer_after_lease_lost(task)
        if handle is None:
            return await self._answer_ended(task)
        answer = self._answer_with_moves(handle)
        is_idle = handle.state is OperationState.STUCK and not answer.moves
        # An earlier attempt may have released it and lost its reply.
        if is_idle and (
            handle.worker == self._idle_worker or await self._claims.release_idle(handle)
        ):
            reason = first_line(f"{self._describe_rest(handle)}: {handle.error}")
            return Answer(handle.state, handle.token, handle.revision, ends_run=True, reason=reason)
        return answer

    def _describe_rest(self, handle: Handle) -> str:
        """Until when a stuck operation rests."""
        at = self._executor.moves(handle).wake_at
        if at is None:
            return "rests until an operator acts"
        until = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        return f"rests until {until}, when a new run follows"

    async def _answer_after_lease_lost(self, task: ActivityInput) -> Answer:
        """Reload or end the run: another worker has claimed the operation or one of its steps."""
        if task.token == 0:
            await self._get_row(task)
            return Answer("", 0, must_reload=True)
        try:
            handle = await self._executor.load(task.operation, task.token)
        except StaleToken:
            return await self._answer_claimed_by_other(task)
        return await self._answer_ended(task) if handle is None else self._answer_with_moves(handle)

    async def _answer_claimed_by_other(self, task: ActivityInput) -> Answer:
        """The answer for an operation that another run has claimed."""
        await self._get_row(task)
        log.info("operation %s: another run has claimed it", task.operation)
        return Answer("", task.token, ends_run=True)

    async def _answer_ended(self, task: ActivityInput) -> Answer:
        row = await self._get_row(task)
        state = OperationState(str(row.state))
        self._on_settled(task.operation, state)
        reason = first_line(str(row.error or ""))
        return Answer(state, task.token, int(str(row.revision)), ends_run=True, reason=reason)

    async def _get_row(self, task: ActivityInput) -> OperationRecord:
        """The operation's row; OperationUnknown if this store has none."""
        row = await self._store.find(OperationRecord, (task.operation,))
        if row is None:
            raise OperationUnknown(task.operation)
        return row

    def _answer_with_moves(self, handle: Handle) -> Answer:
        """The operation's current moves, and the time of its next ones."""
        answer = answer_of(self._executor, handle, self._store.now())
        if handle.state in ENDED_OR_STUCK:
            self._on_settled(handle.id, handle.state)
        elif answer.moves:
            answer = replace(answer, cache_key=_make_cache_key())
            self._cache.put(handle, answer.cache_key)
        return answer


def _make_cache_key() -> str:
    """A key of this attempt alone: the answer of another attempt has another key."""
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}"


def unknown_delay(attempt: int) -> timedelta:
    """Time until the next attempt: ten within five seconds, then less and less often."""
    return timedelta(seconds=TEMPORAL_UNKNOWN_PLAN.delay_seconds(attempt - 1))


def _nothing_was_called() -> bool:
    """Whether no earlier attempt of this activity can have called a provider.

    Such an attempt leaves its own number as heartbeat details, and Temporal keeps the last only.
    """
    info = activity.info()
    return info.attempt == 1 or list(info.heartbeat_details) == [info.attempt - 1]


def _application_error(error: BaseException, **options: Any) -> ApplicationError:
    """A bounded copy for Temporal: a larger error would be lost and never retried."""
    text = str(error)[:ERROR_CHARACTERS_MAX]
    return ApplicationError(text, type=type(error).__name__, **options)


def answer_of(executor: MoveExecutor[Handle], handle: Handle, now: float) -> Answer:
    """Convert the saga's decision on this operation to an answer."""
    moves = executor.moves(handle)
    wait_seconds, moves_after_wait = None, []
    if moves.wake_at is not None:
        wait_seconds = max(0.0, moves.wake_at - now)
        moves_after_wait = _due_moves(handle, executor.moves(handle, moves.wake_at).due)
    return Answer(
        handle.state,
        handle.token,
        handle.revision,
        _due_moves(handle, moves.due),
        wait_seconds,
        moves_after_wait,
        ends_run=handle.state in ENDED_OR_STUCK and handle.state is not OperationState.STUCK,
        reason=first_line(handle.error),
    )


def first_line(text: str) -> str:
    """The first line, truncated: all that Temporal gets of a provider's message."""
    first = text.strip().partition("\n")[0]
    is_short = len(first) <= SUMMARY_CHARACTERS_MAX
    return first if is_short else f"{first[:SUMMARY_CHARACTERS_MAX]}…"


def _due_moves(handle: Handle, moves: Sequence[Move]) -> list[DueMove]:
    return [DueMove(m.step.name, m.act, handle.token_of(m.step.name)) for m in moves]


class Heartbeat:
    """Sends heartbeats of the current activity until it is stopped."""

    def __init__(self) -> None:
        """The first heartbeat is sent after one interval: most activities have ended by then."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        activity.heartbeat()
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._timer.cancel()
