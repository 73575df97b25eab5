"""Records what the processes of a run do at their ports, and reports what no process may do.

The invariants of a subject look at what is left at the end of a run.  These rules are about what
happened on the way: a process that has lost an operation writes nothing more for it, nobody takes
an operation from a worker whose lease is alive, no undo leaves while its do is under way.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

from tenure.core.ids import ResourceKey
from tenure.ports.provider import Observation, OwnedResource, Provider, Spec
from tenure.ports.store import Change, ClaimedOperation, CommitRefusal, Put, Store
from tenure.testing.loop import Trace
from tenure.testing.memory_store import Tables


class HistoryRecorder:
    """Records every change that is applied, every claim and every provider call of a run."""

    def __init__(self, trace: Trace, now: Callable[[], float]) -> None:
        self.wrong: list[str] = []
        self._trace = trace
        self._now = now
        self._of_workers: dict[int, Change] = {}
        self._process_of: dict[str, str] = {}

    def add_worker_change(self, change: Change) -> None:
        """Note that this change records a move, which only the operation's worker may do."""
        self._of_workers[id(change)] = change  # the reference keeps another change off this id

    def holder_before(self, change: Change, tables: Tables) -> tuple[str, str] | None:
        """The operation that a worker's change is about, and the worker that holds it."""
        if self._of_workers.pop(id(change), None) is None:
            return None
        for write in change.expand_prepared().writes:
            if write.table == "operation":
                row = tables.rows["operation"].get(cast(Any, write.key))
                return None if row is None else (str(row["id"]), str(row["worker"]))
        return None

    def add_applied(
        self,
        name: str,
        change: Change,
        answer: CommitRefusal | None,
        holder: tuple[str, str] | None,
    ) -> None:
        """Record that a change of this process was applied or refused."""
        self._trace.add(f"{self._now():.6f}", name, change.id, answer is None)
        if answer is not None:
            return
        for write in change.writes:
            if write.table == "lease" and isinstance(write, Put):
                self._process_of[str(write.row["holder"])] = name
        if holder is not None and self._process_of.get(holder[1], name) != name:
            operation, worker = holder
            self.wrong.append(f"one_writer: process {name} wrote for {operation} of {worker}")

    def live_holders(self, tables: Tables, now: float) -> dict[str, str]:
        """The open operations of workers whose lease is alive by the store's clock."""
        leases, alive = tables.rows["lease"], {}
        for (name,), row in tables.rows["operation"].items():
            if row["ended_at"] is None:
                lease = leases.get((f"worker/{row['worker']!s}",))
                if lease is not None and cast(float, lease["until"]) >= now:
                    alive[str(name)] = str(row["worker"])
        return alive

    def add_claims(
        self, name: str, worker: str, claims: Sequence[ClaimedOperation], alive: Mapping[str, str]
    ) -> None:
        """Record that this process has claimed operations."""
        for operation, token, _ in claims:
            self._trace.add(f"{self._now():.6f}", name, "claims", operation, token)
            if operation in alive and alive[operation] != worker:
                holder = alive[operation]
                self.wrong.append(f"nobody_alive_is_robbed: {worker} took {operation} of {holder}")

    def watch(self, providers: Mapping[str, Provider], pace: "Pace") -> dict[str, Provider]:
        """The providers of one process, with its calls recorded."""
        doing: Counter[str] = Counter()
        return {
            name: cast(Provider, RecordedProvider(self, inner, doing, pace))
            for name, inner in providers.items()
        }


class Pace:
    """Calls `stop` at the nth crossing of a process's worker; 0: never."""

    def __init__(self, crossing: int = 0) -> None:
        """Nothing was crossed; `stop` is set when there is a process."""
        self.crossing = crossing
        self.stop: Callable[[], None] = lambda: None
        self._count = 0

    async def step(self) -> None:
        """Count one crossing; at the chosen one, stop the process first."""
        self._count += 1
        if self._count == self.crossing:
            self.stop()
            await asyncio.sleep(0)


class RecordedProvider:
    """See `tenure.ports.provider.Provider`; it changes nothing and records which dos run."""

    def __init__(
        self, recorder: HistoryRecorder, inner: Provider, doing: Counter[str], pace: Pace
    ) -> None:
        """Hand everything to `inner`; `doing` counts the ensures under way, by key."""
        self._recorder = recorder
        self._inner = inner
        self._doing = doing
        self._pace = pace

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Count it as under way."""
        self._doing[key.text] += 1
        try:
            await self._pace.step()
            answer = await self._inner.ensure(key, spec)
            await self._pace.step()
        finally:
            self._doing[key.text] -= 1
        return answer

    async def inspect(self, key: ResourceKey) -> Observation:
        """Hand it on."""
        await self._pace.step()
        return await self._inner.inspect(key)

    def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Hand it on."""
        return self._inner.list_owned(plane)

    async def remove(self, key: ResourceKey) -> None:
        """Report a removal while an ensure of the same key is under way in this process."""
        await self._pace.step()
        if self._doing[key.text]:
            why = f"an undo of {key.name} left while its do was under way"
            self._recorder.wrong.append(f"do_ends_before_its_undo: {why}")
        await self._inner.remove(key)


class WorkerStore:
    """The store as `Executor` sees it: each change that it commits is marked as a worker's."""

    def __init__(self, inner: Store, recorder: HistoryRecorder, pace: Pace) -> None:
        """Hand everything to `inner`."""
        self._inner = inner
        self._recorder = recorder
        self._pace = pace
        self.now = inner.now
        self.load = inner.load
        self.find = inner.find

    async def commit(self, change: Change) -> CommitRefusal | None:
        """Mark the change, then commit it."""
        await self._pace.step()
        self._recorder.add_worker_change(change)
        return await self._inner.commit(change)
