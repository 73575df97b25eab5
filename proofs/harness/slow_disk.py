"""A disk in memory that takes its time: group commit with a delay before and after each batch.

`MemoryStore` applies a change when it is handed in.  Here a change waits in its process until its
batch is written and its caller hears of it later still, so that a process can die, be stopped or
fail in between.  The `HistoryRecorder` sees every applied change and
reports a process that was not entitled to write it.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from proofs.harness.recorder import HistoryRecorder
from tenure.core.errors import CommitUnknown, StoreError, TenureError
from tenure.ports.clock import Clock
from tenure.ports.store import (
    Change,
    ClaimedOperation,
    CommitRefusal,
    LoadedOperation,
    Queue,
    Store,
)
from tenure.testing.memory_store import MemoryStore, Tables

PACES = (0.1, 1.0, 1.0, 2.0)


class SlowStore(MemoryStore):
    """One process's handle; see `tenure.ports.store.Store`."""

    def __init__(self, disk: "SlowDisk", name: str, *, clock: Clock) -> None:
        """Nothing was handed in yet."""
        super().__init__(disk.tables, clock=clock)
        self.name = name
        self.skew = 0.0
        """What the clock of its process shows too much; nothing here goes by it."""
        self._disk = disk
        self._handed_in: list[tuple[asyncio.Future[Any], Change | Callable[[], Any]]] = []
        self._busy = False
        self.pace = disk.pace()

    def commit(self, change: Change) -> "asyncio.Future[CommitRefusal | None]":
        """One more of the next batch."""
        return self._hand_in(change)

    def claim(
        self, queue: Queue, worker: str, *, limit: int, except_plans: Sequence[str] = ()
    ) -> "asyncio.Future[Sequence[ClaimedOperation]]":
        """One more of the next batch."""
        assert queue is Queue.OPERATIONS
        return self._hand_in(partial(self._disk.claim, self, worker, limit, except_plans))

    async def load(self, operation: str) -> LoadedOperation | None:
        """Copy three tables' rows at once, or be refused by the disk."""
        if self._disk.refuses():
            raise StoreError("the disk is busy: nothing was read")
        return await super().load(operation)

    def kill(self) -> None:
        """Nothing of it is applied any more, and nobody is answered."""
        self._handed_in = []
        super().kill()

    def _hand_in(self, work: Change | Callable[[], Any]) -> "asyncio.Future[Any]":
        self._use()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._handed_in.append((future, work))
        if not self._busy:
            self._busy = True
            loop.call_later(self._disk.delay(self.pace), self._write)
        return future

    def _write(self) -> None:
        """The batch is on disk from here on, whether anybody hears of it or not."""
        batch, self._handed_in = self._handed_in, []
        answers: list[Any]
        if self._failing is not None:
            if self._failing:
                for _, work in batch:
                    self._apply(work)
            self._ended = _disk_failure
            answers = [_disk_failure() for _ in batch]
        elif self._disk.refuses():
            answers = [StoreError("the disk is busy: nothing was kept") for _ in batch]
        else:
            answers = [self._apply(work) for _, work in batch]
        loop = asyncio.get_running_loop()
        loop.call_later(self._disk.delay(self.pace), self._tell, batch, answers)

    def _apply(self, work: Change | Callable[[], Any]) -> Any:
        if isinstance(work, Change):
            return self._disk.apply(self, work)
        try:
            return work()
        except TenureError as error:  # the handle was closed while its batch waited
            return error

    def _tell(self, batch: list[tuple[asyncio.Future[Any], Any]], answers: list[Any]) -> None:
        if self._ended is not None:
            batch += self._handed_in
            answers += [self._ended() for _ in self._handed_in]
            self._handed_in = []
        for (future, _), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if self._handed_in:
            asyncio.get_running_loop().call_later(self._disk.delay(self.pace), self._write)
        else:
            self._busy = False


class SlowDisk:
    """Tables that outlive the processes of a run; see `proofs.harness.cluster.Disk`."""

    def __init__(
        self,
        clock: Clock,
        recorder: HistoryRecorder,
        *,
        seed: int,
        flush_seconds: float,
        refuse_rate: float,
    ) -> None:
        """Empty tables; `refuse_rate` may be set to 0 when all is calm."""
        self.tables = Tables()
        self.recorder = recorder
        self.refuse_rate = refuse_rate
        self._clock = clock
        self._rng = random.Random(f"disk/{seed}")
        self._flush_seconds = flush_seconds
        self._observer = MemoryStore(self.tables, clock=clock)
        self._count = 0

    def open(self, clock: Clock) -> Store:
        """A handle on the tables."""
        self._count += 1
        return SlowStore(self, str(self._count), clock=clock)

    def kill(self, store: Store) -> None:
        """This handle answers nobody any more."""
        assert isinstance(store, SlowStore)
        store.kill()

    def fail_commit(self, store: Store, *, is_applied: bool) -> None:
        """The next COMMIT of this handle fails."""
        assert isinstance(store, SlowStore)
        store.fail_commit(is_applied=is_applied)

    def fill(self, *, full: bool) -> None:
        """There is no room for new work, or there is again."""
        self.tables.full = full

    def belongs_to(self, store: Store, *, skew: float = 0.0, slow: bool = False) -> None:
        """The process of this handle has a wrong clock, or the slowest of all connections."""
        assert isinstance(store, SlowStore)
        store.skew = skew
        if slow:
            store.pace = max(PACES)

    def observer(self) -> Store:
        """A handle of nobody's process."""
        return self._observer

    def pace(self) -> float:
        """How much slower than usual a handle's commits are: neighbours are not equally quick."""
        return self._rng.choice(PACES)

    def delay(self, pace: float) -> float:
        """Half a commit."""
        return self._rng.random() * self._flush_seconds * pace

    def refuses(self) -> bool:
        """Whether the disk refuses, this once."""
        return self.refuse_rate > 0 and self._rng.random() < self.refuse_rate

    def apply(self, store: SlowStore, change: Change) -> Any:
        """Apply a change under the recorder's eyes; the answer, or error, that its caller gets."""
        before = self.recorder.holder_before(change, self.tables)
        try:
            answer = self.tables.apply(change)
        except TenureError as error:
            return error
        self.recorder.add_applied(store.name, change, answer, before)
        return answer

    def claim(
        self, store: SlowStore, worker: str, limit: int, except_plans: Sequence[str] = ()
    ) -> list[ClaimedOperation]:
        """Claim under the recorder's eyes."""
        now = store.now()
        alive = self.recorder.live_holders(self.tables, self._clock.now())
        claimed = self.tables.claim(worker, limit=limit, now=now, except_plans=except_plans)
        self.recorder.add_claims(store.name, worker, claimed, alive)
        return claimed


def _disk_failure() -> CommitUnknown:
    return CommitUnknown("COMMIT failed: nobody knows what is on disk")
