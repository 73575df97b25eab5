"""The workload profiles of agents: callers ask for every verb on a few shared names."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proofs.agents.lifecycle import LETTERS
from proofs.agents.scenarios import Act
from proofs.harness.schedule import Environment, Schedule, draw_death
from tenure.core.verb import VerbName
from tenure.testing.faults import Delays, Fault

CALM_SECONDS = 12.0
QUOTA = 2
ENDLESS = frozenset({Fault.REFUSED})
"""Faults that would leave an operation stuck for ever; they strike ensures only."""
DELAYS = Delays(slower=4.0, slowest=20.0, heal=3.0)


class Request(NamedTuple):
    """What one caller asks for and when, and when it is cancelled."""

    at: float
    act: Act
    cancel_after: float | None
    queue: bool = False


@dataclass(frozen=True, slots=True)
class AgentProfile(Environment):
    """An environment, and how likely each request is."""

    within_seconds: float = 4.0
    fault_rate: tuple[float, float] = (0.04, 0.04)
    crossings: tuple[int, int] = (10, 150)
    heal_seconds: float = DELAYS.heal
    requests: tuple[int, int] = (4, 9)
    flush_seconds: float = 0.01
    """The most that half a commit takes, in half of the runs."""
    cancel: float = 0.2
    cancel_within: float = 0.2
    verbs: tuple[str, ...] = (
        VerbName.CREATE, VerbName.CREATE, VerbName.CREATE, VerbName.SUSPEND, VerbName.STOP,
        VerbName.RESUME, VerbName.RESUME, VerbName.DELETE, VerbName.DELETE,
    )  # fmt: skip
    names: tuple[str, ...] = ("alpha", "beta", "gamma")
    owned: float = 0.2
    """How often a created agent is to be owned by another."""
    keeps: float = 0.3
    quota: int | None = QUOTA
    queues: float = 0.0
    """How often a caller lets a request wait in the agent's queue."""
    instants: int = 1_000
    """How many moments there are at which callers ask: the fewer, the more ask at once."""

    def draw_requests(self, rng: random.Random) -> tuple[Request, ...]:
        """What callers ask for in one run."""
        made = [Request(0.0, Act(VerbName.CREATE, name), None) for name in self.names[:2]]
        for _ in range(rng.randint(*self.requests)):
            verb = rng.choice(self.verbs)
            given: dict[str, object] = {}
            name = rng.choice(self.names)
            if verb == VerbName.CREATE and rng.random() < self.owned:
                given = {"parent": "alpha" if name != "alpha" else "beta"}
            if verb == VerbName.SUSPEND and rng.random() < self.keeps:
                given = {"keep_runtime": True}
            cancels = rng.random() < self.cancel
            cancel = rng.uniform(0.0, self.cancel_within) if cancels else None
            at = self.within_seconds * rng.randrange(self.instants) / self.instants
            queue = self.queues > 0 and rng.random() < self.queues
            made.append(Request(at, Act(verb, name, given), cancel, queue))
        return tuple(sorted(made, key=lambda request: request.at))


@dataclass(frozen=True, slots=True)
class SteadyProfile(AgentProfile):
    """Of all failures of processes and disks only deaths at crossings, and commits that take time.

    It draws from a stream of its own, so that its seeds stay what they were.
    """

    def draw(self, seed: int) -> Schedule:
        """The schedule of this seed."""
        rng = random.Random(f"agents/{seed}")
        flush = rng.choice((0.0, self.flush_seconds))
        processes = rng.randint(*self.processes)
        failures = tuple(
            draw_death(rng, slot, self.crossings)
            for slot in range(processes)
            if rng.randint(*self.deaths)
        )
        return Schedule(
            seed=seed,
            requests=self.draw_requests(rng),
            calm_at=CALM_SECONDS,
            clocks=((0.0, 1.0),) * processes,
            failures=failures,
            flush_seconds=flush,
            fault_rate=self.fault_rate[0],
            heal_seconds=self.heal_seconds,
        )


def alphabet(_: str, verb: str) -> list[Fault]:
    """The faults that can strike a call; none that would last for ever."""
    endless = frozenset() if verb == "ensure" else ENDLESS
    return [f for f in LETTERS[verb] if f not in endless and f is not Fault.FOREIGN]


PROFILES: Mapping[str, AgentProfile] = {
    "agents": SteadyProfile(),
    "closing": SteadyProfile(
        fault_rate=(0.02, 0.02),
        names=("alpha",),
        requests=(5, 9),
        within_seconds=1.0,
        owned=0.0,
        deaths=(0, 1),
    ),
    "names": SteadyProfile(
        verbs=(VerbName.CREATE, VerbName.CREATE, VerbName.CREATE, VerbName.DELETE),
        requests=(6, 10),
        quota=None,
        within_seconds=3.0,
        instants=4,
        fault_rate=(0.03, 0.03),
        owned=0.0,
        flush_seconds=0.03,
    ),
    "quota": SteadyProfile(
        verbs=(VerbName.CREATE, VerbName.CREATE, VerbName.CREATE, VerbName.DELETE),
        requests=(6, 10),
        names=("alpha", "beta", "gamma", "delta", "epsilon"),
        within_seconds=3.0,
        instants=4,
        fault_rate=(0.03, 0.03),
        owned=0.0,
        flush_seconds=0.03,
    ),
    "owned": SteadyProfile(
        verbs=(VerbName.CREATE, VerbName.CREATE, VerbName.DELETE),
        names=("alpha", "beta", "gamma", "delta"),
        requests=(8, 12),
        owned=0.9,
        quota=None,
        processes=(2, 3),
        fault_rate=(0.0, 0.0),
        within_seconds=6.0,
        instants=4,
        deaths=(0, 0),
        flush_seconds=0.15,
        cancel=0.0,
    ),
    "spared": SteadyProfile(
        verbs=(
            VerbName.SUSPEND,
            VerbName.SUSPEND,
            VerbName.RESUME,
            VerbName.DELETE,
            VerbName.DELETE,
        ),
        keeps=1.0,
        names=("alpha",),
        cancel=0.9,
        cancel_within=0.02,
        fault_rate=(0.02, 0.02),
        owned=0.0,
        deaths=(0, 0),
        within_seconds=3.0,
    ),
    "queued": SteadyProfile(
        names=("alpha",),
        requests=(6, 10),
        within_seconds=1.5,
        owned=0.0,
        queues=0.7,
        fault_rate=(0.02, 0.02),
        deaths=(0, 1),
    ),
    "late": SteadyProfile(
        fault_rate=(0.15, 0.15),
        names=("alpha",),
        within_seconds=2.0,
        owned=0.0,
        cancel=0.5,
        verbs=(VerbName.CREATE, VerbName.SUSPEND, VerbName.RESUME, VerbName.RESUME, VerbName.STOP),
    ),
    "disrupted": AgentProfile(
        fault_rate=(0.0, 0.04),
        wrong_clocks=0.3,
        pauses=0.5,
        slow_disk=0.25,
        refusing_disk=0.1,
    ),
}
"""A little of everything, and runs in which one safeguard is all that keeps a promise."""
