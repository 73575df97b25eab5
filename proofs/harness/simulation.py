"""The simulation runner: several processes race on one disk while everything fails around them.

A seed and a workload profile draw a `Schedule` (`proofs.harness.schedule`).  A `Simulation` runs it
on a seeded loop in virtual time: processes that die, pause and come back, disks that fail, callers
who ask.  From `calm_at` on nothing more fails.  When all is at rest the subject checks its
invariants in the world's truth.  A seed gives the same run on every machine with the same minor
version of Python, and its trace hash shows it.

A subject derives one class from `Simulation` and says four things there: what it is built from
(`build`), what its callers do (`clients`), how it waits for rest (`rest`) and what must hold
(`check`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

from proofs.harness.cluster import RESTART_SECONDS, Cluster, Disk, Process
from proofs.harness.recorder import HistoryRecorder, Pace, WorkerStore
from proofs.harness.schedule import Failure, ProcessFailure, Schedule
from proofs.harness.slow_disk import SlowDisk
from proofs.harness.snapshot import Snapshot, journal_only_grew, read_snapshot
from tenure.adapters.engine.embedded import EngineSettings
from tenure.app.operations.executor import Executor
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.errors import CommitUnknown, Defect, StoreError, StoreLocked
from tenure.core.plan import Plan
from tenure.ports.clock import Clock
from tenure.ports.provider import NO_PLANE, Provider
from tenure.ports.store import Change, Put, Store
from tenure.testing.fakes import FakeProvider, World
from tenure.testing.faults import Faults
from tenure.testing.loop import Dead, SeededLoop, VirtualClock, run

ANSWER_SECONDS = 2.5
"""How long a caller waits for an answer before it asks another process."""
FRONT = "front"
"""The process that serves callers and moves nothing."""


class FaultyDisk(Disk, Protocol):
    """A disk that fails on demand."""

    def fail_commit(self, store: Store, *, is_applied: bool) -> None:
        """Make the next COMMIT of this handle fail."""
        ...

    def fill(self, *, full: bool) -> None:
        """Have no room for new work, or have it again."""
        ...

    def belongs_to(self, store: Store, *, skew: float = 0.0, slow: bool = False) -> None:
        """Say that the process of this handle has a wrong clock, or the slowest connection."""
        ...


OpenDisk = Callable[[Schedule, Clock, HistoryRecorder], FaultyDisk]


def memory_disk(schedule: Schedule, clock: Clock, recorder: HistoryRecorder) -> FaultyDisk:
    """The disk of most runs."""
    return SlowDisk(
        clock,
        recorder,
        seed=schedule.seed,
        flush_seconds=schedule.flush_seconds,
        refuse_rate=schedule.refuse_rate,
    )


class Result(NamedTuple):
    """What came of a simulation run."""

    seed: int
    wrong: list[str]
    """Each violation begins with the name of its invariant."""
    trace: str = ""
    seconds: float = 0.0
    """In virtual time."""
    operations: int = 0
    faults: int = 0
    states: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    """What else the subject counts, by name."""


class SuspendableClock(VirtualClock):
    """The clock of a machine that can be suspended: it does not count the time it was."""

    lost = 0.0

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return super().monotonic() - self.lost


class ClusterParts(NamedTuple):
    """The plans, providers and faults of which a subject builds a cluster."""

    plans: Iterable[Plan]
    world: World
    providers: Mapping[str, FakeProvider]
    faults: Faults


class Simulation(Cluster):
    """One simulation run; a subject derives its own class from this one."""

    profiles: ClassVar[Mapping[str, Any]]
    """The workload profiles by name; each has `draw(seed) -> Schedule`."""

    def __init__(self, loop: SeededLoop, profile: Any, disk: OpenDisk = memory_disk) -> None:
        """Nothing has happened yet; the loop's seed is the seed of the run."""
        self.profile = profile
        schedule = self.schedule = profile.draw(loop.seed)
        self.wrong: list[str] = []
        self.parts = self.build(loop)
        clock = VirtualClock(loop)
        self.recorder = HistoryRecorder(self.parts.world.trace, loop.time)
        self.faulty_disk: FaultyDisk = disk(schedule, clock, self.recorder)
        self.front: Process | None = None
        self._pace = Pace()
        self._paces: list[Pace] = []
        self._slots: list[Process | None] = [None] * len(schedule.clocks)
        self._clocks = [
            SuspendableClock(loop, skew=skew, rate=rate) for skew, rate in schedule.clocks
        ]
        super().__init__(
            loop,
            plans=self.parts.plans,
            world=self.parts.world,
            providers=self.parts.providers,
            disk=self.faulty_disk,
            settings=EngineSettings(lease_ttl_seconds=schedule.lease_seconds),
        )

    # --- what a subject says ----------------------------------------------------------------------

    def build(self, loop: SeededLoop) -> ClusterParts:
        """The world, providers and plans of this run."""
        raise NotImplementedError

    async def before_clients(self) -> None:
        """Set something up through a process that serves, before the clients begin."""

    def clients(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What each client does; the run is not at rest before all of them have returned."""
        raise NotImplementedError

    def observers(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What goes on until the end of the run."""
        return ()

    async def until_calm(self) -> None:
        """Return when nothing fails any more."""
        await asyncio.sleep(self.schedule.calm_at)

    async def rest(self, is_busy: Callable[[], bool]) -> list[str]:
        """Wait until nothing can move any more; `is_busy` while a client has not returned."""
        raise NotImplementedError

    async def check(self, snapshot: Snapshot) -> list[str]:
        """Every violation of the subject's invariants."""
        raise NotImplementedError

    def counts(self) -> Mapping[str, int]:
        """What the subject counts beside operations and faults."""
        return {}

    # --- the run ----------------------------------------------------------------------------------

    async def run(self) -> Result:
        """Run it to its end and check every invariant."""
        create = self.loop.create_task
        slots = [create(self._keep_slot(number)) for number in range(len(self._slots))]
        await self.before_clients()
        tasks = [create(self._fail(failure)) for failure in self.schedule.failures]
        tasks += [create(client) for client in self.clients()]
        tasks += [create(self._poison(at)) for at in self.schedule.poison_at]
        if self.schedule.full is not None:
            tasks.append(create(self._fill(*self.schedule.full)))
        if self.schedule.front:
            tasks.append(create(self._start_front()))
        observers = [create(observer) for observer in self.observers()]
        await self.until_calm()
        before = await read_snapshot(self.disk.observer())
        self._calm(slots)
        self.wrong += await self.rest(lambda: not all(task.done() for task in tasks))
        for task in tasks:
            if task.done():
                task.result()
        for observer in observers:
            observer.cancel()
        await self._stop(slots)
        return await self._judge(before)

    async def _stop(self, slots: "list[asyncio.Task[None]]") -> None:
        """Kill every process and wait for the last late request."""
        for slot in slots:
            if slot.done() and not slot.cancelled():
                slot.result()  # a slot never returns: raise its error
            slot.cancel()
        for process in self.serving:
            process.crash()
        await self.world.quiet()

    async def _judge(self, before: Snapshot) -> Result:
        snapshot = await read_snapshot(self.disk.observer())
        wrong = self.wrong + self.recorder.wrong
        wrong += await self.check(snapshot) + journal_only_grew(before, snapshot)
        snapshot.add_to(self.world.trace)
        return Result(
            self.schedule.seed,
            list(dict.fromkeys(wrong)),
            self.world.trace.hexdigest(),
            self.loop.time(),
            len(snapshot.operations),
            len(self.parts.faults.hits),
            snapshot.states(),
            self.counts(),
        )

    def work_of(
        self, store: Store, providers: Mapping[str, Provider], api: object = NO_PLANE
    ) -> Executor:
        """The product's own way to move an operation, recorded."""
        recorded: Any = WorkerStore(store, self.recorder, self._pace)
        return super().work_of(recorded, self.recorder.watch(providers, self._pace), api)

    def _calm(self, slots: "list[asyncio.Task[None]]") -> None:
        """From here on nothing fails, and in some runs what was refused is granted."""
        self.faulty_disk.fill(full=False)
        if isinstance(self.faulty_disk, SlowDisk):
            self.faulty_disk.refuse_rate = 0.0
        for process in self.processes:
            process.wire.crash_at = 0
        for pace in self._paces:
            pace.crossing = 0
        if self.schedule.heals:
            for fake in self.parts.providers.values():
                _heal(fake)
        if self.schedule.lone_end:
            for slot, last in zip(slots[1:], self._slots[1:], strict=True):
                slot.cancel()
                if last is not None:
                    last.crash()
                    self.serving = [other for other in self.serving if other is not last]

    def is_quiet(self) -> bool:
        """Whether no request to a provider is on its way any more."""
        return self.loop.time() > self.world._busy_until  # noqa: SLF001

    async def process_for_caller(self) -> Process:
        """A process to ask; a caller cannot see whether it is paused."""
        if self.front is not None and self.loop.random.random() < 0.7:
            return self.front
        return await self.any_process()

    # --- processes and how they fail --------------------------------------------------------------

    async def _keep_slot(self, number: int) -> None:
        """Start a process in this slot, and a fresh one whenever it is gone."""
        mine = [failure for failure in self.schedule.failures if failure.slot == number]
        deaths = [one for one in mine if one.what is Failure.DIES_AT_CROSSING]
        pauses = [one for one in mine if one.what is Failure.PAUSES and one.crossing]
        while True:
            death = deaths.pop(0) if deaths else ProcessFailure(number, Failure.DIES_AT_CROSSING)
            pause = pauses.pop(0) if pauses else ProcessFailure(number, Failure.PAUSES)
            process = await self._boot_in_slot(death, pause)
            try:
                await process.start()
                self.serving.append(process)
                await process.wait_gone()
            except (Dead, CommitUnknown, StoreError):
                process.crash()
            self.serving = [other for other in self.serving if other is not process]
            await asyncio.sleep(RESTART_SECONDS)

    async def _boot_in_slot(self, death: ProcessFailure, pause: ProcessFailure) -> Process:
        """A fresh process, as soon as the last one has let go of the disk."""
        number = death.slot
        name = f"{number}/{len(self.processes)}"
        while True:
            pace = self._pace = Pace(pause.crossing)
            clock = self._clocks[number]
            try:
                process = self.boot(name, crash_at=death.crossing, side=death.side, clock=clock)
            except StoreLocked:
                await asyncio.sleep(RESTART_SECONDS)
                continue
            pace.stop = partial(self._pause, process, pause)
            self._paces.append(pace)
            self._slots[number] = process
            self.faulty_disk.belongs_to(process.raw, skew=self.schedule.clocks[number][0])
            return process

    async def _fail(self, failure: ProcessFailure) -> None:
        """Let the process that is in that slot by then fail."""
        await asyncio.sleep(failure.at)
        process = self._slots[failure.slot]
        if process is None or process.node.dead:
            return
        match failure.what:
            case Failure.DIES_AT_CROSSING:
                pass  # its tripwire does it
            case Failure.DIES_AT_TIME:
                process.crash()
            case Failure.COMMIT_FAILS_KEPT:
                self.faulty_disk.fail_commit(process.raw, is_applied=True)
            case Failure.COMMIT_FAILS_LOST:
                self.faulty_disk.fail_commit(process.raw, is_applied=False)
            case Failure.PAUSES if not failure.crossing:
                self._pause(process, failure)
                await asyncio.sleep(failure.seconds)
            case Failure.PAUSES:
                pass  # its pace does it
            case Failure.STOPS:
                with suppress(Dead, CommitUnknown, StoreError):
                    await process.stop()

    def _pause(self, process: Process, failure: ProcessFailure) -> None:
        """Run nothing of it for a while; with `unseen` its clock does not show that."""
        process.node.pause(failure.seconds)
        if failure.unseen:
            self._clocks[failure.slot].lost += failure.seconds

    async def _fill(self, starts: float, ends: float) -> None:
        await asyncio.sleep(starts)
        self.faulty_disk.fill(full=True)
        await asyncio.sleep(ends - starts)
        self.faulty_disk.fill(full=False)

    async def _poison(self, at: float) -> None:
        """Hand in a change that no store can write; it must fail alone."""
        await asyncio.sleep(at)
        change = Change("", (), (Put("plan", (f"poison {at}",), {"name": "x", "version": 1}),))
        process = await self.process_for_caller()

        async def hand_in(plane: Plane) -> None:
            await plane.store.commit(change)
            self.wrong.append("poison_fails_alone: it was written")

        with suppress(Defect, Dead, CommitUnknown, StoreError, TimeoutError):
            await asyncio.wait_for(process.ask(hand_in), ANSWER_SECONDS)

    async def _start_front(self) -> None:
        """A process that serves callers and moves nothing."""
        front = self.boot(FRONT)
        self.faulty_disk.belongs_to(front.raw, slow=True)
        with suppress(StoreError):
            await front.node.run(prepare(front.plane))
            self.front = front


def _heal(fake: FakeProvider) -> None:
    """Grant what was refused, except ensures: a late one must still be refused."""
    refusals = fake._refuses  # noqa: SLF001
    for one in [one for one in refusals if one[0] != "ensure"]:
        del refusals[one]


# --- one seed, and what breaks the run itself -----------------------------------------------------


def simulate(
    simulation: type[Simulation], seed: int, profile: str, *, disk: OpenDisk = memory_disk
) -> Result:
    """Run this seed of a profile; an error of the harness itself is a violation too."""
    chosen = simulation.profiles[profile]
    defects: list[str] = []
    with _collect_defects(defects) as collector:

        async def main(loop: SeededLoop) -> Result:
            loop.set_exception_handler(collector.add_callback_error)
            collector.on = True
            try:
                return await simulation(loop, chosen, disk).run()
            finally:
                collector.on = False

        try:
            result = run(seed, main)
        except (Exception, CommitUnknown) as error:  # noqa: BLE001 (whatever it is, this seed failed)
            return Result(seed, [f"no_surprise: {error!r}", *defects])
    return result._replace(wrong=result.wrong + [f"no_defect: {one}" for one in defects])


class _DefectCollector(logging.Handler):
    """Collects errors that engines log during a run."""

    def __init__(self, defects: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.on = False
        self._defects = defects

    def emit(self, record: logging.LogRecord) -> None:
        if self.on:
            error = record.exc_info[1] if record.exc_info else None
            self._defects.append(f"{record.getMessage()}: {error!r}")

    def add_callback_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Collect an error that nobody waits for; a dead process may fail as it likes."""
        error = context.get("exception")
        if self.on and "handle" in context and not isinstance(error, Dead | CommitUnknown):
            self._defects.append(f"{context['message']}: {error!r}")


@contextmanager
def _collect_defects(defects: list[str]) -> Iterator[_DefectCollector]:
    log = logging.getLogger("tenure.engine")
    collector, propagate, level = _DefectCollector(defects), log.propagate, log.level
    log.addHandler(collector)
    log.propagate = False
    log.setLevel(logging.ERROR)
    try:
        yield collector
    finally:
        log.removeHandler(collector)
        log.propagate = propagate
        log.setLevel(level)
