"""The faults of providers: all ways in which a call to a remote service can go wrong.

A fault hits one call: the nth call of (provider, verb) if the script has it, or a call drawn from a
seeded generator.  The fake provider implements its effect (`tenure.testing.fakes`); the delays are
defined here.
"""

import random
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Fault(StrEnum):
    """One way in which a call can go wrong."""

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
"""The faults that apply to each verb."""


class Delays(NamedTuple):
    """The delays that faults cause, in seconds."""

    slow: float = 1.5
    """Longer than the limit of one call."""
    slower: float = 7.5
    """Longer than a lease."""
    slowest: float = 40.0
    """Longer than every deadline, so that the request arrives after a compensation."""
    duplicate: float = 5.0
    """Until the duplicate of a request arrives."""
    overtaken: float = 0.05
    """Between a later remove and the request that it overtook."""
    heal: float = 7.0
    """Until a temporary refusal ends, or a listing has caught up."""
    ready: float = 16.0
    """Until a slow resource is ready."""


class FaultPoint(NamedTuple):
    """The nth call of a verb at a provider, counted from 1."""

    provider: str
    verb: str
    nth: int


class FaultHit(NamedTuple):
    """A fault that hit a call."""

    call: FaultPoint
    fault: Fault


class Faults:
    """Decides which fault hits which call, and counts the calls."""

    def __init__(
        self,
        script: Mapping[FaultPoint, Fault] | None = None,
        *,
        generator: random.Random | None = None,
        rate: float = 0.0,
        delays: Delays | None = None,
    ) -> None:
        """Use the script and, with a generator, also hit a share `rate` of all calls."""
        self.script = dict(script or {})
        self.calls: Counter[tuple[str, str]] = Counter()
        self.hits: list[FaultHit] = []
        self.delays = delays or Delays()
        self.rate = rate
        self._generator = generator

    def strike(self, provider: str, verb: str) -> Fault | None:
        """The fault of this call, if any."""
        self.calls[provider, verb] += 1
        call = FaultPoint(provider, verb, self.calls[provider, verb])
        fault = self.script.get(call)
        generator = self._generator
        if fault is None and generator is not None and generator.random() < self.rate:
            fault = generator.choice(ALPHABET[verb])
        if fault is not None:
            self.hits.append(FaultHit(call, fault))
        return fault

    def past_calls(self) -> list[FaultPoint]:
        """All calls so far."""
        return [
            FaultPoint(provider, verb, nth + 1)
            for (provider, verb), count in sorted(self.calls.items())
            for nth in range(count)
        ]
