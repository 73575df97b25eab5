"""What happens in one life of a plane, drawn from a seed: who asks for what, what goes wrong when.

A `Life` is a value: nothing in it is decided while it is lived, so a seed can be read before it
is run.  A `Mix` says how likely each thing is.  Mixes are in
`proofs.operations.profiles`.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tenure.testing.faults import ALPHABET, Delays, Fault, Faults, Struck
from tenure.testing.faults import Call as Nth
from tenure.testing.loop import SeededLoop
from tenure.testing.plans import EFFECTS, PLANS
from tenure.testing.tripwire import Side

LATE_SECONDS = 20.0
"""The longest that a request is on its way: past every deadline but a patient one."""
PAUSE_SECONDS = (7.0, 16.0)
"""Past the lease.  A pause and a late request together stay below what `charge` waits for."""
DELAYS = Delays(slowest=LATE_SECONDS, ready=9.0)
FRONT = "front"
"""The process that serves callers and moves nothing."""


class Mishap(StrEnum):
    """What can befall one process."""

    DIES_AT_CROSSING = "dies at a port crossing"
    DIES_AT_TIME = "dies at a time"
    COMMIT_FAILS_KEPT = "its COMMIT fails and was applied"
    COMMIT_FAILS_LOST = "its COMMIT fails and was not applied"
    PAUSES = "is stopped for longer than its lease"
    STOPS = "is shut down in peace"


class Trouble(NamedTuple):
    """One mishap of one process."""

    slot: int
    what: Mishap
    at: float = 0.0
    seconds: float = 0.0
    crossing: int = 0
    side: Side = Side.BEFORE
    unseen: bool = False
    """Whether a pause stops the process's own clock too, as when its machine is suspended."""


class Wish(NamedTuple):
    """One operation that a caller asks for, and what he does with it afterwards."""

    number: int
    plan: str
    at: float
    agent: str = ""
    """Named: it is shared with other wishes."""
    twice_after: float | None = None
    """The same request again, so much later, whatever became of the first."""
    keyed: bool = True
    """Without an idempotency key it is asked for once."""
    cancel_after: float | None = None
    cancel_twice: bool = False
    signals: tuple[float, ...] = ()
    """Seconds after the acknowledgement."""
    operator: str = ""
    """What an operator does when it is stuck: retry, abandon, resolve."""
    operator_after: float = 0.0
    """How long he lets it be stuck; nothing is resolved before all is calm."""


@dataclass(frozen=True, slots=True)
class Life:
    """Everything that will happen."""

    seed: int
    processes: int
    lease_seconds: float
    clocks: tuple[tuple[float, float], ...]
    """(skew, rate) of each process's clock."""
    front: bool
    wishes: tuple[Wish, ...]
    troubles: tuple[Trouble, ...]
    full: tuple[float, float] | None
    """From when to when there is no room."""
    poison_at: tuple[float, ...]
    """When a change that no store can write is handed in beside the others."""
    flush_seconds: float
    """The most that half a commit takes."""
    refuse_rate: float
    """Of batches that the disk refuses before COMMIT."""
    fault_rate: float
    faults: frozenset[Fault]
    heal_seconds: float
    heals: bool
    """Whether what was refused for ever is granted in the end, all but makings."""
    calm_at: float
    """From here on nothing more goes wrong."""
    lone_end: bool
    """Whether all processes but one are killed when all is calm."""


@dataclass(frozen=True, slots=True)
class Mix:
    """How likely things are.  Pairs are (least, most), numbers are probabilities."""

    plans: tuple[str, ...] = tuple(PLANS)
    wishes: tuple[int, int] = (2, 4)
    within_seconds: float = 3.0
    """In which the wishes come."""
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
    shared_agent: float = 0.3
    twice: float = 0.25
    keyless: float = 0.1
    cancel: float = 0.25
    cancel_within: float = 0.3
    signal: float = 0.8
    signal_within: float = 4.0
    operator: float = 0.5
    operators: tuple[str, ...] = ("retry", "abandon", "resolve")
    operator_within: float = 4.0
    heals: float = 0.7
    heal_seconds: float = DELAYS.heal
    """How long "for a while" is."""
    chaos_seconds: tuple[float, float] = (1.0, 6.0)
    """From the last mishap to the calm."""
    long_chaos: float = 0.15
    """How often the chaos outlasts every deadline."""
    every_seconds: float = 0.0
    """Not 0: the process dies every so many seconds, until long after every deadline."""
    alone: bool = False
    """One process, for a disk that two cannot share."""


def draw(seed: int, mix: Mix) -> Life:
    """The life of this seed."""
    rng = random.Random(f"life/{seed}")
    processes = 1 if mix.alone else rng.randint(*mix.processes)
    wrong = rng.random() < mix.wrong_clocks
    clocks = tuple(
        (rng.choice((-3600.0, 0.0, 3600.0)), rng.choice((0.5, 1.0, 2.0))) if wrong else (0.0, 1.0)
        for _ in range(processes)
    )
    wishes = _wishes(rng, mix)
    troubles = _troubles(rng, mix, processes)
    starts = rng.uniform(0.0, 2.0)
    full = (starts, starts + rng.uniform(0.5, 3.0)) if rng.random() < mix.full else None
    quick = rng.choice((0.0, 0.002, 0.02))
    chaos = (14.0, 20.0) if rng.random() < mix.long_chaos else mix.chaos_seconds
    over = [trouble.at + trouble.seconds for trouble in troubles] + [wish.at for wish in wishes]
    return Life(
        seed=seed,
        processes=processes,
        lease_seconds=mix.lease_seconds,
        clocks=clocks,
        front=not mix.alone and rng.random() < mix.front,
        wishes=wishes,
        troubles=troubles,
        full=full,
        poison_at=(rng.uniform(0.0, 1.0),) * 2 if rng.random() < mix.poison else (),
        flush_seconds=rng.choice((0.2, 0.6)) if rng.random() < mix.slow_disk else quick,
        refuse_rate=0.05 if rng.random() < mix.refusing_disk else 0.0,
        fault_rate=rng.uniform(*mix.fault_rate),
        faults=mix.faults,
        heal_seconds=mix.heal_seconds,
        heals=rng.random() < mix.heals,
        calm_at=max(over) + rng.uniform(*chaos),
        lone_end=rng.random() < 0.5,
    )


def _wishes(rng: random.Random, mix: Mix) -> tuple[Wish, ...]:
    made: list[Wish] = []
    for number in range(rng.randint(*mix.wishes)):
        plan = rng.choice(mix.plans)
        shared = rng.random() < mix.shared_agent
        signals = [rng.uniform(0.0, mix.signal_within) for _ in range(rng.choice((1, 1, 2)))]
        asks = plan == "waits" and rng.random() < mix.signal
        wish = Wish(
            number,
            plan,
            rng.uniform(0.0, mix.within_seconds),
            agent="shared" if shared else "",
            keyed=rng.random() >= mix.keyless,
            twice_after=rng.choice((0.0, 0.05, 2.0)) if rng.random() < mix.twice else None,
            cancel_after=rng.uniform(0.0, mix.cancel_within) if rng.random() < mix.cancel else None,
            cancel_twice=rng.random() < 0.3,
            signals=tuple(sorted(signals)) if asks else (),
            operator=rng.choice(mix.operators) if rng.random() < mix.operator else "",
            operator_after=rng.uniform(0.0, mix.operator_within),
        )
        if shared and wish.operator == "abandon":  # what is left behind may still arrive
            wish = wish._replace(operator="retry")
        made.append(wish if wish.keyed else wish._replace(twice_after=None))
    return tuple(made)


def _troubles(rng: random.Random, mix: Mix, processes: int) -> tuple[Trouble, ...]:
    if mix.every_seconds:
        times = [mix.every_seconds * (1 + n) + rng.uniform(0.0, 0.3) for n in range(4)]
        return tuple(Trouble(0, Mishap.DIES_AT_TIME, at) for at in times)
    made: list[Trouble] = []
    for _ in range(rng.randint(*mix.deaths)):
        slot = rng.randrange(processes)
        if rng.random() < mix.commit_errors:
            what = rng.choice((Mishap.COMMIT_FAILS_KEPT, Mishap.COMMIT_FAILS_LOST))
            made.append(Trouble(slot, what, rng.uniform(0.0, 4.0)))
        elif rng.random() < 0.2:
            made.append(Trouble(slot, Mishap.DIES_AT_TIME, rng.uniform(0.0, 6.0)))
        else:
            side = rng.choice((Side.BEFORE, Side.DURING, Side.AFTER))
            crossing = rng.randint(*mix.crossings)
            made.append(Trouble(slot, Mishap.DIES_AT_CROSSING, crossing=crossing, side=side))
    if not mix.alone and rng.random() < mix.pauses:
        slot, at = rng.randrange(processes), rng.uniform(0.0, 2.0) ** 2
        unseen = rng.random() < 0.5
        pause = Trouble(slot, Mishap.PAUSES, at, rng.uniform(*PAUSE_SECONDS), unseen=unseen)
        if rng.random() < mix.pauses_at_crossings:
            pause = pause._replace(at=mix.within_seconds, crossing=rng.randint(1, 20))
        made.append(pause)
    if rng.random() < mix.stops:
        made.append(Trouble(rng.randrange(processes), Mishap.STOPS, rng.uniform(0.0, 4.0)))
    return tuple(made)


class Drawn(Faults):
    """Faults drawn from the life's seed until all is calm, none that nobody could survive."""

    def __init__(self, life: Life, loop: SeededLoop) -> None:
        """Strike as the life says."""
        super().__init__(delays=DELAYS._replace(heal=life.heal_seconds))
        self._life = life
        self._loop = loop
        self._rng = random.Random(f"faults/{life.seed}")
        self._alphabets: dict[tuple[str, str], list[Fault]] = {}

    def strike(self, provider: str, verb: str) -> Fault | None:
        """The fault of this call, if any."""
        self.calls[provider, verb] += 1
        life = self._life
        if self._loop.time() >= life.calm_at or self._rng.random() >= life.fault_rate:
            return None
        letters = self._alphabets.get((provider, verb))
        if letters is None:
            letters = alphabet(provider, verb, life.faults)
            self._alphabets[provider, verb] = letters
        if not letters:
            return None
        fault = self._rng.choice(letters)
        self.struck.append(Struck(Nth(provider, verb, self.calls[provider, verb]), fault))
        return fault


def alphabet(provider: str, verb: str, chosen: frozenset[Fault]) -> list[Fault]:
    """What can befall a call, of what was chosen: no wire sends a counted effect twice."""
    letters = list(ALPHABET[verb])
    if verb == "ensure":
        letters += [Fault.REFUSED_ONCE, Fault.REFUSED_FOR_A_WHILE]
    if provider in EFFECTS:
        unlikely = {Fault.DUPLICATED, Fault.FOREIGN, Fault.REFUSED_FOR_A_WHILE}
        letters = [f for f in letters if f not in unlikely]
    return [fault for fault in letters if fault in chosen]
