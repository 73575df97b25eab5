"""The schedule of one simulation run, drawn from a seed: who asks when, what fails when.

A `Schedule` is a value: nothing in it is decided while it runs, so a seed can be read before it is
run.  An `Environment` says how likely each failure is.  A workload profile of a subject is an
`Environment` with the requests of its callers (`draw_requests`).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tenure.testing.faults import Delays, Fault, FaultHit, FaultPoint, Faults
from tenure.testing.loop import SeededLoop
from tenure.testing.tripwire import CrossingSide

LATE_SECONDS = 20.0
"""The longest that a request is on its way: past every deadline but a patient one."""
PAUSE_SECONDS = (7.0, 16.0)
"""Past the lease.  A pause and a late request together stay below what `charge` waits for."""
DELAYS = Delays(slowest=LATE_SECONDS, ready=9.0)


class Failure(StrEnum):
    """How one process can fail."""

    DIES_AT_CROSSING = "dies at a port crossing"
    DIES_AT_TIME = "dies at a time"
    COMMIT_FAILS_KEPT = "its COMMIT fails and was applied"
    COMMIT_FAILS_LOST = "its COMMIT fails and was not applied"
    PAUSES = "is stopped for longer than its lease"
    STOPS = "is shut down in peace"


class ProcessFailure(NamedTuple):
    """One failure of the process in one slot."""

    slot: int
    what: Failure
    at: float = 0.0
    seconds: float = 0.0
    crossing: int = 0
    side: CrossingSide = CrossingSide.BEFORE
    unseen: bool = False
    """Whether a pause stops the process's own clock too, as when its machine is suspended."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything that will happen in one run."""

    seed: int
    requests: tuple[Any, ...]
    """What callers ask for; each has an `at`, in seconds.  Their type is the subject's."""
    calm_at: float
    """From here on nothing more fails."""
    clocks: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    """(skew, rate) of the clock of each process; there are as many processes."""
    failures: tuple[ProcessFailure, ...] = ()
    lease_seconds: float = 6.0
    front: bool = False
    """Whether one more process serves callers and moves nothing."""
    full: tuple[float, float] | None = None
    """From when to when there is no room for new work."""
    poison_at: tuple[float, ...] = ()
    """When a change that no store can write is handed in beside the others."""
    flush_seconds: float = 0.0
    """The most that half a commit takes."""
    refuse_rate: float = 0.0
    """The share of batches that the disk refuses before COMMIT."""
    fault_rate: float = 0.0
    """The share of provider calls that are struck by a fault."""
    faults: frozenset[Fault] = frozenset(Fault)
    heal_seconds: float = DELAYS.heal
    heals: bool = False
    """Whether what was refused for ever is granted when all is calm, except ensures."""
    lone_end: bool = False
    """Whether all processes but one are killed when all is calm."""

    @property
    def is_disrupted(self) -> bool:
        """Whether anything delays the engines of this run."""
        wrong = any(rate != 1.0 for _, rate in self.clocks)
        return bool(self.failures) or self.refuse_rate > 0 or self.lone_end or wrong

    @property
    def pauses(self) -> bool:
        """Whether a process is stopped for longer than its lease."""
        return any(failure.what is Failure.PAUSES for failure in self.failures)


@dataclass(frozen=True, slots=True)
class Environment:
    """How likely failures are.  Pairs are (least, most), other numbers are probabilities."""

    within_seconds: float = 3.0
    """In which the requests come."""
    processes: tuple[int, int] = (1, 3)
    lease_seconds: float = 6.0
    fault_rate: tuple[float, float] = (0.0, 0.3)
    faults: frozenset[Fault] = frozenset(Fault)
    deaths: tuple[int, int] = (0, 2)
    crossings: tuple[int, int] = (1, 70)
    """Where processes die.  The first dozen are the start of a process."""
    commit_errors: float = 0.15
    pauses: float = 0.3
    pauses_at_crossings: float = 0.6
    stops: float = 0.1
    wrong_clocks: float = 0.3
    slow_disk: float = 0.25
    refusing_disk: float = 0.1
    full: float = 0.1
    front: float = 0.15
    poison: float = 0.1
    heals: float = 0.7
    heal_seconds: float = DELAYS.heal
    """How long "for a while" is."""
    chaos_seconds: tuple[float, float] = (1.0, 6.0)
    """From the last failure to the calm."""
    long_chaos: float = 0.15
    """How often the chaos outlasts every deadline."""
    every_seconds: float = 0.0
    """Not 0: the process dies every so many seconds, until long after every deadline."""
    alone: bool = False
    """One process, for a disk that two cannot share."""

    def draw_requests(self, rng: random.Random) -> tuple[Any, ...]:
        """What callers ask for in one run."""
        raise NotImplementedError

    def draw(self, seed: int) -> Schedule:
        """The schedule of this seed."""
        rng = random.Random(f"life/{seed}")
        processes = 1 if self.alone else rng.randint(*self.processes)
        wrong = rng.random() < self.wrong_clocks
        clocks = tuple(
            (rng.choice((-3600.0, 0.0, 3600.0)), rng.choice((0.5, 1.0, 2.0)))
            if wrong
            else (0.0, 1.0)
            for _ in range(processes)
        )
        requests = self.draw_requests(rng)
        failures = self._draw_failures(rng, processes)
        starts = rng.uniform(0.0, 2.0)
        full = (starts, starts + rng.uniform(0.5, 3.0)) if rng.random() < self.full else None
        quick = rng.choice((0.0, 0.002, 0.02))
        chaos = (14.0, 20.0) if rng.random() < self.long_chaos else self.chaos_seconds
        over = [failure.at + failure.seconds for failure in failures]
        over += [request.at for request in requests]
        return Schedule(
            seed=seed,
            requests=requests,
            clocks=clocks,
            failures=failures,
            lease_seconds=self.lease_seconds,
            front=not self.alone and rng.random() < self.front,
            full=full,
            poison_at=(rng.uniform(0.0, 1.0),) * 2 if rng.random() < self.poison else (),
            flush_seconds=rng.choice((0.2, 0.6)) if rng.random() < self.slow_disk else quick,
            refuse_rate=0.05 if rng.random() < self.refusing_disk else 0.0,
            fault_rate=rng.uniform(*self.fault_rate),
            faults=self.faults,
            heal_seconds=self.heal_seconds,
            heals=rng.random() < self.heals,
            calm_at=max(over) + rng.uniform(*chaos),
            lone_end=rng.random() < 0.5,
        )

    def _draw_failures(self, rng: random.Random, processes: int) -> tuple[ProcessFailure, ...]:
        if self.every_seconds:
            times = [self.every_seconds * (1 + n) + rng.uniform(0.0, 0.3) for n in range(4)]
            return tuple(ProcessFailure(0, Failure.DIES_AT_TIME, at) for at in times)
        made: list[ProcessFailure] = []
        for _ in range(rng.randint(*self.deaths)):
            slot = rng.randrange(processes)
            if rng.random() < self.commit_errors:
                what = rng.choice((Failure.COMMIT_FAILS_KEPT, Failure.COMMIT_FAILS_LOST))
                made.append(ProcessFailure(slot, what, rng.uniform(0.0, 4.0)))
            elif rng.random() < 0.2:
                at = rng.uniform(0.0, 6.0)
                made.append(ProcessFailure(slot, Failure.DIES_AT_TIME, at))
            else:
                made.append(draw_death(rng, slot, self.crossings))
        if not self.alone and rng.random() < self.pauses:
            slot, at = rng.randrange(processes), rng.uniform(0.0, 2.0) ** 2
            unseen = rng.random() < 0.5
            seconds = rng.uniform(*PAUSE_SECONDS)
            pause = ProcessFailure(slot, Failure.PAUSES, at, seconds, unseen=unseen)
            if rng.random() < self.pauses_at_crossings:
                pause = pause._replace(at=self.within_seconds, crossing=rng.randint(1, 20))
            made.append(pause)
        if rng.random() < self.stops:
            slot = rng.randrange(processes)
            made.append(ProcessFailure(slot, Failure.STOPS, rng.uniform(0.0, 4.0)))
        return tuple(made)


def draw_death(rng: random.Random, slot: int, crossings: tuple[int, int]) -> ProcessFailure:
    """The death of a process at one of these crossings."""
    side = rng.choice((CrossingSide.BEFORE, CrossingSide.DURING, CrossingSide.AFTER))
    crossing = rng.randint(*crossings)
    return ProcessFailure(slot, Failure.DIES_AT_CROSSING, crossing=crossing, side=side)


Alphabet = Callable[[str, str], Sequence[Fault]]
"""The faults that can strike a call of this provider and verb."""


class DrawnFaults(Faults):
    """Faults drawn from the seed of a run until all is calm."""

    def __init__(
        self, schedule: Schedule, loop: SeededLoop, alphabet: Alphabet, delays: Delays = DELAYS
    ) -> None:
        """Strike as often as the schedule says, with the faults of this alphabet."""
        super().__init__(delays=delays._replace(heal=schedule.heal_seconds))
        self._schedule = schedule
        self._loop = loop
        self._alphabet = alphabet
        self._rng = random.Random(f"faults/{schedule.seed}")
        self._alphabets: dict[tuple[str, str], list[Fault]] = {}

    def strike(self, provider: str, verb: str) -> Fault | None:
        """The fault of this call, if any."""
        self.calls[provider, verb] += 1
        schedule = self._schedule
        if self._loop.time() >= schedule.calm_at or self._rng.random() >= schedule.fault_rate:
            return None
        letters = self._alphabets.get((provider, verb))
        if letters is None:
            found = self._alphabet(provider, verb)
            letters = [fault for fault in found if fault in schedule.faults]
            self._alphabets[provider, verb] = letters
        if not letters:
            return None
        fault = self._rng.choice(letters)
        self.hits.append(FaultHit(FaultPoint(provider, verb, self.calls[provider, verb]), fault))
        return fault
