"""Group commit: many changes share one transaction, and each is applied whole or refused.

Statements run on the loop, COMMIT wherever `flush` says; while one COMMIT runs the next batch
collects, and nothing waits on purpose.  If one change makes a batch fail, the batch is rolled back
and run again in a more careful way (see `tenure.sqlite.applier`), so that the poisoned one fails
alone.  An error at COMMIT itself has no known outcome: from then on everything is refused.

Nothing but the committer touches its connection: a statement on it during COMMIT would block the
loop for the whole flush.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import apsw

from tenure.core.errors import CommitUnknown, StoreClosed, StoreError, StoreFull
from tenure.core.limits import BATCH_CHANGES_MAX
from tenure.ports.store import Change, CommitRefusal, Shape
from tenure.sqlite.applier import RESERVE_BYTES, TROUBLE, Applier, ChangeFailure, Work
from tenure.sqlite.commit_thread import Flush

CHECKPOINT_PAGES = 2_000
"""Pages in the log after which we move them to the main file; SQLite would hide an error there.

At most half of the room that is kept for accepted work (`RESERVE_BYTES`): the main file grows too.
"""

T = TypeVar("T")
_Answer = asyncio.Future[Any]
_Item = tuple[Change | Work, _Answer]


def _plenty() -> int:
    return RESERVE_BYTES


class Committer:
    """Writes changes to one connection; each caller is answered when its batch is durable.

    `tables` are what changes may name; beside them the file has `batch` and `counter`.  `room`
    tells the free bytes of the disk, and `landed` is called after each batch that is durable.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        tables: Mapping[str, Shape],
        *,
        flush: Flush,
        room: Callable[[], int] = _plenty,
        landed: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self.room = room
        self._told = landed
        self._applier = Applier(connection, tables, room=room)
        self._flush = flush
        self._waiting: list[_Item] = []
        self._idle = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._ended: Callable[[], BaseException] | None = None
        self._pages, self._pages_due = 0, CHECKPOINT_PAGES
        connection.set_wal_hook(self._grown)

    # -------------------------------------------------------------------------------- handing in

    def commit(self, change: Change) -> asyncio.Future[CommitRefusal | None]:
        """Apply the change; the future resolves when that is durable, or with the refusal.

        A caller who stops waiting changes nothing: what was handed in is applied.
        """
        loop = self._loop
        if loop is None:  # asked once: asking costs a system call each time
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[CommitRefusal | None] = asyncio.Future(loop=loop)
        if self._ended is not None:
            future.set_exception(self._ended())
            return future
        self._waiting.append((change, future))
        if self._idle:
            self._idle = False
            loop.call_soon(self._start)
        return future

    def run(self, work: Callable[[apsw.Cursor], T]) -> asyncio.Future[T]:
        """Run `work` on the writer's cursor inside a batch.

        It may be run again when a neighbour is poisoned, so it must not leave anything elsewhere.
        """
        return self.commit(work)  # type: ignore[arg-type, return-value]

    def run_on_counters(self, work: Callable[[apsw.Cursor], None]) -> asyncio.Future[None]:
        """The same for what changes counters."""
        return self.run(self._applier.counts(work))

    async def close(self) -> None:
        """Finish what was handed in; whatever comes later is refused."""
        if self._ended is None:
            self._ended = _closed
        if not self._idle:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    # ----------------------------------------------------------------------------------- batches

    def _start(self) -> None:
        """Write one batch and hand it to COMMIT."""
        batch = [work for work, _ in self._waiting[:BATCH_CHANGES_MAX]]
        asked = [future for _, future in self._waiting[:BATCH_CHANGES_MAX]]
        del self._waiting[:BATCH_CHANGES_MAX]
        try:
            answers = self._write(batch)
        except TROUBLE as error:
            self._give_up(asked, error)
        except Exception as error:  # noqa: BLE001 (even the careful way failed: no change's fault)
            self._die(asked, error)
        except BaseException as error:
            self._die(asked, error)
            raise
        else:
            done = partial(self._landed, asked, answers)
            if self._connection.in_transaction:
                self._flush(self._commit, done)
            else:
                asyncio.get_running_loop().call_soon(done, None)

    def _write(self, batch: list[Change | Work]) -> list[Any]:
        """Write the batch the quick way; if one of its changes makes that fail, a careful way."""
        for apply in (self._applier.collect, self._applier.apply):
            try:
                return self._write_with(apply, batch)
            except TROUBLE:
                raise
            except Exception:  # noqa: BLE001 (a more careful way finds out whose it is)
                self._roll_back()
        return self._write_with(self._applier.apply_alone, batch)

    def _write_with(self, apply: Callable[[Any], Any], batch: list[Change | Work]) -> list[Any]:
        """Every statement of a transaction but COMMIT; none is left open if nothing was written."""
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
        self._applier.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _landed(
        self, asked: list[_Answer], answers: list[Any], error: BaseException | None
    ) -> None:
        """COMMIT is over: answer.

        The next batch goes first, so that these callers run while the disk is busy with it.
        """
        if error is not None:
            self._die(asked, error)
            return
        try:
            if self._pages < self._pages_due:
                self._go_on()
            else:
                self._flush(self._checkpoint, self._checkpointed)
        finally:
            for future, answer in zip(asked, answers, strict=True):
                if future.done():
                    continue  # its caller stopped waiting; the change stands all the same
                if type(answer) is ChangeFailure:
                    future.set_exception(answer.error)
                else:
                    future.set_result(answer)
            if self._told is not None:
                self._told()

    def _go_on(self) -> None:
        if self._waiting:
            self._start()
            return
        self._idle = True
        if self._emptied is not None:
            self._emptied.set_result(None)

    # -------------------------------------------------------------------------------- checkpoints

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the log to the main file; what a reader still needs stays, and is due later."""
        pages, moved = self._connection.wal_checkpoint()
        self._pages = 0
        self._pages_due = CHECKPOINT_PAGES if moved == pages else pages + CHECKPOINT_PAGES

    def _checkpointed(self, error: BaseException | None) -> None:
        """A disk that fails here has kept every commit, but is not to be trusted with another."""
        if error is not None:
            self._die([], error)
        else:
            self._go_on()

    # -------------------------------------------------------------------------------------- errors

    def _give_up(self, asked: list[_Answer], error: apsw.Error) -> None:
        """The disk refused before COMMIT: nothing was kept, and the next batch may do better."""
        try:
            self._roll_back()
        except apsw.Error as worse:
            self._die(asked, worse)
            return
        asyncio.get_running_loop().call_soon(self._go_on)
        for future in asked:
            if not future.done():
                future.set_exception(_trouble(error))

    def _die(self, asked: list[_Answer], error: BaseException) -> None:
        """Nobody knows what is on disk: refuse everything, and leave the log for recovery."""
        sentence = (
            f"The store failed while it committed ({error}): whether the last changes were kept is"
            " known only after recovery. Stop this process and start it again."
        )
        self._ended = partial(CommitUnknown, sentence)
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        left, self._waiting = [*asked, *(future for _, future in self._waiting)], []
        self._go_on()
        for future in left:
            if not future.done():
                future.set_exception(self._ended())


def _trouble(error: apsw.Error) -> StoreError:
    if isinstance(error, apsw.FullError):
        return StoreFull(f"The disk is full ({error}): this was not kept. Make room and ask again.")
    return StoreError(f"The disk refused to take this ({error}): it was not kept. Ask again.")


def _closed() -> StoreClosed:
    return StoreClosed("This store is closed: nothing was written.")
