"""Operations on PostgreSQL beside Absurd and DBOS, and on Temporal beside a workflow by hand.

usage: python bench/scale_out.py [--rounds N] [--out FILE] [--dir DIR] [--no-scaling]
       ROUNDS=2 is --rounds 2; PEERS=none leaves the peers out; PEERS=absurd takes it alone

The same work and the same sink as in bench/operations.py, each engine on a fresh PostgreSQL of the
same version and settings. Then our Temporal engine against a hand-written workflow of the same four
activities on one dev server; CPU of a request at one API process and at two; and the cost of an
operation with up to a million finished ones. The last line printed is one JSON object.
"""

import argparse
import json
import os
import sys

import meter
import rounds
from rounds import Bench, Engine, Failed, Result, four_digits, median, ratio, values

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TEMPORAL_ROUNDS = 6
MORE_SECONDS_MAX = 900

ENGINES = (
    Engine(
        "tenure", "Tenure on PostgreSQL", "engines.tenure_postgres", 10_000, 0, 100, is_peer=False
    ),
    Engine("absurd", "Absurd", "engines.absurd", 1_500, 0, 50),
    Engine(
        "dbos",
        "DBOS on PostgreSQL",
        "engines.dbos",
        600,
        0,
        30,
        forms=("sync", "async"),
        arguments=("--database", "postgres"),
    ),
)
TARGETS = (
    ("vs_absurd", "times Absurd's operations a second", True, 8.0),
    ("vs_dbos", "times DBOS's on the same PostgreSQL", True, 25.0),
    ("temporal_overhead", "slower than a workflow written by hand", False, 0.15),
    ("request_cpu_growth", "more CPU a request at two API processes", False, 0.10),
    ("cost_1m_vs_1k", "cost with 1,000,000 finished operations against 1,000", False, 1.2),
)


def alone(bench: Bench, module: str, *arguments: str, placed: bool = True) -> Result:
    """A measurement that is not one of several engines."""
    bench.disk.wait_until_calm()
    with rounds.scratch(bench.work) as directory:
        where = ["--dir", str(directory)] if placed else []
        command = [sys.executable, "-m", module, *arguments, *where]
        return rounds.call(command, seconds_max=MORE_SECONDS_MAX)


def run(arguments: argparse.Namespace) -> int:
    """All of it, and the last line."""
    engines = rounds.chosen(ENGINES)
    programs = {engine.name: rounds.program(engine) for engine in engines}
    arguments.dir.mkdir(parents=True, exist_ok=True)
    scaling: list[Result] = []
    with rounds.scratch(arguments.dir.resolve()) as work:
        bench = Bench(work, arguments.out, meter.Disk(work), programs)
        print(f"{rounds.machine()}, load average {os.getloadavg()[0]:.2f} before", flush=True)
        for number in range(1, arguments.rounds + 1):
            rounds.measure_round(bench, engines, number, arguments.rounds)
        print("Temporal: ours and the one by hand, round about ...", flush=True)
        temporal = alone(
            bench,
            "engines.temporal",
            "--store",
            "postgres",
            "--eager",
            "--rounds",
            str(TEMPORAL_ROUNDS),
            placed=False,
        )
        print(json.dumps(temporal), flush=True)
        asked = alone(bench, "engines.tenure_faces")
        print(json.dumps(asked), flush=True)
        if not arguments.no_scaling:
            sizes = ",".join(map(str, SIZES))
            scaling = alone(bench, "engines.tenure_postgres", "scaling", "--sizes", sizes)[
                "scaling"
            ]
            if [row["finished"] for row in scaling] < list(SIZES):
                raise Failed(f"the scaling lacks a size: {scaling}")
    print(f"\n{rounds.machine()}")
    rounds.print_table(bench, engines)
    for row in scaling:
        spent, cpu = row["ms_per_operation"], row["cpu_ms_per_operation"]
        print(f"  {row['finished']:>9,} finished   {spent:.4f} ms an operation, {cpu:.4f} of CPU")
    rate = "operations_per_second"
    cost = scaling[-1]["ms_per_operation"] / scaling[0]["ms_per_operation"] if scaling else None
    keys = {
        "vs_absurd": ratio(bench, "tenure", "absurd", rate),
        "vs_dbos": ratio(bench, "tenure", "dbos", rate),
        "temporal_overhead": temporal["temporal_overhead"],
        "request_cpu_growth": asked["request_cpu_growth"],
        "cost_1m_vs_1k": cost,
        rate: median(values(bench, "tenure", rate)),
    }
    last_line = {
        **{key: four_digits(value) for key, value in keys.items()},
        "rounds": len(bench.rounds),
        "engines": {
            one.name: four_digits(median(values(bench, one.name, rate))) for one in ENGINES
        },
        "temporal": temporal,
        "requests": asked,
        "scaling": scaling,
    }
    rounds.print_targets(last_line, TARGETS)
    print(json.dumps(last_line))
    return 0


if __name__ == "__main__":
    raise SystemExit(rounds.begun(run, __doc__))
