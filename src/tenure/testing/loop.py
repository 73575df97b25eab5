"""A seeded event loop: virtual time, a ready queue shuffled from the seed, no sockets, no threads.

`run(seed, main)` gives the same run for the same seed.  Waiting costs nothing: when nothing is
ready the clock jumps to the next timer, and when there is no timer either the run ends with
`Deadlock`.  A `Node` is one process inside the run. Its `crash` is kill -9: nothing of it runs any
more, not even a `finally`, while the other nodes and the world continue.

Of asyncio's internals only `_ready`, `_scheduled`, `_stopping` and `_run_once` are used; the order
of a run can differ only between minor versions of Python.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from hashlib import blake2b
from heapq import heapify, heappop
from typing import Any, TypeVar

EPOCH = 1_700_000_000.0
"""The time of a virtual clock when a run starts."""
TURNS_MAX = 2_000_000
"""Iterations of the loop after which a run that does not end is stopped."""
CANCELLED_MAX = 50
"""With more cancelled timers than this the heap is rebuilt."""

T = TypeVar("T")


class Dead(BaseException):
    """This process is dead: it may not use a port any more."""


class Deadlock(RuntimeError):
    """The run cannot end: nothing is ready and no timer is set, or it loops without end."""


class SeededLoop(asyncio.BaseEventLoop):
    """An event loop whose order comes from `seed` and whose time is a number."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.random = random.Random(seed)
        self.turns = 0
        self._now = 0.0
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks until the end of the run, so that none is garbage-collected during it."""
        self._crashed: set[Node] = set()
        self._paused: dict[Node, list[asyncio.Handle]] = {}
        self._cancelled = 0

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Make a task and store it until the end of the run."""
        task = super().create_task(coro, name=name, context=context)
        self.tasks.append(task)
        return task

    def outside(self, when: float, callback: Callable[..., object], *arguments: object) -> None:
        """Call back at this time outside of all nodes, so that no crash prevents it."""
        self.call_at(when, callback, *arguments, context=Context())

    def crash(self, node: "Node") -> None:
        """Let nothing of this node run any more."""
        self._crashed.add(node)
        for handle in self._scheduled:
            if not handle.cancelled() and _node_of(handle) is node:
                handle.cancel()

    def pause(self, node: "Node", seconds: float) -> None:
        """Run nothing of this node for so long; the callbacks that became ready run afterwards."""
        if node not in self._paused:
            self._paused[node] = []
            self.outside(self._now + seconds, self._resume, node)

    def _resume(self, node: "Node") -> None:
        self._ready.extend(self._paused.pop(node))

    def run_in_executor(self, *_: object) -> Any:
        """Refuse: threads leave the simulation."""
        raise RuntimeError("a thread would leave the simulation")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle._scheduled:  # type: ignore[attr-defined]  # noqa: SLF001
            self._cancelled += 1

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps, so nothing has to be woken."""

    def _run_once(self) -> None:
        """Advance the clock if nothing is ready, then run all ready callbacks in seeded order."""
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise Deadlock(f"no end after {TURNS_MAX} turns, at {self._now:g} s")
        scheduled, ready = self._scheduled, self._ready
        if self._cancelled > CANCELLED_MAX and self._cancelled * 2 > len(scheduled):
            self._forget_cancelled()
            scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            self._pop()
        if not ready and not self._stopping:
            if not scheduled:
                raise Deadlock(f"nothing is ready and no timer is set, at {self._now:g} s")
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            ready.append(self._pop())
        batch = list(ready)
        ready.clear()
        if len(batch) > 1:
            self.random.shuffle(batch)
        for handle in batch:
            if not handle.cancelled() and not self._held_back(handle):
                handle._run()  # noqa: SLF001

    def _held_back(self, handle: asyncio.Handle) -> bool:
        """Whether its process is dead, or paused; a paused callback runs after the pause."""
        if not self._crashed and not self._paused:
            return False
        node = _node_of(handle)
        if node is None or node in self._crashed:
            return node is not None
        backlog = self._paused.get(node)
        if backlog is not None:
            backlog.append(handle)
        return backlog is not None

    def _pop(self) -> asyncio.TimerHandle:
        handle = heappop(self._scheduled)
        handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
        if handle.cancelled():
            self._cancelled -= 1
        return handle

    def _forget_cancelled(self) -> None:
        for handle in self._scheduled:
            if handle.cancelled():
                handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
        self._scheduled = [handle for handle in self._scheduled if not handle.cancelled()]
        heapify(self._scheduled)
        self._cancelled = 0


def run(seed: int, main: Callable[[SeededLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main` to its end on a new loop; tasks that it left are never run."""
    loop = SeededLoop(seed)
    loop.set_exception_handler(_say_nothing)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        silent = logging.root.manager.disable
        logging.disable()  # messages of coroutines that are closed here do not matter
        for task in loop.tasks:
            if not task.done():
                _bury(task)
        logging.disable(silent)
        loop._ready.clear()  # noqa: SLF001
        loop._scheduled.clear()  # noqa: SLF001
        loop.close()


def _say_nothing(_: asyncio.AbstractEventLoop, __: dict[str, Any]) -> None:
    """Ignore exceptions that nobody retrieved from dead tasks."""


def _bury(task: "asyncio.Task[Any]") -> None:
    """Close the coroutine of a task that will never run; its `finally` has no effect."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    coroutine = task.get_coro()
    for _ in range(10):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # it awaits inside a `finally`: close that too
        except BaseException:  # noqa: BLE001 (most likely Dead, from a port)
            return
        return


# --- processes inside a run -------------------------------------------------------------------

_NODE: ContextVar["Node | None"] = ContextVar("tenure_node", default=None)


def _node_of(handle: asyncio.Handle) -> "Node | None":
    context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001
    return context.get(_NODE)


class Node:
    """One process: all tasks that are spawned in it die with it."""

    def __init__(self, loop: SeededLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.dead = False
        self._context = copy_context()
        self._context.run(_NODE.set, self)
        self._watchers: list[asyncio.Future[None]] = []
        self._left: list[
            asyncio.Task[Any]
        ] = []  # kept, so that they are closed in order at the end

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task in this process; to wait for it from outside use `run` instead."""
        self.check()
        return self.loop.create_task(coroutine, context=self._context.copy())

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run this in the process and return its result; Dead if the process dies first."""
        if self.dead:
            coroutine.close()
            raise Dead(self.name)
        task = self.spawn(coroutine)
        death: asyncio.Future[None] = self.loop.create_future()
        self._watchers.append(death)
        task.add_done_callback(lambda _: _tell(death), context=Context())
        await death
        self._watchers = [watcher for watcher in self._watchers if watcher is not death]
        if not task.done():
            self._left.append(task)
            raise Dead(self.name)
        return task.result()

    def crash(self) -> None:
        """Kill -9: `run` raises Dead outside; nothing inside the process runs any more."""
        if self.dead:
            return
        self.dead = True
        self.loop.crash(self)
        for watcher in self._watchers:
            _tell(watcher)

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds; time passes meanwhile."""
        self.loop.pause(self, seconds)

    def check(self) -> None:
        """Raise Dead if this process is dead; every port calls this first."""
        if self.dead:
            raise Dead(self.name)


def _tell(watcher: "asyncio.Future[None]") -> None:
    if not watcher.done():
        watcher.set_result(None)


async def forever() -> None:
    """Never return: where a crashed process was waiting."""
    await asyncio.get_running_loop().create_future()


# --- the ports of time and chance -------------------------------------------------------------


class VirtualClock:
    """See `tenure.ports.clock.Clock`; it may be off (`skew`) and run too fast or slow (`rate`)."""

    def __init__(self, loop: SeededLoop, *, skew: float = 0.0, rate: float = 1.0) -> None:
        self._loop = loop
        self.skew = skew
        self._rate = rate

    def now(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self.skew + self._loop.time() * self._rate

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._loop.time() * self._rate

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds` of this clock."""
        await asyncio.sleep(seconds / self._rate)


class SeededEntropy:
    """See `tenure.ports.entropy.Entropy`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bits(self) -> int:
        """62 bits."""
        return self._random.getrandbits(62)

    def secret(self) -> bytes:
        """32 bytes."""
        return self._random.randbytes(32)

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()


class Trace:
    """A hash of all events of a run: two runs of one seed have the same hash."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)

    def add(self, *words: object) -> None:
        """Add one event."""
        self._hash.update((" ".join(map(str, words)) + "\n").encode())

    def hexdigest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()
