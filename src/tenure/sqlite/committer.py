"""Group commit: many changes share one transaction, and each is applied whole or refused.

Statements run on the event loop.  `flush` runs COMMIT, in production on a thread.  While one COMMIT
runs, the next batch collects; no change is delayed to make a batch larger.  If one change makes a
batch fail, the batch is rolled back and applied again by a slower method (see
`tenure.sqlite.applier`), so that only the failing change is refused.  An error of COMMIT itself has
no known outcome: from then on the committer refuses everything.

Only the committer uses its connection: another statement on it during COMMIT would block the event
loop for the whole flush.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import apsw

from tenure.core.errors import CommitUnknown, StoreClosed, StoreError, StoreFull
from tenure.core.limits import BATCH_CHANGES_MAX
from tenure.core.records.table import TableShape
from tenure.ports.store import Change, CommitRefusal
from tenure.sqlite.applier import DISK_ERRORS, RESERVE_BYTES, Applier, BatchWork, ChangeFailure
from tenure.sqlite.commit_thread import WorkRunner

CHECKPOINT_PAGES = 2_000
"""Pages in the WAL after which the committer checkpoints; SQLite's own checkpoint hides errors.

They take at most half of the space reserved for accepted work (`RESERVE_BYTES`), because a
checkpoint grows the main file as well.
"""

T = TypeVar("T")
_Answer = asyncio.Future[Any]
_Item = tuple[Change | BatchWork, _Answer]


def _enough_bytes() -> int:
    """As many free bytes as new work needs."""
    return RESERVE_BYTES


class Committer:
    """Writes changes to one connection; each caller is answered when its batch is durable.

    `tables` are the tables that changes may name; the file also has `batch` and `counter`.
    `free_bytes` returns the free bytes of the disk.  `on_durable` is called after each durable
    batch.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        tables: Mapping[str, TableShape],
        *,
        flush: WorkRunner,
        free_bytes: Callable[[], int] = _enough_bytes,
        on_durable: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self.free_bytes = free_bytes
        self._on_durable = on_durable
        self._applier = Applier(connection, tables, free_bytes=free_bytes)
        self._flush = flush
        self._waiting: list[_Item] = []
        self._idle = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drained: asyncio.Future[None] | None = None
        self._end_error: Callable[[], BaseException] | None = None
        """Makes the error of every later request: the store is closed, or an outcome is unknown."""
        self._pages, self._pages_due = 0, CHECKPOINT_PAGES
        connection.set_wal_hook(self._on_wal_growth)

    # ---------------------------------------------------------------------------------- requests

    def commit(self, change: Change) -> asyncio.Future[CommitRefusal | None]:
        """Apply the change; the future resolves when it is durable, or with the refusal.

        The change is applied even if the caller cancels the future.
        """
        loop = self._loop
        if loop is None:  # cached: each call costs a system call
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[CommitRefusal | None] = asyncio.Future(loop=loop)
        if self._end_error is not None:
            future.set_exception(self._end_error())
            return future
        self._waiting.append((change, future))
        if self._idle:
            self._idle = False
            loop.call_soon(self._start)
        return future

    def run(self, work: Callable[[apsw.Cursor], T]) -> asyncio.Future[T]:
        """Run `work` on the writer's cursor inside a batch.

        `work` may run again if another change of the batch fails, so it must have no effect outside
        the database.
        """
        return self.commit(work)  # type: ignore[arg-type, return-value]

    def run_on_counters(self, work: Callable[[apsw.Cursor], None]) -> asyncio.Future[None]:
        """Run `work` that changes rows of `counter`; cached counters are read again after it."""
        return self.run(self._applier.with_counters(work))

    async def close(self) -> None:
        """Finish the changes handed in so far and refuse later ones."""
        if self._end_error is None:
            self._end_error = _store_closed
        if not self._idle:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    # ----------------------------------------------------------------------------------- batches

    def _start(self) -> None:
        """Execute one batch and hand it to COMMIT."""
        batch = [work for work, _ in self._waiting[:BATCH_CHANGES_MAX]]
        futures = [future for _, future in self._waiting[:BATCH_CHANGES_MAX]]
        del self._waiting[:BATCH_CHANGES_MAX]
        try:
            answers = self._write(batch)
        except DISK_ERRORS as error:
            self._fail_batch(futures, error)
        except Exception as error:  # noqa: BLE001 (the slowest method failed too: no change is the cause)
            self._fail_for_good(futures, error)
        except BaseException as error:
            self._fail_for_good(futures, error)
            raise
        else:
            done = partial(self._finish_batch, futures, answers)
            if self._connection.in_transaction:
                self._flush(self._commit, done)
            else:
                asyncio.get_running_loop().call_soon(done, None)

    def _write(self, batch: list[Change | BatchWork]) -> list[Any]:
        """Apply the batch by the fastest method; if a change makes it fail, by slower ones."""
        for apply in (self._applier.collect, self._applier.apply):
            try:
                return self._write_with(apply, batch)
            except DISK_ERRORS:
                raise
            except Exception:  # noqa: BLE001 (a slower method finds the change that fails)
                self._roll_back()
        return self._write_with(self._applier.apply_alone, batch)

    def _write_with(
        self, apply: Callable[[Any], Any], batch: list[Change | BatchWork]
    ) -> list[Any]:
        """Run the transaction up to COMMIT; roll it back if it has written nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._applier.begin()
        answers = [apply(work) for work in batch]
        if not self._applier.finish():
            self._roll_back()
        return answers

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _roll_back(self) -> None:
        """Undo the batch, unless SQLite has done so itself."""
        self._applier.discard()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _finish_batch(
        self, futures: list[_Answer], answers: list[Any], error: BaseException | None
    ) -> None:
        """Answer the callers after COMMIT.

        The next batch starts before that, so that these callers run while the disk writes it.
        """
        if error is not None:
            self._fail_for_good(futures, error)
            return
        try:
            if self._pages < self._pages_due:
                self._continue()
            else:
                self._flush(self._checkpoint, self._after_checkpoint)
        finally:
            for future, answer in zip(futures, answers, strict=True):
                if future.done():
                    continue  # the caller stopped waiting; the change is durable all the same
                if type(answer) is ChangeFailure:
                    future.set_exception(answer.error)
                else:
                    future.set_result(answer)
            if self._on_durable is not None:
                self._on_durable()

    def _continue(self) -> None:
        if self._waiting:
            self._start()
            return
        self._idle = True
        if self._drained is not None:
            self._drained.set_result(None)

    # -------------------------------------------------------------------------------- checkpoints

    def _on_wal_growth(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Checkpoint the WAL; pages that a reader still needs stay in it until a later one."""
        pages, moved = self._connection.wal_checkpoint()
        self._pages = 0
        self._pages_due = CHECKPOINT_PAGES if moved == pages else pages + CHECKPOINT_PAGES

    def _after_checkpoint(self, error: BaseException | None) -> None:
        """Go on after a checkpoint; a failed one lost no commit, but no further commit is tried."""
        if error is not None:
            self._fail_for_good([], error)
        else:
            self._continue()

    # -------------------------------------------------------------------------------------- errors

    def _fail_batch(self, futures: list[_Answer], error: apsw.Error) -> None:
        """Fail a batch that the disk refused before COMMIT; nothing of it was stored."""
        try:
            self._roll_back()
        except apsw.Error as worse:
            self._fail_for_good(futures, worse)
            return
        asyncio.get_running_loop().call_soon(self._continue)
        for future in futures:
            if not future.done():
                future.set_exception(_store_error(error))

    def _fail_for_good(self, futures: list[_Answer], error: BaseException) -> None:
        """Refuse everything after an unknown outcome, and leave the WAL for recovery."""
        sentence = (
            f"The store failed while it committed ({error}): whether the last changes were stored"
            " is known only after recovery. Stop this process and start it again."
        )
        self._end_error = partial(CommitUnknown, sentence)
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        callers, self._waiting = [*futures, *(future for _, future in self._waiting)], []
        self._continue()
        for future in callers:
            if not future.done():
                future.set_exception(self._end_error())


def _store_error(error: apsw.Error) -> StoreError:
    if isinstance(error, apsw.FullError):
        return StoreFull(f"The disk is full ({error}): this was not stored. Free space and retry.")
    return StoreError(f"The disk refused the write ({error}): this was not stored. Retry.")


def _store_closed() -> StoreClosed:
    return StoreClosed("This store is closed: nothing was written.")
