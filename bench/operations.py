"""Four-step operations at full durability, 1,000 in flight: Tenure, its peers and the floor.

usage: python bench/operations.py [--rounds N] [--out FILE] [--dir DIR] [--no-scaling]
       ROUNDS=2 is --rounds 2; PEERS=none leaves the peers out; PEERS=restate takes it alone

One run interleaves all engines: every round measures each of them, and a ratio is formed within its
round before the median is taken. An engine with several forms (sync or async, COMMIT on the loop or
in a thread) shows all of them in the first round and goes on with the faster. The work is the same
for all, which the sink proves: it must hold the very steps of every operation. What an engine owes
this program stands in bench/engines/__init__.py. The last line printed is one JSON object.
"""

import argparse
import contextlib
import json
import operator
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import meter
import peers

BENCH = Path(__file__).resolve().parent
WORK = BENCH / ".work"
IN_FLIGHT = 1000
WARM = 20
RUN_SECONDS_MAX = 300
SCALING_SECONDS_MAX = 900
SIZES = (1_000, 10_000, 100_000, 1_000_000)

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Engine:
    """One row of the table: how to run it, and how much work lets it show its speed in seconds."""

    name: str
    title: str
    module: str
    operations: int
    failing: int
    alone: int
    forms: tuple[str, ...] = ("",)
    arguments: tuple[str, ...] = ()
    is_peer: bool = True


# Slow peers are given fewer operations to fail: no ratio is formed of their failing rate.
ENGINES = (
    Engine("tenure", "Tenure", "engines.tenure", 20_000, 20_000, 200, is_peer=False),
    Engine(
        "floor",
        "SQLite by hand (floor)",
        "engines.floor",
        20_000,
        20_000,
        200,
        forms=("loop", "thread"),
        is_peer=False,
    ),
    Engine("restate", "Restate", "engines.restate", 3_000, 1_000, 100),
    Engine(
        "dbos_postgres",
        "DBOS on PostgreSQL",
        "engines.dbos",
        1_000,
        150,
        30,
        forms=("sync", "async"),
        arguments=("--database", "postgres"),
    ),
    Engine(
        "dbos_sqlite",
        "DBOS on SQLite as shipped",
        "engines.dbos",
        1_000,
        100,
        30,
        forms=("sync", "async"),
        arguments=("--database", "sqlite"),
    ),
    Engine("langgraph_sqlite", "LangGraph on SQLite", "engines.langgraph", 1_000, 150, 30),
)

# key of the last line, what it says, whether more is better, the bound the project set itself
TARGETS = (
    ("vs_restate", "times Restate's operations a second", True, 4.0),
    ("vs_dbos_postgres", "times DBOS's on PostgreSQL", True, 45.0),
    ("vs_dbos_sqlite", "times DBOS's on SQLite as shipped", True, 70.0),
    ("vs_langgraph_sqlite", "times LangGraph's on SQLite", True, 35.0),
    ("vs_floor", "of the floor's", True, 0.30),
    ("fail_vs_ok", "failing (three undos) against succeeding operations a second", True, 0.70),
    ("p50_vs_restate", "median alone, against Restate's", False, 1 / 3),
    ("flushes_per_operation", "flushes of the disk an operation, under load", False, 0.05),
    ("cpu_ms_per_operation", "milliseconds of CPU an operation, under load", False, 0.20),
    ("recovery_seconds", "seconds until 10,000 open operations are read and moving", False, 0.5),
    ("bytes_per_operation", "bytes of memory for a live operation", False, 5_000),
    ("cost_1m_vs_1k", "cost with 1,000,000 finished operations against 1,000", False, 1.2),
)


class Failed(Exception):
    """The benchmark cannot go on; the sentence says why."""


# ---------------------------------------------------------------------------------------- one run


@dataclass(slots=True)
class Bench:
    """Everything one run of the benchmark holds."""

    work: Path
    out: Path | None
    disk: meter.Disk
    programs: dict[str, list[str]]
    kept_forms: dict[str, str] = field(default_factory=dict)
    rounds: list[dict[str, Result]] = field(default_factory=list)
    other_forms: list[Result] = field(default_factory=list)

    def note(self, round_number: int, result: Result) -> None:
        if self.out is not None:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            with self.out.open("a") as lines:
                lines.write(json.dumps({"at": at, "round": round_number} | result) + "\n")


def call(command: list[str], *, seconds_max: int) -> Result:
    """Run an engine's program and read its last line; nothing it started outlives it."""
    quiet = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
    process = subprocess.Popen(
        command,
        cwd=BENCH,
        env=os.environ | quiet,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{' '.join(command[1:])}\ndid not end within {seconds_max} seconds") from late
    finally:
        end_session(process.pid)
        process.wait()
    lines = output.strip().splitlines()
    if process.returncode != 0 or not lines:
        raise Failed(f"{' '.join(command[1:])}\nended with {process.returncode}:\n{errors[-3000:]}")
    result: Result = json.loads(lines[-1])
    return result


def end_session(leader: int) -> None:
    """Kill what is left of the session this program began for an engine."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[3]) == leader:
                os.kill(int(path.parent.name), signal.SIGKILL)


@contextlib.contextmanager
def scratch(work: Path) -> Iterator[Path]:
    """A directory on the disk under test for one run."""
    directory = Path(tempfile.mkdtemp(dir=work))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def perform(bench: Bench, engine: Engine, *, form: str, fail: bool) -> Result:
    """Measure an engine once and see that it did the whole work and no other."""
    operations = engine.failing if fail else engine.operations
    alone = 0 if fail else engine.alone
    bench.disk.wait_until_calm()
    with scratch(bench.work) as directory:
        sink = directory / "sink.txt"
        data = directory / "data"
        data.mkdir()
        command = [*bench.programs[engine.name], *engine.arguments]
        command += ["--operations", str(operations), "--in-flight", str(IN_FLIGHT)]
        command += ["--alone", str(alone), "--warm", str(WARM)]
        command += ["--dir", str(data), "--sink", str(sink)]
        command += ["--form", form] if form else []
        command += ["--fail"] if fail else []
        result = call(command, seconds_max=RUN_SECONDS_MAX)
        steps = list(meter.FAILING_STEPS if fail else meter.STEPS)
        result["sink_lines"] = check_sink(sink, engine.name, operations + alone + WARM, steps)
    if result["operations"] != operations:
        raise Failed(f"{engine.name} measured {result['operations']} operations, not {operations}")
    return result | {"engine": engine.name, "form": form, "fail": fail}


def check_sink(path: Path, engine: str, operations: int, steps: list[str]) -> int:
    """How many steps an engine performed; fails unless they are exactly those it was asked for."""
    seen: dict[str, list[str]] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        operation, _, step = line.partition(" ")
        seen.setdefault(operation, []).append(step)
    if len(seen) != operations or len(lines) != operations * len(steps):
        raise Failed(
            f"THE WORK IS NOT THE SAME: {engine} performed {len(lines)} steps of {len(seen)} "
            f"operations, asked for were {operations * len(steps)} steps of {operations}"
        )
    for operation, performed in seen.items():
        if performed != steps:
            raise Failed(
                f"THE WORK IS NOT THE SAME: {engine} performed {operation} as {performed}, "
                f"not as {steps}"
            )
    return len(lines)


# ------------------------------------------------------------------------------------- the rounds


def measure_round(bench: Bench, engines: list[Engine], number: int, of: int) -> None:
    """Each engine once, succeeding and failing; in the first round in each of its forms."""
    found: dict[str, Result] = {}
    bench.rounds.append(found)
    for engine in engines:
        kept = bench.kept_forms.get(engine.name)
        tried = []
        for form in engine.forms if kept is None else (kept,):
            result = perform(bench, engine, form=form, fail=False)
            bench.note(number, result)
            say(number, of, engine, result)
            tried.append(result)
        best = max(tried, key=lambda result: result["operations_per_second"])
        bench.other_forms += [result for result in tried if result is not best]
        bench.kept_forms[engine.name] = best["form"]
        found[engine.name] = best
        failing = perform(bench, engine, form=best["form"], fail=True)
        bench.note(number, failing)
        say(number, of, engine, failing)
        found[f"{engine.name} failing"] = failing
    if "tenure" in bench.programs:
        recovery = more(bench, "recovery", "--open", "10000")
        memory = more(bench, "memory", "--live", "10000")
        found["more"] = recovery | memory
        bench.note(number, {"engine": "tenure"} | found["more"])
        print(
            f"round {number}/{of}  Tenure recovers {recovery['open_operations']:,} open operations "
            f"in {recovery['recovery_seconds']:.3f} s; "
            f"a live one takes {memory['bytes_per_operation']:,.0f} bytes",
            flush=True,
        )


def more(bench: Bench, name: str, *arguments: str, seconds_max: int = RUN_SECONDS_MAX) -> Result:
    """One of the measurements that Tenure alone has."""
    bench.disk.wait_until_calm()
    with scratch(bench.work) as directory:
        command = [*bench.programs["tenure"], name, "--dir", str(directory), *arguments]
        return call(command, seconds_max=seconds_max)


def say(number: int, of: int, engine: Engine, result: Result) -> None:
    title = f"{engine.title} {result['form']}".strip()
    kind = "failing" if result["fail"] else "       "
    median_alone = result["p50_alone_ms"]
    alone = "" if median_alone is None else f"  p50 alone {median_alone:7.2f} ms"
    print(
        f"round {number}/{of}  {title:31} {kind} {result['operations_per_second']:10,.1f} "
        f"operations/s  fdatasync {result['fdatasync_us']:5.0f} µs{alone}",
        flush=True,
    )


# ------------------------------------------------------------------------------------- the figures


def values(bench: Bench, entry: str, key: str) -> list[float]:
    """A figure in each round that has it."""
    rows = (found.get(entry, {}) for found in bench.rounds)
    return [row[key] for row in rows if row.get(key) is not None]


def median(numbers: list[float]) -> float | None:
    return statistics.median(numbers) if numbers else None


def ratio(bench: Bench, above: str, below: str, key: str) -> float | None:
    """The median of a ratio that was formed in each round by itself."""
    ratios = []
    for found in bench.rounds:
        upper, lower = found.get(above, {}).get(key), found.get(below, {}).get(key)
        if upper is not None and lower:
            ratios.append(upper / lower)
    return median(ratios)


def four_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def figures(bench: Bench, scaling: list[Result]) -> dict[str, Any]:
    """The object of the last line; what was not measured is null."""
    rate = "operations_per_second"
    cost = scaling[-1]["ms_per_operation"] / scaling[0]["ms_per_operation"] if scaling else None
    keys = {
        "vs_restate": ratio(bench, "tenure", "restate", rate),
        "vs_dbos_postgres": ratio(bench, "tenure", "dbos_postgres", rate),
        "vs_dbos_sqlite": ratio(bench, "tenure", "dbos_sqlite", rate),
        "vs_langgraph_sqlite": ratio(bench, "tenure", "langgraph_sqlite", rate),
        "vs_floor": ratio(bench, "tenure", "floor", rate),
        "fail_vs_ok": ratio(bench, "tenure failing", "tenure", rate),
        "p50_vs_restate": ratio(bench, "tenure", "restate", "p50_alone_ms"),
        "flushes_per_operation": median(values(bench, "tenure", "flushes_per_operation")),
        "recovery_seconds": median(values(bench, "more", "recovery_seconds")),
        "cpu_ms_per_operation": median(values(bench, "tenure", "cpu_ms_per_operation")),
        "cost_1m_vs_1k": cost,
        "bytes_per_operation": median(values(bench, "more", "bytes_per_operation")),
        "claimed_seconds": median(values(bench, "more", "claimed_seconds")),
        "bytes_without_page_cache": median(values(bench, "more", "bytes_without_page_cache")),
        rate: median(values(bench, "tenure", rate)),
    }
    rates = {engine.name: median(values(bench, engine.name, rate)) for engine in ENGINES}
    return {
        **{key: four_digits(value) for key, value in keys.items()},
        "rounds": len(bench.rounds),
        "engines": {name: four_digits(value) for name, value in rates.items()},
        "scaling": scaling,
    }


# -------------------------------------------------------------------------------------- the report


def spread(numbers: list[float], form: str) -> str:
    if not numbers:
        return "–"
    return f"{statistics.median(numbers):{form}} [{min(numbers):{form}}–{max(numbers):{form}}]"


def plain(number: float | None, form: str) -> str:
    return "–" if number is None else f"{number:{form}}"


def print_table(bench: Bench, engines: list[Engine]) -> None:
    rounds = len(bench.rounds)
    print(f"Medians of {rounds} interleaved rounds [least–most], {IN_FLIGHT:,} in flight:")
    head = ("engine", "operations/s", "failing/s", "p50 alone ms", "CPU ms", "flushes", "steps")
    layout = "{:35} {:>25} {:>25} {:>21} {:>8} {:>8} {:>12}"
    print(layout.format(*head))
    for engine in engines:
        name, failing = engine.name, f"{engine.name} failing"
        counted = bench.rounds[-1][name]["sink_lines"], bench.rounds[-1][failing]["sink_lines"]
        print(
            layout.format(
                f"{engine.title} {bench.kept_forms[name]}".strip(),
                spread(values(bench, name, "operations_per_second"), ",.0f"),
                spread(values(bench, failing, "operations_per_second"), ",.0f"),
                spread(values(bench, name, "p50_alone_ms"), ".2f"),
                plain(median(values(bench, name, "cpu_ms_per_operation")), ".3f"),
                plain(median(values(bench, name, "flushes_per_operation")), ".3f"),
                "{:,}+{:,}".format(*counted),
            )
        )
    for result in bench.other_forms:
        rate = result["operations_per_second"]
        print(f"  not kept: {result['engine']} {result['form']}, {rate:,.1f} operations/s")
    print("\nWhat a step makes durable, and the versions:")
    for engine in engines:
        result = bench.rounds[-1][engine.name]
        versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        print(f"  {engine.title:28} {result['records']:26} {versions}")


def print_targets(last_line: dict[str, Any]) -> None:
    print("\nTargets:")
    for key, words, more_is_better, bound in TARGETS:
        value = last_line[key]
        if value is None:
            verdict = "not measured"
        else:
            verdict = "met" if (value >= bound if more_is_better else value <= bound) else "NOT MET"
        sign = "≥" if more_is_better else "≤"
        print(f"  {verdict:12} {key:22} {plain(value, ',.4g'):>9} {sign} {bound:<8,.4g} {words}")


def print_scaling(scaling: list[Result]) -> None:
    print("\nCost of an operation as the store grows:")
    for row in scaling:
        print(
            f"  {row['finished']:>9,} finished   {row['ms_per_operation']:.4f} ms an operation, "
            f"{row['cpu_ms_per_operation']:.4f} ms of CPU, measured over {row['operations']:,}"
        )


# ---------------------------------------------------------------------------------------- the whole


def chosen_engines() -> list[Engine]:
    """Those that PEERS asks for and that are here; says which are left out."""
    wanted = os.environ.get("PEERS", "all").strip().lower()
    known = {engine.name for engine in ENGINES if engine.is_peer}
    fixed = {"": known, "all": known, "none": set[str]()}
    names = fixed[wanted] if wanted in fixed else set(wanted.split(","))
    if not names <= known:
        raise Failed(f"PEERS knows none, all and {', '.join(sorted(known))}; not {wanted}")
    chosen = [engine for engine in ENGINES if not engine.is_peer or engine.name in names]
    if left_out := sorted(known - names):
        print(f"PEERS={wanted}: left out are {', '.join(left_out)}; their ratios will be null")
    if not (BENCH / "engines" / "tenure.py").exists():
        print(
            "bench/engines/tenure.py is not here: Tenure is not measured, its figures will be null"
        )
        chosen = [engine for engine in chosen if engine.name != "tenure"]
    return chosen


def program(engine: Engine) -> list[str]:
    """The command that starts an engine; its environment is made when it is not there."""
    interpreter = peers.python() if engine.is_peer else Path(sys.executable)
    command = [str(interpreter), "-m", engine.module]
    if engine.name == "restate":
        command += ["--server", str(peers.restate_server())]
    return command


def machine() -> str:
    """When and where this was measured."""
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    python = f"Python {platform.python_version()}"
    return f"{date}, {python}, {platform.platform()}, {os.cpu_count()} cores"


def run(arguments: argparse.Namespace) -> int:
    engines = chosen_engines()
    programs = {engine.name: program(engine) for engine in engines}
    arguments.dir.mkdir(parents=True, exist_ok=True)
    with scratch(arguments.dir.resolve()) as work:
        bench = Bench(work, arguments.out, meter.Disk(work), programs)
        print(f"{machine()}, load average {os.getloadavg()[0]:.2f} before", flush=True)
        for number in range(1, arguments.rounds + 1):
            measure_round(bench, engines, number, arguments.rounds)
        scaling: list[Result] = []
        if "tenure" in programs and not arguments.no_scaling:
            sizes = ",".join(str(size) for size in SIZES)
            print(f"Tenure with {sizes} finished operations ...", flush=True)
            told = more(bench, "scaling", "--sizes", sizes, seconds_max=SCALING_SECONDS_MAX)
            bench.note(0, {"engine": "tenure"} | told)
            scaling = told["scaling"]
            held = [row["finished"] for row in scaling]
            if len(held) != len(SIZES) or any(map(operator.lt, held, SIZES)):
                raise Failed(f"the scaling of Tenure lacks a size: {held}")
    print(f"\n{machine()}")
    print_table(bench, engines)
    if scaling:
        print_scaling(scaling)
    last_line = figures(bench, scaling)
    print_targets(last_line)
    print(json.dumps(last_line))
    return 0 if "tenure" in programs else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS") or 4))
    parser.add_argument(
        "--out", type=Path, help="append each result to this file as a line of JSON"
    )
    parser.add_argument("--dir", type=Path, default=WORK, help="a directory on the disk under test")
    parser.add_argument(
        "--no-scaling", action="store_true", help="leave out the million operations"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("at least one round")
    # A termination must reach the `finally` blocks that stop what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(arguments)
    except Failed as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    except peers.CannotInstall as failure:
        print(f"\nFAILED: {failure}\nPEERS=none leaves the peers out", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
