"""Performs one move of one operation and writes its outcome to the journal.

Every create, delete and recovery passes through here: an engine calls `perform` for each move.
After a crash between the call and its entry, the outcome is unknown: the step is inspected first,
or repeated if its plan says so.  The commit of an entry is guarded by the token of the step's
intent and by the operation's revision.  If only the revision has changed, the executor reads the
operation and decides again.  If the token has changed, another worker performs the step now: the
executor stops with StaleToken and writes nothing.  `tenure.core.saga` decides what is written.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from math import isfinite
from typing import TypeVar, cast

from tenure.app.operations.call_limits import CallLimits
from tenure.app.operations.entry_change import PendingChange, build_outcome
from tenure.app.operations.handle import CallTasks, OperationHandle, load_handle, stored_input_of
from tenure.app.operations.tombstones import renew_tombstones
from tenure.core import saga
from tenure.core.endings import Absent, Done, Ending, NotYet, PerformedMove, Waiting, error_text
from tenure.core.errors import (
    Invalid,
    LimitExceeded,
    OutcomeUnknown,
    ProviderError,
    Rejected,
    StaleToken,
    StoreClosed,
    StoreError,
    Unavailable,
)
from tenure.core.moves import COUNT_UNDONE, DECLARE_STUCK, DO, UNDO, Move, Moves
from tenure.core.plan import Step, StepFunction
from tenure.core.progress import Signals
from tenure.core.records.operation import OperationRecord
from tenure.plans.catalogue import Catalogue
from tenure.ports.entropy import Entropy
from tenure.ports.provider import NO_PLANE, Call, Provider
from tenure.ports.store import Key, Store

STORE_RETRY_SECONDS = 1.0
"""The time between attempts to write an outcome while the store fails."""
_NO_TOMBSTONES: frozenset[Key] = frozenset()
"""No tombstone is known to exist already."""
T = TypeVar("T")
log = logging.getLogger("tenure.steps")
Observe = Callable[[PerformedMove], None]


class Executor:
    """Performs the moves of operations, one call at a time, for an engine that decides when."""

    def __init__(
        self,
        plane_id: str,
        *,
        store: Store,
        entropy: Entropy,
        catalogue: Catalogue,
        providers: Mapping[str, Provider],
        api: object = NO_PLANE,
        observe: Observe | None = None,
    ) -> None:
        """Perform these plans on these providers and record in this store.

        Steps reach the control plane itself by `api`.  `observe` is called with every move that was
        performed; it may not raise.
        """
        self._observe = observe
        self._plane_id = plane_id
        self._store, self._now = store, store.now
        self._entropy = entropy
        self._catalogue = catalogue
        self._providers = providers
        self._api = api
        self._limits = CallLimits()

    async def load(self, operation_id: str, token: int) -> OperationHandle | None:
        """Read an operation; None if it has ended.  StaleToken if this token no longer holds it."""
        handle = await _retry_read(
            lambda: load_handle(self._store, self._catalogue, self._plane_id, operation_id)
        )
        if handle is None or handle.token != token:
            raise StaleToken(operation_id)
        return None if handle.progress.end is not None else handle

    def name_of(self, operation: OperationRecord) -> str:
        """What people call the thing that this operation acts on; empty: it has no name."""
        return self._catalogue.subject_of(operation.plan_name).name_of(stored_input_of(operation))

    async def refresh(self, handle: OperationHandle) -> None:
        """Read the operation again in place, after something else was recorded for it."""
        loaded = await _retry_read(lambda: self._store.load(handle.id))
        if loaded is None or loaded.operation.token != handle.token:
            raise StaleToken(handle.id)
        handle.update(loaded.operation)
        handle.merge(loaded.intents, handle.fold(loaded.journal))

    def moves(self, handle: OperationHandle, at: float | None = None) -> Moves:
        """The moves to perform now, or at `at` if nothing else happens until then."""
        plan, progress, intents = handle.plan, handle.progress, handle.intents
        only_move = saga.sole_due_move(plan, progress, intents)
        if only_move is not None:
            return only_move
        return saga.next_moves(plan, progress, intents, self._now() if at is None else at)

    def perform(
        self, handle: OperationHandle, move: Move, task: asyncio.Task[None] | None = None
    ) -> Coroutine[None, None, None]:
        """Perform one move and write its outcome; the step counts as busy from this call on."""
        handle.intents[move.step.name].busy = True
        if (
            handle.progress.stuck and handle.entry_mutex is None
        ):  # older undos go on beside a stuck one
            handle.entry_mutex = asyncio.Lock()
        return self._perform(handle, move, task)

    async def _perform(
        self, handle: OperationHandle, move: Move, task: asyncio.Task[None] | None
    ) -> None:
        """Call the step, then write its outcome; decide again if the commit is refused.

        StaleToken if the step's token was raised meanwhile: another worker performs it now.
        """
        (act, step), started_at = move, self._now()
        signals = handle.progress.signals  # those that the call can see
        ending: object = None
        lock: asyncio.Lock | None = None
        try:
            if act is not DECLARE_STUCK and act is not COUNT_UNDONE:  # those are decisions: no call
                ending = await self._call(handle, move, task or _this_task(), started_at)
            end = ending if type(ending) is Done else _check_ending(ending, step.name)
            if handle.entry_mutex is not None:  # several moves of it may end at the same time
                lock = await _acquire(handle.entry_mutex)
            if self._observe is not None:
                self._report(handle, move, end, started_at)
            token, existing_tombstones = handle.intents[step.name].token, _NO_TOMBSTONES
            while saga.is_relevant(handle.progress, move, end):
                pending = self._build_change(handle, move, end, started_at, signals)
                if not isinstance(pending, PendingChange):
                    end = pending
                    continue
                try:
                    change = renew_tombstones(pending.change, existing_tombstones)
                    refusal = await self._store.commit(change)
                except StoreClosed:
                    raise
                except StoreError:  # only this process knows how its calls have ended
                    await asyncio.sleep(STORE_RETRY_SECONDS)
                    continue
                if refusal is None:
                    pending.apply_to(handle)
                    return
                if refusal.what.table == "tombstone":
                    existing_tombstones ^= {
                        cast(Key, refusal.what.key)
                    }  # it exists already, or is gone again
                else:
                    await self._read_again(handle, step, token)
        finally:
            handle.intents[step.name].busy = False
            if lock is not None:
                lock.release()

    async def _read_again(self, handle: OperationHandle, step: Step, token: int) -> None:
        """Read what another worker has recorded; StaleToken if the step is no longer ours."""
        await self.refresh(handle)
        if handle.intents[step.name].token != token:
            raise StaleToken(handle.id)

    async def _call(
        self, handle: OperationHandle, move: Move, task: "asyncio.Task[None]", started_at: float
    ) -> object:
        """Call the step and return its ending; an unexpected exception is OutcomeUnknown."""
        act, step = move
        ending: object
        cancelled = False
        call = self._begin(handle, move, task, started_at)
        try:
            ending = await (step.do if act is DO else _function(move))(call)
        except ProviderError as error:
            ending = error.with_traceback(None)  # it refers to this frame, which would be a cycle
        except asyncio.CancelledError:
            cancelled = task.cancelling() > 0
            ending = OutcomeUnknown("the step was cancelled from within")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 (the call may have been applied)
            ending = OutcomeUnknown(f"{type(error).__name__}: {error_text(error)}")
            _log_exception(handle, move, error, error_text(ending))
        finally:
            why = self._end(handle, move, task)
        if why:
            cancelled = task.uncancel() > 0  # something else stops this task as well
            ending = OutcomeUnknown(why)
        if cancelled:
            raise asyncio.CancelledError
        return ending

    def _build_change(
        self, handle: OperationHandle, move: Move, end: Ending, started_at: float, signals: Signals
    ) -> PendingChange | OutcomeUnknown:
        """The change that records this end; OutcomeUnknown if its result cannot be stored."""
        now, step = self._now(), move.step
        outcome = saga.decide_outcome(
            handle.progress,
            handle.intents[step.name],
            move,
            end,
            started_at=started_at,
            now=now,
            jitter=0.0 if type(end) is Done else self._entropy.fraction(),
            signals=signals,
        )
        try:
            return build_outcome(handle, step, outcome, now)
        except (Invalid, LimitExceeded) as error:
            return OutcomeUnknown(str(error))

    def _report(self, handle: OperationHandle, move: Move, end: Ending, started_at: float) -> None:
        """Report the move to metrics and traces."""
        attempt = handle.intents[move.step.name].attempts
        names = handle.id, handle.tenant, handle.agent, handle.plan_name, move.step.name, move.act
        observe = cast(Observe, self._observe)
        observe(PerformedMove(*names, end, attempt, started_at, self._now()))

    def _begin(
        self, handle: OperationHandle, move: Move, task: "asyncio.Task[None]", started_at: float
    ) -> Call:
        """Start a call: from here on the outcome of a do is unknown until it has ended."""
        (act, step), progress = move, handle.progress
        intent = handle.intents[step.name]
        if act is DO and intent.unknown_since is None:
            intent.unknown_since = started_at
        if act is not UNDO:
            handle.calls = (*handle.calls, task)
        self._limits.begin(task, step.limits.call_seconds)
        return Call(
            handle.key_of(step),
            handle.input,
            progress.done,
            progress.signals,
            self._providers,
            intent.token,
            intent.attempts,
            handle.id,
            started_at,
            progress.stage_since,
            self._api,
        )

    def _end(self, handle: OperationHandle, move: Move, task: "asyncio.Task[None]") -> str:
        """End a call; returns why it was stopped, or an empty string."""
        act, step = move
        if act is not UNDO:
            handle.calls = () if len(handle.calls) == 1 else _without(handle.calls, task)
        return self._limits.end(task, step.limits.call_seconds)

    def interrupt(self, handle: OperationHandle) -> None:
        """Stop the running calls of its do's; their outcome is then unknown."""
        for task in handle.calls:
            self._limits.stop(task, "the call was interrupted by a cancel")

    def ignores_cancellation(self, task: "asyncio.Task[None]") -> bool:
        """Whether the call in this task still runs, although it was stopped a while ago."""
        return self._limits.ignores_cancellation(task)


def _this_task() -> "asyncio.Task[None]":
    return cast("asyncio.Task[None]", asyncio.current_task())


async def _acquire(lock: asyncio.Lock) -> asyncio.Lock:
    await lock.acquire()
    return lock


async def _retry_read(read: Callable[[], Awaitable[T]]) -> T:
    """Read, and try again while the store fails."""
    while True:
        try:
            return await read()
        except StoreClosed:
            raise
        except StoreError:
            await asyncio.sleep(STORE_RETRY_SECONDS)


def _function(move: Move) -> StepFunction:
    """The function of an undo or an inspect; a plan that lacks it was refused."""
    act, step = move
    return cast(StepFunction, step.undo if act is UNDO else step.inspect)


def _without(calls: CallTasks, task: "asyncio.Task[None]") -> CallTasks:
    return tuple(other for other in calls if other is not task)


def _log_exception(handle: OperationHandle, move: Move, error: BaseException, message: str) -> None:
    """Log an exception that no step should raise, unless the previous call raised the same.

    The line has no message of the exception, which may contain secrets: the step's detail has it.
    """
    act, step = move
    if handle.intents[step.name].detail == message:
        return
    fields = {
        "operation": handle.id, "tenant": handle.tenant, "agent": handle.agent,
        "plan": handle.plan_name, "step": step.name, "act": act,
    }  # fmt: skip
    frames = "".join(traceback.format_tb(error.__traceback__)[1:]).rstrip()  # without our own
    names = step.name, act, handle.id, type(error).__name__, frames
    log.warning("%s.%s of operation %s raised %s\n%s", *names, extra=fields)


def _check_ending(ending: object, step: str) -> Ending:
    """What a step returned or raised, as an ending; None means Done."""
    match ending:
        case None:
            return Done()
        case Done() | Absent() | Rejected() | Unavailable() | OutcomeUnknown():
            return ending
        case NotYet(seconds, str()) if type(seconds) in {int, float} and isfinite(seconds):
            return ending
        case Waiting(str() as signal, str()) if signal.isprintable() and signal:
            return ending
        case ProviderError():
            return OutcomeUnknown(error_text(ending))
        case NotYet() | Waiting():
            return OutcomeUnknown(f"step {step} returned {ending!a}, which makes no sense")
        case _:
            kind = type(ending).__name__
            article = "an" if kind[0] in "aeiouAEIOU" else "a"
            return OutcomeUnknown(
                f"step {step} returned {article} {kind}; return tenure.Done(value), NotYet, Waiting"
                " or None"
            )
