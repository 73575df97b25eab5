"""How each safeguard is taken out of the real code: patches that last as long as a `with`.

`proofs.operations.ablations` says what each is for.  Nothing of the product imports this, and no
setting of it reaches what is done here.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as renew

from proofs.operations.store_mutations import without_guards
from tenure.app.operations import admission, executor, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.executor import Executor
from tenure.app.operations.handle import OperationHandle
from tenure.core import saga
from tenure.core.endings import Absent, Done, Ending, NotYet
from tenure.core.errors import OutcomeUnknown, Rejected
from tenure.core.moves import Act, Move, Moves
from tenure.core.operation import EntryKind
from tenure.core.plan import StepKind
from tenure.core.progress import Progress
from tenure.core.roles import Caller
from tenure.core.saga import MoveOutcome
from tenure.ports.store import Is, Set
from tenure.testing.patches import Off, patched

# --- the saga -----------------------------------------------------------------------------------

Ended = Callable[[Move, Ending], tuple[Move, Ending]]


def with_steps_to_undo(choose: Callable[[Progress, list[Any]], list[Any]]) -> Off:
    """Choose otherwise what compensation covers."""
    real = saga.steps_to_undo

    def steps_to_undo(plan: Any, progress: Progress) -> Iterator[Any]:
        return iter(choose(progress, list(real(plan, progress))))

    return lambda: patched(saga, steps_to_undo=steps_to_undo)


def moves(change: Callable[[Progress, Move], Move]) -> Off:
    """Perform something else than the saga says."""
    real = saga.next_moves

    def next_moves(plan: Any, progress: Progress, intents: Any, now: float) -> Moves:
        moves = real(plan, progress, intents, now)
        return moves._replace(due=tuple(change(progress, move) for move in moves.due))

    return lambda: patched(saga, next_moves=next_moves, sole_due_move=nothing_straight)


def nothing_straight(*_: Any) -> None:
    """Every move is asked for: none is known beforehand."""


def decide_outcome(
    before: Ended | None = None, after: Callable[[Move, MoveOutcome], MoveOutcome] | None = None
) -> Off:
    """Take an end for another one, or write something else than the saga says."""
    real = saga.decide_outcome

    def decide_outcome(
        progress: Any, intent: Any, move: Move, ending: Ending, **given: Any
    ) -> MoveOutcome:
        if before is not None:
            move, ending = before(move, ending)
        outcome = real(progress, intent, move, ending, **given)
        return outcome if after is None else after(move, outcome)

    return lambda: patched(saga, decide_outcome=decide_outcome)


def repeat_unasked(_: Progress, move: Move) -> Move:
    """Repeat a call instead of asking about it."""
    return move._replace(act=Act.DO) if move.act is Act.INSPECT else move


def repeat_unknown(progress: Progress, move: Move) -> Move:
    """Repeat what nobody can ask about."""
    forward = progress.compensating_at is None
    return move._replace(act=Act.DO) if move.act is Act.DECLARE_STUCK and forward else move


def timeout_is_refusal(move: Move, ending: Ending) -> tuple[Move, Ending]:
    """Take a call without an answer for a refused one."""
    unknown = move.act is Act.DO and isinstance(ending, OutcomeUnknown)
    return move, Rejected(str(ending)) if unknown else ending


def refused_though_called() -> AbstractContextManager[None]:
    """Take a pivot's refusal for the last word, also while an earlier call may still arrive."""
    return patched(saga, earlier_call_may_arrive=lambda *_: False)


@contextmanager
def look_taken_for_call() -> Iterator[None]:
    """Take a refused look for a refused call, and a refusal for the last word."""
    with refused_though_called(), decide_outcome(look_is_call)():
        yield


def look_is_call(move: Move, ending: Ending) -> tuple[Move, Ending]:
    """Take a refused look for a refused call."""
    refused = move.act is Act.INSPECT and isinstance(ending, Rejected)
    return (move._replace(act=Act.DO) if refused else move), ending


def undo_once(move: Move, ending: Ending) -> tuple[Move, Ending]:
    """Take a failed undo for done."""
    failed = move.act is Act.UNDO and not isinstance(ending, Done | Absent)
    return move, Done() if failed else ending


def at_once_visible(move: Move, ending: Ending) -> tuple[Move, Ending]:
    """Believe a provider at once that says absent."""
    limits = replace(move.step.limits, visible_seconds=0.0)
    return move._replace(step=replace(move.step, limits=limits)), ending


def say_nothing_of_stuck(move: Move, outcome: MoveOutcome) -> MoveOutcome:
    """Record nothing of an undo that keeps failing."""
    stuck = outcome.entry is not None and outcome.entry[0] is EntryKind.STUCK
    return outcome._replace(entry=None) if stuck and move.act is Act.UNDO else outcome


def forget_unknown(move: Move, outcome: MoveOutcome) -> MoveOutcome:
    """Give up without keeping since when the outcome is unknown."""
    if move.act is not Act.DECLARE_STUCK:
        return outcome
    return outcome._replace(intent={"due_at": None})


def unseen_signals() -> AbstractContextManager[None]:
    """Count a signal as seen by a call that it came during."""
    real = saga.decide_outcome

    def decide_outcome(progress: Progress, *given: Any, **named: Any) -> MoveOutcome:
        return real(progress, *given, **(named | {"signals": progress.signals}))

    return patched(saga, decide_outcome=decide_outcome)


def pivot_turned_back() -> AbstractContextManager[None]:
    """Compensate a pivot whose end is not known in time."""
    real = saga._overdue  # noqa: SLF001

    def overdue(step: Any, ending: Any, *, unknown: bool) -> Any:
        if step.kind is StepKind.PIVOT:
            why = f"{step.name} was not done in time"
            return EntryKind.COMPENSATING, {"why": why, "step": step.name}
        return real(step, ending, unknown=unknown)

    return patched(saga, _overdue=overdue)


def late_cancel() -> AbstractContextManager[None]:
    """Accept a cancel after the pivot is intended."""
    return patched(saga, pivot_begun=lambda _plan, _progress: False)


def undo_beside_do() -> AbstractContextManager[None]:
    """Undo a step while its do is under way."""
    real = saga.next_moves

    def next_moves(plan: Any, progress: Progress, intents: Any, now: float) -> Moves:
        if progress.compensating_at is not None:
            intents = {name: replace(intent, busy=False) for name, intent in intents.items()}
        return real(plan, progress, intents, now)

    return patched(saga, next_moves=next_moves, sole_due_move=nothing_straight)


# --- how it is performed -----------------------------------------------------------------------


def random_keys() -> AbstractContextManager[None]:
    """Address every call by a key of its own."""
    real = OperationHandle.key_of

    def key_of(self: OperationHandle, step: Any) -> Any:
        key = real(self, step)
        drawn = asyncio.get_running_loop().random.getrandbits(32)  # type: ignore[attr-defined]
        return key._replace(text=f"{key.text[:24]}{drawn:08x}")

    return patched(OperationHandle, key_of=key_of)


def performing(change: Callable[[Executor, OperationHandle, Move], Move]) -> Off:
    """Perform another move than the one that was decided."""
    real = Executor.perform

    def perform(self: Executor, handle: OperationHandle, move: Move, *args: Any) -> Any:
        return real(self, handle, change(self, handle, move), *args)

    return lambda: patched(Executor, perform=perform)


def look_no_more(self: Executor, handle: OperationHandle, move: Move) -> Move:
    """Past its deadline a step counts as not done, without a look."""

    async def overdue(_: Any) -> Ending:
        return NotYet()

    late = self._store.now() >= saga.deadline_of(handle.progress, move.step)
    if late and move.act in {Act.DO, Act.INSPECT} and move.step.kind is StepKind.COMPENSATABLE:
        step = replace(move.step, do=overdue, inspect=overdue)
        return Move(Act.DO, step)
    return move


def undo_at_once(_: Executor, handle: OperationHandle, move: Move) -> Move:
    """What a refusal turns back is undone first and recorded afterwards."""
    if move.act is not Act.DO:
        return move
    do = move.step.do

    async def hasty(call: Any) -> object:
        try:
            return await do(call)
        except Rejected:
            for name in reversed(list(handle.progress.done)):
                step = handle.plan.steps[name]
                if step.has_undo:
                    await step.undo(renew(call, key=handle.key_of(step)))  # type: ignore[misc, operator]
            raise

    return move._replace(step=replace(move.step, do=hasty))


def interleave_steps() -> AbstractContextManager[None]:
    """Let ends be recorded side by side."""
    real = Executor.perform

    def perform(self: Executor, handle: OperationHandle, move: Move, *args: Any) -> Any:
        coroutine = real(self, handle, move, *args)
        handle.entry_mutex = None
        return coroutine

    return patched(Executor, perform=perform)


def from_the_claim() -> AbstractContextManager[None]:
    """Measure deadlines from the last claim."""
    real = Executor.load
    since: dict[tuple[str, int], float] = {}

    async def load(self: Executor, operation: str, token: int) -> OperationHandle | None:
        loaded = await real(self, operation, token)
        if loaded is not None and token > 1:
            began = since.setdefault((operation, token), self._store.now())
            loaded.progress.stage_since = max(loaded.progress.stage_since, began)
        return loaded

    return patched(Executor, load=load)


def own_calls_forgotten() -> AbstractContextManager[None]:
    """Forget one's own calls at every fresh read."""
    real = OperationHandle.merge

    def merge(self: OperationHandle, rows: Any, absent: set[str]) -> None:
        real(self, rows, absent | set(self.intents))

    return patched(OperationHandle, merge=merge)


def reads_not_repeated() -> AbstractContextManager[None]:
    """Give up what is under way when the disk refuses to be read."""

    async def once(read_it: Callable[[], Any]) -> Any:
        return await read_it()

    return patched(executor, _retry_read=once)


@contextmanager
def no_fence() -> Iterator[None]:
    """Guard no token, and go on when it is lost."""

    async def refresh(self: Executor, handle: OperationHandle) -> None:
        loaded = await self._store.load(handle.id)
        assert loaded is not None
        handle.update(loaded.operation)
        held = {name: intent.token for name, intent in handle.intents.items()}
        handle.merge(loaded.intents, handle.fold(loaded.journal))
        for name, token in held.items():
            handle.intents[name].token = token  # it does not see that another was given out

    with without_guards("intent", "token")(), patched(Executor, refresh=refresh):
        yield


# --- what callers ask --------------------------------------------------------------------------


def early_signals_dropped() -> AbstractContextManager[None]:
    """Acknowledge and drop a signal that nobody waits for yet."""
    real = operations.signal

    async def signal(plane: Any, caller: Caller, operation: str, **kwargs: Any) -> Any:
        loaded = await plane.store.load(operation)
        if loaded is not None and not any(row.waiting_on for row in loaded.intents):
            return await reads.get_operation(plane, caller.tenant, operation)
        return await real(plane, caller, operation, **kwargs)

    return patched(operations, signal=signal)


def same_generation() -> AbstractContextManager[None]:
    """Use the keys of the agent's last operation again."""
    real = admission._lock_row  # noqa: SLF001

    async def lock_row(plane: Any, command: Any, now: float, operation: str) -> Any:
        ground = await real(plane, command, now, operation)
        if ground.generation == 1:
            return ground
        key = (ground.agent,)
        free = Is("agent", key, {"operation": None})
        return ground._replace(
            generation=1, guards=(free,), writes=(Set("agent", key, {"operation": operation}),)
        )

    return patched(admission, _lock_row=lock_row)
