"""The crash matrix of an agent's life: every crossing × every side × every single fault.

Goal and method are those of `proofs.operations.crash`; a scenario here is what callers ask for, one
act after the other, and what is checked are the sentences about agents.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from proofs.agents.invariants import WAITING, call_the_roll, violations
from proofs.agents.lifecycle import CALLER, LETTERS, PLANS, TENANT, LifeRig, spec_of
from proofs.harness.rig import Client, Disk, MemoryDisk
from proofs.operations.crash import STUCK_SECONDS
from proofs.operations.invariants import journal_only_grew, read_books
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import Asked
from tenure.app.operations import commands as operations
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.agent import Verb
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.operation import OPERATION, OperationState
from tenure.ports.clock import Clock
from tenure.ports.store import Row, Store
from tenure.testing.faults import Call, Fault, Faults
from tenure.testing.loop import Dead, SeededLoop, VirtualClock, run
from tenure.testing.operators import by
from tenure.testing.tripwire import Side, sides_of

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 240.0
REPEATS_MAX = 2
"""Of a call that a scenario repeats so many are struck."""
CRASHES = (Side.BEFORE, Side.DURING, Side.AFTER)
CANCEL = "cancel"


class Act(NamedTuple):
    """One thing that a caller asks for."""

    verb: str
    """One of `Verb`, or `cancel`: of the operation before."""
    name: str = "alpha"
    given: Mapping[str, object] = {}
    after_seconds: float | None = None
    """Seconds after the act before was acknowledged; None: when all before it is at rest."""
    queue: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """What callers ask for, and what befalls one of the calls anyway."""

    name: str
    acts: tuple[Act, ...]
    script: Mapping[Call, Fault] = field(default_factory=dict)
    ends: str = ""
    """How it ends when nothing else goes wrong: the states of the operations."""


_CREATE = Act(Verb.CREATE)
_SUSPEND = Act(Verb.SUSPEND)
_KEEP = Act(Verb.SUSPEND, given={"keep_runtime": True})
_RESUME = Act(Verb.RESUME)
_STOP = Act(Verb.STOP)
_DELETE = Act(Verb.DELETE)
_CHILD = Act(Verb.CREATE, "beta", {"parent": "alpha"})


def _soon(act: Act, seconds: float) -> Act:
    return act._replace(after_seconds=seconds)


def _queued(act: Act, seconds: float) -> Act:
    return act._replace(after_seconds=seconds, queue=True)


_OK, _UNDONE = "SUCCEEDED", "COMPENSATED"
SCENARIOS: Mapping[str, Scenario] = {
    one.name: one
    for one in (
        Scenario("create", (_CREATE,), ends=_OK),
        Scenario(
            "create_refused", (_CREATE,), {Call("credentials", "ensure", 1): Fault.REFUSED},
            ends=_UNDONE,
        ),
        Scenario(
            "create_never_ready", (_CREATE,), {Call("runtime", "ensure", 1): Fault.NEVER_READY},
            ends=_UNDONE,
        ),
        Scenario(
            "create_again", (_CREATE, _CREATE), {Call("access", "ensure", 1): Fault.REFUSED},
            ends=f"{_UNDONE} {_OK}",
        ),
        Scenario("suspend", (_CREATE, _SUSPEND), ends=f"{_OK} {_OK}"),
        Scenario("resume", (_CREATE, _SUSPEND, _RESUME), ends=f"{_OK} {_OK} {_OK}"),
        Scenario("kept", (_CREATE, _KEEP, _RESUME, _SUSPEND), ends=f"{_OK} {_OK} {_OK} {_OK}"),
        Scenario("stop", (_CREATE, _STOP, _RESUME), ends=f"{_OK} {_OK} {_OK}"),
        Scenario("delete", (_CREATE, _DELETE), ends=f"{_OK} {_OK}"),
        Scenario("delete_suspended", (_CREATE, _SUSPEND, _DELETE), ends=f"{_OK} {_OK} {_OK}"),
        Scenario("delete_kept", (_CREATE, _KEEP, _DELETE), ends=f"{_OK} {_OK} {_OK}"),
        Scenario(
            "delete_while_creating", (_CREATE, _soon(_DELETE, 0.022)), ends=f"{_UNDONE} {_OK}"
        ),
        Scenario("delete_while_exposing", (_CREATE, _soon(_DELETE, 0.051)), ends=f"{_OK} {_OK}"),
        Scenario(
            "suspend_while_resuming", (_CREATE, _SUSPEND, _RESUME, _soon(_SUSPEND, 0.013)),
            ends=f"{_OK} {_OK} {_UNDONE} {_OK}",
        ),
        Scenario(
            "delete_while_suspending", (_CREATE, _SUSPEND, _soon(_DELETE, 0.013)),
            ends=f"{_OK} {_OK} {_OK}",
        ),
        Scenario(
            "delete_while_draining", (_CREATE, _SUSPEND, _soon(_DELETE, 0.013)),
            {Call("runtime", "status", 1): Fault.LOST}, ends=f"{_OK} {_UNDONE} {_OK}",
        ),
        Scenario(
            "stop_while_draining", (_CREATE, _SUSPEND, _soon(_STOP, 0.013), _RESUME),
            {Call("runtime", "status", 1): Fault.LOST}, ends=f"{_OK} {_UNDONE} {_OK} {_OK}",
        ),
        Scenario(
            "stop_while_resuming", (_CREATE, _SUSPEND, _RESUME, _soon(_STOP, 0.013), _DELETE),
            ends=f"{_OK} {_OK} {_UNDONE} {_OK} {_OK}",
        ),
        Scenario(
            "delete_cancelled", (_CREATE, _DELETE, _soon(Act(CANCEL), 0.0)), ends=f"{_OK} {_UNDONE}"
        ),
        Scenario(
            "delete_suspended_cancelled",
            (_CREATE, _KEEP, _DELETE, _soon(Act(CANCEL), 0.0), _RESUME),
            ends=f"{_OK} {_OK} {_UNDONE} {_OK}",
        ),
        Scenario(
            "resume_queued", (_CREATE, _SUSPEND, _queued(_RESUME, 0.013)),
            ends=f"{_OK} {_OK} {_OK}",
        ),
        Scenario(
            "suspend_queued_in_vain", (_CREATE, _queued(_SUSPEND, 0.022)),
            {Call("credentials", "ensure", 1): Fault.REFUSED}, ends=f"{_UNDONE} {_UNDONE}",
        ),
        Scenario(
            "delete_over_queued", (_CREATE, _queued(_SUSPEND, 0.022), _soon(_DELETE, 0.001)),
            ends=f"{_UNDONE} {_UNDONE} {_OK}",
        ),
        Scenario("delete_owner", (_CREATE, _CHILD, _DELETE), ends=f"{_OK} {_OK} {_OK} {_OK}"),
        Scenario(
            "delete_refused_for_a_while", (_CREATE, _DELETE),
            {Call("access", "remove", 1): Fault.REFUSED_FOR_A_WHILE}, ends=f"{_OK} {_OK}",
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


class Outcome(NamedTuple):
    """What came of a run."""

    wrong: list[str]
    crossings: list[str]
    calls: list[Call]
    states: str
    trace: str


OpenDisk = Callable[[Clock], Disk]


def run_case(case: Case, *, disk: OpenDisk = MemoryDisk) -> Outcome:
    """Run one case alone; the same case gives the same trace."""
    return run(case.seed, lambda loop: _live_through(loop, case, disk))


async def _live_through(loop: SeededLoop, case: Case, disk: OpenDisk) -> Outcome:
    scenario = SCENARIOS[case.scenario]
    script = dict(scenario.script)
    if case.call is not None and case.fault is not None:
        script[case.call] = case.fault
    faults = Faults(script)
    rig = LifeRig(loop, faults=faults, disk=disk(VirtualClock(loop)))
    supervisor = loop.create_task(rig.supervise("plane", crash_at=case.crash_at, side=case.side))
    client = Client(rig)
    wrong: list[str] = []
    for number, act in enumerate(scenario.acts):
        if act.after_seconds is None:
            wrong += await until_at_rest(rig)
        else:
            await asyncio.sleep(act.after_seconds)
        await _do(client, act, number)
    before = await read_books(rig.disk.look())
    wrong += await until_at_rest(rig)
    process = await rig.someone()
    supervisor.cancel()
    with suppress(Dead, CommitUnknown):  # the wire may be in the shutdown itself
        await process.stop()
    await rig.world.quiet()
    roll = await call_the_roll(
        rig.disk.look(), rig.world, rig.fakes, plans=PLANS, acknowledged=client.acknowledged
    )
    wrong += violations(roll) + journal_only_grew(before, roll.books)
    for name, row in roll.books.operations.items():
        rig.world.trace.add(name, row["state"], row["revision"], row["updated_at"])
    told = sorted(roll.books.operations.values(), key=_when)
    states = " ".join(str(row["state"]) for row in told)
    crossings = rig.processes[0].wire.crossings
    return Outcome(wrong, crossings, faults.made(), states, rig.world.trace.hexdigest())


def _when(row: Row) -> tuple[str, int]:
    """Operations in the order in which they were asked for, agent by agent."""
    return str(row["agent"]), cast(int, row["generation"])


async def _do(client: Client, act: Act, number: int) -> None:
    """Ask until there is an answer, under one key; a refusal is an answer."""
    with suppress(CallerError):
        if act.verb == CANCEL:
            last = client.acknowledged[-1]
            await client.ask(lambda plane: operations.cancel(plane, by("a caller"), last))
            return
        asked = Asked(idempotency_key=f"act {number}", queue=act.queue)
        accepted = await client.ask(lambda plane: ask(plane, act, asked=asked))
        client.acknowledged.append(accepted.id)


async def ask(plane: Plane, act: Act, *, asked: Asked) -> OperationView:
    """Ask a plane for what an act says."""
    given: dict[str, object] = dict(act.given)
    match Verb(act.verb):
        case Verb.CREATE:
            return await agents.create_agent(plane, CALLER, spec_of(act.name, **given), asked=asked)
        case Verb.SUSPEND:
            keep = bool(given.get("keep_runtime"))
            return await agents.suspend_agent(
                plane, CALLER, act.name, keep_runtime=keep, asked=asked
            )
        case Verb.STOP:
            return await agents.stop_agent(plane, CALLER, act.name, asked=asked)
        case Verb.RESUME:
            return await agents.resume_agent(plane, CALLER, act.name, asked=asked)
        case Verb.DELETE:
            return await agents.delete_agent(plane, CALLER, act.name, asked=asked)
        case Verb.RECOVER:
            return await agents.recover_runtime(plane, CALLER, act.name, asked=asked)


async def until_at_rest(rig: LifeRig, patience_seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Return when every operation has ended, or is stuck and will not come loose by itself."""
    until = rig.loop.time() + patience_seconds
    since: dict[str, float] = {}
    while not rig.serving and rig.loop.time() < until:  # noqa: ASYNC110 (it has no event)
        await asyncio.sleep(LOOK_SECONDS)  # before the first start there is nothing to look at
    store = rig.disk.look()
    while rig.loop.time() < until:
        now, moving, stuck = rig.loop.time(), not rig.serving, False
        for row in await store.list_operations(TENANT, limit=1_000):
            name, state = str(row["id"]), OperationState(str(row["state"]))
            if state in OPERATION.final:
                since.pop(name, None)
                continue
            if state is not OperationState.STUCK and not await _waits(store, name):
                since.pop(name, None)
                moving = True
            stuck = stuck or state is OperationState.STUCK
            moving = moving or now - since.setdefault(name, now) < STUCK_SECONDS
        if not moving and (stuck or not since):
            return []
        await asyncio.sleep(LOOK_SECONDS)
    return [f"all_is_at_rest: not after {patience_seconds:g} s"]


async def _waits(store: Store, operation: str) -> bool:
    """Whether it waits for another operation to end."""
    loaded = await store.load(operation)
    assert loaded is not None
    done = {str(row["step"]) for row in loaded.journal}
    return any(str(row["step"]) in WAITING - done for row in loaded.intents)


# --- the matrix -------------------------------------------------------------------------------


def faults_of(scenario: str) -> list[tuple[Call | None, Fault | None]]:
    """No fault, and every single fault at every call that the scenario makes."""
    calm = run_case(Case(scenario))
    found: list[tuple[Call | None, Fault | None]] = [(None, None)]
    found += [
        (call, fault)
        for call in calm.calls
        if call.nth <= REPEATS_MAX and call not in SCENARIOS[scenario].script
        for fault in LETTERS[call.verb]
    ]
    return found


def cases_of(
    scenario: str, call: Call | None, fault: Fault | None, *, seed: int = 0
) -> Iterator[Case]:
    """One run without a crash, then one for each crossing and side of it."""
    calm = Case(scenario, call, fault, seed=seed)
    yield calm
    for number, crossing in enumerate(run_case(calm).crossings, 1):
        for side in sides_of(crossing):
            if fault is None or side in CRASHES:
                yield Case(scenario, call, fault, number, side, seed)
