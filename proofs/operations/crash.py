"""The crash matrix: every port crossing × every side of it × every single fault, for each scenario.

Goal: after a crash at any instant and a restart on the same store, every operation reaches its goal
or is undone, counted in the world.  Method: run a scenario with one fault (or none) and record its
crossings; then run it again for each crossing and side, die there, start a fresh plane on the same
disk, let virtual time pass until everything is at rest and the last late request has arrived, and
check every invariant.  A `Case` that fails is run alone by `run_case`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from proofs.harness.rig import Client, Disk, MemoryDisk, Rig, command
from proofs.operations.invariants import Evidence, journal_only_grew, read_books, violations
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.operation import OPERATION, IntentState, OperationState
from tenure.ports.clock import Clock
from tenure.testing.fakes import World
from tenure.testing.faults import ALPHABET, Call, Fault, Faults
from tenure.testing.loop import Dead, SeededLoop, VirtualClock, run
from tenure.testing.operators import by
from tenure.testing.plans import EFFECTS, PLANS, SIGNAL, providers_of
from tenure.testing.tripwire import Side, sides_of

LOOK_SECONDS = 0.5
"""How often the harness looks whether everything is at rest."""
STUCK_SECONDS = 15.0
"""How long something may stay stuck before it is taken to be so for ever."""
PATIENCE_SECONDS = 120.0
"""When a run that is not at rest is given up, which is a violation."""
REPEATS_MAX = 2
"""Of a call that a scenario repeats so many are struck; a later one would be the same again."""
TENANT = "default"
OPERATOR = by("an operator")
TWICE = frozenset({Fault.DUPLICATED})
"""A service that counts every request counts what the network repeats."""
LATE = frozenset({Fault.SLOW, Fault.SLOWER, Fault.SLOWEST, Fault.REORDERED})
"""Whoever says what became of a call that is still on its way can be wrong."""
CRASHES = (Side.BEFORE, Side.DURING, Side.AFTER)
FIRST = "plane"
"""The process that can die at a crossing."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens when nothing is the matter: a plan, its providers' ways, its callers' acts."""

    name: str
    plan: str
    script: Mapping[Call, Fault] = field(default_factory=dict)
    cancel_at: float | None = None
    """Seconds after the acknowledgement."""
    signal_at: float | None = None
    operator: str = ""
    """What is said when it is stuck: retry, abandon, or resolve (adopt or mark absent, truly)."""
    without: Mapping[str, frozenset[Fault]] = field(default_factory=dict)
    """By provider, faults that nobody could survive here, said out loud."""


def _refused(provider: str) -> dict[Call, Fault]:
    return {Call(provider, "ensure", 1): Fault.REFUSED}


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("linear", "linear"),
        Scenario("linear_refused", "linear", _refused("credentials")),
        Scenario("linear_cancelled", "linear", cancel_at=0.025),
        Scenario("parallel", "parallel"),
        Scenario("parallel_refused", "parallel", _refused("runtime")),
        Scenario("parallel_cancelled", "parallel", cancel_at=0.015),
        Scenario("pivot", "pivot"),
        Scenario("pivot_refused", "pivot", _refused("exposure")),
        Scenario("pivot_cancelled", "pivot", cancel_at=0.022),
        Scenario(
            "undo_refused_for_a_while",
            "linear",
            {
                Call("runtime", "ensure", 1): Fault.REFUSED,
                Call("access", "remove", 1): Fault.REFUSED_FOR_A_WHILE,
            },
        ),
        Scenario(
            "undo_refused_for_ever",
            "linear",
            {
                Call("runtime", "ensure", 1): Fault.REFUSED,
                Call("access", "remove", 1): Fault.REFUSED,
            },
            operator="abandon",
        ),
        Scenario(
            "undo_retried",
            "linear",
            {
                Call("access", "ensure", 1): Fault.REFUSED,
                Call("identity", "remove", 1): Fault.REFUSED_FOR_A_WHILE,
            },
            operator="retry",
        ),
        Scenario(
            "undo_marked_absent",
            "linear",
            {
                Call("runtime", "ensure", 1): Fault.REFUSED,
                Call("access", "remove", 1): Fault.REFUSED,
            },
            operator="resolve",
            without={"access": LATE},
        ),
        Scenario("ready", "ready"),
        Scenario("ready_late", "ready", {Call("runtime", "ensure", 1): Fault.UNREADY}),
        Scenario("waits", "waits", signal_at=0.3),
        Scenario("waits_signalled_early", "waits", signal_at=0.005),
        Scenario("waits_signalled_meanwhile", "waits", signal_at=0.015),
        Scenario("waits_in_vain", "waits"),
        Scenario("charge", "charge", without={"ledger": TWICE}),
        Scenario("unaskable", "unaskable", without={"meter": TWICE}),
        Scenario(
            "unaskable_resolved",
            "unaskable",
            operator="resolve",
            without={"meter": LATE | TWICE},
        ),
        Scenario(
            "unaskable_cancelled",
            "unaskable",
            cancel_at=0.015,
            without={"meter": TWICE},
        ),
    )
}  # fmt: skip


class Case(NamedTuple):
    """One run of the matrix; printed, it can be run again as it is."""

    scenario: str
    call: Call | None = None
    fault: Fault | None = None
    crash_at: int = 0
    side: Side = Side.BEFORE
    seed: int = 0
    planes: int = 1
    """How many share the store; the first one dies."""


class Outcome(NamedTuple):
    """What came of a run."""

    wrong: list[str]
    crossings: list[str]
    """Of the first process."""
    calls: list[Call]
    states: list[OperationState]
    trace: str
    seconds: float
    """In virtual time."""


OpenDisk = Callable[[Clock], Disk]


def run_case(case: Case, *, disk: OpenDisk = MemoryDisk) -> Outcome:
    """Run one case alone; the same case gives the same trace."""
    return run(case.seed, lambda loop: _live_through(loop, case, disk))


async def _live_through(loop: SeededLoop, case: Case, disk: OpenDisk) -> Outcome:
    scenario = SCENARIOS[case.scenario]
    plan = PLANS[scenario.plan]
    script = dict(scenario.script)
    if case.call is not None and case.fault is not None:
        script[case.call] = case.fault
    world, faults = World(loop), Faults(script)
    rig = Rig(
        loop,
        plans=[plan],
        world=world,
        providers=providers_of(world, faults),
        disk=disk(VirtualClock(loop)),
    )
    supervisors = [
        loop.create_task(rig.supervise(FIRST, crash_at=case.crash_at, side=case.side)),
        *(loop.create_task(rig.supervise(f"{FIRST} {more}")) for more in range(2, case.planes + 1)),
    ]
    client = Client(rig)
    accepted = await client.accept(command(plan.name, "once"))
    others = [
        loop.create_task(_later(client, seconds, question))
        for seconds, question in _questions(scenario, accepted.id)
        if seconds is not None
    ]
    before = await read_books(rig.disk.look())
    wrong = await _until_at_rest(rig, client, scenario)
    for other in others:
        await other
    await rig.someone()
    for supervisor in supervisors:
        supervisor.cancel()
    for process in rig.serving:
        with suppress(Dead, CommitUnknown):  # the wire may be in the shutdown itself
            await process.stop()
    await world.quiet()
    books = await read_books(rig.disk.look())
    evidence = Evidence(books, world, {plan.digest: plan}, client.acknowledged, EFFECTS)
    wrong += violations(evidence) + journal_only_grew(before, books)
    if len(books.operations) != 1:
        wrong.append(f"one idempotency key has made {len(books.operations)} operations")
    states = [OperationState(str(row["state"])) for row in books.operations.values()]
    (crossings,) = (p.wire.crossings for p in rig.processes if p.node.name == f"{FIRST}/1")
    for name, row in books.operations.items():
        world.trace.add(name, row["state"], row["revision"], row["updated_at"])
    return Outcome(wrong, crossings, faults.made(), states, world.trace.hexdigest(), loop.time())


Question = Callable[[Plane], "asyncio.Future[OperationView]"]


def _questions(scenario: Scenario, operation: str) -> list[tuple[float | None, Question]]:
    async def cancel(plane: Plane) -> OperationView:
        return await operations.cancel(plane, by("the caller"), operation)

    async def signal(plane: Plane) -> OperationView:
        return await operations.signal(plane, by("a friend"), operation, name=SIGNAL, payload=1)

    return [(scenario.cancel_at, cancel), (scenario.signal_at, signal)]  # type: ignore[list-item]


async def _later(client: Client, seconds: float, question: Question) -> None:
    """Ask this in a while; a refusal is an answer."""
    await asyncio.sleep(seconds)
    with suppress(CallerError):
        await client.ask(question)


async def _until_at_rest(rig: Rig, client: Client, scenario: Scenario) -> list[str]:
    """Return when every operation has ended, or is stuck and will not come loose by itself."""
    stuck_since: dict[str, float] = {}
    spoken: set[str] = set()
    while rig.loop.time() < PATIENCE_SECONDS:
        moving = False
        books = await rig.disk.look().list_operations(TENANT, limit=1_000)
        for row in books:
            name, state = str(row["id"]), OperationState(str(row["state"]))
            if state in OPERATION.final:
                continue
            if state is not OperationState.STUCK:
                stuck_since.pop(name, None)
                moving = True
                continue
            since = stuck_since.setdefault(name, rig.loop.time())
            if scenario.operator and name not in spoken:
                spoken.add(name)
                await _operate(rig, client, scenario.operator, name)
                moving = True
            elif row["due_at"] is not None and rig.loop.time() < since + STUCK_SECONDS:
                moving = True
        if not moving:
            return []
        await asyncio.sleep(LOOK_SECONDS)
    return [f"nothing is at rest after {PATIENCE_SECONDS:g} s"]


async def _operate(rig: Rig, client: Client, verb: str, operation: str) -> None:
    """An operator who looks at the world before speaking."""

    async def speak(plane: Plane) -> OperationView:
        seen = await reads.get_operation(plane, TENANT, operation)
        if verb == "retry":
            return await operations.retry(plane, OPERATOR, operation)
        if verb == "abandon":
            return await operations.abandon(plane, OPERATOR, operation)
        for step in seen.steps:
            if not step.stuck:
                continue
            held = [at for at, thing in rig.world.things.items() if thing.key.text == step.key]
            if held and seen.state is OperationState.STUCK and step.state is IntentState.INTENDED:
                seen = await operations.adopt(plane, OPERATOR, operation, step=step.name)
                continue
            for at in held:  # by hand, where the provider refuses
                thing = rig.world.things.pop(at)
                rig.world.note(thing.provider, "remove", thing.key, "gone")
            seen = await operations.mark_absent(plane, OPERATOR, operation, step=step.name)
        return seen

    with suppress(CallerError):
        await client.ask(speak)


# --- the matrix -------------------------------------------------------------------------------


def faults_of(scenario: str) -> list[tuple[Call | None, Fault | None]]:
    """No fault, and every single fault at every call that the scenario makes or may make."""
    calm = run_case(Case(scenario))
    script, without = SCENARIOS[scenario].script, SCENARIOS[scenario].without
    calls = [call for call in calm.calls if call.nth <= REPEATS_MAX]
    asked = {call.provider for call in calls if call.verb == "ensure"}
    calls += [
        Call(provider, "inspect", 1)
        for provider in sorted(asked - {"meter"})
        if Call(provider, "inspect", 1) not in calls
    ]
    found: list[tuple[Call | None, Fault | None]] = [(None, None)]
    found += [
        (call, fault)
        for call in calls
        if call not in script
        for fault in ALPHABET[call.verb]
        if fault not in without.get(call.provider, ())
    ]
    return found


def cases_of(
    scenario: str, call: Call | None, fault: Fault | None, *, seed: int = 0, planes: int = 1
) -> Iterator[Case]:
    """One run without a crash, then one for each crossing and side of it.

    A store that fails is a fault too, so it is not combined with another.
    """
    calm = Case(scenario, call, fault, seed=seed, planes=planes)
    yield calm
    for number, crossing in enumerate(run_case(calm).crossings, 1):
        for side in sides_of(crossing):
            if fault is None or side in CRASHES:
                yield Case(scenario, call, fault, number, side, seed, planes)
