"""Lives of a plane, one for each seed: several processes race on one disk while everything goes wrong.

Goal: whatever the order in which processes, callers, providers and mishaps take their turns, every promise holds in the
world's truth.  Method: a seed draws a `Life` (`tenure.testing.scenario`); it is lived on a seeded loop in virtual time;
from some moment on nothing more goes wrong, time passes until all is at rest, and every invariant is checked, beside
what callers were told.  A seed gives the same life on every machine, and its trace hash says so.

usage: python -m tenure.testing.simulation --seeds 1000 [--first 0] [--jobs 2] [--mix usual]
"""

import argparse
import asyncio
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol, TypeVar

from tenure.app import operations
from tenure.app.advance import Advance
from tenure.app.plane import Plane, prepare
from tenure.app.views import Operation
from tenure.core.errors import CallerError, CommitUnknown, Conflict, Defect, StoreError
from tenure.core.operation import OPERATION, State
from tenure.plans.catalogue import Catalogue
from tenure.ports.clock import Clock
from tenure.ports.provider import Provider
from tenure.ports.store import Change, Put, Store
from tenure.testing.fakes import FakeProvider, World
from tenure.testing.invariants import Evidence, journal_only_grew, read_books, violations
from tenure.testing.loop import Dead, SeededLoop, VirtualClock, run
from tenure.testing.plans import EFFECTS, PLANS, SIGNAL, providers_of
from tenure.testing.rig import RESTART_SECONDS, Disk, Process, Rig
from tenure.testing.scenario import FRONT, MIXES, Drawn, Life, Mishap, Mix, Trouble, Wish, draw
from tenure.testing.slow_disk import SlowDisk
from tenure.testing.tripwire import Side
from tenure.testing.witness import Witness, WorkersStore

TENANT = "default"
PATIENCE_SECONDS = 150.0
"""After the calm: what is not at rest by then is a violation."""
LOOK_SECONDS = 1.0
STUCK_SECONDS = 9.0
"""What is stuck for so long without getting loose is stuck for good."""
ANSWER_SECONDS = 2.5
"""How long a caller waits for an answer before he asks elsewhere."""
CHUNK = 50
"""Seeds that one process of the machine lives at a time."""
SHOWN = 5
"""Failed seeds that are told in full."""
BUSY_TRIES = 8
"""How often a caller asks again while another operation works on the agent."""

T = TypeVar("T")


class Breakable(Disk, Protocol):
    """A disk that fails on demand."""

    def fail_commit(self, store: Store, *, applied: bool) -> None:
        """The next COMMIT of this handle fails."""
        ...

    def fill(self, *, full: bool) -> None:
        """There is no room for new work, or there is again."""
        ...

    def belongs_to(self, store: Store, *, skew: float) -> None:
        """The process of this handle has a clock that is wrong by so much."""
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


def live(seed: int, mix: Mix = MIXES["usual"], *, disk: OpenDisk = memory_disk) -> Lived:
    """Live the life of this seed; what breaks the harness itself is wrong too."""
    drawn = draw(seed, mix)
    defects: list[str] = []
    with _heard(defects) as heard:

        async def main(loop: SeededLoop) -> Lived:
            heard.on = True
            try:
                return await Simulation(loop, drawn, disk, defects).run()
            finally:
                heard.on = False

        try:
            return run(seed, main)
        except (Exception, CommitUnknown) as error:  # noqa: BLE001 (whatever it is, this seed failed)
            return Lived(seed, [f"no_surprise: {error!r}", *defects], "", 0.0, 0, 0, ())


class Simulation(Rig):
    """One life while it is lived."""

    def __init__(
        self, loop: SeededLoop, life: Life, disk: OpenDisk, defects: list[str]
    ) -> None:
        """Nothing has happened yet."""
        world, clock = World(loop), VirtualClock(loop)
        self.life = life
        self.faults = Drawn(life, loop)
        self.fakes = providers_of(world, self.faults)
        self.witness = Witness(world.trace, loop.time)
        self.witness.defects = defects
        self.broken: Breakable = disk(life, clock, self.witness)
        self.front: Process | None = None
        self._slots: list[Process | None] = [None] * life.processes
        super().__init__(
            loop, plans=PLANS.values(), world=world, providers=self.fakes, disk=self.broken
        )

    def work_of(self, store: Store, providers: Mapping[str, Provider]) -> Advance:
        """The product's own way to move an operation, watched."""
        watched: Any = WorkersStore(store, self.witness)
        return super().work_of(watched, self.witness.watch(providers))

    # --- the life ------------------------------------------------------------------------------------------

    async def run(self) -> Lived:
        """Live it to its end and say what was wrong."""
        life, loop = self.life, self.loop
        slots = [loop.create_task(self._slot(n)) for n in range(life.processes)]
        tasks = [loop.create_task(self._befall(trouble)) for trouble in life.troubles]
        tasks += [loop.create_task(self._wish(wish)) for wish in life.wishes]
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
        paused = any(trouble.what is Mishap.PAUSES for trouble in self.life.troubles)
        wrong += self.witness.violations(evidence, self.faults, paused=paused, wish_of=_wish_of)
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

    def _calm(self, slots: "list[asyncio.Task[None]]") -> None:
        """From here on nothing goes wrong; what was refused is granted, if this is that kind of life."""
        self.broken.fill(full=False)
        if isinstance(self.broken, SlowDisk):
            self.broken.refuse_rate = 0.0
        for process in self.processes:
            process.wire.crash_at = 0
        if self.life.heals:
            for fake in self.fakes.values():
                _heal(fake)
        if self.life.lone_end:
            for slot, process in zip(slots[1:], self._slots[1:], strict=True):
                slot.cancel()
                if process is not None:
                    process.crash()
                    self.serving = [other for other in self.serving if other is not process]

    async def _until_at_rest(self, tasks: "list[asyncio.Task[None]]") -> list[str]:
        """Return when every operation has ended, or is stuck and will not come loose by itself."""
        since: dict[str, tuple[object, float]] = {}
        spoken: set[str] = set()
        loop = self.loop
        while loop.time() < self.life.calm_at + PATIENCE_SECONDS:
            moving = not all(task.done() for task in tasks)
            for row in await self.disk.look().list_operations(TENANT, limit=1_000):
                name, state = str(row["id"]), State(str(row["state"]))
                if state in OPERATION.final:
                    continue
                if state is not State.STUCK:
                    moving = True
                    continue
                stands = row["revision"]
                if since.get(name, (None, 0.0))[0] != stands:
                    since[name] = (stands, loop.time())
                moving = moving or loop.time() < since[name][1] + STUCK_SECONDS
                wish = self.life.wishes[_wish_of(str(row["input"]))]
                if wish.operator == "resolve" and name not in spoken and self._is_quiet():
                    spoken.add(name)
                    moving = True
                    await self._ask_kindly(lambda plane, name=name: self._resolve(plane, name))
            if not moving:
                for task in tasks:
                    task.result()
                return []
            await asyncio.sleep(LOOK_SECONDS)
        return [f"nothing is at rest {PATIENCE_SECONDS:g} s after the calm"]

    def _is_quiet(self) -> bool:
        """Whether nothing is on its way any more."""
        return self.loop.time() > self.world._busy_until  # noqa: SLF001

    # --- processes and what befalls them -------------------------------------------------------------------

    async def _slot(self, number: int) -> None:
        """One place for a process: whenever it is gone, a fresh one takes it."""
        skew, rate = self.life.clocks[number]
        clock = VirtualClock(self.loop, skew=skew, rate=rate)
        wires = [
            trouble
            for trouble in self.life.troubles
            if trouble.what is Mishap.DIES_AT_CROSSING and trouble.slot == number
        ]
        count = 0
        while True:
            count += 1
            wire = wires.pop(0) if wires else Trouble(number, Mishap.DIES_AT_CROSSING)
            process = self.boot(
                f"{number}/{count}", crash_at=wire.crossing, side=wire.side, clock=clock
            )
            self._slots[number] = process
            self.broken.belongs_to(process.raw, skew=skew)
            try:
                await process.start()
                self.serving.append(process)
                await process.gone()
            except (Dead, CommitUnknown, StoreError):
                process.crash()
            self.serving = [other for other in self.serving if other is not process]
            await asyncio.sleep(RESTART_SECONDS)

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
            case Mishap.PAUSES:
                process.node.pause(trouble.seconds)
                await asyncio.sleep(trouble.seconds)
            case Mishap.STOPS:
                with suppress(Dead, CommitUnknown, StoreError):
                    await process.stop()

    async def _fill(self, starts: float, ends: float) -> None:
        await asyncio.sleep(starts)
        self.broken.fill(full=True)
        await asyncio.sleep(ends - starts)
        self.broken.fill(full=False)

    async def _poison(self, at: float) -> None:
        """A change that no store can write fails alone."""
        await asyncio.sleep(at)
        change = Change("", (), (Put("plan", (f"poison {at}",), {"name": "x", "version": 1}),))
        process = await self._someone()

        async def hand_in(plane: Plane) -> None:
            await plane.store.commit(change)
            self.witness.wrong.append("poison_fails_alone: it was written")

        with suppress(Defect, Dead, CommitUnknown, StoreError, TimeoutError):
            await asyncio.wait_for(process.ask(hand_in), ANSWER_SECONDS)

    async def _stand_in_front(self) -> None:
        """A process that serves callers and moves nothing."""
        front = self.boot(FRONT)
        with suppress(StoreError):
            await front.node.run(prepare(front.plane))
            self.front = front

    # --- callers -------------------------------------------------------------------------------------------

    async def _someone(self) -> Process:
        """A process to ask: a caller cannot see whether it is stopped."""
        if self.front is not None and self.loop.random.random() < 0.7:
            return self.front
        return await self.someone()

    async def _ask(self, question: Callable[[Plane], Awaitable[T]]) -> T:
        """Ask until there is an answer; a refusal is one, "not kept" is not."""
        while True:
            process = await self._someone()
            try:
                return await asyncio.wait_for(process.ask(question), ANSWER_SECONDS)
            except (Dead, CommitUnknown, StoreError, TimeoutError):
                await asyncio.sleep(0.1)

    async def _ask_kindly(self, question: Callable[[Plane], Awaitable[Operation]]) -> bool:
        """The same, and whether it was not refused."""
        try:
            self.witness.saw(await self._ask(question))
        except CallerError:
            return False
        return True

    async def _wish(self, wish: Wish) -> None:
        await asyncio.sleep(wish.at)
        asked = [self._accept(wish)]
        if wish.twice_after is not None:
            asked.append(self._again(wish, wish.twice_after))
        accepted, *_ = await asyncio.gather(*asked)
        if accepted is None:
            return
        later: list[Awaitable[None]] = []
        name = accepted.id
        if wish.cancel_after is not None:
            later.append(self._cancel(name, wish.cancel_after))
            if wish.cancel_twice:
                later.append(self._cancel(name, wish.cancel_after + 0.01))
        later += [self._signal(name, after) for after in wish.signals]
        if wish.operator in {"retry", "abandon"}:
            later.append(self._operate(name, wish))
        await asyncio.gather(*later)

    async def _again(self, wish: Wish, after: float) -> Operation | None:
        await asyncio.sleep(after)
        return await self._accept(wish)

    async def _accept(self, wish: Wish) -> Operation | None:
        """Ask for it until it is acknowledged or refused; without a key, once."""
        key = f"wish {wish.number}" if wish.keyed else ""
        command = operations.Accept(
            wish.plan, wish.agent, {"wish": wish.number}, idempotency_key=key
        )
        tries = 0
        while True:
            tries += 1
            try:
                if wish.keyed:
                    seen = await self._ask(lambda plane: operations.accept(plane, command))
                else:
                    process = await self._someone()
                    seen = await asyncio.wait_for(
                        process.ask(lambda plane: operations.accept(plane, command)), ANSWER_SECONDS
                    )
            except Conflict as conflict:
                if conflict.code != "operation_in_progress" or tries > BUSY_TRIES:
                    return None
                await asyncio.sleep(0.5 * tries)
            except StoreError:
                self.witness.told.not_kept.add(wish.number)
                return None
            except (Dead, CommitUnknown, TimeoutError):
                return None
            else:
                self.witness.told.accepted[seen.id] = wish.number
                self.witness.saw(seen)
                return seen

    async def _cancel(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        if await self._ask_kindly(
            lambda plane: operations.cancel(plane, TENANT, name, by="the caller")
        ):
            self.witness.told.cancelled.add(name)

    async def _signal(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        if await self._ask_kindly(
            lambda plane: operations.signal(plane, TENANT, name, name=SIGNAL, by="a friend")
        ):
            self.witness.told.signalled[name] += 1

    async def _operate(self, name: str, wish: Wish) -> None:
        """Wait until it ends or is stuck, then say retry or abandon."""
        verb = operations.retry if wish.operator == "retry" else operations.abandon
        for _ in range(12):
            seen = await self._ask(lambda plane: operations.wait(plane, TENANT, name, seconds=2.0))
            self.witness.saw(seen)
            if seen.done:
                return
            if seen.state is State.STUCK:
                await asyncio.sleep(wish.operator_after)
                await self._ask_kindly(
                    lambda plane: verb(plane, TENANT, name, by="an operator")
                )
                return

    async def _resolve(self, plane: Plane, name: str) -> Operation:
        """An operator who has looked at the world, and at nothing else, before he speaks."""
        seen = await operations.get(plane, TENANT, name)
        going_back = any(step.state is not None and step.state == "REMOVING" for step in seen.steps)
        for step in seen.steps:
            if not step.stuck:
                continue
            there = [t for t in self.world.things.values() if t.key.text == step.key]
            ours = [thing for thing in there if thing.key.agent]
            if ours and going_back and step.state == "REMOVING":
                seen = await operations.retry(plane, TENANT, name, by="an operator")
            elif ours and not going_back:
                seen = await operations.adopt(
                    plane, TENANT, name, step=step.name, result={"key": step.key}, by="an operator"
                )
            else:
                seen = await operations.mark_absent(
                    plane, TENANT, name, step=step.name, by="an operator"
                )
        return seen


def _heal(fake: FakeProvider) -> None:
    """Grant what was refused, all but makings: a late request must not find the door open."""
    fake._refuses = {  # noqa: SLF001
        (verb, key): until for (verb, key), until in fake._refuses.items() if verb == "ensure"  # noqa: SLF001
    }


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


# --- many seeds --------------------------------------------------------------------------------------------


class Sum(NamedTuple):
    """What came of many seeds."""

    seeds: int = 0
    operations: int = 0
    faults: int = 0
    virtual: float = 0.0
    failed: tuple[Lived, ...] = ()


def live_many(
    seeds: Iterable[int], mix: str = "usual", *, disk: OpenDisk = memory_disk
) -> Sum:
    """Live all of these."""
    count = made = struck = 0
    virtual = 0.0
    failed: list[Lived] = []
    for seed in seeds:
        lived = live(seed, MIXES[mix], disk=disk)
        count, made, struck = count + 1, made + lived.operations, struck + lived.faults
        virtual += lived.seconds
        if lived.wrong:
            failed.append(lived)
    return Sum(count, made, struck, virtual, tuple(failed))


def add(sums: Iterable[Sum]) -> Sum:
    """One sum of several."""
    parts = list(sums)
    return Sum(
        sum(part.seeds for part in parts),
        sum(part.operations for part in parts),
        sum(part.faults for part in parts),
        sum(part.virtual for part in parts),
        tuple(lived for part in parts for lived in part.failed),
    )


def live_side_by_side(seeds: Sequence[int], mix: str, jobs: int) -> Sum:
    """Live all of these in so many processes of the machine."""
    if jobs < 2:
        return live_many(seeds, mix)
    parts = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return add(pool.map(live_many, parts, itertools.repeat(mix)))


def replay(lived: Lived, mix: str) -> str:
    """The command that lives this seed again."""
    chosen = "" if mix == "usual" else f" --mix {mix}"
    return f"python -m tenure.testing.simulation --first {lived.seed} --seeds 1{chosen}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Live many seeds, say what failed and how to see it again."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mix", choices=sorted(MIXES), default="usual", help="what is likely")
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    began = time.perf_counter()
    done = live_side_by_side(seeds, asked.mix, asked.jobs if asked.seeds > CHUNK else 1)
    seconds = time.perf_counter() - began
    for lived in done.failed[:SHOWN]:
        print(f"seed {lived.seed}, trace {lived.trace or 'none'}:")
        for wrong in lived.wrong:
            print(f"    {wrong}")
        print(f"    again: {replay(lived, asked.mix)}")
    if asked.seeds == 1 and not done.failed:
        print(f"seed {asked.first}, trace {live(asked.first, MIXES[asked.mix]).trace}")
    print(
        f"seeds={done.seeds} failures={len(done.failed)} seeds_per_second={done.seeds / seconds:.0f}"
        f" operations={done.operations} faults={done.faults} virtual_seconds={done.virtual:.0f}"
    )
    return 1 if done.failed else 0


if __name__ == "__main__":
    sys.exit(main())
