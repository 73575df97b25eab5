"""The workload profiles of operations: a little of everything, or aimed at one safeguard.

The profiles beside the usual one make those runs likely in which a single safeguard is all that
keeps a promise; `proofs.operations.ablations` says which is which.  Under every profile the
untouched code must keep all promises.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from proofs.harness.schedule import Environment
from tenure.testing.faults import ALPHABET, Fault
from tenure.testing.plans import EFFECTS, PLANS


class Request(NamedTuple):
    """One operation that a caller asks for, and what it does with it afterwards."""

    number: int
    plan: str
    at: float
    agent: str = ""
    """Named: it is shared with other requests."""
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
    """How long the operator lets it be stuck; nothing is resolved before all is calm."""


@dataclass(frozen=True, slots=True)
class Profile(Environment):
    """An environment, and how likely each habit of callers is."""

    plans: tuple[str, ...] = tuple(PLANS)
    requests: tuple[int, int] = (2, 4)
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

    def draw_requests(self, rng: random.Random) -> tuple[Request, ...]:
        """What callers ask for in one run."""
        return tuple(self._draw_request(rng, n) for n in range(rng.randint(*self.requests)))

    def _draw_request(self, rng: random.Random, number: int) -> Request:
        plan = rng.choice(self.plans)
        shared = rng.random() < self.shared_agent
        signals = [rng.uniform(0.0, self.signal_within) for _ in range(rng.choice((1, 1, 2)))]
        signalled = plan == "waits" and rng.random() < self.signal
        request = Request(
            number,
            plan,
            rng.uniform(0.0, self.within_seconds),
            agent="shared" if shared else "",
            keyed=rng.random() >= self.keyless,
            twice_after=rng.choice((0.0, 0.05, 2.0)) if rng.random() < self.twice else None,
            cancel_after=(
                rng.uniform(0.0, self.cancel_within) if rng.random() < self.cancel else None
            ),
            cancel_twice=rng.random() < 0.3,
            signals=tuple(sorted(signals)) if signalled else (),
            operator=rng.choice(self.operators) if rng.random() < self.operator else "",
            operator_after=rng.uniform(0.0, self.operator_within),
        )
        if shared and request.operator == "abandon":  # what is left behind may still arrive
            request = request._replace(operator="retry")
        return request if request.keyed else request._replace(twice_after=None)


def alphabet(provider: str, verb: str) -> list[Fault]:
    """The faults that can strike a call; no wire sends a counted effect twice."""
    letters = list(ALPHABET[verb])
    if verb == "ensure":
        letters += [Fault.REFUSED_ONCE, Fault.REFUSED_FOR_A_WHILE]
    if provider in EFFECTS:
        unlikely = {Fault.DUPLICATED, Fault.FOREIGN, Fault.REFUSED_FOR_A_WHILE}
        letters = [f for f in letters if f not in unlikely]
    return letters


USUAL = Profile()
"""A little of everything."""

_LOST = frozenset({Fault.REPLY_LOST, Fault.LOST, Fault.CUT, Fault.BROKE, Fault.SLOW, Fault.SLOWER})
_LATE = frozenset({Fault.SLOW, Fault.SLOWER, Fault.SLOWEST, Fault.DUPLICATED, Fault.REORDERED})
_CALM = replace(
    USUAL,
    deaths=(0, 0),
    pauses=0.0,
    stops=0.0,
    wrong_clocks=0.0,
    slow_disk=0.0,
    refusing_disk=0.0,
    full=0.0,
    front=0.0,
    poison=0.0,
    shared_agent=0.0,
    twice=0.0,
    keyless=0.0,
    cancel=0.0,
    long_chaos=0.0,
    fault_rate=(0.0, 0.0),
    processes=(1, 1),
    requests=(1, 3),
)
"""Nothing fails: the ground on which a profile puts what it aims at."""
_LINES = ("linear", "parallel", "ready")

PROFILES: Mapping[str, Profile] = {
    "usual": USUAL,
    "alone": replace(USUAL, alone=True, pauses=0.0),
    "undo": replace(
        _CALM,
        plans=_LINES,
        cancel=0.6,
        fault_rate=(0.1, 0.35),
        faults=_LOST | {Fault.REFUSED, Fault.REFUSED_FOR_A_WHILE, Fault.UNREADY},
        deaths=(0, 1),
        crossings=(1, 40),
    ),
    "stuck": replace(
        _CALM,
        plans=_LINES,
        cancel=1.0,
        cancel_within=0.1,
        fault_rate=(0.3, 0.5),
        faults=frozenset({Fault.REFUSED, Fault.LOST}),
        heals=0.0,
        operator=0.0,
    ),
    "abandoned": replace(
        _CALM,
        plans=("linear", "pivot"),
        cancel=0.9,
        cancel_within=0.1,
        fault_rate=(0.3, 0.5),
        faults=frozenset({Fault.REFUSED}),
        heals=0.0,
        slow_disk=1.0,
        processes=(2, 2),
        requests=(3, 4),
        operator=1.0,
        operators=("abandon",),
        operator_within=2.0,
    ),
    "late": replace(
        _CALM,
        plans=_LINES,
        cancel=0.7,
        fault_rate=(0.2, 0.4),
        faults=_LATE | {Fault.REFUSED_FOR_A_WHILE},
    ),
    "pivot": replace(
        _CALM,
        plans=("pivot",),
        cancel=0.5,
        cancel_within=0.1,
        fault_rate=(0.1, 0.35),
        faults=_LOST | {Fault.REFUSED_FOR_A_WHILE, Fault.EXISTS},
        deaths=(0, 1),
        crossings=(1, 30),
    ),
    "effects": replace(
        _CALM,
        plans=("charge", "unaskable"),
        cancel=0.2,
        cancel_within=0.05,
        fault_rate=(0.05, 0.3),
        faults=_LOST,
        deaths=(0, 2),
        crossings=(1, 30),
        operator=0.3,
    ),
    "zombies": replace(
        _CALM,
        plans=("charge", "unaskable", "linear", "ready", "ready"),
        processes=(2, 3),
        pauses=1.0,
        wrong_clocks=0.7,
        requests=(3, 5),
        within_seconds=4.0,
        slow_disk=0.5,
        fault_rate=(0.1, 0.5),
        faults=frozenset({Fault.REPLY_LOST, Fault.BUSY, Fault.UNREADY}),
        cancel=0.2,
    ),
    "crashes": replace(
        _CALM,
        processes=(1, 3),
        deaths=(2, 4),
        crossings=(1, 60),
        slow_disk=0.5,
        twice=0.3,
        cancel=0.3,
        fault_rate=(0.0, 0.15),
    ),
    "acceptance": replace(
        _CALM,
        plans=("linear",),
        processes=(1, 3),
        deaths=(2, 4),
        crossings=(1, 12),
        within_seconds=1.0,
        slow_disk=0.6,
        twice=0.6,
        keyless=0.3,
        commit_errors=0.4,
        shared_agent=0.4,
        requests=(3, 5),
    ),
    "signals": replace(
        _CALM,
        plans=("waits",),
        processes=(1, 3),
        signal=1.0,
        slow_disk=0.4,
        signal_within=3.0,
        deaths=(0, 1),
        requests=(2, 4),
    ),
    "front": replace(
        _CALM,
        plans=("linear",),
        processes=(1, 2),
        front=1.0,
        fault_rate=(0.3, 0.7),
        faults=frozenset({Fault.REPLY_LOST, Fault.SLOW}),
        lease_seconds=9.0,
        cancel=1.0,
        cancel_within=1.0,
        within_seconds=7.0,
        slow_disk=1.0,
        requests=(4, 6),
    ),
    "readiness": replace(
        _CALM,
        plans=("ready",),
        faults=frozenset({Fault.UNREADY, Fault.NEVER_READY}),
        fault_rate=(0.5, 0.9),
        deaths=(0, 1),
        crossings=(1, 60),
        pauses=0.7,
        pauses_at_crossings=0.0,
    ),
    "unknown_pivot": replace(
        _CALM,
        plans=("pivot",),
        fault_rate=(0.4, 0.8),
        faults=frozenset({Fault.REPLY_LOST, Fault.LOST, Fault.REFUSED_FOR_A_WHILE}),
        chaos_seconds=(14.0, 20.0),
    ),
    "decision": replace(
        _CALM,
        plans=("linear",),
        fault_rate=(0.2, 0.5),
        faults=frozenset({Fault.REFUSED_FOR_A_WHILE}),
        heal_seconds=3.0,
        deaths=(1, 1),
        crossings=(14, 34),
        requests=(1, 2),
    ),
    "foreign": replace(
        _CALM,
        plans=_LINES,
        fault_rate=(0.2, 0.6),
        faults=frozenset({Fault.FOREIGN, Fault.REPLY_LOST}),
        deaths=(1, 1),
        crossings=(14, 34),
        requests=(1, 2),
    ),
    "generations": replace(
        _CALM,
        plans=("linear",),
        shared_agent=1.0,
        cancel=0.6,
        cancel_within=0.1,
        requests=(3, 4),
    ),
    "looks": replace(
        _CALM,
        plans=("pivot",),
        fault_rate=(0.2, 0.5),
        faults=frozenset({Fault.REPLY_LOST, Fault.REFUSED_FOR_A_WHILE}),
    ),
    "late_pivot": replace(
        _CALM,
        plans=("pivot",),
        fault_rate=(0.3, 0.6),
        faults=frozenset({Fault.SLOWER, Fault.SLOWEST, Fault.REFUSED_ONCE}),
    ),
    "interrupted": replace(
        _CALM,
        plans=("unaskable",),
        cancel=1.0,
        cancel_within=0.06,
        requests=(2, 4),
        slow_disk=0.2,
    ),
    "stuck_together": replace(
        _CALM,
        plans=("linear", "parallel"),
        cancel=1.0,
        cancel_within=1.5,
        fault_rate=(0.4, 0.6),
        faults=frozenset({Fault.REFUSED}),
        requests=(3, 5),
        slow_disk=1.0,
        operator=0.0,
        heals=0.0,
    ),
    "signals_meanwhile": replace(
        _CALM, plans=("waits",), signal=1.0, signal_within=0.06, requests=(3, 5)
    ),
    "commit_errors": replace(
        _CALM,
        plans=("linear", "waits"),
        processes=(1, 2),
        deaths=(2, 4),
        commit_errors=1.0,
        keyless=0.8,
        within_seconds=4.0,
        requests=(4, 6),
        slow_disk=1.0,
    ),
    "busy_disk": replace(_CALM, refusing_disk=1.0, cancel=0.3, processes=(1, 2)),
    "crash_loop": replace(
        _CALM,
        plans=("ready",),
        faults=frozenset({Fault.NEVER_READY}),
        fault_rate=(0.9, 0.9),
        requests=(1, 2),
        every_seconds=9.0,
    ),
    "clocks": replace(_CALM, processes=(2, 3), wrong_clocks=1.0, cancel=0.2),
}
"""Every profile by name; the ablations say which of them aims at what."""
