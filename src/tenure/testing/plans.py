"""Example plans of every shape; each slot has a fake provider of the same name.

Their limits are short, so that even a run with many faults ends within a virtual minute.
"""

from collections.abc import Mapping
from typing import cast

from tenure.core.endings import Absent, Done, Ending, NotYet, Waiting
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, Step, StepKind, nobody_knows, nothing, repeat
from tenure.plans.steps import provided
from tenure.ports.provider import Call, Presence
from tenure.testing.fakes import FakeProvider, World, ledger
from tenure.testing.faults import Faults

LIMITS = StepLimits(
    call_seconds=1.0,
    deadline_seconds=12.0,
    undo_seconds=5.0,
    retry_first_seconds=0.2,
    retry_cap_seconds=4.0,
)
SIGNAL = "approved"
"""The signal that the plan `waits` waits for."""
PATIENT = StepLimits(
    call_seconds=1.0,
    deadline_seconds=60.0,
    undo_seconds=5.0,
    retry_first_seconds=0.2,
    retry_cap_seconds=4.0,
    visible_seconds=42.0,
)
"""For a service that counts every request: a request counts as lost only after this time."""


def _resource(name: str, *, kind: StepKind = StepKind.COMPENSATABLE) -> Step:
    return provided(name, name, kind=kind, limits=LIMITS)


async def _look_at_runtime(call: Call) -> Ending:
    made = cast("dict[str, str]", call.results["runtime"])
    key = call.key._replace(text=made["key"], slot="runtime", name="runtime")
    observed = await call.providers["runtime"].inspect(key)
    if observed.presence is Presence.READY:
        return Done({"ready": True})
    return NotYet(0.5, f"the runtime is {observed.presence}")


async def _await_approval(call: Call) -> Ending:
    said = call.signals.get(SIGNAL, ())
    await call.providers["identity"].inspect(call.key)  # whoever decides looks first
    return Done({"said": said[0]}) if said else Waiting(SIGNAL, "someone has to approve")


async def _charge(call: Call) -> Ending:
    return Done(dict(await call.providers["ledger"].ensure(call.key, call.input)))


async def _was_charged(call: Call) -> Ending:
    observed = await call.providers["ledger"].inspect(call.key)
    return Absent() if observed.presence is Presence.ABSENT else Done(dict(observed.reference))


async def _meter(call: Call) -> Ending:
    return Done(dict(await call.providers["meter"].ensure(call.key, call.input)))


LINEAR = Plan(
    "linear",
    stages=(
        _resource("identity"), _resource("access"), _resource("runtime"), _resource("credentials"),
    ),
)  # fmt: skip

PARALLEL = Plan(
    "parallel",
    stages=(
        _resource("identity"),
        (_resource("access"), _resource("runtime"), _resource("credentials")),
        _resource("exposure"),
    ),
)

PIVOT = Plan(
    "pivot",
    stages=(
        _resource("identity"),
        _resource("runtime"),
        _resource("exposure", kind=StepKind.PIVOT),
        _resource("notice", kind=StepKind.RETRIABLE),
    ),
)

READY = Plan(
    "ready",
    stages=(
        _resource("identity"),
        _resource("runtime"),
        Step("runtime_ready", _look_at_runtime, nothing, repeat, needs=("runtime",), limits=LIMITS),
        _resource("credentials"),
    ),
)

WAITS = Plan(
    "waits",
    stages=(
        _resource("identity"),
        Step("approval", _await_approval, nothing, repeat, limits=LIMITS),
        _resource("runtime"),
    ),
)

CHARGE = Plan(
    "charge",
    stages=(
        _resource("identity"),
        Step(
            "charge",
            _charge,
            inspect=_was_charged,
            kind=StepKind.PIVOT,
            slot="ledger",
            limits=PATIENT,
        ),
        _resource("notice", kind=StepKind.RETRIABLE),
    ),
)

UNASKABLE = Plan(
    "unaskable",
    stages=(
        _resource("identity"),
        Step("meter", _meter, nothing, nobody_knows, slot="meter", limits=LIMITS),
        _resource("runtime"),
    ),
)

PLANS: Mapping[str, Plan] = {
    plan.name: plan for plan in (LINEAR, PARALLEL, PIVOT, READY, WAITS, CHARGE, UNASKABLE)
}
PROVIDERS = ("identity", "access", "runtime", "credentials", "exposure", "notice")
EFFECTS = frozenset({"ledger", "meter"})
"""Slots whose effects cannot be undone: they are counted."""


def providers_of(
    world: World,
    faults: Faults,
    *,
    burns: bool = True,
    fences: bool = True,
    idempotent: bool = True,
) -> dict[str, FakeProvider]:
    """The fake providers of the example plans; safeguards can be switched off for all."""
    fakes = {
        name: FakeProvider(
            world, name, faults=faults, burns=burns, fences=fences, idempotent=idempotent
        )
        for name in PROVIDERS
    }
    fakes["ledger"] = ledger(world, "ledger", faults=faults)
    fakes["meter"] = ledger(world, "meter", faults=faults, askable=False)
    return fakes
