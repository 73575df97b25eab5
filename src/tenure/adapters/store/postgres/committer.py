"""Group commit on a server: changes that are ready together share one transaction.

There are a few lanes, each a writer connection.  While one commits, the next batch collects, and
another lane may take it.  Two changes of one row never share a batch and never run at the same
time: the later one waits, so each row gets its changes in the order of the calls.  A claim runs
alone: it waits for all changes before it and delays all after it.

If one change makes a batch fail, the batch is halved until the failing change is alone.  A change
whose row another program has locked is found in the same way and put aside: it is retried, changes
of the same rows wait behind it, and all others go on.  If the connection is lost after COMMIT was
sent, the lost session is ended from another connection and the batch is looked up by its id.  Then
its callers are answered, or it is tried again.  Only if that is not possible in time is its outcome
unknown; from then on everything is refused.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import asyncpg

from tenure.adapters.store.postgres import server
from tenure.adapters.store.postgres.functions import Functions
from tenure.adapters.store.postgres.history import AcknowledgedBatch, History
from tenure.adapters.store.postgres.parts import Parts
from tenure.adapters.store.postgres.session import BatchRefused, Session, ids_of, open_session
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
FULL_SECONDS = 10.0
"""How long new work is refused after the server reported a full disk."""
LOCK_RETRY_SECONDS = 0.1
"""Lock timeout for a row that another program was found to have locked."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Numbers of connections and the patience of the store."""

    writers: int = 2
    """Connections that write."""
    readers: int = 3
    """Connections that read."""
    patience_seconds: float = 30.0
    """How long calls wait for a lost server before they fail."""


Try = Callable[[Session, str], Awaitable[Any]]
"""Runs on a session, under the batch id by which its commit can be looked up."""


class Work(NamedTuple):
    """Work that runs alone: `run` performs it, `recall` reads its answer if it was committed."""

    run: Try
    recall: Try


class Item:
    """A change or work, with the future of its caller."""

    __slots__ = ("answer", "future", "locked_since", "parts", "work")

    def __init__(self, future: asyncio.Future[Any], parts: Parts | None, work: Work | None) -> None:
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
        fresh: Callable[[], str],
        lanes: Lanes,
        history: History,
        room: Callable[[], int] | None = None,
        on_durable: Callable[[], None] | None = None,
    ) -> None:
        self._address = address
        self._functions = functions
        self._now = now
        self._fresh = fresh
        self._history = history
        history.on_rewind = self._die
        self._lanes: list[Session | None] = [None] * lanes.writers
        self._idle = list(range(lanes.writers))
        self._patience = lanes.patience_seconds
        self._room = room
        self._full_until = 0.0
        self._waiting: deque[Item] = deque()
        self._busy_keys: set[Any] = set()
        """Rows and counters of running batches."""
        self._aside: list[Item] = []
        """Changes whose rows another program has locked."""
        self._runs_alone = False
        self._due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._drained: asyncio.Future[None] | None = None
        self._refusal: Callable[[], BaseException] | None = None
        self._on_durable = on_durable
        self.on_wake_hint: Callable[[WakeHint], None] = lambda _: None
        """Called with the wake hint of every committed change."""

    # ---------------------------------------------------------------------------------- requests

    def commit(self, change: Change) -> asyncio.Future[CommitRefusal | None]:
        """Apply the change; the future resolves when it is durable, or with the refusal."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CommitRefusal | None] = loop.create_future()
        if self._refusal is not None:
            future.set_exception(self._refusal())
            return future
        try:
            parts = Parts(change)
        except TenureError as error:
            loop.call_soon(_answer, future, error)
            return future
        self._hand_in(Item(future, parts, None))
        return future

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Run `work` after everything handed in before it, and before anything later."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._refusal is not None:
            future.set_exception(self._refusal())
            return future
        self._hand_in(Item(future, None, work))
        return future

    def _hand_in(self, item: Item) -> None:
        self._waiting.append(item)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._start)

    @property
    def is_full(self) -> bool:
        """Whether new work is refused because the server's disk is full."""
        full = self._room is not None and self._room() < RESERVE_BYTES
        return full or asyncio.get_running_loop().time() < self._full_until

    def stop_waiting(self) -> None:
        """Shorten the patience for a lost server, because the process stops."""
        self._patience = min(self._patience, server.HURRY_SECONDS)

    async def close(self) -> None:
        """Finish the changes handed in so far and refuse later ones."""
        if self._refusal is None:
            self._refusal = _store_closed
        if self._waiting or self._aside or len(self._idle) < len(self._lanes):
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        for place, session in enumerate(self._lanes):
            if session is not None:
                await server.close(session.connection)
                self._lanes[place] = None

    # ----------------------------------------------------------------------------------- batches

    def _start(self) -> None:
        """Start a batch on every idle lane; the lane that was busy last comes first."""
        self._due = False
        while self._idle:
            batch = self._take()
            if not batch:
                break
            self._begin(batch)
        rests = not self._waiting and not self._aside and len(self._idle) == len(self._lanes)
        if rests and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _begin(self, batch: list[Item]) -> None:
        task = asyncio.get_running_loop().create_task(self._work(self._idle.pop(), batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[Item]:
        """The oldest items that can share a batch; items that must wait keep their order."""
        batch: list[Item] = []
        if self._runs_alone:
            return batch
        waiting, busy = self._waiting, self._busy_keys
        deferred: list[Item] = []
        behind, own_keys, own_counters = set[Any](), set[Any](), set[Any]()
        locked = {key for item in self._aside if item.parts is not None for key in item.parts.keys}
        blocked = 0
        while waiting and max(len(batch), len(deferred) - blocked) < BATCH_CHANGES_MAX:
            item = waiting[0]
            parts = item.parts
            if parts is None or parts.duplicate_put is not None:
                first = not batch and len(deferred) == blocked and not busy
                if first and len(self._idle) == len(self._lanes):
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

    async def _work(self, lane: int, batch: list[Item]) -> None:
        """Perform one batch, start the next, and answer the callers."""
        try:
            await self._perform(lane, batch)
        except CommitUnknown as unknown:
            self._die(unknown)
            for item in batch:
                item.answer = item.answer or type(unknown)(str(unknown))
        self._runs_alone = False
        for item in batch:
            if item.parts is not None:
                self._busy_keys -= item.parts.keys
                self._busy_keys -= item.parts.counters
        self._idle.append(lane)
        self._start()
        for item in batch:
            if item in self._aside:
                continue
            _answer(item.future, item.answer)
            if item.answer is None and item.parts is not None and item.parts.change.wake_hint:
                self.on_wake_hint(item.parts.change.wake_hint)
        if self._on_durable is not None:
            self._on_durable()

    async def _perform(self, lane: int, batch: list[Item]) -> None:
        if batch[0].work is not None:
            await self._run_work(lane, batch[0], batch[0].work)
            return
        ready = [item for item in batch if not self._refuse_new(item)]
        await self._apply(lane, ready, is_retry=batch[0].locked_since > 0.0)

    def _refuse_new(self, item: Item) -> bool:
        assert item.parts is not None  # noqa: S101 (work stands alone)
        if not item.parts.change.is_new_work:
            return False
        if self.is_full:
            item.answer = StoreFull(_DISK_FULL)
            return True
        return False

    async def _apply(self, lane: int, items: list[Item], *, is_retry: bool = False) -> None:
        """Apply these changes; halve them if one fails or has a locked row."""
        while items:
            batch = [item.parts for item in items if item.parts is not None]
            try:
                name, at, duplicate_put = (
                    self._fresh(),
                    self._now(),
                    batch[0].duplicate_put is not None,
                )
                write = partial(_write, batch, at, is_retry=is_retry)
                await self._run_until_known(lane, name, write, is_blocking=duplicate_put)
                if not duplicate_put:  # a change with a doubled Put was rolled back
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
                held = isinstance(error, asyncpg.LockNotAvailableError)
                if len(items) > 1:
                    half = len(items) // 2
                    await self._apply(lane, items[:half], is_retry=held)
                    await self._apply(lane, items[half:], is_retry=held)
                elif held:
                    self._put_aside(items[0], error)
                else:
                    items[0].answer = _caller_error(error)
                return
            if batch[0].duplicate_put is not None:
                items[0].answer = CommitRefusal(*batch[0].duplicate_put)
            return

    def _put_aside(self, item: Item, error: Exception) -> None:
        """Retry a change with a locked row later and alone, until the patience ends."""
        loop = asyncio.get_running_loop()
        item.locked_since = item.locked_since or loop.time()
        if loop.time() > item.locked_since + self._patience:
            item.answer = server.translate_error(error, self._address)
            return
        self._aside.append(item)
        loop.call_later(POSTGRES_COMMIT.cap_seconds, self._retry, item)

    def _retry(self, item: Item) -> None:
        if item not in self._aside:
            return  # the committer has failed meanwhile
        parts, loop = item.parts, asyncio.get_running_loop()
        if parts is None or self._runs_alone or not self._idle or self._is_busy(parts):
            loop.call_later(POSTGRES_COMMIT.first_seconds, self._retry, item)
            return
        self._aside.remove(item)
        self._busy_keys |= parts.keys
        self._busy_keys |= parts.counters
        self._begin([item])

    def _is_busy(self, parts: Parts) -> bool:
        return not (self._busy_keys.isdisjoint(parts.keys | parts.counters))

    async def _run_work(self, lane: int, item: Item, work: Work) -> None:
        name, at = self._fresh(), self._now()
        try:
            item.answer = await self._run_until_known(
                lane, name, work.run, work.recall, is_blocking=True
            )
            self._history.acknowledge(AcknowledgedBatch(name, at, ""))
        except StoreError as error:
            item.answer = error
        except Exception as error:  # noqa: BLE001 (the caller gets it)
            item.answer = _caller_error(error)

    # ----------------------------------------------------------------------------- a lost server

    async def _run_until_known(
        self, lane: int, name: str, run: Try, recall: Try | None = None, *, is_blocking: bool
    ) -> Any:
        """Run it under this batch id until the server has committed or refused it.

        If a row is locked, it is retried here only if it `is_blocking` all other work.

        A batch that may have been committed is looked up first; while that is in doubt no error is
        returned.  The patience starts with the first error.
        """
        loop = asyncio.get_running_loop()
        since, pauses = 0.0, POSTGRES_COMMIT.delays()
        doubtful = ""
        while True:
            try:
                session = await self._session(lane)
                if doubtful and await _was_committed(session, doubtful, name):
                    return None if recall is None else await _with_timeout(recall(session, name))
                doubtful = ""
                return await _with_timeout(run(session, name))
            except Exception as error:
                since = since or loop.time()
                if isinstance(error, asyncpg.LockNotAvailableError) and not (
                    is_blocking or doubtful
                ):
                    raise
                if not doubtful:
                    doubtful = self._classify(lane, error)
                else:
                    self._drop_session(lane)
                if loop.time() > since + self._patience:
                    raise self._patience_error(error, doubtful) from None
            await asyncio.sleep(next(pauses))

    def _classify(self, lane: int, error: Exception) -> str:
        """Return for a retry, with the session whose commit is in doubt; else raise the error."""
        if isinstance(error, asyncpg.DiskFullError):
            self._full_until = asyncio.get_running_loop().time() + FULL_SECONDS
            raise server.translate_error(error, self._address) from None
        if isinstance(error, server.GONE):
            if isinstance(error, asyncpg.InterfaceError) and self._is_open(lane):
                raise error  # the statement was never sent: it is invalid
            return self._drop_session(lane)
        if not isinstance(error, server.BUSY):
            raise error
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self._drop_session(lane)  # another server may have taken over
        return ""

    async def _session(self, lane: int) -> Session:
        session = self._lanes[lane]
        if session is None:
            session = self._lanes[lane] = await open_session(
                self._address, self._functions, self._history, self._fresh()
            )
        return session

    def _is_open(self, lane: int) -> bool:
        session = self._lanes[lane]
        return session is not None and not session.connection.is_closed()

    def _drop_session(self, lane: int) -> str:
        """Terminate the connection; returns its name if a commit of it is in doubt."""
        session, self._lanes[lane] = self._lanes[lane], None
        if session is None:
            return ""
        session.connection.terminate()
        return session.name if session.is_commit_sent else ""

    def _patience_error(self, error: BaseException, doubtful: str) -> BaseException:
        if not doubtful:
            return server.translate_error(error, self._address)
        return CommitUnknown(
            f"The server was lost while it committed and cannot be reached ({error}): whether the"
            " last changes were stored is known only when it can. Start this process again then."
        )

    def _die(self, unknown: CommitUnknown) -> None:
        """Refuse everything after a commit with an unknown outcome."""
        self._refusal = partial(type(unknown), str(unknown))
        waiting, self._waiting = [*self._aside, *self._waiting], deque()
        self._aside.clear()
        for item in waiting:
            _answer(item.future, self._refusal())


async def _write(
    batch: Sequence[Parts], at: float, session: Session, name: str, *, is_retry: bool
) -> None:
    await session.wait_for_rows(LOCK_RETRY_SECONDS if is_retry else server.LOCK_SECONDS)
    await session.apply(batch, name, at)


async def _with_timeout(call: Awaitable[Any]) -> Any:
    """Wait for a call to the server; after STATEMENT_SECONDS the server counts as lost."""
    async with asyncio.timeout(server.STATEMENT_SECONDS):
        return await call


async def _was_committed(session: Session, lost_session: str, name: str) -> bool:
    """Whether the batch of this id was committed; the session that sent it is ended first.

    The row is updated: with synchronous replication the server answers only when the standby has
    the update and everything committed before it.  The lost session may have been ended while it
    waited for the standby; its commit is then visible on the primary all the same.
    """
    async with asyncio.timeout(server.STATEMENT_SECONDS):
        await server.end_session(session.connection, lost_session)
        written = await session.connection.execute("UPDATE batch SET at = at WHERE id = $1", name)
    return str(written) != "UPDATE 0"


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
