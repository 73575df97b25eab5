"""The fault alphabet of providers: everything a service far away can do to a call.

A fault strikes one call: the nth of (provider, verb) if a script says so, or one drawn from a
seeded generator.  What it does to the call is the fake provider's business
(`tenure.testing.fakes`); how long things take is said here.
"""

import random
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Fault(StrEnum):
    """What can befall one call."""

    LOST = "request lost"
    REPLY_LOST = "applied, reply lost"
    CUT = "cut before it was applied"
    BROKE = "500 after applying"
    BUSY = "429"
    DUPLICATED = "duplicated, the second later"
    SLOW = "delayed past the call limit"
    SLOWER = "delayed past the lease"
    SLOWEST = "delayed past every deadline"
    REORDERED = "overtaken by a later remove"
    EXISTS = "409 exists"
    GONE = "404: someone else removed it"
    REFUSED = "refused for ever"
    REFUSED_FOR_A_WHILE = "refused for a while"
    REFUSED_ONCE = "refused, and an earlier call is not"
    UNREADY = "starting for long"
    NEVER_READY = "starting for ever"
    FOREIGN = "another's object under the key"
    UNLISTED = "created, not yet listed"
    STILL_LISTED = "removed, still listed"
    STALE_PAGE = "the page of the last listing"


_ANY = (Fault.LOST, Fault.REPLY_LOST, Fault.CUT, Fault.BUSY, Fault.SLOW, Fault.SLOWER)
_WRITE = (*_ANY, Fault.BROKE, Fault.DUPLICATED, Fault.SLOWEST)
ALPHABET: Mapping[str, tuple[Fault, ...]] = {
    "ensure": (
        *_WRITE,
        Fault.REORDERED,
        Fault.EXISTS,
        Fault.REFUSED,
        Fault.UNREADY,
        Fault.NEVER_READY,
        Fault.FOREIGN,
    ),
    "inspect": (*_ANY, Fault.REFUSED_FOR_A_WHILE),
    "remove": (*_WRITE, Fault.GONE, Fault.REFUSED_FOR_A_WHILE, Fault.REFUSED),
    "list_owned": (*_ANY, Fault.UNLISTED, Fault.STILL_LISTED, Fault.STALE_PAGE),
}
"""Every fault that means something for a verb."""


class Delays(NamedTuple):
    """How long things take when they take long, in seconds."""

    slow: float = 1.5
    """Past one call's limit."""
    slower: float = 7.5
    """Past a lease."""
    slowest: float = 40.0
    """Past every deadline, so that it arrives after a compensation."""
    again: float = 5.0
    """Until the second of two arrives."""
    overtaken: float = 0.05
    """After the remove that was to come later."""
    heal: float = 7.0
    """Until what is refused for a while is granted, or a listing has caught up."""
    ready: float = 16.0
    """Until what is slow to start is ready."""


class FaultPoint(NamedTuple):
    """The nth call of a verb at a provider, counted from 1."""

    provider: str
    verb: str
    nth: int


class FaultHit(NamedTuple):
    """A fault that struck."""

    call: FaultPoint
    fault: Fault


class Faults:
    """Which call is struck by which fault; counts every call."""

    def __init__(
        self,
        script: Mapping[FaultPoint, Fault] | None = None,
        *,
        drawn: random.Random | None = None,
        rate: float = 0.0,
        delays: Delays | None = None,
    ) -> None:
        """Strike as the script says; beside it a share `rate` of all calls, if `drawn` is given."""
        self.script = dict(script or {})
        self.calls: Counter[tuple[str, str]] = Counter()
        self.struck: list[FaultHit] = []
        self.delays = delays or Delays()
        self.rate = rate
        self._drawn = drawn

    def strike(self, provider: str, verb: str) -> Fault | None:
        """The fault of this call, if any."""
        self.calls[provider, verb] += 1
        call = FaultPoint(provider, verb, self.calls[provider, verb])
        fault = self.script.get(call)
        if fault is None and self._drawn is not None and self._drawn.random() < self.rate:
            fault = self._drawn.choice(ALPHABET[verb])
        if fault is not None:
            self.struck.append(FaultHit(call, fault))
        return fault

    def made(self) -> list[FaultPoint]:
        """Every call that was made so far."""
        return [
            FaultPoint(provider, verb, nth + 1)
            for (provider, verb), count in sorted(self.calls.items())
            for nth in range(count)
        ]
