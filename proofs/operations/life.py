"""One life of a plane: several processes race on one disk while everything goes wrong.

A seed draws a `Life` (`proofs.operations.scenarios`), and `live` lives it on a seeded loop in
virtual time.  From some moment on nothing more goes wrong; time passes until all is at rest; then
every invariant is checked in the world's truth, beside what callers were told.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from proofs.harness.rig import RESTART_SECONDS, Disk, Process, Rig
from proofs.harness.slow_disk import SlowDisk
from proofs.operations.callers import ANSWER_SECONDS, TENANT, Callers
from proofs.operations.history import Pace, Witness, WorkersStore
from proofs.operations.invariants import Evidence, journal_only_grew, read_books, violations
from proofs.operations.profiles import USUAL
from proofs.operations.scenarios import FRONT, Drawn, Life, Mishap, Mix, Trouble, draw
from tenure.adapters.engine.embedded import EngineSettings
from tenure.app.operations.executor import Executor
from tenure.app.plane import Plane, prepare
from tenure.core.errors import CommitUnknown, Defect, StoreError, StoreLocked
from tenure.core.operation import OPERATION, OperationState
from tenure.ports.clock import Clock
from tenure.ports.plane_api import NO_PLANE, PlaneApi
from tenure.ports.provider import Provider
from tenure.ports.store import Change, Put, Store
from tenure.testing.fakes import FakeProvider, World
from tenure.testing.loop import Dead, SeededLoop, VirtualClock, run
from tenure.testing.plans import EFFECTS, PLANS, providers_of

PATIENCE_SECONDS = 150.0
"""After the calm: what is not at rest by then is a violation."""
LOOK_SECONDS = 1.0
STUCK_SECONDS = 9.0
"""What is stuck for so long without getting loose is stuck for good."""


class Breakable(Disk, Protocol):
    """A disk that fails on demand."""

    def fail_commit(self, store: Store, *, applied: bool) -> None:
        """The next COMMIT of this handle fails."""
        ...

    def fill(self, *, full: bool) -> None:
        """There is no room for new work, or there is again."""
        ...

    def belongs_to(self, store: Store, *, skew: float = 0.0, slow: bool = False) -> None:
        """The process of this handle has a wrong clock, or the slowest of all connections."""
        ...


OpenDisk = Callable[[Life, Clock, Witness], Breakable]


def memory_disk(life: Life, clock: Clock, witness: Witness) -> Breakable:
    """The disk of most lives."""
    return SlowDisk(
        clock,
        witness,
        seed=life.seed,
        flush_seconds=life.flush_seconds,
        refuse_rate=life.refuse_rate,
    )


class Lived(NamedTuple):
    """What came of a seed."""

    seed: int
    wrong: list[str]
    trace: str
    seconds: float
    """In virtual time."""
    operations: int
    faults: int
    states: tuple[str, ...]


def live(seed: int, mix: Mix = USUAL, *, disk: OpenDisk = memory_disk) -> Lived:
    """Live the life of this seed; what breaks the harness itself is wrong too."""
    drawn = draw(seed, mix)
    defects: list[str] = []
    with _heard(defects) as heard:

        async def main(loop: SeededLoop) -> Lived:
            loop.set_exception_handler(heard.of_callbacks)
            heard.on = True
            try:
                return await Simulation(loop, drawn, disk, defects).run()
            finally:
                heard.on = False

        try:
            return run(seed, main)
        except (Exception, CommitUnknown) as error:  # noqa: BLE001 (whatever it is, this seed failed)
            return Lived(seed, [f"no_surprise: {error!r}", *defects], "", 0.0, 0, 0, ())


class DozingClock(VirtualClock):
    """The clock of a machine that can be suspended: it does not count what it has slept."""

    lost = 0.0

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return super().monotonic() - self.lost


class Simulation(Rig):
    """One life while it is lived."""

    def __init__(self, loop: SeededLoop, life: Life, disk: OpenDisk, defects: list[str]) -> None:
        """Nothing has happened yet."""
        world, clock = World(loop), VirtualClock(loop)
        self.life = life
        self.faults = Drawn(life, loop)
        self.fakes = providers_of(world, self.faults)
        self.witness = Witness(world.trace, loop.time)
        self.witness.defects = defects
        self.broken: Breakable = disk(life, clock, self.witness)
        self._pace = Pace()
        self._paces: list[Pace] = []
        self._slots: list[Process | None] = [None] * life.processes
        self._clocks = [DozingClock(loop, skew=skew, rate=rate) for skew, rate in life.clocks]
        super().__init__(
            loop,
            plans=PLANS.values(),
            world=world,
            providers=self.fakes,
            disk=self.broken,
            settings=EngineSettings(lease_ttl_seconds=life.lease_seconds),
        )
        self.callers = Callers(self, self.witness)

    def work_of(
        self, store: Store, providers: Mapping[str, Provider], api: PlaneApi = NO_PLANE
    ) -> Executor:
        """The product's own way to move an operation, watched."""
        watched: Any = WorkersStore(store, self.witness, self._pace)
        return super().work_of(watched, self.witness.watch(providers, self._pace), api)

    # --- the life -------------------------------------------------------------------------------

    async def run(self) -> Lived:
        """Live it to its end and say what was wrong."""
        life, loop = self.life, self.loop
        slots = [loop.create_task(self._slot(n)) for n in range(life.processes)]
        tasks = [loop.create_task(self._befall(trouble)) for trouble in life.troubles]
        tasks += [loop.create_task(self.callers.wish(wish)) for wish in life.wishes]
        tasks += [loop.create_task(self._poison(at)) for at in life.poison_at]
        if life.full is not None:
            tasks.append(loop.create_task(self._fill(*life.full)))
        if life.front:
            tasks.append(loop.create_task(self._stand_in_front()))
        await asyncio.sleep(life.calm_at)
        before = await read_books(self.disk.look())
        self._calm(slots)
        wrong = await self._until_at_rest(tasks)
        for slot in slots:
            if slot.done() and not slot.cancelled():
                slot.result()  # it should not have ended: say why
            slot.cancel()
        for process in self.serving:
            process.crash()
        await self.world.quiet()
        return await self._judge(before, wrong)

    async def _judge(self, before: Any, wrong: list[str]) -> Lived:
        books = await read_books(self.disk.look())
        plans = {plan.digest: plan for plan in PLANS.values()}
        told, world = self.witness.told, self.world
        evidence = Evidence(books, world, plans, told.accepted, EFFECTS)
        wrong += violations(evidence) + journal_only_grew(before, books)
        life = self.life
        paused = any(trouble.what is Mishap.PAUSES for trouble in life.troubles)
        wrong += self.witness.violations(
            evidence,
            self.faults,
            paused=paused,
            soon_seconds=None if self._is_troubled() else 4.0 + 10.0 * life.flush_seconds,
            wish_of=_wish_of,
        )
        for name, row in books.operations.items():
            world.trace.add(name, row["state"], row["revision"], row["updated_at"])
        states = tuple(str(row["state"]) for row in books.operations.values())
        return Lived(
            self.life.seed,
            list(dict.fromkeys(wrong)),
            world.trace.hexdigest(),
            self.loop.time(),
            len(books.operations),
            len(self.faults.struck),
            states,
        )

    def _is_troubled(self) -> bool:
        """Whether something has slowed down whoever looks round."""
        life = self.life
        wrong = any(rate != 1.0 for _, rate in life.clocks)
        return bool(life.troubles) or life.refuse_rate > 0 or life.lone_end or wrong

    def _calm(self, slots: "list[asyncio.Task[None]]") -> None:
        """From here on nothing goes wrong, and in some lives what was refused is granted."""
        self.broken.fill(full=False)
        if isinstance(self.broken, SlowDisk):
            self.broken.refuse_rate = 0.0
        for process in self.processes:
            process.wire.crash_at = 0
        for pace in self._paces:
            pace.crossing = 0
        if self.life.heals:
            for fake in self.fakes.values():
                _heal(fake)
        if self.life.lone_end:
            for slot, lodger in zip(slots[1:], self._slots[1:], strict=True):
                slot.cancel()
                if lodger is not None:
                    lodger.crash()
                    self.serving = [other for other in self.serving if other is not lodger]

    async def _until_at_rest(self, tasks: "list[asyncio.Task[None]]") -> list[str]:
        """Return when every operation has ended, or is stuck and will not come loose by itself."""
        since: dict[str, float] = {}
        spoken: set[str] = set()
        loop = self.loop
        while loop.time() < self.life.calm_at + PATIENCE_SECONDS:
            moving = not all(task.done() for task in tasks)
            for row in await self.disk.look().list_operations(TENANT, limit=1_000):
                name, state = str(row["id"]), OperationState(str(row["state"]))
                if state in OPERATION.final:
                    continue
                if state is not OperationState.STUCK:
                    since.pop(name, None)
                    moving = True
                    continue
                stuck_for = loop.time() - since.setdefault(name, loop.time())
                moving = moving or stuck_for < STUCK_SECONDS
                wish = self.life.wishes[_wish_of(str(row["input"]))]
                if wish.operator == "resolve" and name not in spoken and self._is_quiet():
                    spoken.add(name)
                    moving = True
                    await self.callers.resolve(name)
            if not moving:
                for task in tasks:
                    task.result()
                return []
            await asyncio.sleep(LOOK_SECONDS)
        return [f"all_is_at_rest: not {PATIENCE_SECONDS:g} s after the calm"]

    def _is_quiet(self) -> bool:
        """Whether nothing is on its way any more."""
        return self.loop.time() > self.world._busy_until  # noqa: SLF001

    # --- processes and what befalls them --------------------------------------------------------

    async def _slot(self, number: int) -> None:
        """One place for a process: whenever it is gone, a fresh one takes it."""
        mine = [trouble for trouble in self.life.troubles if trouble.slot == number]
        wires = [trouble for trouble in mine if trouble.what is Mishap.DIES_AT_CROSSING]
        pauses = [trouble for trouble in mine if trouble.what is Mishap.PAUSES and trouble.crossing]
        while True:
            wire = wires.pop(0) if wires else Trouble(number, Mishap.DIES_AT_CROSSING)
            pause = pauses.pop(0) if pauses else Trouble(number, Mishap.PAUSES)
            process = await self._move_in(wire, pause)
            try:
                await process.start()
                self.serving.append(process)
                await process.gone()
            except (Dead, CommitUnknown, StoreError):
                process.crash()
            self.serving = [other for other in self.serving if other is not process]
            await asyncio.sleep(RESTART_SECONDS)

    async def _move_in(self, wire: Trouble, pause: Trouble) -> Process:
        """A fresh process, as soon as the last has let go of the disk."""
        number = wire.slot
        name = f"{number}/{len(self.processes)}"
        while True:
            pace = self._pace = Pace(pause.crossing)
            clock = self._clocks[number]
            try:
                process = self.boot(name, crash_at=wire.crossing, side=wire.side, clock=clock)
            except StoreLocked:
                await asyncio.sleep(RESTART_SECONDS)
                continue
            pace.stop = partial(self._pause, process, pause)
            self._paces.append(pace)
            self._slots[number] = process
            self.broken.belongs_to(process.raw, skew=self.life.clocks[number][0])
            return process

    async def _befall(self, trouble: Trouble) -> None:
        """Let it happen to whoever is in that place by then."""
        await asyncio.sleep(trouble.at)
        process = self._slots[trouble.slot]
        if process is None or process.node.dead:
            return
        match trouble.what:
            case Mishap.DIES_AT_CROSSING:
                pass  # it is in the process's wire
            case Mishap.DIES_AT_TIME:
                process.crash()
            case Mishap.COMMIT_FAILS_KEPT:
                self.broken.fail_commit(process.raw, applied=True)
            case Mishap.COMMIT_FAILS_LOST:
                self.broken.fail_commit(process.raw, applied=False)
            case Mishap.PAUSES if not trouble.crossing:
                self._pause(process, trouble)
                await asyncio.sleep(trouble.seconds)
            case Mishap.PAUSES:
                pass  # at a crossing of its own
            case Mishap.STOPS:
                with suppress(Dead, CommitUnknown, StoreError):
                    await process.stop()

    def _pause(self, process: Process, trouble: Trouble) -> None:
        """Nothing of it runs for a while, and perhaps it cannot even tell afterwards."""
        process.node.pause(trouble.seconds)
        if trouble.unseen:
            self._clocks[trouble.slot].lost += trouble.seconds

    async def _fill(self, starts: float, ends: float) -> None:
        await asyncio.sleep(starts)
        self.broken.fill(full=True)
        await asyncio.sleep(ends - starts)
        self.broken.fill(full=False)

    async def _poison(self, at: float) -> None:
        """A change that no store can write fails alone."""
        await asyncio.sleep(at)
        change = Change("", (), (Put("plan", (f"poison {at}",), {"name": "x", "version": 1}),))
        process = await self.callers.someone()

        async def hand_in(plane: Plane) -> None:
            await plane.store.commit(change)
            self.witness.wrong.append("poison_fails_alone: it was written")

        with suppress(Defect, Dead, CommitUnknown, StoreError, TimeoutError):
            await asyncio.wait_for(process.ask(hand_in), ANSWER_SECONDS)

    async def _stand_in_front(self) -> None:
        """A process that serves callers and moves nothing."""
        front = self.boot(FRONT)
        self.broken.belongs_to(front.raw, slow=True)
        with suppress(StoreError):
            await front.node.run(prepare(front.plane))
            self.callers.front = front


def _heal(fake: FakeProvider) -> None:
    """Grant what was refused, all but makings: a late request must not find the door open."""
    refusals = fake._refuses  # noqa: SLF001
    for one in [one for one in refusals if one[0] != "ensure"]:
        del refusals[one]


def _wish_of(given: str) -> int:
    return int(json.loads(given)["wish"])


class _Heard(logging.Handler):
    """Hears of defects while a life is lived, and of nothing when it is buried."""

    def __init__(self, defects: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.on = False
        self._defects = defects

    def emit(self, record: logging.LogRecord) -> None:
        if self.on:
            error = record.exc_info[1] if record.exc_info else None
            self._defects.append(f"{record.getMessage()}: {error!r}")

    def of_callbacks(self, _: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        """What went wrong where nobody waits for it; a dead process may fail as it likes."""
        error = told.get("exception")
        if self.on and "handle" in told and not isinstance(error, Dead | CommitUnknown):
            self._defects.append(f"{told['message']}: {error!r}")


@contextmanager
def _heard(defects: list[str]) -> Iterator[_Heard]:
    log = logging.getLogger("tenure.engine")
    heard, propagate, level = _Heard(defects), log.propagate, log.level
    log.addHandler(heard)
    log.propagate = False
    log.setLevel(logging.ERROR)
    try:
        yield heard
    finally:
        log.removeHandler(heard)
        log.propagate = propagate
        log.setLevel(level)
