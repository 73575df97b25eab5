"""The crash scenarios of agents: what callers ask for, one act after the other.

`MATRIX` runs each of them with a crash at every port crossing (`proofs.harness.crash`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from proofs.agents.invariants import WAITING, read_agents, violations
from proofs.agents.lifecycle import CALLER, LETTERS, PLANS, AgentCluster, Fakes, spec_of
from proofs.harness.cluster import Client, Cluster, Disk
from proofs.harness.crash import Attempt, Matrix
from proofs.harness.rest import Patience, until_at_rest
from proofs.harness.snapshot import Snapshot
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import RequestOptions
from tenure.app.operations import commands as operations
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.errors import CallerError
from tenure.core.records import OperationRecord
from tenure.core.verb import VerbName
from tenure.testing.faults import Fault, FaultPoint, Faults
from tenure.testing.loop import SeededLoop
from tenure.testing.operators import by

PATIENCE = Patience(total_seconds=240.0, stuck_seconds=15.0, poll_seconds=0.25)
CANCEL = "cancel"


class Act(NamedTuple):
    """One thing that a caller asks for."""

    verb: str
    """One of `VerbName`, or `cancel`: of the operation before."""
    name: str = "alpha"
    given: Mapping[str, object] = {}
    after_seconds: float | None = None
    """Seconds after the act before was acknowledged; None: when all before it is at rest."""
    queue: bool = False


@dataclass(frozen=True, slots=True)
class AgentScenario:
    """What callers ask for, and the faults that are part of it."""

    name: str
    acts: tuple[Act, ...]
    script: Mapping[FaultPoint, Fault] = field(default_factory=dict)
    ends: str = ""
    """The states of the operations when nothing else fails."""


_CREATE = Act(VerbName.CREATE)
_SUSPEND = Act(VerbName.SUSPEND)
_KEEP = Act(VerbName.SUSPEND, given={"keep_runtime": True})
_RESUME = Act(VerbName.RESUME)
_STOP = Act(VerbName.STOP)
_DELETE = Act(VerbName.DELETE)
_CHILD = Act(VerbName.CREATE, "beta", {"parent": "alpha"})


def _soon(act: Act, seconds: float) -> Act:
    return act._replace(after_seconds=seconds)


def _while_locked(act: Act, seconds: float) -> Act:
    return act._replace(after_seconds=seconds, queue=True)


_OK, _UNDONE = "SUCCEEDED", "COMPENSATED"
SCENARIOS: Mapping[str, AgentScenario] = {
    one.name: one
    for one in (
        AgentScenario("create", (_CREATE,), ends=_OK),
        AgentScenario(
            "create_refused", (_CREATE,), {FaultPoint("credentials", "ensure", 1): Fault.REFUSED},
            ends=_UNDONE,
        ),
        AgentScenario(
            "create_never_ready",
            (_CREATE,),
            {FaultPoint("runtime", "ensure", 1): Fault.NEVER_READY},
            ends=_UNDONE,
        ),
        AgentScenario(
            "create_again", (_CREATE, _CREATE), {FaultPoint("access", "ensure", 1): Fault.REFUSED},
            ends=f"{_UNDONE} {_OK}",
        ),
        AgentScenario("suspend", (_CREATE, _SUSPEND), ends=f"{_OK} {_OK}"),
        AgentScenario("resume", (_CREATE, _SUSPEND, _RESUME), ends=f"{_OK} {_OK} {_OK}"),
        AgentScenario("kept", (_CREATE, _KEEP, _RESUME, _SUSPEND), ends=f"{_OK} {_OK} {_OK} {_OK}"),
        AgentScenario("stop", (_CREATE, _STOP, _RESUME), ends=f"{_OK} {_OK} {_OK}"),
        AgentScenario("delete", (_CREATE, _DELETE), ends=f"{_OK} {_OK}"),
        AgentScenario("delete_suspended", (_CREATE, _SUSPEND, _DELETE), ends=f"{_OK} {_OK} {_OK}"),
        AgentScenario("delete_kept", (_CREATE, _KEEP, _DELETE), ends=f"{_OK} {_OK} {_OK}"),
        AgentScenario(
            "delete_while_creating", (_CREATE, _soon(_DELETE, 0.022)), ends=f"{_UNDONE} {_OK}"
        ),
        AgentScenario(
            "delete_while_exposing", (_CREATE, _soon(_DELETE, 0.051)), ends=f"{_OK} {_OK}"
        ),
        AgentScenario(
            "suspend_while_resuming", (_CREATE, _SUSPEND, _RESUME, _soon(_SUSPEND, 0.013)),
            ends=f"{_OK} {_OK} {_UNDONE} {_OK}",
        ),
        AgentScenario(
            "delete_while_suspending", (_CREATE, _SUSPEND, _soon(_DELETE, 0.013)),
            ends=f"{_OK} {_OK} {_OK}",
        ),
        AgentScenario(
            "delete_while_draining", (_CREATE, _SUSPEND, _soon(_DELETE, 0.013)),
            {FaultPoint("runtime", "status", 1): Fault.LOST}, ends=f"{_OK} {_UNDONE} {_OK}",
        ),
        AgentScenario(
            "stop_while_draining", (_CREATE, _SUSPEND, _soon(_STOP, 0.013), _RESUME),
            {FaultPoint("runtime", "status", 1): Fault.LOST}, ends=f"{_OK} {_UNDONE} {_OK} {_OK}",
        ),
        AgentScenario(
            "stop_while_resuming", (_CREATE, _SUSPEND, _RESUME, _soon(_STOP, 0.013), _DELETE),
            ends=f"{_OK} {_OK} {_UNDONE} {_OK} {_OK}",
        ),
        AgentScenario(
            "delete_cancelled", (_CREATE, _DELETE, _soon(Act(CANCEL), 0.0)), ends=f"{_OK} {_UNDONE}"
        ),
        AgentScenario(
            "delete_suspended_cancelled",
            (_CREATE, _KEEP, _DELETE, _soon(Act(CANCEL), 0.0), _RESUME),
            ends=f"{_OK} {_OK} {_UNDONE} {_OK}",
        ),
        AgentScenario(
            "resume_queued", (_CREATE, _SUSPEND, _while_locked(_RESUME, 0.013)),
            ends=f"{_OK} {_OK} {_OK}",
        ),
        AgentScenario(
            "suspend_queued_in_vain", (_CREATE, _while_locked(_SUSPEND, 0.022)),
            {FaultPoint("credentials", "ensure", 1): Fault.REFUSED}, ends=f"{_UNDONE} {_UNDONE}",
        ),
        AgentScenario(
            "delete_over_queued", (_CREATE, _while_locked(_SUSPEND, 0.022), _soon(_DELETE, 0.001)),
            ends=f"{_UNDONE} {_UNDONE} {_OK}",
        ),
        AgentScenario("delete_owner", (_CREATE, _CHILD, _DELETE), ends=f"{_OK} {_OK} {_OK} {_OK}"),
        AgentScenario(
            "delete_refused_for_a_while", (_CREATE, _DELETE),
            {FaultPoint("access", "remove", 1): Fault.REFUSED_FOR_A_WHILE}, ends=f"{_OK} {_OK}",
        ),
    )
}  # fmt: skip


def build(loop: SeededLoop, _: AgentScenario, faults: Faults, disk: Disk) -> Cluster:
    """A cluster of agents."""
    return AgentCluster(loop, faults=faults, disk=disk)


async def ask(attempt: Attempt[AgentScenario]) -> list[asyncio.Task[None]]:
    """Ask for one act after the other."""
    cluster, client, scenario = attempt
    for number, act in enumerate(scenario.acts):
        if act.after_seconds is None:
            await wait_for_rest(cluster)
        else:
            await asyncio.sleep(act.after_seconds)
        await _act(client, act, number)
    return []


async def _act(client: Client, act: Act, number: int) -> None:
    """Ask until there is an answer, under one key; a refusal is an answer."""
    with suppress(CallerError):
        if act.verb == CANCEL:
            last = client.acknowledged_ids[-1]
            await client.ask(lambda plane: operations.cancel(plane, by("a caller"), last))
            return
        options = RequestOptions(idempotency_key=f"act {number}", queue=act.queue)
        accepted = await client.ask(lambda plane: perform(plane, act, request_options=options))
        client.acknowledged_ids.append(accepted.id)


async def perform(plane: Plane, act: Act, *, request_options: RequestOptions) -> OperationView:
    """Ask a plane for what an act says."""
    given: dict[str, object] = dict(act.given)
    match VerbName(act.verb):
        case VerbName.CREATE:
            return await agents.create_agent(
                plane, CALLER, spec_of(act.name, **given), request_options=request_options
            )
        case VerbName.SUSPEND:
            keep = bool(given.get("keep_runtime"))
            return await agents.suspend_agent(
                plane, CALLER, act.name, keep_runtime=keep, request_options=request_options
            )
        case VerbName.STOP:
            return await agents.stop_agent(plane, CALLER, act.name, request_options=request_options)
        case VerbName.RESUME:
            return await agents.resume_agent(
                plane, CALLER, act.name, request_options=request_options
            )
        case VerbName.DELETE:
            return await agents.delete_agent(
                plane, CALLER, act.name, request_options=request_options
            )
        case VerbName.RECOVER:
            return await agents.recover_runtime(
                plane, CALLER, act.name, request_options=request_options
            )


async def wait_for_rest(
    cluster: Cluster, *, seconds: float = PATIENCE.total_seconds, until: float | None = None
) -> list[str]:
    """Wait until every operation has ended, or is stuck for good with those that wait for it."""
    until = cluster.loop.time() + seconds if until is None else until
    while not cluster.serving and cluster.loop.time() < until:  # noqa: ASYNC110 (it has no event)
        await asyncio.sleep(PATIENCE.poll_seconds)  # a disk cannot be read before the first start
    store = cluster.disk.observer()

    async def waits(row: OperationRecord) -> bool:
        loaded = await store.load(row.id)
        assert loaded is not None
        done = {record.step for record in loaded.journal}
        return any(intent.step in WAITING - done for intent in loaded.intents)

    return await until_at_rest(
        cluster, PATIENCE, until=until, is_busy=lambda: not cluster.serving, waits=waits
    )


async def check_agents(
    cluster: Cluster, fakes: Fakes, snapshot: Snapshot, acknowledged_ids: list[str]
) -> list[str]:
    """Every violation of an invariant of agents."""
    seen = await read_agents(
        cluster.disk.observer(), cluster.world, fakes,
        plans=PLANS, acknowledged_ids=acknowledged_ids,
        kernel=snapshot,
    )  # fmt: skip
    return violations(seen)


async def rest(attempt: Attempt[AgentScenario]) -> list[str]:
    """Wait until the agents are at rest."""
    return await wait_for_rest(attempt.cluster)


async def check(attempt: Attempt[AgentScenario], snapshot: Snapshot) -> list[str]:
    """Every invariant of agents."""
    assert isinstance(attempt.cluster, AgentCluster)
    fakes, acknowledged_ids = attempt.cluster.fakes, attempt.client.acknowledged_ids
    return await check_agents(attempt.cluster, fakes, snapshot, acknowledged_ids)


MATRIX = Matrix(__name__, SCENARIOS, LETTERS, build=build, ask=ask, rest=rest, check=check)
"""Every crossing, side and single fault of every scenario."""
