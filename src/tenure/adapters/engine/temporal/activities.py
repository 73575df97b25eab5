"""What a worker does for the workflow: perform one move, then say what there is to do next.

An activity returns how a step ended and never raises it, so Temporal retries only what was lost:
a worker that died, a store that could not be reached.  A second attempt first raises the token of
the step's intent, so that the first can record nothing more, and then asks the provider before it
repeats anything; but not after a worker of another release or plane, which has said that it called
nobody.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from tenure.adapters.engine.temporal.messages import CANCEL, LOAD, REST, Answer, Due, Task
from tenure.adapters.engine.temporal.sticky_cache import StickyCache
from tenure.concurrency import cancel_and_wait
from tenure.core.errors import CallerError, LeaseLost, PlanUnknown
from tenure.core.moves import Move
from tenure.core.operation import SETTLED, OperationState
from tenure.core.records import OperationRecord
from tenure.core.retry import TEMPORAL_UNKNOWN_PLAN
from tenure.ports.engine import Claims, L, MoveExecutor
from tenure.ports.store import Store

log = logging.getLogger("tenure.engine")
WORDS_MAX = 2_000
"""Characters of an error that Temporal is told; the log has all of it."""
LINE_MAX = 200
"""Characters of a provider's words that stand in an answer; the journal has the rest."""
BEAT_SECONDS = 1.0
"""Between two heartbeats; a cancel from afar arrives with the next one."""
SAID_MAX = 1_000
"""How much that is unknown is remembered as said."""


class OperationUnknown(Exception):
    """An operation that is not in the store of this plane."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"operation {operation} is not in the store of this plane: either another plane's"
            " workers share this task queue (give each its own: --temporal-queue), or the store"
            " has lost it (then terminate its workflow)"
        )


class Activities(Generic[L]):
    """The activities of one engine."""

    def __init__(
        self,
        work: MoveExecutor[L],
        claims: Claims[L],
        *,
        store: Store,
        resting: str,
        monotonic: Callable[[], float],
        tell: Callable[[str, OperationState], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`tell` hears of operations that ended or got stuck, `fail` of a store that failed."""
        self._work = work
        self._claims = claims
        self._store = store
        self._resting = resting
        self._tell = tell
        self._fail = fail
        self._out: dict[asyncio.Future[None], L] = {}
        """Moves that are being performed here."""
        self._cache: StickyCache[L] = StickyCache(monotonic)
        self._unknown: set[str] = set()
        """What was said to be unknown here; once each is enough."""
        self._dropped = False

    def all(self) -> list[Callable[..., object]]:
        """What a worker registers."""
        return [self.move, self.load, self.cancel, self.rest]

    def keep(self, live: L) -> None:
        """Its first move, if it comes here, need not read it."""
        self._cache.keep(live, "")

    def forget(self, operation: str) -> None:
        """Something was recorded for it: its next move reads it."""
        self._cache.forget(operation)

    def interrupt(self, operation: str) -> None:
        """Stop the calls of its do's that are under way here."""
        for live in [live for live in self._out.values() if live.id == operation]:
            self._work.interrupt(live)

    def drop(self) -> None:
        """Leave every move where it is, as if this worker had died."""
        self._dropped = True
        for performing in list(self._out):
            performing.cancel()

    # --- activities ------------------------------------------------------------------------------

    @activity.defn(dynamic=True)
    async def move(self, arguments: Sequence[RawValue]) -> Answer:
        """Perform one move; the activity is named after its step."""
        task: Task = activity.payload_converter().from_payload(arguments[0].payload, Task)
        return await self._answered(self._move(task))

    @activity.defn(name=LOAD)
    async def load(self, task: Task) -> Answer:
        """Read the operation, and claim it if this run does not hold it yet."""
        return await self._answered(self._load(task))

    @activity.defn(name=CANCEL)
    async def cancel(self, task: Task) -> Answer:
        """Record a cancel that was asked of Temporal, as if it had been asked of us."""
        return await self._answered(self._cancel(task))

    @activity.defn(name=REST)
    async def rest(self, task: Task) -> Answer:
        """Let go of an operation that is stuck: a new run comes when its retry is due."""
        return await self._answered(self._rest(task))

    async def _answered(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        """Let nothing pass that Temporal could not carry; say meanwhile that this worker lives."""
        beat = Heartbeat()
        try:
            return await asked
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except (PlanUnknown, OperationUnknown) as error:
            raise self._left_to_others(error) from None
        except Exception as error:
            log.exception("an operation was stopped by a defect or its store; retrying")
            raise _application_error(error) from None
        except BaseException as error:  # noqa: BLE001 (the store failed)
            self._fail(error)
            raise _application_error(error) from None
        finally:
            beat.stop()

    def _left_to_others(self, error: Exception) -> ApplicationError:
        """A worker of another release, or of its own plane, may know how, and gets it soon.

        It is told that nobody was called so far.
        """
        if str(error) not in self._unknown:
            if len(self._unknown) == SAID_MAX:
                self._unknown.clear()
            self._unknown.add(str(error))
            log.warning("%s; retrying until another worker takes it", error)
        if _is_first():
            activity.heartbeat(activity.info().attempt)
        benign = ApplicationErrorCategory.BENIGN  # Temporal's library need not log it once more
        delay = unknown_delay(activity.info().attempt)
        return _application_error(error, next_retry_delay=delay, category=benign)

    # --- how -------------------------------------------------------------------------------------

    async def _move(self, task: Task) -> Answer:
        live: L | None
        kept = self._cache.take(task.operation, task.token, task.ticket)
        kept = kept if _is_first() else None
        try:
            if task.token == 0:  # whoever comes second is turned away
                live = await self._claims.begin(task.operation, kept)
                move = None if live is None else self._current_move(live, task.step)
            else:
                live = kept
                move = None if live is None else self._requested_move(live, task)
                if live is None or move is None:  # what is kept may say yes, and never no
                    live, move = await self._found(task)
            if live is not None and move is not None:
                await self._perform(live, move)
        except LeaseLost:
            return await self._lost(task)
        if live is None:
            return await self._answer_ended(task)
        said = "" if move is None else first_line(live.describe_step(task.step))
        return replace(self._answer_with_moves(live), said=said)

    async def _found(self, task: Task) -> tuple[L | None, Move | None]:
        """The operation as it stands, and the move if it is still to be performed."""
        live = await self._work.load(task.operation, task.token)
        if live is None or _is_first():
            return live, None if live is None else self._requested_move(live, task)
        if self._current_move(live, task.step) is None:
            return live, None
        token = task.fence + activity.info().attempt - 1
        live = await self._claims.raise_token(live, task.step, token)
        return live, None if live is None else self._current_move(live, task.step)

    def _requested_move(self, live: L, task: Task) -> Move | None:
        """The requested move, if it is still the current one; else None."""
        move = self._current_move(live, task.step)
        same = move and move.act == task.act and live.token_of(task.step) == task.fence
        return move if same else None

    def _current_move(self, live: L, step: str) -> Move | None:
        """The current move of this step, if it has one."""
        return next((m for m in self._work.moves(live).now if m.step.name == step), None)

    async def _perform(self, live: L, move: Move) -> None:
        """Perform it; a cancel of the activity interrupts the call and still awaits its end."""
        performing = asyncio.ensure_future(self._work.perform(live, move))
        self._out[performing] = live
        try:
            while not performing.done():
                try:
                    await asyncio.wait([performing])  # sorted: there is but one
                except asyncio.CancelledError:
                    details = activity.cancellation_details()
                    if details is None or not details.cancel_requested:
                        raise  # the run is gone, or this worker stops: as if it had died
                    self._work.interrupt(live)
            if self._dropped and performing.cancelled():
                raise ApplicationError("this worker stops", type="WorkerStops")
            performing.result()
        finally:
            del self._out[performing]
            if not performing.done():
                await cancel_and_wait(performing)

    async def _load(self, task: Task) -> Answer:
        try:
            live: L | None = None
            if task.token:
                live = await self._work.load(task.operation, task.token)
            if task.token == 0 or (live is not None and live.worker == self._resting):
                live = await self._claims.take_over(task.operation)
        except LeaseLost:
            return await self._answer_lost(task)
        return await self._answer_ended(task) if live is None else self._answer_with_moves(live)

    async def _cancel(self, task: Task) -> Answer:
        interrupt = False
        try:
            await self._claims.cancel(task.operation)
            interrupt = True
        except CallerError as error:
            log.info("operation %s is not cancelled: %s", task.operation, error)
        except LeaseLost:  # it is not there
            raise OperationUnknown(task.operation) from None
        answer = await self._load(task)
        return Answer(**{**vars(answer), "interrupt": interrupt})

    async def _rest(self, task: Task) -> Answer:
        try:
            live = await self._work.load(task.operation, task.token)
        except LeaseLost:
            return await self._lost(task)
        if live is None:
            return await self._answer_ended(task)
        answer = self._answer_with_moves(live)
        # An earlier attempt may have put it to rest and lost its reply.
        idle = live.state is OperationState.STUCK and not answer.moves
        if idle and (live.worker == self._resting or await self._claims.rest(live)):
            why = first_line(f"{self._rests(live)}: {live.error}")
            return Answer(live.state, live.token, live.revision, over=True, why=why)
        return answer

    def _rests(self, live: L) -> str:
        """Until when nothing is done about one that is stuck."""
        at = self._work.moves(live).wake_at
        if at is None:
            return "rests until an operator acts"
        until = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        return f"rests until {until}, when a new run follows"

    async def _lost(self, task: Task) -> Answer:
        """Someone has taken the operation, or this step of it: read it again, or leave it."""
        if task.token == 0:
            await self._row(task)
            return Answer("", 0, look=True)
        try:
            live = await self._work.load(task.operation, task.token)
        except LeaseLost:
            return await self._answer_lost(task)
        return await self._answer_ended(task) if live is None else self._answer_with_moves(live)

    async def _answer_lost(self, task: Task) -> Answer:
        """The answer for an operation that another run has claimed."""
        await self._row(task)
        log.info("operation %s: another run has claimed it", task.operation)
        return Answer("", task.token, over=True)

    async def _answer_ended(self, task: Task) -> Answer:
        row = await self._row(task)
        state = OperationState(str(row.state))
        self._tell(task.operation, state)
        why = first_line(str(row.error or ""))
        return Answer(state, task.token, int(str(row.revision)), over=True, why=why)

    async def _row(self, task: Task) -> OperationRecord:
        """The operation's row; OperationUnknown if this store has none."""
        row = await self._store.find(OperationRecord, (task.operation,))
        if row is None:
            raise OperationUnknown(task.operation)
        return row

    def _answer_with_moves(self, live: L) -> Answer:
        """The moves of an operation now, and the time of its next ones."""
        answer = answer_of(self._work, live, self._store.now())
        if live.state in SETTLED:
            self._tell(live.id, live.state)
        elif answer.moves:
            answer = replace(answer, ticket=_cache_key())
            self._cache.keep(live, answer.ticket)
        return answer


def _cache_key() -> str:
    """This attempt's own: if another is made meanwhile, that one's answer counts."""
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}"


def unknown_delay(attempt: int) -> timedelta:
    """Ten times within five seconds, then ever more seldom: perhaps no newer one will come."""
    return timedelta(seconds=TEMPORAL_UNKNOWN_PLAN.delay_seconds(attempt - 1))


def _is_first() -> bool:
    """Whether no attempt before this one can have called anybody.

    Each that knows that has left its number, and only the last one's is there.
    """
    info = activity.info()
    return info.attempt == 1 or list(info.heartbeat_details) == [info.attempt - 1]


def _application_error(error: BaseException, **more: Any) -> ApplicationError:
    """As Temporal can carry it: what is larger than it takes would be lost, and never retried."""
    return ApplicationError(str(error)[:WORDS_MAX], type=type(error).__name__, **more)


def answer_of(work: MoveExecutor[L], live: L, now: float) -> Answer:
    """What the saga says of this operation, as the workflow is told."""
    moves = work.moves(live)
    wait, then = None, []
    if moves.wake_at is not None:
        wait = max(0.0, moves.wake_at - now)
        then = _due(live, work.moves(live, moves.wake_at).now)
    over = live.state in SETTLED and live.state is not OperationState.STUCK
    return Answer(
        live.state,
        live.token,
        live.revision,
        _due(live, moves.now),
        wait,
        then,
        over=over,
        why=first_line(live.error),
    )


def first_line(words: str) -> str:
    """What Temporal is told of the words of others: the first line, cut."""
    first = words.strip().partition("\n")[0]
    return first if len(first) <= LINE_MAX else f"{first[:LINE_MAX]}…"


def _due(live: L, moves: Sequence[Move]) -> list[Due]:
    return [Due(m.step.name, m.act, live.token_of(m.step.name)) for m in moves]


class Heartbeat:
    """Tells the server again and again that this worker lives, until it is stopped."""

    def __init__(self) -> None:
        """The first beat comes after a second: most calls are over by then."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        activity.heartbeat()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """No more."""
        self._timer.cancel()
