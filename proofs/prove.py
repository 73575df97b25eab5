"""Runs the proof of one promise and says how many cases it took: `make prove P=2`.

A proof is lots of cases: simulation runs of the profiles that aim at the promise, cells of the
crash matrix, real processes that are killed.  Each subject (`proofs.subjects`) brings its part.
The command exits 0 if the promise held in all of them and 1 at the first in which it did not.
With a safeguard switched off that the promise rests on it must exit 1; one that it does not rest on
is refused with exit 2.

usage: python -m proofs.prove P [--ablate NAME]
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from proofs.harness.ablation import TURNS_MAX, Ablation
from proofs.harness.subject import Checks, Proof, Subject
from proofs.operations.promises import traces
from proofs.simulation import silence_product_logs
from proofs.subjects import ABLATIONS, SUBJECTS
from tenure.testing import loop
from tenure.testing.patches import patched

AIMED_SEEDS = 1_000
"""Runs of the profile that aims at the safeguard which is off."""
SEEDS_MAX = AIMED_SEEDS
"""Runs of every other profile, at most; a subject says how many there are."""
CRASHES_ONE_IN = 1
"""Of the cells of a crash matrix one in so many is run."""
PROGRESS_SECONDS = 5.0
PROMISES: Mapping[int, str] = {
    1: "Durable ack: nothing that was acknowledged is missing after a crash.",
    2: "Every operation ends: at its goal, fully undone, or STUCK and saying what is left.",
    3: "No orphans: what has no living owner goes, also if a fifth of all reactions is lost.",
    4: "No false deletion: what lives, is foreign or newer than the store is never deleted.",
    6: "Honest unknown: what may have happened is never reported as failed, and waits.",
    7: "One writer: a worker that has lost its lease commits nothing, however long it slept.",
    10: "Safe retries: the same key and request are one operation for a day.",
    13: "Closing closes: from its acknowledgement on nothing is served, and no child is left.",
    17: "Events: every committed one is published, in order for each agent, under one id.",
    18: "Tenants: another's object is as absent as one that never was.",
    20: "Audit: an edit, removal, reorder or cut of the log is found, and named.",
    21: "Bounded: a flood or a slow client is refused or cut off, and others are served.",
    22: "Replayable: a seed gives the same run, and the same trace hash, every time.",
    23: "Upgrade: what an earlier release began is finished by this one, and back.",
}


class Lot(NamedTuple):
    """Cases of one kind."""

    name: str
    checks: Checks


def parts_of(number: int) -> Iterator[tuple[Subject, Proof]]:
    """What each subject brings to the proof of a promise."""
    for subject in SUBJECTS.values():
        for proof in subject.proofs:
            if proof.number == number:
                yield subject, proof


def lots_of(number: int, ablation: Ablation | None) -> Iterator[Lot]:
    """The lots of a proof; runs that aim at the ablated safeguard come first."""
    aimed = "" if ablation is None else ablation.profile
    parts = list(parts_of(number))
    profiles = [(subject, one) for subject, proof in parts for one in proof.profiles]
    for subject, profile in sorted(profiles, key=lambda one: one[1] != aimed):
        seeds = AIMED_SEEDS if profile == aimed else min(subject.seeds, SEEDS_MAX)
        name = f"simulation of {subject.name}, {profile}"
        yield Lot(name, subject.simulation_checks(profile, seeds))
    for subject, proof in parts:
        for scenario in proof.scenarios:
            name = f"crash matrix of {subject.name}, {scenario}"
            yield Lot(name, subject.crash_checks(scenario, one_in=CRASHES_ONE_IN))
        if proof.checks is not None:
            yield Lot(proof.checks.__name__, proof.checks())


def prove(number: int, ablation: Ablation | None = None) -> int:
    """Run every case, say how many there were; 0 if the promise held in all of them, else 1."""
    off: AbstractContextManager[None] = ablation.off() if ablation is not None else nullcontext()
    print(f"P{number} {PROMISES[number]}")
    if ablation is not None:
        print(f"without {ablation.name}: {ablation.protects}")
    total = 0
    began = printed_at = time.monotonic()
    with patched(loop, TURNS_MAX=TURNS_MAX), off:
        for name, checks in lots_of(number, ablation):
            count = 0
            for check in checks:
                count += check.cases
                if check.wrong:
                    print(f"  {name}: case {count} broke it\n    again: {check.again}")
                    for wrong in check.wrong[:5]:
                        print(f"    {wrong}")
                    print(f"P{number} does not hold; cases={total + count}")
                    return 1
                if time.monotonic() > printed_at + PROGRESS_SECONDS:
                    printed_at = time.monotonic()
                    print(f"  {name}: {count} so far", flush=True)
            total += count
            print(f"  {name}: {count} cases", flush=True)
    print(f"P{number} holds; cases={total} seconds={time.monotonic() - began:.1f}")
    return 0


def relevant(number: int) -> list[str]:
    """The safeguards that a promise rests on."""
    return [name for name, ablation in ABLATIONS.items() if number in ablation.promises]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove one promise."""
    parser = argparse.ArgumentParser(prog="prove", description=__doc__.splitlines()[0])
    parser.add_argument("promise", help="its number: " + ", ".join(map(str, PROMISES)))
    parser.add_argument("--ablate", default="", help="a safeguard to switch off")
    parser.add_argument("--traces", type=int, default=0, help="print the traces of the first seeds")
    options = parser.parse_args(arguments)
    if options.traces:
        print("\n".join(traces(options.traces)))
        return 0
    text = options.promise.lstrip("Pp")
    number = int(text) if text.isdecimal() else 0
    if number not in PROMISES:
        known = ", ".join(map(str, PROMISES))
        print(f"there is no proof of {options.promise} yet; there is of {known}")
        return 2
    if options.ablate and options.ablate not in relevant(number):
        print(
            f"P{number} does not rest on {options.ablate!r}; it rests on "
            + ", ".join(relevant(number))
        )
        return 2
    return prove(number, ABLATIONS[options.ablate] if options.ablate else None)


if __name__ == "__main__":
    silence_product_logs()
    sys.exit(main())
