"""Group commit on a server: changes that are ready together share one transaction.

A lane is a writer connection; there are a few.  While one commits, the next batch collects, and
another lane may take it.  Two changes of one row never share a batch and never run at the same
time: the later one waits, so each row gets its changes in the order of the calls.  A claim runs
alone: it waits for all changes before it and delays all after it.

If one change makes a batch fail, the batch is halved until the failing change is alone.  A change
whose row another program has locked is found in the same way.  It is retried later; changes of
the same rows wait behind it, and all others go on.  `writer_sessions` handles a lost connection.
If the outcome of a batch stays unknown, everything is refused from then on.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import asyncpg

from tenure.adapters.store.postgres import server
from tenure.adapters.store.postgres.functions import Functions
from tenure.adapters.store.postgres.history import AcknowledgedBatch, History
from tenure.adapters.store.postgres.parts import ChangeParts
from tenure.adapters.store.postgres.session import BatchRefused, Session, ids_of
from tenure.adapters.store.postgres.writer_sessions import SessionCall, WriterSessions
from tenure.core.errors import (
    CommitUnknown,
    Defect,
    StoreClosed,
    StoreError,
    StoreFull,
    TenureError,
)
from tenure.core.limits import BATCH_CHANGES_MAX
from tenure.core.retry import POSTGRES_COMMIT
from tenure.ports.store import Change, CommitRefusal, WakeHint

RESERVE_BYTES = 32 * 1024 * 1024
"""Free disk space that is reserved for work already accepted, where it can be measured."""
LOCK_RETRY_SECONDS = 0.1
"""Lock timeout for a row that another program was found to have locked."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Numbers of connections, and how long calls wait for a lost server."""

    writers: int = 2
    """Connections that write."""
    readers: int = 3
    """Connections that read."""
    patience_seconds: float = 30.0
    """How long calls wait for a lost server before they fail."""


class ExclusiveWork(NamedTuple):
    """Work that runs alone: `run` performs it.

    `read_answer` reads its answer again if it was committed and the answer was lost.
    """

    run: SessionCall
    read_answer: SessionCall


class CommitItem:
    """A change or work, with the future of its caller."""

    __slots__ = ("answer", "future", "locked_since", "parts", "work")

    def __init__(
        self,
        future: asyncio.Future[Any],
        parts: ChangeParts | None,
        work: ExclusiveWork | None,
    ) -> None:
        self.future = future
        self.parts = parts
        self.work = work
        self.answer: Any = None
        self.locked_since = 0.0
        """Time at which a row of it was found to be locked by another program; 0 if none is."""


class PostgresCommitter:
    """Writes changes; each caller is answered when its batch is durable."""

    def __init__(
        self,
        address: server.Address,
        functions: Functions,
        *,
        now: Callable[[], float],
        new_id: Callable[[], str],
        pool: PoolSettings,
        history: History,
        free_bytes: Callable[[], int] | None = None,
        on_durable: Callable[[], None] | None = None,
    ) -> None:
        self._address = address
        self._now = now
        self._new_id = new_id
        self._history = history
        history.on_rewind = self._fail_for_good
        self._writers = WriterSessions(
            address, functions, history,
            count=pool.writers, patience_seconds=pool.patience_seconds, new_id=new_id,
        )  # fmt: skip
        self._idle_lanes = list(range(pool.writers))
        self._free_bytes = free_bytes
        self._waiting: deque[CommitItem] = deque()
        self._busy_keys: set[Any] = set()
        """Rows and counters of running batches."""
        self._locked_items: list[CommitItem] = []
        """Changes whose rows another program has locked; each is retried by a timer."""
        self._runs_alone = False
        self._start_is_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._drained: asyncio.Future[None] | None = None
        self._end_error: Callable[[], BaseException] | None = None
        """Makes the error of every later request: the store is closed, or an outcome is unknown."""
        self._on_durable = on_durable
        self.on_wake_hint: Callable[[WakeHint], None] = lambda _: None
        """Called with the wake hint of every committed change."""

    # ---------------------------------------------------------------------------------- requests

    def commit(self, change: Change) -> asyncio.Future[CommitRefusal | None]:
        """Apply the change; the future resolves when it is durable, or with the refusal."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CommitRefusal | None] = loop.create_future()
        if self._end_error is not None:
            future.set_exception(self._end_error())
            return future
        try:
            parts = ChangeParts(change)
        except TenureError as error:
            loop.call_soon(_answer, future, error)
            return future
        self._enqueue(CommitItem(future, parts, None))
        return future

    def run(self, work: ExclusiveWork) -> asyncio.Future[Any]:
        """Run `work` after everything handed in before it, and before anything later."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._end_error is not None:
            future.set_exception(self._end_error())
            return future
        self._enqueue(CommitItem(future, None, work))
        return future

    def _enqueue(self, item: CommitItem) -> None:
        self._waiting.append(item)
        if not self._start_is_scheduled:
            self._start_is_scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    @property
    def is_full(self) -> bool:
        """Whether new work is refused because the server's disk is full."""
        is_below_reserve = self._free_bytes is not None and self._free_bytes() < RESERVE_BYTES
        return is_below_reserve or self._writers.is_full

    def stop_waiting(self) -> None:
        """Wait only a moment for a lost server, because the process stops."""
        self._writers.shorten_patience()

    async def close(self) -> None:
        """Finish the changes handed in so far and refuse later ones."""
        if self._end_error is None:
            self._end_error = _store_closed
        if not self._is_idle():
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        await self._writers.close()

    def _is_idle(self) -> bool:
        """Whether no change waits and every lane is idle."""
        is_waiting = bool(self._waiting or self._locked_items)
        return not is_waiting and len(self._idle_lanes) == len(self._writers)

    # ----------------------------------------------------------------------------------- batches

    def _start(self) -> None:
        """Start a batch on every idle lane; the lane that was busy last comes first."""
        self._start_is_scheduled = False
        while self._idle_lanes:
            batch = self._take_batch()
            if not batch:
                break
            self._start_batch(batch)
        if self._drained is not None and not self._drained.done() and self._is_idle():
            self._drained.set_result(None)

    def _start_batch(self, batch: list[CommitItem]) -> None:
        task = asyncio.get_running_loop().create_task(
            self._run_batch(self._idle_lanes.pop(), batch)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_batch(self) -> list[CommitItem]:
        """The oldest items that can share a batch; items that must wait keep their order."""
        batch: list[CommitItem] = []
        if self._runs_alone:
            return batch
        waiting, busy = self._waiting, self._busy_keys
        deferred: list[CommitItem] = []
        behind, own_keys, own_counters = set[Any](), set[Any](), set[Any]()
        locked_parts = [item.parts for item in self._locked_items if item.parts is not None]
        locked = {key for parts in locked_parts for key in parts.keys}
        blocked = 0
        while waiting and max(len(batch), len(deferred) - blocked) < BATCH_CHANGES_MAX:
            item = waiting[0]
            parts = item.parts
            if parts is None or parts.duplicate_put is not None:
                is_first = not batch and len(deferred) == blocked and not busy
                if is_first and len(self._idle_lanes) == len(self._writers):
                    self._runs_alone = True
                    batch.append(waiting.popleft())
                break
            waiting.popleft()
            keys, counters = parts.keys, parts.counters
            if locked and not locked.isdisjoint(keys):
                deferred.append(item)
                locked |= keys
                blocked += 1
            elif (
                not busy.isdisjoint(keys)
                or not own_keys.isdisjoint(keys)
                or (behind and not (behind.isdisjoint(keys) and behind.isdisjoint(counters)))
                or not busy.isdisjoint(counters)
            ):
                deferred.append(item)
                behind |= keys
                behind |= counters
            else:
                batch.append(item)
                own_keys |= keys
                own_counters |= counters
        waiting.extendleft(reversed(deferred))
        busy |= own_keys
        busy |= own_counters
        return batch

    async def _run_batch(self, lane: int, batch: list[CommitItem]) -> None:
        """Perform one batch, start the next, and answer the callers."""
        try:
            await self._perform(lane, batch)
        except CommitUnknown as unknown:
            self._fail_for_good(unknown)
            for item in batch:
                item.answer = item.answer or type(unknown)(str(unknown))
        self._runs_alone = False
        for item in batch:
            if item.parts is not None:
                self._busy_keys -= item.parts.keys
                self._busy_keys -= item.parts.counters
        self._idle_lanes.append(lane)
        self._start()
        for item in batch:
            if item in self._locked_items:
                continue
            _answer(item.future, item.answer)
            if item.answer is None and item.parts is not None and item.parts.change.wake_hint:
                self.on_wake_hint(item.parts.change.wake_hint)
        if self._on_durable is not None:
            self._on_durable()

    async def _perform(self, lane: int, batch: list[CommitItem]) -> None:
        if batch[0].work is not None:
            await self._run_work(lane, batch[0], batch[0].work)
            return
        ready = [item for item in batch if not self._refuse_for_full_disk(item)]
        await self._apply(lane, ready, is_retry=batch[0].locked_since > 0.0)

    def _refuse_for_full_disk(self, item: CommitItem) -> bool:
        assert item.parts is not None  # noqa: S101 (work runs alone)
        if not item.parts.change.is_new_work:
            return False
        if self.is_full:
            item.answer = StoreFull(_DISK_FULL)
            return True
        return False

    async def _apply(self, lane: int, items: list[CommitItem], *, is_retry: bool = False) -> None:
        """Apply these changes; halve them if one fails or has a locked row."""
        while items:
            batch = [item.parts for item in items if item.parts is not None]
            try:
                name, at = self._new_id(), self._now()
                is_duplicate = batch[0].duplicate_put is not None
                write = partial(_write, batch, at, is_retry=is_retry)
                await self._writers.run_until_known(lane, name, write, is_blocking=is_duplicate)
                if not is_duplicate:  # a change with a duplicate Put was rolled back
                    self._history.acknowledge(AcknowledgedBatch(name, at, ids_of(batch)))
            except BatchRefused as refusal:
                for place, refused in refusal.answers.items():
                    items[place].answer = refused
                items = [item for item in items if item.answer is None]
                continue
            except StoreError as error:
                for item in items:
                    item.answer = error
                return
            except Exception as error:  # noqa: BLE001 (some change cannot be written)
                is_locked = isinstance(error, asyncpg.LockNotAvailableError)
                if len(items) > 1:
                    half = len(items) // 2
                    await self._apply(lane, items[:half], is_retry=is_locked)
                    await self._apply(lane, items[half:], is_retry=is_locked)
                elif is_locked:
                    self._retry_later(items[0], error)
                else:
                    items[0].answer = _caller_error(error)
                return
            if batch[0].duplicate_put is not None:
                items[0].answer = CommitRefusal(*batch[0].duplicate_put)
            return

    def _retry_later(self, item: CommitItem, error: Exception) -> None:
        """Retry a change with a locked row later and alone, or answer it after the patience."""
        loop = asyncio.get_running_loop()
        item.locked_since = item.locked_since or loop.time()
        if loop.time() > item.locked_since + self._writers.patience_seconds:
            item.answer = server.translate_error(error, self._address)
            return
        self._locked_items.append(item)
        loop.call_later(POSTGRES_COMMIT.cap_seconds, self._retry, item)

    def _retry(self, item: CommitItem) -> None:
        if item not in self._locked_items:
            return  # the committer has failed meanwhile
        parts, loop = item.parts, asyncio.get_running_loop()
        if parts is None or self._runs_alone or not self._idle_lanes or self._is_busy(parts):
            loop.call_later(POSTGRES_COMMIT.first_seconds, self._retry, item)
            return
        self._locked_items.remove(item)
        self._busy_keys |= parts.keys
        self._busy_keys |= parts.counters
        self._start_batch([item])

    def _is_busy(self, parts: ChangeParts) -> bool:
        return not (self._busy_keys.isdisjoint(parts.keys | parts.counters))

    async def _run_work(self, lane: int, item: CommitItem, work: ExclusiveWork) -> None:
        name, at = self._new_id(), self._now()
        try:
            item.answer = await self._writers.run_until_known(
                lane, name, work.run, work.read_answer, is_blocking=True
            )
            self._history.acknowledge(AcknowledgedBatch(name, at, ""))
        except StoreError as error:
            item.answer = error
        except Exception as error:  # noqa: BLE001 (the caller gets it)
            item.answer = _caller_error(error)

    # ------------------------------------------------------------------------------------- errors

    def _fail_for_good(self, unknown: CommitUnknown) -> None:
        """Refuse everything after a commit with an unknown outcome."""
        self._end_error = partial(type(unknown), str(unknown))
        waiting, self._waiting = [*self._locked_items, *self._waiting], deque()
        self._locked_items.clear()
        for item in waiting:
            _answer(item.future, self._end_error())


async def _write(
    batch: Sequence[ChangeParts], at: float, session: Session, name: str, *, is_retry: bool
) -> None:
    await session.set_lock_timeout(LOCK_RETRY_SECONDS if is_retry else server.LOCK_SECONDS)
    await session.apply(batch, name, at)


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return  # the caller stopped waiting; the change is durable all the same
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _caller_error(error: Exception) -> TenureError:
    """The error for the caller of a change that failed alone; no driver error leaves here."""
    if isinstance(error, TenureError):
        return error
    return Defect(f"This change cannot be written and was left out: {error}.")


def _store_closed() -> StoreClosed:
    return StoreClosed("This store is closed: nothing was written.")


_DISK_FULL = (
    "The disk is nearly full: this was not accepted. Work accepted before is not affected."
    " Free space and retry."
)
