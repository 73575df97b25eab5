"""The crash scenarios of operations: a plan, its providers' faults, its callers' acts.

`MATRIX` runs each of them with a crash at every port crossing (`proofs.harness.crash`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from proofs.harness.cluster import Client, Cluster, Disk, command
from proofs.harness.crash import Attempt, Matrix
from proofs.harness.rest import Patience, until_at_rest
from proofs.harness.snapshot import TENANT, Snapshot
from proofs.operations.invariants import check_operations
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.errors import CallerError
from tenure.core.operation import IntentState, OperationState
from tenure.core.records import OperationRecord
from tenure.testing.fakes import World
from tenure.testing.faults import ALPHABET, Fault, FaultPoint, Faults
from tenure.testing.loop import SeededLoop
from tenure.testing.operators import by
from tenure.testing.plans import PLANS, SIGNAL, providers_of

PATIENCE = Patience(total_seconds=120.0, stuck_seconds=15.0, poll_seconds=0.5)
OPERATOR = by("an operator")
TWICE = frozenset({Fault.DUPLICATED})
"""A service that counts every request counts what the network repeats."""
LATE = frozenset({Fault.SLOW, Fault.SLOWER, Fault.SLOWEST, Fault.REORDERED})
"""An operator who resolves a call that is still on its way can be wrong."""


@dataclass(frozen=True, slots=True)
class OperationScenario:
    """One operation, what its providers and its callers do when nothing else fails."""

    name: str
    ends: str
    plan: str
    script: Mapping[FaultPoint, Fault] = field(default_factory=dict)
    cancel_at: float | None = None
    """Seconds after the acknowledgement."""
    signal_at: float | None = None
    operator: str = ""
    """What is done when it is stuck: retry, abandon, or resolve (adopt or mark absent, truly)."""
    without: Mapping[str, frozenset[Fault]] = field(default_factory=dict)
    """By provider, faults that nobody could survive here, said out loud."""


def _rejection(provider: str) -> dict[FaultPoint, Fault]:
    return {FaultPoint(provider, "ensure", 1): Fault.REFUSED}


_OK, _UNDONE = "SUCCEEDED", "COMPENSATED"
SCENARIOS: Mapping[str, OperationScenario] = {
    scenario.name: scenario
    for scenario in (
        OperationScenario("linear", _OK, "linear"),
        OperationScenario("linear_refused", _UNDONE, "linear", _rejection("credentials")),
        OperationScenario("linear_cancelled", _UNDONE, "linear", cancel_at=0.025),
        OperationScenario("parallel", _OK, "parallel"),
        OperationScenario("parallel_refused", _UNDONE, "parallel", _rejection("runtime")),
        OperationScenario("parallel_cancelled", _UNDONE, "parallel", cancel_at=0.015),
        OperationScenario("pivot", _OK, "pivot"),
        OperationScenario("pivot_refused", _UNDONE, "pivot", _rejection("exposure")),
        OperationScenario("pivot_cancelled", _OK, "pivot", cancel_at=0.022),
        OperationScenario(
            "undo_refused_for_a_while", _UNDONE, "linear",
            {
                FaultPoint("runtime", "ensure", 1): Fault.REFUSED,
                FaultPoint("access", "remove", 1): Fault.REFUSED_FOR_A_WHILE,
            },
        ),
        OperationScenario(
            "undo_refused_for_ever", "ABANDONED", "linear",
            {
                FaultPoint("runtime", "ensure", 1): Fault.REFUSED,
                FaultPoint("access", "remove", 1): Fault.REFUSED,
            },
            operator="abandon",
        ),
        OperationScenario(
            "undo_retried", _UNDONE, "linear",
            {
                FaultPoint("access", "ensure", 1): Fault.REFUSED,
                FaultPoint("identity", "remove", 1): Fault.REFUSED_FOR_A_WHILE,
            },
            operator="retry",
        ),
        OperationScenario(
            "undo_marked_absent", _UNDONE, "linear",
            {
                FaultPoint("runtime", "ensure", 1): Fault.REFUSED,
                FaultPoint("access", "remove", 1): Fault.REFUSED,
            },
            operator="resolve",
            without={"access": LATE},
        ),
        OperationScenario("ready", _OK, "ready"),
        OperationScenario(
            "ready_late", _UNDONE, "ready", {FaultPoint("runtime", "ensure", 1): Fault.UNREADY}
        ),
        OperationScenario("waits", _OK, "waits", signal_at=0.3),
        OperationScenario("waits_signalled_early", _OK, "waits", signal_at=0.005),
        OperationScenario("waits_signalled_meanwhile", _OK, "waits", signal_at=0.015),
        OperationScenario("waits_in_vain", _UNDONE, "waits"),
        OperationScenario("charge", _OK, "charge", without={"ledger": TWICE}),
        OperationScenario("unaskable", _OK, "unaskable", without={"meter": TWICE}),
        OperationScenario(
            "unaskable_resolved", _OK, "unaskable",
            operator="resolve",
            without={"meter": LATE | TWICE},
        ),
        OperationScenario(
            "unaskable_cancelled", "STUCK", "unaskable",
            cancel_at=0.015,
            without={"meter": TWICE},
        ),
    )
}  # fmt: skip


Question = Callable[[Plane], Awaitable[OperationView]]


def build(loop: SeededLoop, scenario: OperationScenario, faults: Faults, disk: Disk) -> Cluster:
    """A cluster that knows the plan of the scenario."""
    world = World(loop)
    return Cluster(
        loop,
        plans=[PLANS[scenario.plan]],
        world=world,
        providers=providers_of(world, faults),
        disk=disk,
    )


async def ask(attempt: Attempt[OperationScenario]) -> list[asyncio.Task[None]]:
    """Ask for the operation; its cancel and its signal come later."""
    cluster, client, scenario = attempt
    accepted = await client.accept(command(scenario.plan, "once"))

    async def cancel(plane: Plane) -> OperationView:
        return await operations.cancel(plane, by("the caller"), accepted.id)

    async def signal(plane: Plane) -> OperationView:
        caller = by("a friend")
        return await operations.signal(plane, caller, accepted.id, name=SIGNAL, payload=1)

    questions: list[tuple[float | None, Question]] = [
        (scenario.cancel_at, cancel),
        (scenario.signal_at, signal),
    ]
    return [
        cluster.loop.create_task(_ask_later(client, seconds, question))
        for seconds, question in questions
        if seconds is not None
    ]


async def _ask_later(client: Client, seconds: float, question: Question) -> None:
    """Ask this in a while; a refusal is an answer."""
    await asyncio.sleep(seconds)
    with suppress(CallerError):
        await client.ask(question)


async def rest(attempt: Attempt[OperationScenario]) -> list[str]:
    """Wait until the operation has ended, or is stuck for good; an operator acts once."""
    cluster, client, scenario = attempt
    resolved: set[str] = set()

    async def attend(row: OperationRecord, seconds: float) -> bool:
        name = row.id
        if scenario.operator and name not in resolved:
            resolved.add(name)
            with suppress(CallerError):
                await client.ask(partial(_operate, cluster, scenario.operator, name))
            return True
        return row.due_at is not None and seconds < PATIENCE.stuck_seconds

    return await until_at_rest(cluster, PATIENCE, until=PATIENCE.total_seconds, attend=attend)


async def _operate(cluster: Cluster, verb: str, operation: str, plane: Plane) -> OperationView:
    """An operator who inspects the world before acting."""
    seen = await reads.get_operation(plane, TENANT, operation)
    if verb == "retry":
        return await operations.retry(plane, OPERATOR, operation)
    if verb == "abandon":
        return await operations.abandon(plane, OPERATOR, operation)
    things = cluster.world.things
    for step in seen.steps:
        if not step.stuck:
            continue
        places = [place for place, thing in things.items() if thing.key.text == step.key]
        if places and seen.state is OperationState.STUCK and step.state is IntentState.INTENDED:
            seen = await operations.adopt(plane, OPERATOR, operation, step=step.name)
            continue
        for place in places:  # by hand, where the provider refuses
            thing = things.pop(place)
            cluster.world.note(thing.provider, "remove", thing.key, "gone")
        seen = await operations.mark_absent(plane, OPERATOR, operation, step=step.name)
    return seen


async def check(attempt: Attempt[OperationScenario], snapshot: Snapshot) -> list[str]:
    """Every invariant of operations, and one operation for one idempotency key."""
    plans = (PLANS[attempt.scenario.plan],)
    wrong = check_operations(
        snapshot, attempt.cluster.world, plans, attempt.client.acknowledged_ids
    )
    count = len(snapshot.operations)
    return wrong + ([f"one idempotency key has made {count} operations"] if count != 1 else [])


def inspects_of(calls: list[FaultPoint]) -> list[FaultPoint]:
    """The first inspect of every provider that was called and can be asked."""
    called = {call.provider for call in calls if call.verb == "ensure"}
    inspects = [FaultPoint(provider, "inspect", 1) for provider in sorted(called - {"meter"})]
    return [call for call in inspects if call not in calls]


MATRIX = Matrix(
    __name__,
    SCENARIOS,
    ALPHABET,
    build=build,
    ask=ask,
    rest=rest,
    check=check,
    more_calls=inspects_of,
    spared=lambda scenario, call: scenario.without.get(call.provider, frozenset()),
)
"""Every crossing, side and single fault of every scenario."""
