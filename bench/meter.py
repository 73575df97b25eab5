"""What every measured engine shares: command line, sink, stopwatch and the line of JSON it prints.

The rule: an engine brings one function that performs one operation; how many are performed, how
many at once, and what is counted around them stands here, so that no engine is measured in a way
of its own. Standard library only, since the engines live in different environments. Linux only:
CPU time is read from /proc and flushes from the counters of the block devices.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

# The lines one operation leaves in the sink, in this order.
STEPS = ("1", "2", "3", "4")
REFUSED_STEP = 3
UNDONE_STEPS = (2, 1)
"""What was done before the refusal; the third step and the fourth have no undo."""
RESIDUE_STEPS = (REFUSED_STEP, *UNDONE_STEPS)
"""The same where the third has an undo: a refusal may leave residue, so that it is undone too."""

DRAWS = 400
_TICKS = os.sysconf("SC_CLK_TCK")
T = TypeVar("T")


# ------------------------------------------------------------------------------- the command line


@dataclass(frozen=True, slots=True)
class Options:
    """What an engine is asked to do; the fields are the command line of bench/engines."""

    operations: int
    in_flight: int
    alone: int
    warm: int
    fail: bool
    residue: bool
    form: str
    directory: Path
    sink: Path


def parser(
    description: str, *, forms: Sequence[str] = ("",), residue: bool = False
) -> argparse.ArgumentParser:
    """The command line of every engine; the first form is the default one."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--operations", type=int, default=1000, help="how many under load")
    parser.add_argument("--in-flight", type=int, default=1000, help="how many at once under load")
    parser.add_argument("--alone", type=int, default=0, help="how many one at a time, before that")
    parser.add_argument("--warm", type=int, default=20, help="how many first, not measured")
    parser.add_argument("--fail", action="store_true", help="step 3 is refused")
    if residue:
        parser.add_argument("--residue", action="store_true", help="and is undone as well")
    parser.add_argument("--form", choices=forms, default=forms[0], help="which form of the engine")
    parser.add_argument("--dir", type=Path, required=True, help="an empty directory")
    parser.add_argument("--sink", type=Path, required=True, help="where every step is appended")
    return parser


def options(arguments: argparse.Namespace) -> Options:
    """The parsed command line as a value."""
    return Options(
        operations=arguments.operations,
        in_flight=arguments.in_flight,
        alone=arguments.alone,
        warm=arguments.warm,
        fail=arguments.fail,
        residue=getattr(arguments, "residue", False),
        form=arguments.form,
        directory=arguments.dir.resolve(),
        sink=arguments.sink.resolve(),
    )


def steps(*, fail: bool, residue: bool) -> list[str]:
    """The lines that one operation leaves in the sink."""
    if not fail:
        return list(STEPS)
    undone = RESIDUE_STEPS if residue else UNDONE_STEPS
    return [*STEPS[:REFUSED_STEP], *(f"undo-{number}" for number in undone)]


class Sink:
    """The outside world of every engine: a file that each step appends one line to.

    One write to a file opened for appending: lines of many threads or processes never mix. It is
    not flushed to the disk, so it costs every engine the same few microseconds a step.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, operation: str, step: str) -> None:
        """Note that a step was performed; called from inside the step, once for each call."""
        os.write(self._file, f"{operation} {step}\n".encode())


# ---------------------------------------------------------------------------------- the stopwatch


def flush_count() -> int | None:
    """Cache flushes of all block devices since the machine started, or None where none are told."""
    total = None
    for path in Path("/sys/block").glob("*/stat"):
        if path.parent.name.startswith(("loop", "ram", "zram", "dm-", "md")):
            continue
        with contextlib.suppress(OSError):
            numbers = path.read_text().split()
            if len(numbers) > 15:
                total = (total or 0) + int(numbers[15])
    return total


def stolen_seconds() -> float:
    """CPU time the hypervisor gave to others, all cores together."""
    with Path("/proc/stat").open() as lines:
        return int(lines.readline().split()[8]) / _TICKS


def tree_cpu_seconds(roots: Sequence[int]) -> float:
    """CPU time of these processes, all their descendants, and the children they have buried."""
    times: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            process = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(process)
            times[process] = sum(int(ticks) for ticks in fields[11:15]) / _TICKS
    total, todo = 0.0, list(roots)
    while todo:
        process = todo.pop()
        total += times.get(process, 0.0)
        todo += children.get(process, [])
    return total


def tree_run_seconds(roots: Sequence[int]) -> float:
    """As above, to the nanosecond, of the threads and descendants that live now."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    total, todo = 0, list(roots)
    while todo:
        process = todo.pop()
        todo += children.get(process, [])
        for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(path.read_text().split()[0])
    return total / 1e9


def fdatasync_us(directory: Path, times: int = 40) -> tuple[float, bool]:
    """Mean microseconds of a durable 4 KiB write right now, and whether the devices count them."""
    path = directory / f"fdatasync-{os.getpid()}.bin"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.write(file, bytes(4096))
        os.fsync(file)
        flushes, began = flush_count(), time.perf_counter()
        for _ in range(times):
            os.pwrite(file, b"\1" * 4096, 0)
            os.fdatasync(file)
        spent = time.perf_counter() - began
        counted = flushes is not None and (flush_count() or 0) - flushes >= times // 2
    finally:
        os.close(file)
        path.unlink()
    return spent / times * 1e6, counted


@dataclass(slots=True)
class Reading:
    """What a stretch of work cost; filled in when the stretch ends."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    flushes: int | None = None
    fdatasync_us: float = 0.0
    stolen_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)


@contextlib.contextmanager
def reading(directory: Path, *, servers: Sequence[int] = ()) -> Iterator[Reading]:
    """Measure what happens inside; the disk itself is measured just before and just after."""
    seen = Reading()
    disk_before, counted = fdatasync_us(directory)
    flushes, stolen = flush_count(), stolen_seconds()
    server_cpu, cpu = tree_cpu_seconds(servers), time.process_time()
    began = time.perf_counter()
    yield seen
    seen.wall_seconds = time.perf_counter() - began
    seen.cpu_seconds = time.process_time() - cpu
    seen.server_cpu_seconds = tree_cpu_seconds(servers) - server_cpu
    seen.flushes = (flush_count() or 0) - (flushes or 0) if counted else None
    seen.stolen_seconds = stolen_seconds() - stolen
    seen.fdatasync_us = (disk_before + fdatasync_us(directory)[0]) / 2


class Disk:
    """Waits for a calm disk: one nearly as fast as the fastest it has shown itself to be."""

    WAIT_SECONDS_MAX = 20.0
    WAIT_SECONDS_MAX_IN_ALL = 180.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fastest_us = min(fdatasync_us(directory)[0] for _ in range(5))
        self._waited = 0.0

    def wait_until_calm(self) -> None:
        """Give up after 20 seconds; each result says how fast the disk was around it."""
        began = time.monotonic()
        bound = min(self.WAIT_SECONDS_MAX, self.WAIT_SECONDS_MAX_IN_ALL - self._waited)
        while True:
            now_us, _ = fdatasync_us(self._directory, 60)
            self._fastest_us = min(self._fastest_us, now_us)
            waited = time.monotonic() - began
            if now_us < max(150.0, 1.5 * self._fastest_us) or waited >= bound:
                break
            time.sleep(0.5)
        self._waited += time.monotonic() - began


# ------------------------------------------------------------------------------------- the driving


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: some operations one after the other, then many at once."""

    alone: Reading
    load: Reading


def names(stretch: int, count: int) -> Iterator[str]:
    """Names of operations as an engine would give them: 36 characters, in the order of time."""
    return (f"019a8f00-{stretch:04x}-7000-8000-{number:012x}" for number in range(count))


async def drive(
    perform: Callable[[str], Awaitable[None]], options: Options, *, servers: Sequence[int] = ()
) -> Measured:
    """Perform what was asked for; `perform` returns when its operation has ended."""
    for name in names(0, options.warm):
        await perform(name)
    with reading(options.directory, servers=servers) as alone:
        for name in names(1, options.alone):
            began = time.perf_counter()
            await perform(name)
            alone.latencies.append(time.perf_counter() - began)
    waiting = names(2, options.operations)

    async def caller() -> None:
        for name in waiting:
            began = time.perf_counter()
            await perform(name)
            load.latencies.append(time.perf_counter() - began)

    with reading(options.directory, servers=servers) as load:
        async with asyncio.TaskGroup() as callers:
            for _ in range(min(options.in_flight, options.operations)):
                callers.create_task(caller())
    return Measured(alone, load)


def drive_blocking(
    start: Callable[[str], Any],
    finish: Callable[[Any], None],
    options: Options,
    *,
    servers: Sequence[int] = (),
) -> Measured:
    """The same for an engine without coroutines: `start` returns at once, `finish` waits."""
    for name in names(0, options.warm):
        finish(start(name))
    with reading(options.directory, servers=servers) as alone:
        for name in names(1, options.alone):
            began = time.perf_counter()
            finish(start(name))
            alone.latencies.append(time.perf_counter() - began)
    with reading(options.directory, servers=servers) as load:
        started: deque[tuple[float, Any]] = deque()
        for name in names(2, options.operations):
            if len(started) >= options.in_flight:
                _finish_oldest(started, finish, load)
            started.append((time.perf_counter(), start(name)))
        while started:
            _finish_oldest(started, finish, load)
    return Measured(alone, load)


def _finish_oldest(
    started: deque[tuple[float, Any]], finish: Callable[[Any], None], load: Reading
) -> None:
    began, handle = started.popleft()
    finish(handle)
    load.latencies.append(time.perf_counter() - began)


# --------------------------------------------------------------------------------------- the report


def percentile_ms(latencies: Sequence[float], percent: int) -> float | None:
    """A percentile in milliseconds, None of nothing."""
    if not latencies:
        return None
    ordered = sorted(latencies)
    return round(1000 * ordered[round(percent / 100 * (len(ordered) - 1))], 3)


def summary(
    engine: str, options: Options, measured: Measured, *, versions: dict[str, str], records: str
) -> dict[str, Any]:
    """The JSON object of one run; `records` says in words what a step makes durable."""
    load, alone = measured.load, measured.alone
    count = max(1, options.operations)
    cpu_seconds = load.cpu_seconds + load.server_cpu_seconds
    return {
        "engine": engine,
        "form": options.form,
        "fail": options.fail,
        "residue": options.residue,
        "operations": options.operations,
        "in_flight": options.in_flight,
        "alone": options.alone,
        "operations_per_second": round(options.operations / load.wall_seconds, 2),
        "p50_alone_ms": percentile_ms(alone.latencies, 50),
        "p99_alone_ms": percentile_ms(alone.latencies, 99),
        "p50_load_ms": percentile_ms(load.latencies, 50),
        "p99_load_ms": percentile_ms(load.latencies, 99),
        "cpu_ms_per_operation": round(1000 * cpu_seconds / count, 4),
        "server_cpu_ms_per_operation": round(1000 * load.server_cpu_seconds / count, 4),
        "flushes_per_operation": _each(load.flushes, count),
        "flushes_alone_per_operation": _each(alone.flushes, options.alone),
        "fdatasync_us": round(load.fdatasync_us, 1),
        "fdatasync_alone_us": round(alone.fdatasync_us, 1),
        "stolen_seconds": round(load.stolen_seconds, 2),
        "wall_seconds": round(load.wall_seconds, 3),
        "records": records,
        "versions": versions,
    }


def growth(
    name: str, before: Sequence[T], after: Sequence[T], worth: Callable[[Sequence[T]], float]
) -> dict[str, Any]:
    """How much more the turns after are worth than those before, and how sure that is.

    Both are drawn again, with repetition: between what the middle 50 and 95 of 100 draws lie tells
    how much the result owes to which turns there were.
    """
    rng = random.Random(3)

    def more(before: Sequence[T], after: Sequence[T]) -> float:
        return round(worth(after) / worth(before) - 1, 4)

    drawn = sorted(
        more(rng.choices(before, k=len(before)), rng.choices(after, k=len(after)))
        for _ in range(DRAWS)
    )
    half, most = ([drawn[DRAWS * n // 1000], drawn[-1 - DRAWS * n // 1000]] for n in (250, 25))
    return {name: more(before, after), f"{name}_quarters": half, f"{name}_95_of_100": most}


def _each(total: int | None, count: int) -> float | None:
    return round(total / count, 5) if total is not None and count else None


def emit(result: dict[str, Any]) -> None:
    """Print the result as the last line of an engine's output."""
    print(json.dumps(result), flush=True)
