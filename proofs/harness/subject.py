"""What a capability brings to the harness.

A `Subject` names the simulation of a capability (with its workload profiles), its crash matrix
(with its scenarios), its ablations, and its part in the proof of each promise.  `proofs.subjects`
lists them; the commands and the tests take everything from there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proofs.harness.ablation import Ablation
from proofs.harness.crash import Matrix
from proofs.harness.simulation import Simulation, simulate


class Check(NamedTuple):
    """One case of a proof, or several that were run as one."""

    again: str
    """The command or call that shows it again."""
    wrong: list[str]
    cases: int = 1


Checks = Iterator[Check]


@dataclass(frozen=True, slots=True)
class Proof:
    """The part of one subject in the proof of one promise."""

    number: int
    profiles: tuple[str, ...] = ()
    """Workload profiles whose first seeds are run."""
    scenarios: tuple[str, ...] = ()
    """Scenarios of the crash matrix, each crossing and side without a further fault."""
    checks: Callable[[], Checks] | None = None
    """Everything else."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One capability under proof."""

    name: str
    proofs: tuple[Proof, ...]
    ablations: Mapping[str, Ablation] = field(default_factory=dict)
    simulation: type[Simulation] | None = None
    matrix: Matrix[Any] | None = None
    seeds: int = 0
    """How many seeds of a profile a proof runs."""

    def simulation_checks(self, profile: str, seeds: int) -> Checks:
        """The first seeds of a profile."""
        assert self.simulation is not None
        for seed in range(seeds):
            result = simulate(self.simulation, seed, profile)
            yield Check(self.again(profile, seed), result.wrong)

    def again(self, profile: str, seed: int) -> str:
        """The command that runs this seed again."""
        subject = "" if self.name == "operations" else f" --subject {self.name}"
        return f"python -m proofs.simulation{subject} --profile {profile} --first {seed} --seeds 1"

    def crash_checks(self, scenario: str, *, one_in: int = 1) -> Checks:
        """Every crossing and side of a scenario, or one in so many."""
        assert self.matrix is not None
        for result in self.matrix.results(scenario, one_in=one_in):
            yield Check(self.matrix.again(result.case), result.wrong)
