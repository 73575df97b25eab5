"""Wraps ports so that every crossing is numbered and the process can be killed at each of them.

Core is pure, so a crash matters only at a port.  A `Tripwire` counts the crossings of one process
and kills the process at a given crossing: before the request leaves, while it is on its way, or
after the answer came and before the caller has it.  A store can also fail: a COMMIT with unknown
outcome, or no space.  Once the process is dead every port raises `Dead`, so that a `finally` cannot
fake durability.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from tenure.core.errors import CommitUnknown, StoreFull
from tenure.core.ids import ResourceKey
from tenure.core.records import IntentRecord, OperationRecord, OutboxRecord
from tenure.ports.provider import Observation, OwnedResource, Provider, Spec
from tenure.ports.store import (
    Change,
    ClaimedOperation,
    CommitRefusal,
    Key,
    LoadedOperation,
    Queue,
    R,
    Store,
    TenantEvents,
    Value,
    WakeHint,
)
from tenure.testing.loop import Node, forever

T = TypeVar("T")


class CrossingSide(StrEnum):
    """The instant of a crossing at which the process dies or the store fails."""

    BEFORE = "before"
    """Die before the request leaves."""
    DURING = "during"
    """Die after the request has left; it still arrives.  Providers only."""
    AFTER = "after"
    """Die before the caller gets the answer: a commit is applied, its reply is lost."""
    ERROR_KEPT = "error, kept"
    """COMMIT fails although it was applied.  Store only."""
    ERROR_LOST = "error, lost"
    """COMMIT fails and was not applied.  Store only."""
    FULL = "full"
    """The store is full for this one change.  Only changes that admit new work."""


class Tripwire:
    """The numbered crossings of one process, and the one at which it dies (0: none)."""

    def __init__(
        self, node: Node, *, crash_at: int = 0, side: CrossingSide = CrossingSide.BEFORE
    ) -> None:
        self.node = node
        self.crash_at = crash_at
        self.side = side
        self.crossings: list[str] = []
        """The names of the crossings, in order: `store.commit`, `runtime.ensure`."""
        self.tripped = False
        self.broken = False
        """Whether a COMMIT has failed, so that the store refuses everything."""
        self._sent: list[Coroutine[Any, Any, Any]] = []

    def store(self, inner: Store) -> "WiredStore":
        """This store, with every crossing counted."""
        return WiredStore(self, inner)

    def provider(self, name: str, inner: Provider) -> "WiredProvider":
        """This provider, with every crossing counted."""
        return WiredProvider(self, name, inner)

    def arrives(self, name: str) -> CrossingSide | None:
        """Count one crossing; return the side on which to die if it is the chosen one."""
        self.node.check()
        self.crossings.append(name)
        if len(self.crossings) != self.crash_at:
            return None
        self.tripped = True
        return self.side

    async def die(self) -> None:
        """End the process here: this never returns."""
        self.node.crash()
        await forever()

    async def cross(self, name: str, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Cross once, or die on the way."""
        side = self.arrives(name)
        if side is None:
            return await send()
        if side is CrossingSide.BEFORE:
            await self.die()
        if side is CrossingSide.DURING:
            request = send()
            request.send(None)  # up to the first wait: the request has left
            self._sent.append(request)
            await self.die()
        try:
            answer = await send()
        except BaseException:
            if side is CrossingSide.AFTER:
                await self.die()
            raise
        if side is CrossingSide.AFTER:
            await self.die()
        return answer


class WiredProvider:
    """See `tenure.ports.provider.Provider`."""

    def __init__(self, wire: Tripwire, name: str, inner: Provider) -> None:
        """Cross to `inner`."""
        self._wire = wire
        self._inner = inner
        self._names = {
            verb: f"{name}.{verb}" for verb in ("ensure", "inspect", "remove", "list_owned")
        }

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Cross."""
        inner: Any = self._inner
        answer: Mapping[str, object]
        answer = await self._wire.cross(self._names["ensure"], lambda: inner.ensure(key, spec))
        return answer

    async def inspect(self, key: ResourceKey) -> Observation:
        """Cross."""
        inner: Any = self._inner
        answer: Observation = await self._wire.cross(
            self._names["inspect"], lambda: inner.inspect(key)
        )
        return answer

    async def remove(self, key: ResourceKey) -> None:
        """Cross."""
        inner: Any = self._inner
        await self._wire.cross(self._names["remove"], lambda: inner.remove(key))

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Cross; nothing is sent before the first item is requested."""
        side = self._wire.arrives(self._names["list_owned"])
        if side is not None and side is not CrossingSide.AFTER:
            await self._wire.die()
        found = [owned async for owned in self._inner.list_owned(plane)]
        if side is CrossingSide.AFTER:
            await self._wire.die()
        for owned in found:
            yield owned


class WiredStore:
    """See `tenure.ports.store.Store`."""

    def __init__(self, wire: Tripwire, inner: Store) -> None:
        """Cross to `inner`."""
        self._wire = wire
        self._inner = inner

    def now(self) -> float:
        """No crossing: a clock is only read."""
        self._wire.node.check()
        return self._inner.now()

    async def commit(self, change: Change) -> CommitRefusal | None:
        """Cross, or fail as a disk does."""
        wire = self._wire
        side = wire.arrives("store.admit" if change.is_new_work else "store.commit")
        self._check()
        match side:
            case None:
                return await self._inner.commit(change)
            case CrossingSide.FULL:
                if change.is_new_work:
                    raise StoreFull("there is no room for new work")
                return await self._inner.commit(change)
            case CrossingSide.BEFORE | CrossingSide.DURING:
                await wire.die()
            case CrossingSide.ERROR_LOST:
                wire.broken = True
            case CrossingSide.ERROR_KEPT:
                await self._inner.commit(change)
                wire.broken = True
            case CrossingSide.AFTER:
                await self._inner.commit(change)
                await wire.die()
        self._check()
        return None

    async def claim(
        self, queue: Queue, worker: str, *, limit: int, except_plans: Sequence[str] = ()
    ) -> Sequence[ClaimedOperation]:
        """Cross, or fail as a disk does."""
        wire = self._wire
        side = wire.arrives("store.claim")
        self._check()
        if side in (CrossingSide.BEFORE, CrossingSide.DURING):
            await wire.die()
        if side is CrossingSide.ERROR_LOST:
            wire.broken = True
            self._check()
        claimed = await self._inner.claim(queue, worker, limit=limit, except_plans=except_plans)
        if side is CrossingSide.AFTER:
            await wire.die()
        wire.broken = wire.broken or side is CrossingSide.ERROR_KEPT
        self._check()
        return claimed

    async def begin_epoch(self, epoch: int) -> None:
        """Cross."""
        await self._read("store.begin_epoch", lambda: self._inner.begin_epoch(epoch))

    async def list_due(self, worker: str) -> Sequence[ClaimedOperation]:
        """Cross."""
        return await self._read("store.list_due", lambda: self._inner.list_due(worker))

    async def was_committed(self, change_id: str) -> bool:
        """Cross."""
        return await self._read("store.was_committed", lambda: self._inner.was_committed(change_id))

    async def find(self, record: type[R], key: Key) -> R | None:
        """Cross."""
        return await self._read("store.find", lambda: self._inner.find(record, key))

    async def load(self, operation: str) -> LoadedOperation | None:
        """Cross."""
        return await self._read("store.load", lambda: self._inner.load(operation))

    async def list_operations(
        self, tenant: str, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Cross."""
        return await self._read(
            "store.list_operations",
            lambda: self._inner.list_operations(tenant, states=states, after=after, limit=limit),
        )

    async def list_resources(self, tenant: str, agent: str) -> Sequence[IntentRecord]:
        """Cross."""
        return await self._read(
            "store.list_resources", lambda: self._inner.list_resources(tenant, agent)
        )

    async def list_living(
        self, slot: str, agent_generations: Sequence[tuple[str, int]], *, gone: str
    ) -> frozenset[str]:
        """Cross."""
        return await self._read(
            "store.list_living", lambda: self._inner.list_living(slot, agent_generations, gone=gone)
        )

    async def list_open(
        self, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Cross."""
        return await self._read(
            "store.list_open",
            lambda: self._inner.list_open(states=states, after=after, limit=limit),
        )

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """No crossing: a wakeup is only a hint."""
        self._inner.listen(on_wake_hint)

    async def list_events(self, *, after: int = 0, limit: int = 100) -> Sequence[OutboxRecord]:
        """Cross."""
        return await self._read(
            "store.list_events", lambda: self._inner.list_events(after=after, limit=limit)
        )

    async def newest_event(self) -> int:
        """Cross."""
        return await self._read("store.newest_event", self._inner.newest_event)

    async def count_events(self, *, until: int) -> Mapping[str, TenantEvents]:
        """Cross."""
        return await self._read("store.count_events", lambda: self._inner.count_events(until=until))

    async def list_rows(
        self, record: type[R], columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[R]:
        """Cross."""
        return await self._read(
            "store.list_rows",
            lambda: self._inner.list_rows(record, columns, after=after, limit=limit),
        )

    async def count_rows(self, record: type[tuple[Any, ...]], columns: Mapping[str, Value]) -> int:
        """Cross."""
        return await self._read("store.count_rows", lambda: self._inner.count_rows(record, columns))

    async def count_states(self, tenant: str) -> Mapping[tuple[str, str], int]:
        """Cross."""
        return await self._read("store.count_states", lambda: self._inner.count_states(tenant))

    async def plans_of_open_operations(self) -> Sequence[str]:
        """Cross."""
        return await self._read("store.plans", self._inner.plans_of_open_operations)

    async def backup(self, path: str) -> None:
        """Cross."""
        await self._read("store.backup", lambda: self._inner.backup(path))

    async def write_problem(self) -> str:
        """Cross."""
        return await self._read("store.write_problem", self._inner.write_problem)

    def stop_waiting(self) -> None:
        """No crossing: nothing is sent."""
        self._inner.stop_waiting()

    async def close(self) -> None:
        """Close the store, unless the process is dead."""
        self._wire.node.check()
        await self._inner.close()

    async def _read(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        side = self._wire.arrives(name)
        self._check()
        if side is None:
            return await read()
        if side in (CrossingSide.BEFORE, CrossingSide.DURING):
            await self._wire.die()
        answer = await read()
        if side is CrossingSide.AFTER:
            await self._wire.die()
        return answer

    def _check(self) -> None:
        if self._wire.broken:
            raise CommitUnknown("a COMMIT failed: nobody knows what is on disk")


SIDES: Mapping[str, tuple[CrossingSide, ...]] = {
    "store.admit": (
        CrossingSide.BEFORE,
        CrossingSide.AFTER,
        CrossingSide.ERROR_KEPT,
        CrossingSide.ERROR_LOST,
        CrossingSide.FULL,
    ),
    "store.commit": (
        CrossingSide.BEFORE,
        CrossingSide.AFTER,
        CrossingSide.ERROR_KEPT,
        CrossingSide.ERROR_LOST,
    ),
    "store.claim": (
        CrossingSide.BEFORE,
        CrossingSide.AFTER,
        CrossingSide.ERROR_KEPT,
        CrossingSide.ERROR_LOST,
    ),
}
"""The sides of the store's writing crossings."""


def sides_of(crossing: str) -> tuple[CrossingSide, ...]:
    """Every side on which a process can die at this crossing.

    A read of the store has one: it changes nothing, so dying after it is dying before the next.
    """
    if crossing.startswith("store."):
        return SIDES.get(crossing, (CrossingSide.BEFORE,))
    return (CrossingSide.BEFORE, CrossingSide.DURING, CrossingSide.AFTER)
