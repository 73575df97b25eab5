"""Group commit on a server: changes that are ready together share one transaction.

There are a few lanes, each with a connection of its own; while one commits, the next batch collects
and another lane may take it.  Two changes that touch one row never share a batch and are never
under way at once: the later one waits, so each row sees its changes in the order they were handed
in.  What must stand alone, a claim, waits for all before it and holds up all after it.

If one change makes a batch fail, the batch is halved until the poisoned one fails alone.  One whose
row a stranger holds is found the same way and put aside: it is tried again and again, what touches
its rows waits behind it, and all others go on.  If the
connection is lost after the server was asked to commit, the lost session is ended from another and
the batch is looked up by its id: then it is answered, or tried again.  Only when that cannot be
learned in time is its fate unknown, and everything is refused from then on.
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
from tenure.ports.store import Change, CommitRefusal, Ring

RESERVE_BYTES = 32 * 1024 * 1024
"""Room that is kept for work already accepted, where somebody can tell how much there is."""
FULL_SECONDS = 10.0
"""For how long new work is refused after the server has met a full disk."""
HURRY_SECONDS = 0.1
"""How long a row is waited for that was found to be held by somebody."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How the store uses its server."""

    writers: int = 2
    """Connections that write."""
    readers: int = 3
    """Connections that read."""
    patience_seconds: float = 30.0
    """How long a lost server is waited for before callers are told."""


Try = Callable[[Session, str], Awaitable[Any]]
"""Does something on a session, under the id by which it can be looked up."""


class Work(NamedTuple):
    """Something that stands alone: `run` does it, `recall` answers if it turns out to be done."""

    run: Try
    recall: Try


class Item:
    """A change or work that was handed in, and who waits for it."""

    __slots__ = ("answer", "future", "held_since", "parts", "work")

    def __init__(self, future: asyncio.Future[Any], parts: Parts | None, work: Work | None) -> None:
        self.future = future
        self.parts = parts
        self.work = work
        self.answer: Any = None
        self.held_since = 0.0
        """If somebody holds a row of it: since when that is known."""


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
        self._touched: set[Any] = set()
        """Rows and counters of batches under way."""
        self._aside: list[Item] = []
        """What waits for rows that somebody else holds."""
        self._alone = False
        self._due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Future[None] | None = None
        self._ended: Callable[[], BaseException] | None = None
        self._on_durable = on_durable
        self.rang: Callable[[Ring], None] = lambda _ring: None
        """Told of every ring that was committed."""

    # -------------------------------------------------------------------------------- handing in

    def commit(self, change: Change) -> asyncio.Future[CommitRefusal | None]:
        """Apply the change; the future resolves when that is durable, or with the refusal."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CommitRefusal | None] = loop.create_future()
        if self._ended is not None:
            future.set_exception(self._ended())
            return future
        try:
            parts = Parts(change)
        except TenureError as error:
            loop.call_soon(_answer, future, error)
            return future
        self._hand_in(Item(future, parts, None))
        return future

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Do this when everything handed in before it is done, and before anything later."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._ended is not None:
            future.set_exception(self._ended())
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

    def hurry(self) -> None:
        """Wait for a lost server no longer than who is leaving can."""
        self._patience = min(self._patience, server.HURRY_SECONDS)

    async def close(self) -> None:
        """Finish what was handed in; whatever comes later is refused."""
        if self._ended is None:
            self._ended = _closed
        if self._waiting or self._aside or len(self._idle) < len(self._lanes):
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)
        for place, session in enumerate(self._lanes):
            if session is not None:
                await server.close(session.connection)
                self._lanes[place] = None

    # ----------------------------------------------------------------------------------- batches

    def _start(self) -> None:
        """Give every idle lane what is ready for it, the one that was busy last first."""
        self._due = False
        while self._idle:
            batch = self._take()
            if not batch:
                break
            self._begin(batch)
        rests = not self._waiting and not self._aside and len(self._idle) == len(self._lanes)
        if rests and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _begin(self, batch: list[Item]) -> None:
        task = asyncio.get_running_loop().create_task(self._work(self._idle.pop(), batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[Item]:
        """The oldest that can share a batch; what must wait for others keeps its place."""
        batch: list[Item] = []
        if self._alone:
            return batch
        waiting, touched = self._waiting, self._touched
        left: list[Item] = []
        behind, mine, counted = set[Any](), set[Any](), set[Any]()
        held = {key for item in self._aside if item.parts is not None for key in item.parts.keys}
        stuck = 0
        while waiting and max(len(batch), len(left) - stuck) < BATCH_CHANGES_MAX:
            item = waiting[0]
            parts = item.parts
            if parts is None or parts.doubled is not None:
                first = not batch and len(left) == stuck and not touched
                if first and len(self._idle) == len(self._lanes):
                    self._alone = True
                    batch.append(waiting.popleft())
                break
            waiting.popleft()
            keys, counters = parts.keys, parts.counters
            if held and not held.isdisjoint(keys):
                left.append(item)
                held |= keys
                stuck += 1
            elif (
                not touched.isdisjoint(keys)
                or not mine.isdisjoint(keys)
                or (behind and not (behind.isdisjoint(keys) and behind.isdisjoint(counters)))
                or not touched.isdisjoint(counters)
            ):
                left.append(item)
                behind |= keys
                behind |= counters
            else:
                batch.append(item)
                mine |= keys
                counted |= counters
        waiting.extendleft(reversed(left))
        touched |= mine
        touched |= counted
        return batch

    async def _work(self, lane: int, batch: list[Item]) -> None:
        """See one batch through, answer, and take the next."""
        try:
            await self._see_through(lane, batch)
        except CommitUnknown as unknown:
            self._die(unknown)
            for item in batch:
                item.answer = item.answer or type(unknown)(str(unknown))
        self._alone = False
        for item in batch:
            if item.parts is not None:
                self._touched -= item.parts.keys
                self._touched -= item.parts.counters
        self._idle.append(lane)
        self._start()
        for item in batch:
            if item in self._aside:
                continue
            _answer(item.future, item.answer)
            if item.answer is None and item.parts is not None and item.parts.change.ring:
                self.rang(item.parts.change.ring)
        if self._on_durable is not None:
            self._on_durable()

    async def _see_through(self, lane: int, batch: list[Item]) -> None:
        if batch[0].work is not None:
            await self._do(lane, batch[0], batch[0].work)
            return
        ready = [item for item in batch if not self._refuse_new(item)]
        await self._apply(lane, ready, hurried=batch[0].held_since > 0.0)

    def _refuse_new(self, item: Item) -> bool:
        assert item.parts is not None  # noqa: S101 (work stands alone)
        if not item.parts.change.admits:
            return False
        if self.is_full:
            item.answer = StoreFull(_FULL)
            return True
        return False

    async def _apply(self, lane: int, items: list[Item], *, hurried: bool = False) -> None:
        """Apply these, each whole or refused; halve them if one is poisoned, or its row held."""
        while items:
            batch = [item.parts for item in items if item.parts is not None]
            try:
                name, at, doubled = self._fresh(), self._now(), batch[0].doubled is not None
                write = partial(_write, batch, at, hurried=hurried)
                await self._insist(lane, name, write, held_up=doubled)
                if not doubled:  # a doubled change was rolled back
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
                    await self._apply(lane, items[:half], hurried=held)
                    await self._apply(lane, items[half:], hurried=held)
                elif held:
                    self._put_aside(items[0], error)
                else:
                    items[0].answer = _poisoned(error)
                return
            if batch[0].doubled is not None:
                items[0].answer = CommitRefusal(*batch[0].doubled)
            return

    def _put_aside(self, item: Item, error: Exception) -> None:
        """Somebody holds a row of it: try it again later and alone, as long as that is borne."""
        loop = asyncio.get_running_loop()
        item.held_since = item.held_since or loop.time()
        if loop.time() > item.held_since + self._patience:
            item.answer = server.translate_error(error, self._address)
            return
        self._aside.append(item)
        loop.call_later(POSTGRES_COMMIT.cap_seconds, self._try_again, item)

    def _try_again(self, item: Item) -> None:
        if item not in self._aside:
            return  # everything has ended meanwhile
        parts, loop = item.parts, asyncio.get_running_loop()
        if parts is None or self._alone or not self._idle or self._is_touched(parts):
            loop.call_later(POSTGRES_COMMIT.first_seconds, self._try_again, item)
            return
        self._aside.remove(item)
        self._touched |= parts.keys
        self._touched |= parts.counters
        self._begin([item])

    def _is_touched(self, parts: Parts) -> bool:
        return not (self._touched.isdisjoint(parts.keys | parts.counters))

    async def _do(self, lane: int, item: Item, work: Work) -> None:
        name, at = self._fresh(), self._now()
        try:
            item.answer = await self._insist(lane, name, work.run, work.recall, held_up=True)
            self._history.acknowledge(AcknowledgedBatch(name, at, ""))
        except StoreError as error:
            item.answer = error
        except Exception as error:  # noqa: BLE001 (its caller is told)
            item.answer = _poisoned(error)

    # ----------------------------------------------------------------------------- a lost server

    async def _insist(
        self, lane: int, name: str, run: Try, recall: Try | None = None, *, held_up: bool
    ) -> Any:
        """Run it under this id, which is its own, until the server has said yes or no.

        If somebody holds a row of it, it is tried again only if all others are `held_up` by it.

        What may have been committed is looked up before anything else is said of it: while that is
        in doubt no error is an answer.  Patience begins when something goes wrong.
        """
        loop = asyncio.get_running_loop()
        since, pauses = 0.0, POSTGRES_COMMIT.delays()
        doubtful = ""
        while True:
            try:
                session = await self._session(lane)
                if doubtful and await _was_kept(session, doubtful, name):
                    return None if recall is None else await _timed(recall(session, name))
                doubtful = ""
                return await _timed(run(session, name))
            except Exception as error:
                since = since or loop.time()
                if isinstance(error, asyncpg.LockNotAvailableError) and not (held_up or doubtful):
                    raise
                if not doubtful:
                    doubtful = self._judged(lane, error)
                else:
                    self._let_go(lane)
                if loop.time() > since + self._patience:
                    raise self._given_up(error, doubtful) from None
            await asyncio.sleep(next(pauses))

    def _judged(self, lane: int, error: Exception) -> str:
        """Whether to try again, and the session whose commit is in doubt; else it is raised."""
        if isinstance(error, asyncpg.DiskFullError):
            self._full_until = asyncio.get_running_loop().time() + FULL_SECONDS
            raise server.translate_error(error, self._address) from None
        if isinstance(error, server.GONE):
            if isinstance(error, asyncpg.InterfaceError) and self._is_open(lane):
                raise error  # the statement was never sent: it makes no sense
            return self._let_go(lane)
        if not isinstance(error, server.BUSY):
            raise error
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self._let_go(lane)  # another server may have taken over
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

    def _let_go(self, lane: int) -> str:
        """Give the connection up; its name if what it was asked to commit is in doubt."""
        session, self._lanes[lane] = self._lanes[lane], None
        if session is None:
            return ""
        session.connection.terminate()
        return session.name if session.sent else ""

    def _given_up(self, error: BaseException, doubtful: str) -> BaseException:
        if not doubtful:
            return server.translate_error(error, self._address)
        return CommitUnknown(
            f"The server was lost while it committed and cannot be reached ({error}): whether the"
            " last changes were kept is known only when it can. Start this process again then."
        )

    def _die(self, unknown: CommitUnknown) -> None:
        """Nobody knows what is kept: refuse everything from now on."""
        self._ended = partial(type(unknown), str(unknown))
        waiting, self._waiting = [*self._aside, *self._waiting], deque()
        self._aside.clear()
        for item in waiting:
            _answer(item.future, self._ended())


async def _write(
    batch: Sequence[Parts], at: float, session: Session, name: str, *, hurried: bool
) -> None:
    await session.wait_for_rows(HURRY_SECONDS if hurried else server.LOCK_SECONDS)
    await session.apply(batch, name, at)


async def _timed(asked: Awaitable[Any]) -> Any:
    """A server that says nothing is gone, whatever it was asked."""
    async with asyncio.timeout(server.STATEMENT_SECONDS):
        return await asked


async def _was_kept(session: Session, lost: str, name: str) -> bool:
    """Whether the batch of this id was committed; the session that sent it is ended first.

    The row is written anew: with synchronous replication the server answers that only when the
    standby has it, and so has all that was committed before.  The lost session may have been ended
    while it waited for the standby, and its commit is visible all the same.
    """
    async with asyncio.timeout(server.STATEMENT_SECONDS):
        await server.end_session(session.connection, lost)
        written = await session.connection.execute("UPDATE batch SET at = at WHERE id = $1", name)
    return str(written) != "UPDATE 0"


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return  # its caller stopped waiting; the change stands all the same
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _poisoned(error: Exception) -> TenureError:
    """What the caller of a change that failed alone is told; nothing of the driver passes."""
    if isinstance(error, TenureError):
        return error
    return Defect(f"This change cannot be written and was left out: {error}.")


def _closed() -> StoreClosed:
    return StoreClosed("This store is closed: nothing was written.")


_FULL = (
    "The disk is nearly full: this was not accepted, and what was accepted before is kept."
    " Make room and ask again."
)
