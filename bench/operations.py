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
import json
import operator
import os
from typing import Any

import meter
import rounds
from rounds import Bench, Engine, Failed, Result, four_digits, median, ratio, values

SCALING_SECONDS_MAX = 900
SIZES = (1_000, 10_000, 100_000, 1_000_000)


# Slow peers are given fewer operations to fail: no ratio is formed of their failing rate.
ENGINES = (
    Engine("tenure", "Tenure", "engines.tenure", 20_000, 20_000, 200, is_peer=False, residue=True),
    Engine(
        "floor",
        "SQLite by hand (floor)",
        "engines.floor",
        20_000,
        20_000,
        200,
        forms=("loop", "thread"),
        is_peer=False,
        residue=True,
    ),
    Engine(
        "tuned_floor",
        "SQLite by hand, tuned",
        "engines.floor",
        20_000,
        20_000,
        200,
        forms=("loop", "thread"),
        arguments=("--tuned",),
        is_peer=False,
        residue=True,
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
    ("vs_floor", "of the floor's, by hand on Python's own sqlite3", True, 0.30),
    ("fail_vs_ok", "failing (two undos) against succeeding operations a second", True, 0.70),
    ("p50_vs_restate", "median alone, against Restate's", False, 1 / 3),
    ("flushes_per_operation", "flushes of the disk an operation, under load", False, 0.05),
    ("cpu_ms_per_operation", "milliseconds of CPU an operation, under load", False, 0.20),
    ("recovery_seconds", "seconds until 10,000 open operations are read and moving", False, 0.5),
    ("bytes_per_operation", "bytes of memory for a live operation", False, 5_000),
    ("cost_1m_vs_1k", "cost with 1,000,000 finished operations against 1,000", False, 1.2),
)


# ------------------------------------------------------------------------------------- the rounds


def measure_round(bench: Bench, engines: list[Engine], number: int, of: int) -> None:
    """Every engine, and what Tenure alone is measured in."""
    found = rounds.measure_round(bench, engines, number, of)
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


def more(
    bench: Bench, name: str, *arguments: str, seconds_max: int = rounds.RUN_SECONDS_MAX
) -> Result:
    """One of the measurements that Tenure alone has."""
    bench.disk.wait_until_calm()
    with rounds.scratch(bench.work) as directory:
        command = [*bench.programs["tenure"], name, "--dir", str(directory), *arguments]
        return rounds.call(command, seconds_max=seconds_max)


# ------------------------------------------------------------------------------------- the figures


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
        "vs_tuned_floor": ratio(bench, "tenure", "tuned_floor", rate),
        "fail_vs_ok": ratio(bench, "tenure failing", "tenure", rate),
        "residue_vs_ok": ratio(bench, "tenure residue", "tenure", rate),
        "floor_fail_vs_ok": ratio(bench, "floor failing", "floor", rate),
        "floor_residue_vs_ok": ratio(bench, "floor residue", "floor", rate),
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


def print_failing(last_line: dict[str, Any]) -> None:
    """The share of the rate that is left when operations fail, beside what is left of the floor."""
    print("\nFailing against succeeding operations a second, in Tenure and in the floor:")
    for key, words in (("fail", "two undos"), ("residue", "the refused step undone as well")):
        ours, floor = last_line[f"{key}_vs_ok"], last_line[f"floor_{key}_vs_ok"]
        print(f"  {words:32} {rounds.plain(ours, '.3f'):>6} {rounds.plain(floor, '.3f'):>6}")


def print_scaling(scaling: list[Result]) -> None:
    print("\nCost of an operation as the store grows:")
    for row in scaling:
        print(
            f"  {row['finished']:>9,} finished   {row['ms_per_operation']:.4f} ms an operation, "
            f"{row['cpu_ms_per_operation']:.4f} ms of CPU; runs {row['runs']}"
        )


# ---------------------------------------------------------------------------------------- the whole


def run(arguments: argparse.Namespace) -> int:
    engines = rounds.chosen(ENGINES)
    programs = {engine.name: rounds.program(engine) for engine in engines}
    arguments.dir.mkdir(parents=True, exist_ok=True)
    with rounds.scratch(arguments.dir.resolve()) as work:
        bench = Bench(work, arguments.out, meter.Disk(work), programs)
        print(f"{rounds.machine()}, load average {os.getloadavg()[0]:.2f} before", flush=True)
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
    print(f"\n{rounds.machine()}")
    rounds.print_table(bench, engines)
    if scaling:
        print_scaling(scaling)
    last_line = figures(bench, scaling)
    print_failing(last_line)
    rounds.print_targets(last_line, TARGETS)
    print(json.dumps(last_line))
    return 0 if "tenure" in programs else 1


if __name__ == "__main__":
    raise SystemExit(rounds.begun(run, __doc__))
