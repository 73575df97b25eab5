"""Runs the proof of one promise and says how many cases it took: `make prove P=2`.

A proof is lots of cases: lives of the simulation in the mixes that aim at the promise, cells of
the crash matrix, real processes that are killed.  It exits 0 if the promise held in all of them
and 1 at the first in which it did not.  With a safeguard switched off that the promise rests on it
must exit 1; one that it does not rest on is refused with exit 2.

usage: python -m proofs.prove P [--ablate NAME]
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from proofs.agents import ablations as lifecycle_ablations
from proofs.agents import life as lifecycle_life
from proofs.agents import promises as lifecycle_proofs
from proofs.events import promises as event_proofs
from proofs.http import flood
from proofs.kills import kill9
from proofs.operations import crash
from proofs.operations.ablations import ABLATIONS as OF_OPERATIONS
from proofs.operations.ablations import TURNS_MAX, Ablation, by_name
from proofs.operations.life import live
from proofs.operations.profiles import MIXES
from proofs.reconcilers import life as reconcile_life
from proofs.reconcilers import perturbations
from proofs.reconcilers import promises as reconcile_proofs
from proofs.releases import upgrades as releases
from tenure.testing import loop
from tenure.testing.patches import patched

ABLATIONS = by_name(
    ablation
    for part in (OF_OPERATIONS, lifecycle_ablations.ABLATIONS, event_proofs.ABLATIONS,
                 reconcile_proofs.ABLATIONS)
    for ablation in part.values()
)  # fmt: skip
SEEDS = 300
"""Lives of each mix, of which a proof has several."""
AGENTS_SEEDS = 150
"""Lives of agents of each mix."""
AIMED_SEEDS = 1_000
"""Lives of the mix that aims at the safeguard which is off."""
LOST_SEEDS = 100
"""Lives in which reactions are lost."""
KILLS = 40
REPLAYS = 60
PROGRESS_SECONDS = 5.0


class Case(NamedTuple):
    """One case of a proof."""

    name: str
    """As it is told when it fails: how to see it again."""
    wrong: list[str]
    times: int = 1
    """How many cases it stands for."""


Cases = Iterator[Case]


@dataclass(frozen=True, slots=True)
class Proof:
    """How one promise is proved."""

    number: int
    sentence: str
    mixes: tuple[str, ...] = ()
    matrix: tuple[str, ...] = ()
    """Scenarios of the crash matrix, each crossing and side without a further fault."""
    also: Callable[[], Cases] | None = None
    agents: tuple[str, ...] = ()
    """Mixes of the lives of agents."""


def lives(mix: str, seeds: int) -> Cases:
    """The first lives of a mix."""
    for seed in range(seeds):
        again = f"python -m proofs.simulation --mix {mix} --first {seed} --seeds 1"
        yield Case(again, live(seed, MIXES[mix]).wrong)


def agents(mix: str, seeds: int) -> Cases:
    """The first lives of agents in a mix."""
    for seed in range(seeds):
        again = f"python -m proofs.agents.life --mix {mix} --first {seed} --seeds 1"
        yield Case(again, lifecycle_life.live(seed, lifecycle_life.MIXES[mix]).wrong)


def retries() -> Cases:
    """Requests that are repeated, at once and later, also to planes that die."""
    yield from itertools.starmap(Case, lifecycle_proofs.retries())


def tenants() -> Cases:
    """Everything that can be asked, asked by another tenant."""
    yield from itertools.starmap(Case, lifecycle_proofs.tenants())


def tampering() -> Cases:
    """Everything that can be done to an audit log."""
    yield from itertools.starmap(Case, lifecycle_proofs.tampering())


def lost_reactions() -> Cases:
    """Lives in which a fifth of all reactions is lost; then every look killed where it can be."""
    for seed in range(LOST_SEEDS):
        again = f"python -m proofs.reconcilers.life --first {seed} --seeds 1"
        yield Case(again, reconcile_life.live(seed).wrong)
    yield from itertools.starmap(Case, perturbations.disturbed())


def false_deletions() -> Cases:
    """Everything that a reconciler must not believe."""
    yield from itertools.starmap(Case, reconcile_proofs.false_deletions())


def getting_out() -> Cases:
    """Relays that die at every crossing, and receivers that are not always there."""
    yield from itertools.starmap(Case, event_proofs.getting_out())


def floods() -> Cases:
    """Floods and slow clients, while another tenant asks politely."""
    yield from itertools.starmap(Case, flood.floods())


def upgrades() -> Cases:
    """What one release has begun, finished by another, forward and back."""
    yield from itertools.starmap(Case, releases.upgrades())


def cells(scenario: str) -> Cases:
    """Every crossing and side of a scenario."""
    for case in crash.cases_of(scenario, None, None):
        yield Case(f"proofs.operations.crash.run_case({case!r})", crash.run_case(case).wrong)


def kills() -> Cases:
    """A real process on a real file, killed with -9 again and again, and audited at the end."""
    with tempfile.TemporaryDirectory(prefix="tenure-prove-") as name:
        report = kill9.run(kills=KILLS, directory=Path(name), chance=random.Random(1))
    yield Case(f"python -m proofs.kills.kill9 --kills {KILLS}", report.notes, report.kills)


def replays() -> Cases:
    """Seeds lived twice here, and once in a fresh process that hashes strings otherwise."""
    seeds = range(REPLAYS)
    first = [live(seed).trace for seed in seeds]
    again = [live(seed).trace for seed in seeds]
    elsewhere = traces_elsewhere(REPLAYS)
    for seed, traces in enumerate(zip(first, again, elsewhere, strict=True)):
        differ = [] if len(set(traces)) == 1 else [f"its traces are {', '.join(traces)}"]
        yield Case(f"python -m proofs.prove 22 --traces {seed + 1}", differ, 3)


def traces_elsewhere(seeds: int, *, hash_seed: str = "12345") -> list[str]:
    """The trace hashes of the first seeds, lived in a fresh process."""
    command = [sys.executable, "-m", "proofs.prove", "22", "--traces", str(seeds)]
    told = subprocess.run(  # noqa: S603 (ourselves)
        command,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.split()


PROOFS: Mapping[int, Proof] = {
    proof.number: proof
    for proof in (
        Proof(
            1,
            "Durable ack: nothing that was acknowledged is missing after a crash.",
            ("acceptance", "crashes", "commit_errors", "signals", "alone"),
            ("linear", "waits"),
            kills,
        ),
        Proof(
            2,
            "Every operation ends: at its goal, fully undone, or STUCK and saying what is left.",
            (
                "usual", "undo", "stuck", "stuck_together", "abandoned", "late", "decision",
                "foreign", "generations", "readiness", "crash_loop", "crashes", "busy_disk",
                "pivot", "signals", "signals_meanwhile", "front",
            ),
            ("linear", "linear_refused", "parallel", "parallel_refused", "pivot", "pivot_cancelled",
             "undo_refused_for_a_while", "undo_refused_for_ever", "ready_late", "waits"),
            agents=("agents", "closing", "queued", "quota", "names", "spared"),
        ),
        Proof(
            3,
            "No orphans: what has no living owner goes, also if a fifth of all reactions is lost.",
            also=lost_reactions,
            agents=("agents",),
        ),
        Proof(
            4,
            "No false deletion: what lives, is foreign or newer than the store is never deleted.",
            also=false_deletions,
        ),
        Proof(
            6,
            "Honest unknown: what may have happened is never reported as failed, and waits.",
            ("effects", "interrupted", "pivot", "late_pivot", "looks", "unknown_pivot",
             "commit_errors"),
            ("charge", "unaskable", "unaskable_resolved", "unaskable_cancelled", "pivot"),
        ),
        Proof(
            7,
            "One writer: a worker that has lost its lease commits nothing, however long it slept.",
            ("zombies", "clocks", "front", "abandoned", "effects"),
        ),
        Proof(
            10,
            "Safe retries: the same key and request are one operation for a day.",
            also=retries,
        ),
        Proof(
            13,
            "Closing closes: from its acknowledgement on nothing is served, and no child is left.",
            agents=("closing", "queued", "owned", "late", "agents"),
        ),
        Proof(
            17,
            "Events: every committed one is published, in order for each agent, under one id.",
            also=getting_out,
        ),
        Proof(
            18,
            "Tenants: another's object is as absent as one that never was.",
            also=tenants,
        ),
        Proof(
            20,
            "Audit: an edit, removal, reorder or cut of the log is found, and named.",
            also=tampering,
        ),
        Proof(
            21,
            "Bounded: a flood or a slow client is refused or cut off, and others are served.",
            also=floods,
        ),
        Proof(
            22,
            "Replayable: a seed gives the same life, and the same trace hash, every time.",
            also=replays,
        ),
        Proof(
            23,
            "Upgrade: what an earlier release began is finished by this one, and back.",
            also=upgrades,
        ),
    )
}  # fmt: skip


def cases_of(proof: Proof, ablation: Ablation | None) -> Iterator[tuple[str, Cases]]:
    """The lots of a proof, each with its name; what aims at an ablated safeguard comes first."""
    mixes = proof.mixes
    if ablation is not None and ablation.mix in mixes:
        yield f"lives of {ablation.mix}", lives(ablation.mix, AIMED_SEEDS)
        mixes = tuple(mix for mix in mixes if mix != ablation.mix)
    aimed = ablation.mix if ablation is not None else ""
    for mix in sorted(proof.agents, key=lambda mix: mix != aimed):
        yield f"lives of agents, {mix}", agents(mix, AIMED_SEEDS if mix == aimed else AGENTS_SEEDS)
    for scenario in proof.matrix:
        yield f"crash matrix of {scenario}", cells(scenario)
    for mix in mixes:
        yield f"lives of {mix}", lives(mix, SEEDS)
    if proof.also is not None:
        yield proof.also.__name__, proof.also()


def prove(proof: Proof, ablation: Ablation | None = None) -> int:
    """Run every case, say how many there were; 0 if the promise held in all of them, else 1."""
    off: AbstractContextManager[None] = ablation.off() if ablation is not None else nullcontext()
    print(f"P{proof.number} {proof.sentence}")
    if ablation is not None:
        print(f"without {ablation.name}: {ablation.protects}")
    total = 0
    began = told_at = time.monotonic()
    with patched(loop, TURNS_MAX=TURNS_MAX), off:
        for name, lot in cases_of(proof, ablation):
            count = 0
            for case in lot:
                count += case.times
                if case.wrong:
                    print(f"  {name}: case {count} broke it\n    again: {case.name}")
                    for wrong in case.wrong[:5]:
                        print(f"    {wrong}")
                    print(f"P{proof.number} does not hold; cases={total + count}")
                    return 1
                if time.monotonic() > told_at + PROGRESS_SECONDS:
                    told_at = time.monotonic()
                    print(f"  {name}: {count} so far", flush=True)
            total += count
            print(f"  {name}: {count} cases", flush=True)
    print(f"P{proof.number} holds; cases={total} seconds={time.monotonic() - began:.1f}")
    return 0


def relevant(number: int) -> list[str]:
    """The safeguards that a promise rests on."""
    return [name for name, ablation in ABLATIONS.items() if number in ablation.promises]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove one promise."""
    parser = argparse.ArgumentParser(prog="prove", description=__doc__.splitlines()[0])
    parser.add_argument("promise", help="its number: " + ", ".join(map(str, PROOFS)))
    parser.add_argument("--ablate", default="", help="a safeguard to switch off")
    parser.add_argument("--traces", type=int, default=0, help="print the traces of the first seeds")
    asked = parser.parse_args(arguments)
    if asked.traces:
        print("\n".join(live(seed).trace for seed in range(asked.traces)))
        return 0
    number = asked.promise.lstrip("Pp")
    proof = PROOFS.get(int(number)) if number.isdecimal() else None
    if proof is None:
        known = ", ".join(map(str, PROOFS))
        print(f"there is no proof of {asked.promise} yet; there is of {known}")
        return 2
    if asked.ablate and asked.ablate not in relevant(proof.number):
        print(
            f"P{proof.number} does not rest on {asked.ablate!r}; it rests on "
            + ", ".join(relevant(proof.number))
        )
        return 2
    return prove(proof, ABLATIONS[asked.ablate] if asked.ablate else None)


__all__ = ["PROOFS", "main", "prove", "relevant", "traces_elsewhere"]

if __name__ == "__main__":
    sys.exit(main())
