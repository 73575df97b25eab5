"""Services whose every request counts again, each a file with one line for each: `cat` shows it.

One can be asked what became of a request, the other cannot.
"""

import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tenure.core.endings import Absent, Done, Ending
from tenure.core.ids import ResourceKey
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, Step, StepKind, nobody_knows, nothing
from tenure.ports.provider import Call, Observation, OwnedResource, Presence, Spec

LEDGER, METER = "ledger", "meter"
LIMITS = StepLimits(call_seconds=60.0, deadline_seconds=300.0, visible_seconds=3.0)


class CountingProvider:
    """See `tenure.ports.provider.Provider`; it honours no key, and removes nothing."""

    def __init__(self, directory: Path, name: str) -> None:
        """The book `name` below this directory."""
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / f"{name}.book"

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Write one more line."""
        del spec
        out = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(out, f"{key.text}\n".encode())
        finally:
            os.close(out)
        return {"line": key.text}

    async def inspect(self, key: ResourceKey) -> Observation:
        """Whether there is a line of this key."""
        if key.text in count_writes(self._file):
            return Observation(Presence.READY, {"line": key.text})
        return Observation(Presence.ABSENT)

    async def remove(self, key: ResourceKey) -> None:
        """Nothing is taken back."""

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Effects belong to nobody."""
        del plane
        none: tuple[OwnedResource, ...] = ()
        for one in none:
            yield one


def count_writes(file: Path) -> Counter[str]:
    """How often each key was written."""
    return Counter(file.read_text().split()) if file.exists() else Counter()


async def _charge(call: Call) -> Ending:
    return Done(dict(await call.providers[LEDGER].ensure(call.key, call.input)))


async def _was_charged(call: Call) -> Ending:
    observed = await call.providers[LEDGER].inspect(call.key)
    return Absent() if observed.presence is Presence.ABSENT else Done(dict(observed.reference))


async def _measure(call: Call) -> Ending:
    return Done(dict(await call.providers[METER].ensure(call.key, call.input)))


CHARGE_PLAN = Plan(
    "charged",
    stages=(
        Step(
            "charge", _charge, inspect=_was_charged, kind=StepKind.PIVOT, slot=LEDGER, limits=LIMITS
        ),
    ),
)
MEASURE_PLAN = Plan(
    "measured",
    stages=(Step("measure", _measure, nothing, nobody_knows, slot=METER, limits=LIMITS),),
)
COUNTING_PLANS = (CHARGE_PLAN, MEASURE_PLAN)
