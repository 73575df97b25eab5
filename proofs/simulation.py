"""Many lives of a plane, one for each seed: prints what failed and how to see it again.

Goal: whatever the order in which processes, callers, providers and mishaps take their turns,
every promise holds in the world's truth.  Method: `proofs.operations.life` lives each seed.  A seed
gives the same life on every machine with the same minor version of Python, and its trace hash
says so.

usage: python -m proofs.simulation --seeds 1000 [--first 0] [--jobs 2] [--mix usual]
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from proofs.operations.life import Lived, OpenDisk, live, memory_disk
from proofs.operations.profiles import MIXES

CHUNK = 50
"""Seeds that one process of the machine lives at a time."""
SHOWN = 5
"""Failed seeds that are told in full."""


class Sum(NamedTuple):
    """What came of many seeds."""

    seeds: int = 0
    operations: int = 0
    faults: int = 0
    virtual: float = 0.0
    failed: tuple[Lived, ...] = ()


def live_many(seeds: Iterable[int], mix: str = "usual", *, disk: OpenDisk = memory_disk) -> Sum:
    """Live all of these."""
    count = made = struck = 0
    virtual = 0.0
    failed: list[Lived] = []
    for seed in seeds:
        lived = live(seed, MIXES[mix], disk=disk)
        count, made, struck = count + 1, made + lived.operations, struck + lived.faults
        virtual += lived.seconds
        if lived.wrong:
            failed.append(lived)
    return Sum(count, made, struck, virtual, tuple(failed))


def add(sums: Iterable[Sum]) -> Sum:
    """One sum of several."""
    parts = list(sums)
    return Sum(
        sum(part.seeds for part in parts),
        sum(part.operations for part in parts),
        sum(part.faults for part in parts),
        sum(part.virtual for part in parts),
        tuple(lived for part in parts for lived in part.failed),
    )


def live_side_by_side(seeds: Sequence[int], mix: str, jobs: int) -> Sum:
    """Live all of these in so many processes of the machine."""
    if jobs < 2:
        return live_many(seeds, mix)
    parts = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return add(pool.map(live_many, parts, itertools.repeat(mix)))


def replay(lived: Lived, mix: str) -> str:
    """The command that lives this seed again."""
    chosen = "" if mix == "usual" else f" --mix {mix}"
    return f"python -m proofs.simulation --first {lived.seed} --seeds 1{chosen}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Live many seeds, say what failed and how to see it again."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mix", choices=sorted(MIXES), default="usual", help="what is likely")
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    began = time.perf_counter()
    done = live_side_by_side(seeds, asked.mix, asked.jobs if asked.seeds > CHUNK else 1)
    seconds = time.perf_counter() - began
    for lived in done.failed[:SHOWN]:
        print(f"seed {lived.seed}, trace {lived.trace or 'none'}:")
        for wrong in lived.wrong:
            print(f"    {wrong}")
        print(f"    again: {replay(lived, asked.mix)}")
    if asked.seeds == 1 and not done.failed:
        print(f"seed {asked.first}, trace {live(asked.first, MIXES[asked.mix]).trace}")
    print(
        f"seeds={done.seeds} failures={len(done.failed)}"
        f" seeds_per_second={done.seeds / seconds:.0f} operations={done.operations}"
        f" faults={done.faults} virtual_seconds={done.virtual:.0f}"
    )
    return 1 if done.failed else 0


if __name__ == "__main__":
    sys.exit(main())
