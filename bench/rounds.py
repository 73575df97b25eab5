"""What benchmarks of several engines share: rounds, ratios formed within a round, and the report.

An engine is a program of bench/engines; it is started anew for every measurement, and nothing that
it started outlives it. What an engine owes stands in bench/engines/__init__.py.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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

Result = dict[str, Any]
Target = tuple[str, str, bool, float]
"""Key of the last line, what it says, whether more is better, the bound the project set itself."""


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
    residue: bool = False
    """It is measured also where a refusal may leave residue, which no ratio to a peer needs."""


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


def perform(
    bench: Bench, engine: Engine, *, form: str, fail: bool, residue: bool = False
) -> Result:
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
        command += ["--residue"] if residue else []
        result = call(command, seconds_max=RUN_SECONDS_MAX)
        steps = meter.steps(fail=fail, residue=residue)
        result["sink_lines"] = check_sink(sink, engine.name, operations + alone + WARM, steps)
    if result["operations"] != operations:
        raise Failed(f"{engine.name} measured {result['operations']} operations, not {operations}")
    return result | {"engine": engine.name, "form": form, "fail": fail, "residue": residue}


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


def measure_round(
    bench: Bench, engines: Sequence[Engine], number: int, of: int
) -> dict[str, Result]:
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
        if not engine.failing:
            continue
        for residue in (False, True) if engine.residue else (False,):
            failing = perform(bench, engine, form=best["form"], fail=True, residue=residue)
            bench.note(number, failing)
            say(number, of, engine, failing)
            found[f"{engine.name} {'residue' if residue else 'failing'}"] = failing
    return found


def say(number: int, of: int, engine: Engine, result: Result) -> None:
    title = f"{engine.title} {result['form']}".strip()
    kind = "residue" if result["residue"] else "failing" if result["fail"] else "       "
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


# -------------------------------------------------------------------------------------- the report


def spread(numbers: list[float], form: str) -> str:
    if not numbers:
        return "–"
    return f"{statistics.median(numbers):{form}} [{min(numbers):{form}}–{max(numbers):{form}}]"


def plain(number: float | None, form: str) -> str:
    return "–" if number is None else f"{number:{form}}"


def print_table(bench: Bench, engines: Sequence[Engine]) -> None:
    rounds = len(bench.rounds)
    print(f"Medians of {rounds} interleaved rounds [least–most], {IN_FLIGHT:,} in flight:")
    head = ("engine", "operations/s", "failing/s", "p50 alone ms", "CPU ms", "flushes", "steps")
    layout = "{:35} {:>25} {:>25} {:>21} {:>8} {:>8} {:>12}"
    print(layout.format(*head))
    for engine in engines:
        name, failing = engine.name, f"{engine.name} failing"
        last = bench.rounds[-1]
        counted = [last[key]["sink_lines"] for key in (name, failing) if key in last]
        print(
            layout.format(
                f"{engine.title} {bench.kept_forms[name]}".strip(),
                spread(values(bench, name, "operations_per_second"), ",.0f"),
                spread(values(bench, failing, "operations_per_second"), ",.0f"),
                spread(values(bench, name, "p50_alone_ms"), ".2f"),
                plain(median(values(bench, name, "cpu_ms_per_operation")), ".3f"),
                plain(median(values(bench, name, "flushes_per_operation")), ".3f"),
                "+".join(f"{lines:,}" for lines in counted),
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


def print_targets(last_line: dict[str, Any], targets: Sequence[Target]) -> None:
    """Say of each figure whether it is where the project wants it."""
    print("\nTargets:")
    for key, words, more_is_better, bound in targets:
        value = last_line[key]
        if value is None:
            verdict = "not measured"
        else:
            verdict = "met" if (value >= bound if more_is_better else value <= bound) else "NOT MET"
        sign = "≥" if more_is_better else "≤"
        print(f"  {verdict:12} {key:22} {plain(value, ',.4g'):>9} {sign} {bound:<8,.4g} {words}")


# ---------------------------------------------------------------------------------------- the whole


def chosen(engines: Sequence[Engine]) -> list[Engine]:
    """Those that PEERS asks for; says which are left out."""
    wanted = os.environ.get("PEERS", "all").strip().lower()
    known = {engine.name for engine in engines if engine.is_peer}
    fixed = {"": known, "all": known, "none": set[str]()}
    names = fixed[wanted] if wanted in fixed else set(wanted.split(","))
    if not names <= known:
        raise Failed(f"PEERS knows none, all and {', '.join(sorted(known))}; not {wanted}")
    if left_out := sorted(known - names):
        print(f"PEERS={wanted}: left out are {', '.join(left_out)}; their ratios will be null")
    return [engine for engine in engines if not engine.is_peer or engine.name in names]


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


def begun(run: Callable[[argparse.Namespace], int], words: str | None) -> int:
    """Read the command line of a benchmark, run it, and say in a sentence what went wrong."""
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
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
