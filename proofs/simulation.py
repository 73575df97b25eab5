"""Simulates many seeds: prints what failed and how to see it again.

Goal: whatever the order in which processes, callers, providers and failures take their turns,
every promise holds in the world's truth.  Method: `proofs.harness.simulation` runs each seed.  A
seed gives the same run on every machine with the same minor version of Python, and its trace hash
shows it.

usage: python -m proofs.simulation --seeds 1000 [--first 0] [--jobs 2]
                                   [--subject operations] [--profile usual]
"""

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from proofs.harness.simulation import OpenDisk, Result, memory_disk, simulate
from proofs.subjects import SIMULATIONS, SUBJECTS

CHUNK = 50
"""Seeds that one process of the machine simulates at a time."""
SHOWN = 5
"""Failed seeds that are printed in full."""


class Sum(NamedTuple):
    """What came of many seeds."""

    seeds: int
    counts: Counter[str]
    virtual: float
    failed: tuple[Result, ...]


def simulate_many(
    seeds: Iterable[int],
    profile: str = "usual",
    *,
    subject: str = "operations",
    disk: OpenDisk = memory_disk,
) -> Sum:
    """Simulate all of these."""
    simulation = SIMULATIONS[subject]
    count, virtual = 0, 0.0
    counts: Counter[str] = Counter()
    failed: list[Result] = []
    for seed in seeds:
        result = simulate(simulation, seed, profile, disk=disk)
        count, virtual = count + 1, virtual + result.seconds
        counts.update(operations=result.operations, faults=result.faults, **result.counts)
        if result.wrong:
            failed.append(result)
    return Sum(count, counts, virtual, tuple(failed))


def add(sums: Iterable[Sum]) -> Sum:
    """One sum of several."""
    parts = list(sums)
    return Sum(
        sum(part.seeds for part in parts),
        sum((part.counts for part in parts), Counter()),
        sum(part.virtual for part in parts),
        tuple(result for part in parts for result in part.failed),
    )


def silence_product_logs() -> None:
    """Print results only: the product warns of every repair that a run makes necessary."""
    logging.getLogger("tenure").setLevel(logging.CRITICAL)


def simulate_in_parallel(seeds: Sequence[int], subject: str, profile: str, jobs: int) -> Sum:
    """Simulate all of these in so many processes of the machine."""
    if jobs < 2:
        return simulate_many(seeds, profile, subject=subject)
    parts = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=silence_product_logs) as pool:
        return add(pool.map(partial(simulate_many, profile=profile, subject=subject), parts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate many seeds, print what failed and how to see it again."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--subject", choices=sorted(SIMULATIONS), default="operations")
    parser.add_argument("--profile", default="", help="a workload profile of the subject")
    options = parser.parse_args(arguments)
    subject, simulation = SUBJECTS[options.subject], SIMULATIONS[options.subject]
    profiles = simulation.profiles
    profile = options.profile or next(iter(profiles))
    if profile not in profiles:
        parser.error(f"{subject.name} has no profile {profile}; it has {', '.join(profiles)}")
    seeds = range(options.first, options.first + options.seeds)
    began = time.perf_counter()
    jobs = options.jobs if options.seeds > CHUNK else 1
    done = simulate_in_parallel(seeds, subject.name, profile, jobs)
    seconds = time.perf_counter() - began
    for result in done.failed[:SHOWN]:
        print(f"seed {result.seed}, trace {result.trace or 'none'}:")
        for wrong in result.wrong:
            print(f"    {wrong}")
        print(f"    again: {subject.again(profile, result.seed)}")
    if options.seeds == 1 and not done.failed:
        trace = simulate(simulation, options.first, profile).trace
        print(f"seed {options.first}, trace {trace}")
    counted = " ".join(f"{name}={count}" for name, count in done.counts.items())
    print(
        f"seeds={done.seeds} failures={len(done.failed)}"
        f" seeds_per_second={done.seeds / seconds:.0f} {counted}"
        f" virtual_seconds={done.virtual:.0f}"
    )
    return 1 if done.failed else 0


if __name__ == "__main__":
    silence_product_logs()
    sys.exit(main())
