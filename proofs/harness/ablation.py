"""The ablation runner: a safeguard is taken out of the real code, and some check must notice.

A check that nothing can fail proves nothing.  Each `Ablation` patches one safeguard away inside a
`with` and names a workload profile in which that matters.  With the safeguard the profile must
pass; without it some seed must fail, and soon.  No setting of the product reaches any of this.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from proofs.harness.simulation import Simulation, simulate
from tenure.testing import loop
from tenure.testing.patches import Off, patched

TURNS_MAX = 150_000
"""Without a safeguard a run may turn for ever; no sound one comes near this."""
BY_PROOF = "proof"
"""Stands for a profile where the proof of the promise notices, and no simulation run."""


class Oracle(StrEnum):
    """What notices that a safeguard is missing."""

    INVARIANTS = "invariants"
    """The invariants that are checked at the end of a run."""
    REPLAY = "replay"
    """The trace hash of a second run of the same seed."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One safeguard, and how to do without it."""

    name: str
    protects: str
    rules: str
    promises: tuple[int, ...]
    profile: str
    off: Off
    oracle: Oracle = Oracle.INVARIANTS

    @property
    def is_simulated(self) -> bool:
        """Whether simulation runs notice it."""
        return self.profile != BY_PROOF


def by_name(ablations: Iterable[Ablation]) -> Mapping[str, Ablation]:
    """Each under its name; two of one name would hide one of them."""
    named: dict[str, Ablation] = {}
    for ablation in ablations:
        if named.setdefault(ablation.name, ablation) is not ablation:
            raise ValueError(f"two safeguards are called {ablation.name}: rename one")
    return named


class Hunt(NamedTuple):
    """Simulation runs without one safeguard."""

    seeds: int
    noticed: int
    first: int | None
    """The first seed that noticed."""
    invariants: Counter[str]
    """Which invariants were broken, in how many runs."""


def hunt(
    simulation: type[Simulation],
    ablation: Ablation,
    seeds: Sequence[int],
    *,
    to_end: bool = False,
    seconds: float = math.inf,
) -> Hunt:
    """Run these seeds without the safeguard, to the first that notices or to the end.

    Some broken runs turn for long: once one has noticed, no seed begins after so many `seconds`.
    """
    until = time.monotonic() + seconds
    count = noticed = 0
    first: int | None = None
    invariants: Counter[str] = Counter()
    with patched(loop, TURNS_MAX=TURNS_MAX), ablation.off():
        for seed in seeds:
            if first is not None and time.monotonic() > until:
                break
            count += 1
            wrong = _violations(simulation, ablation, seed)
            if not wrong:
                continue
            noticed += 1
            first = seed if first is None else first
            invariants.update({violation.partition(":")[0] for violation in wrong})
            if not to_end:
                break
    return Hunt(count, noticed, first, invariants)


def _violations(simulation: type[Simulation], ablation: Ablation, seed: int) -> list[str]:
    once = simulate(simulation, seed, ablation.profile)
    if ablation.oracle is Oracle.INVARIANTS:
        return once.wrong
    again = simulate(simulation, seed, ablation.profile)
    return ["same_trace: it differs"] if again.trace != once.trace else []


def likely_first(name: str, page: str, seeds: Iterable[int]) -> list[int]:
    """These seeds; the one that this page calls the first to notice an ablation comes first."""
    row = re.search(rf"^\| `{name}` \|.*\| \d+ of \d+ \| (\d+) \|", page, re.MULTILINE)
    return sorted(seeds, key=lambda seed: row is None or seed != int(row[1]))


def row_of(ablation: Ablation, found: Hunt | None) -> str:
    """One line of the table in the docs; without a hunt its proof notices."""
    promises = " ".join(f"P{number}" for number in ablation.promises)
    rules = "RULES 1" if ablation.rules == "1" else ablation.rules
    shown = ["–", "by its proof", "–", "–"]
    if found is not None:
        most = ", ".join(f"`{name}`" for name, _ in found.invariants.most_common(2)) or "–"
        first = "–" if found.first is None else str(found.first)
        shown = [f"`{ablation.profile}`", f"{found.noticed} of {found.seeds}", first, most]
    cells = (f"`{ablation.name}`", ablation.protects, f"{rules}, {promises}", *shown)
    return " | ".join(("", *cells, "")).strip()
