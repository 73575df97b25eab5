"""Tenure itself: a plan of four steps on the embedded engine and one SQLite file."""

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import apsw
import meter

import tenure
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
from tenure.app.plane import Plane
from tenure.core.endings import Done, Ending, NotYet
from tenure.core.errors import Rejected
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, nothing
from tenure.ports.provider import Call
from tenure.settings import Settings
from tenure.wiring import run_plane

SCALING_RUNS, SCALING_OPERATIONS = 3, 3_000
"""How often the cost at one size of the store is measured, and over how many operations."""


class Looks:
    """How many operations were looked at, and when that were as many as are awaited."""

    def __init__(self, awaited: int) -> None:
        self.left = awaited
        self.all = asyncio.Event()

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.all.set()


def plan(
    sink: meter.Sink | None,
    *,
    fail: bool = False,
    residue: bool = False,
    hold: asyncio.Event | None = None,
    looks: Looks | None = None,
) -> Plan:
    """Four steps that append to the sink; the last is the pivot.

    The third makes nothing that would have to be removed, as a check or a wait, unless its
    `residue` is to be undone.
    """

    def performing(line: str, *, refused: bool = False) -> object:
        async def perform(call: Call) -> Ending:
            name = str(call.input["operation"])
            if sink is not None:
                sink.append(name, line)
            if hold is not None:
                await hold.wait()
            if refused:
                raise Rejected("refused on purpose")
            return Done({"step": line, "operation": name, "ok": True})

        return perform

    async def absent(_: Call) -> Ending:
        if looks is not None and hold is not None:
            looks.count()
            await hold.wait()
        return NotYet(3600.0)

    def step(number: int, **more: object) -> Step:
        refused = fail and number == meter.REFUSED_STEP
        return Step(str("step_" + str(number)), performing(str(number), refused=refused), **more)

    if residue:
        third = step(3, undo=performing("undo-3"), inspect=absent, slot="three")
    else:
        third = step(3, undo=nothing, inspect=absent)
    return Plan(
        "bench",
        stages=(
            step(1, undo=performing("undo-1"), inspect=absent, slot="one"),
            step(2, undo=performing("undo-2"), inspect=absent, slot="two"),
            third,
            step(4, kind=StepKind.PIVOT, inspect=absent, slot="four"),
        ),
    )


@contextlib.asynccontextmanager
async def plane_in(directory: Path, the_plan: Plan) -> AsyncIterator[Plane]:
    settings = Settings(store=str(directory / "tenure.db"), concurrency_max=1_000_000)
    async with run_plane(settings, plans=[the_plan], providers={}) as plane:
        yield plane


async def perform(plane: Plane, name: str, wanted: OperationState) -> None:
    operation = await admission.accept(plane, OperationRequest("bench", input={"operation": name}))
    state = await plane.engine.wait(operation.id)
    if state is not wanted:
        raise RuntimeError(f"operation {name} ended as {state}, not {wanted}")


async def measure(options: meter.Options) -> None:
    """What bench/operations.py asks of every engine."""
    wanted = OperationState.COMPENSATED if options.fail else OperationState.SUCCEEDED
    the_plan = plan(meter.Sink(options.sink), fail=options.fail, residue=options.residue)
    async with plane_in(options.directory, the_plan) as plane:
        measured = await meter.drive(lambda name: perform(plane, name, wanted), options)
    count = options.operations + options.alone + options.warm
    database = apsw.Connection(str(options.directory / "tenure.db"))
    # A record that it was accepted, and one of each step, done, refused or undone.
    records = 1 + len(meter.steps(fail=options.fail, residue=options.residue))
    for table, rows in (("operation", count), ("journal", count * records)):
        stands = database.execute(f"SELECT count(*) FROM {table}").get
        if stands != rows:
            raise RuntimeError(f"{table} holds {stands} rows, not {rows}")
    versions = {
        "tenure": tenure.__version__,
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
    durable = "journal + state + intents + outbox"
    meter.emit(meter.summary("tenure", options, measured, versions=versions, records=durable))


# ----------------------------------------------------------------------------- what it is alone in


async def leave_open(directory: Path, count: int) -> None:
    """Accept so many operations, let each reach its second step, say so, and wait to be killed."""
    hold = asyncio.Event()
    async with plane_in(directory, plan(None, hold=hold)) as plane:
        for first in range(0, count, 1000):
            await asyncio.gather(
                *(
                    admission.accept(
                        plane, OperationRequest("bench", input={"operation": str(number)})
                    )
                    for number in range(first, min(first + 1000, count))
                )
            )
        print("open", flush=True)
        await asyncio.sleep(3600)


async def recover(directory: Path, count: int) -> None:
    """Kill a process with so many operations open; time until all are read back and moving.

    Moving: the call of each, whose end nobody knows, is being asked about.
    """
    command = [sys.executable, "-m", "engines.tenure", "leave-open"]
    command += ["--dir", str(directory), "--open", str(count)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert child.stdout is not None
        child.stdout.readline()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    looks = Looks(count)
    began = time.perf_counter()
    async with plane_in(directory, plan(None, hold=asyncio.Event(), looks=looks)) as plane:
        claimed = time.perf_counter() - began
        await looks.all.wait()
        seconds = time.perf_counter() - began
        reader = apsw.Connection(str(directory / "tenure.db"), flags=apsw.SQLITE_OPEN_READONLY)
        query = "SELECT count(*) FROM operation WHERE worker = ? AND ended_at IS NULL"
        mine = reader.execute(query, (plane.engine.worker,)).get
        if mine != count:
            raise RuntimeError(f"{mine} operations were claimed, not {count}")
        meter.emit(
            {
                "recovery_seconds": round(seconds, 4),
                "claimed_seconds": round(claimed, 4),
                "open_operations": mine,
            }
        )
        sys.stdout.flush()
        os._exit(0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory(directory: Path, live: int) -> None:
    """Growth of the resident memory by so many operations in the midst of a step.

    SQLite's page cache grows meanwhile too and is counted; without it the figure has another name.
    """
    async with plane_in(directory, plan(None, hold=asyncio.Event())) as plane:

        async def accept(first: int, count: int) -> None:
            for number in range(first, first + count, 250):
                await asyncio.gather(
                    *(
                        admission.accept(
                            plane, OperationRequest("bench", input={"operation": str(n)})
                        )
                        for n in range(number, number + 250)
                    )
                )

        await accept(0, 2_000)
        gc.collect()
        before, cache_before = resident_bytes(), apsw.memory_used()
        await accept(2_000, live)
        gc.collect()
        grown, cache = resident_bytes() - before, apsw.memory_used() - cache_before
        meter.emit(
            {
                "bytes_per_operation": round(grown / live),
                "bytes_without_page_cache": round((grown - cache) / live),
                "live_operations": live,
            }
        )
        sys.stdout.flush()
        os._exit(0)


async def many(plane: Plane, count: int) -> None:
    """Perform so many operations, a thousand at a time."""
    left = iter(range(count))

    async def caller() -> None:
        for number in left:
            await perform(plane, str(number), OperationState.SUCCEEDED)

    await asyncio.gather(*(caller() for _ in range(1000)))


async def _nothing() -> None:
    """Nothing is to be waited for."""


async def cost_by_size(
    plane: Plane,
    directory: Path,
    sizes: list[int],
    grow: Callable[[int], Awaitable[None]],
    *,
    finished: int = 0,
    servers: Sequence[int] = (),
    calm: Callable[[], Awaitable[None]] = _nothing,
) -> list[dict[str, object]]:
    """What an operation costs while the store holds so many finished ones; `grow` adds some.

    The median of several runs, and `calm` before each: one checkpoint is not to decide.
    """
    rows: list[dict[str, object]] = []
    for size in sizes:
        if size > finished:
            await grow(size - finished)
            finished = size
        walls, cpus = [], []
        for _ in range(SCALING_RUNS):
            await calm()
            with meter.reading(directory, servers=servers) as cost:
                await many(plane, SCALING_OPERATIONS)
            walls.append(1000 * cost.wall_seconds / SCALING_OPERATIONS)
            cpu_seconds = cost.cpu_seconds + cost.server_cpu_seconds
            cpus.append(1000 * cpu_seconds / SCALING_OPERATIONS)
        rows.append(
            {
                "finished": finished,
                "ms_per_operation": round(statistics.median(walls), 4),
                "cpu_ms_per_operation": round(statistics.median(cpus), 4),
                "runs": [round(one, 4) for one in walls],
            }
        )
        finished += SCALING_RUNS * SCALING_OPERATIONS
    return rows


async def scaling(directory: Path, sizes: list[int]) -> None:
    """The cost of an operation as the store grows by what it performs."""
    async with plane_in(directory, plan(None)) as plane:
        rows = await cost_by_size(plane, directory, sizes, partial(many, plane))
    meter.emit({"scaling": rows})


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        asyncio.run(measure(meter.options(meter.parser("Tenure", residue=True).parse_args())))
        return
    parser = argparse.ArgumentParser(description="what Tenure is measured in alone")
    parser.add_argument("what", choices=("recovery", "memory", "scaling", "leave-open"))
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--open", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=10_000)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    asked = parser.parse_args()
    match asked.what:
        case "recovery":
            asyncio.run(recover(asked.dir, asked.open))
        case "leave-open":
            asyncio.run(leave_open(asked.dir, asked.open))
        case "memory":
            asyncio.run(memory(asked.dir, asked.live))
        case _:
            asyncio.run(scaling(asked.dir, [int(size) for size in asked.sizes.split(",")]))


if __name__ == "__main__":
    main()
