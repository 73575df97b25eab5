"""The promises about operations: which profiles and scenarios prove them, kills, replays."""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from proofs.harness.simulation import simulate
from proofs.harness.subject import Check, Checks, Proof, Subject
from proofs.kills import kill9
from proofs.operations.ablations import ABLATIONS
from proofs.operations.scenarios import MATRIX
from proofs.operations.workload import OperationsSimulation

KILLS = 40
REPLAYS = 60


def kills() -> Checks:
    """A real process on a real file, killed with -9 again and again, and audited at the end."""
    with tempfile.TemporaryDirectory(prefix="tenure-prove-") as name:
        report = kill9.run(kills=KILLS, directory=Path(name), chance=random.Random(1))
    yield Check(f"python -m proofs.kills.kill9 --kills {KILLS}", report.notes, report.kills)


def replays() -> Checks:
    """Seeds run twice here, and once in a fresh process that hashes strings otherwise."""
    first, again = traces(REPLAYS), traces(REPLAYS)
    elsewhere = traces_elsewhere(REPLAYS)
    for seed, found in enumerate(zip(first, again, elsewhere, strict=True)):
        differ = [] if len(set(found)) == 1 else [f"its traces are {', '.join(found)}"]
        yield Check(f"python -m proofs.prove 22 --traces {seed + 1}", differ, 3)


def traces(seeds: int) -> list[str]:
    """The trace hashes of the first seeds."""
    return [simulate(OperationsSimulation, seed, "usual").trace for seed in range(seeds)]


def traces_elsewhere(seeds: int, *, hash_seed: str = "12345") -> list[str]:
    """The trace hashes of the first seeds, run in a fresh process."""
    command = [sys.executable, "-m", "proofs.prove", "22", "--traces", str(seeds)]
    printed = subprocess.run(  # noqa: S603 (ourselves)
        command,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return printed.stdout.split()


SUBJECT = Subject(
    "operations",
    (
        Proof(
            1,
            ("acceptance", "crashes", "commit_errors", "signals", "alone"),
            ("linear", "waits"),
            kills,
        ),
        Proof(
            2,
            ("usual", "undo", "stuck", "stuck_together", "abandoned", "late", "decision",
             "foreign", "generations", "readiness", "crash_loop", "crashes", "busy_disk", "pivot",
             "signals", "signals_meanwhile", "front"),
            ("linear", "linear_refused", "parallel", "parallel_refused", "pivot", "pivot_cancelled",
             "undo_refused_for_a_while", "undo_refused_for_ever", "ready_late", "waits"),
        ),
        Proof(
            6,
            ("effects", "interrupted", "pivot", "late_pivot", "looks", "unknown_pivot",
             "commit_errors"),
            ("charge", "unaskable", "unaskable_resolved", "unaskable_cancelled", "pivot"),
        ),
        Proof(7, ("zombies", "clocks", "front", "abandoned", "effects")),
        Proof(22, checks=replays),
    ),
    ABLATIONS,
    OperationsSimulation,
    MATRIX,
    seeds=300,
)  # fmt: skip
