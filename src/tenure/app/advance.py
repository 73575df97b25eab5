"""Performs ONE move of ONE operation and records how it ended: the heart.

A crash between performing and recording repeats a move and never skips one.  Every record guards
its intent's token and the operation's revision: who fails on the revision but still holds the token
reads again and decides again; who has lost the token stops (LeaseLost) and touches nothing.  What a
record means is the saga's word, not ours.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, cast

from tenure.app.changes import Unkeepable, recorded
from tenure.app.live import Live, read
from tenure.app.watch import Watch
from tenure.core import saga
from tenure.core.endings import Absent, Done, Ending, NotYet, Waiting
from tenure.core.errors import LeaseLost, OutcomeUnknown, ProviderError, StoreError
from tenure.core.saga import Act, Move, Moves, Signals
from tenure.plans.catalogue import Catalogue
from tenure.ports.entropy import Entropy
from tenure.ports.provider import Call, Provider
from tenure.ports.store import Store

STORE_RETRY_SECONDS = 1.0
"""Between attempts to record while the disk refuses."""
ENDINGS = (Done, NotYet, Waiting, Absent, ProviderError)


class Advance:
    """The way to move one operation; an engine is a loop around it."""

    def __init__(
        self,
        plane: str,
        *,
        store: Store,
        entropy: Entropy,
        catalogue: Catalogue,
        providers: Mapping[str, Provider],
    ) -> None:
        """Perform these plans on these providers and record in this store."""
        self._plane = plane
        self._store = store
        self._entropy = entropy
        self._catalogue = catalogue
        self._providers = providers
        self._watch = Watch()

    async def load(self, operation: str, token: int) -> Live | None:
        """Read an operation; None if it has ended.  LeaseLost if this token no longer holds it."""
        live = await read(self._store, self._catalogue, self._plane, operation)
        if live is None or live.token != token:
            raise LeaseLost(operation)
        return None if live.progress.end is not None else live

    async def refresh(self, live: Live) -> None:
        """Read it again in place, since something else was recorded for it."""
        loaded = await self._store.load(live.id)
        if loaded is None or loaded.operation["token"] != live.token:
            raise LeaseLost(live.id)
        live.take(loaded.operation)
        live.merge(loaded.intents, live.fold(loaded.journal))

    def moves(self, live: Live) -> Moves:
        """What to perform now."""
        return saga.next_moves(live.plan, live.progress, live.intents, self._store.now())

    def perform(
        self, live: Live, move: Move, task: asyncio.Task[None] | None = None
    ) -> Coroutine[None, None, None]:
        """Perform one move and record how it ended; the step is busy from this very call on."""
        live.intents[move.step.name].busy = True
        return self._perform(live, move, task)

    async def _perform(self, live: Live, move: Move, task: asyncio.Task[None] | None) -> None:
        started_at = self._store.now()
        act, name = move.act, move.step.name
        signals = live.progress.signals  # what the call is given; a later one it has not seen
        try:
            if act is Act.GIVE_UP or act is Act.FORGET:
                ending: Ending = Done()  # a decision: nothing is called
            else:
                intent = live.intents[name]
                if act is Act.DO and intent.unknown_since is None:
                    intent.unknown_since = started_at  # until it has ended, nobody knows
                ending = await self._call(live, move, task or asyncio.current_task())
            if live.lock is None:
                await self._record(live, move, ending, started_at, signals)
            else:
                async with live.lock:
                    await self._record(live, move, ending, started_at, signals)
        finally:
            live.intents[name].busy = False

    def interrupt(self, live: Live) -> None:
        """Stop the calls of its do's that are under way; their outcome is then unknown."""
        for task in tuple(live.calls.values()):
            self._watch.stop(task, "the call was interrupted by a cancel")

    async def _call(self, live: Live, move: Move, task: "asyncio.Task[Any] | None") -> Ending:
        """One call, and how it ended: every way to end is a value, a surprise is OutcomeUnknown."""
        assert task is not None  # noqa: S101 (a coroutine runs in a task)
        act, step = move.act, move.step
        function = step.do if act is Act.DO else step.undo if act is Act.UNDO else step.inspect
        progress = live.progress
        call = Call(
            live.key_of(step),
            live.input,
            progress.done,
            progress.signals,
            self._providers,
            live.token,
            live.intents[step.name].attempts,
        )
        seconds = step.limits.call_seconds
        self._watch.begin(task, seconds)
        if act is not Act.UNDO:
            live.calls[step.name] = task
        ending: object
        cancelled = False
        try:
            ending = await function(call)  # type: ignore[misc,operator]  # plans are checked
        except ProviderError as error:
            ending = error
        except asyncio.CancelledError:
            ending, cancelled = None, True
        except Exception as error:  # noqa: BLE001 (a plan's bug may strike after the call was applied)
            ending = OutcomeUnknown(f"{type(error).__name__}: {error}")
        finally:
            why = self._watch.end(task, seconds)
            live.calls.pop(step.name, None)
        if why:
            cancelled = task.uncancel() > 0  # something else stops this task as well
            ending = OutcomeUnknown(why)
        if cancelled:
            raise asyncio.CancelledError
        return _checked(ending)

    async def _record(
        self, live: Live, move: Move, ending: Ending, started_at: float, signals: Signals
    ) -> None:
        """Write what the end of this move means; after a refusal read again and decide again."""
        while saga.wanted(live.progress, move, ending):
            now = self._store.now()
            settled = saga.settle(
                live.progress,
                live.intents[move.step.name],
                move,
                ending,
                started_at=started_at,
                now=now,
                jitter=self._entropy.fraction(),
                signals=signals,
            )
            try:
                writing = recorded(live, move.step, settled, now)
                refused = await self._store.commit(writing.change)
            except Unkeepable as error:
                ending = OutcomeUnknown(str(error))
            except StoreError:  # nothing was kept; only this process knows how the call ended
                await asyncio.sleep(STORE_RETRY_SECONDS)
            else:
                if refused is None:
                    writing.take_effect(live)
                    return
                await self.refresh(live)


def _checked(ending: object) -> Ending:
    """What a plan returned, if it is an ending; nothing at all means Done."""
    if ending is None:
        return Done()
    if not isinstance(ending, ENDINGS):
        return OutcomeUnknown(f"the plan returned {type(ending).__name__}, which is no ending")
    return cast(Ending, ending)
