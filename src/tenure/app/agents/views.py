"""Reads of agents for callers; no rules are decided here.

An agent of another tenant is answered like an agent that does not exist.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec import Struct

from tenure.app.operations.handle import decode
from tenure.app.pages import list_all, page_of
from tenure.app.plane import Plane
from tenure.core.agent import NAME, AgentState
from tenure.core.errors import NotFound
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.plan import Plan
from tenure.core.records import (
    AgentNameRecord,
    AgentRecord,
    IntentRecord,
    NamedAgentRecord,
    OperationRecord,
    is_agent,
)
from tenure.core.roles import Caller
from tenure.core.verb import VerbName
from tenure.plans.agents.inputs import PlainData
from tenure.plans.agents.steps import RUNTIME_STEP, RuntimeResult
from tenure.ports.plane_api import HeldResource
from tenure.ports.runtime import LogPart, RuntimeProvider


class AgentView(NamedTuple):
    """An agent as callers see it."""

    uid: str
    name: str
    state: AgentState
    generation: int
    epoch: int
    operation: str
    """The operation that has the agent's lock or waits for it; empty if there is none."""
    parent: str
    """The uid of the agent that owns this one; empty if there is none."""
    spec: Any
    created_at: float
    updated_at: float
    etag: str


class ResourceView(NamedTuple):
    """A resource that a provider holds, or may hold, for an agent."""

    slot: str
    key: str
    state: str
    operation: str
    step: str


class PlannedStep(NamedTuple):
    """One step of a plan that would be performed."""

    name: str
    kind: str
    compensation: str
    """How the step is undone: `call`, `nothing`, or empty if it cannot be undone."""
    slot: str
    key: str
    """The key of its resource; empty if it makes none, or if the agent does not exist yet."""


def etag(row: AgentRecord) -> str:
    """The agent's etag, which changes with its generation and state."""
    return f"{row.generation}-{row.state}"


class StoredSpec(Struct, frozen=True):
    """The column `spec` of an agent's row."""

    spec: PlainData = {}
    """The agent's spec as its owner wrote it."""
    runtime: PlainData = {}
    """The runtime settings of the spec, with the digests of the files that it starts."""


def stored_spec(row: AgentRecord) -> StoredSpec:
    """The stored spec of the agent; empty once the agent is deleted."""
    return decode(row.spec, type=StoredSpec) if row.spec else StoredSpec()


def serving_of(row: AgentRecord) -> RuntimeResult:
    """The runtime to which invocations of the agent are passed, or were passed last."""
    return decode(row.serving, type=RuntimeResult) if row.serving else RuntimeResult()


async def get_agent_row(plane: Plane, caller: Caller, name: str) -> NamedAgentRecord:
    """The row of an agent by its name or uid; NotFound if this tenant has none."""
    uid: str | None = name
    if NAME.fullmatch(name):
        taken = await plane.store.find(AgentNameRecord, (caller.tenant, name))
        uid = None if taken is None else taken.agent
    row = None if uid is None else await plane.store.find(AgentRecord, (uid,))
    if row is None or row.tenant != caller.tenant or not is_agent(row):
        raise NotFound(f"there is no agent {name}")
    return row


async def get_agent(plane: Plane, caller: Caller, name: str) -> AgentView:
    """One agent by its name or uid; by uid also one that is deleted."""
    return _view(await get_agent_row(plane, caller, name))


async def list_agents(
    plane: Plane,
    caller: Caller,
    *,
    states: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    after: str = "",
    limit: int = 100,
) -> list[AgentView]:
    """Agents of the caller's tenant by name, after the name `after`; deleted ones have no name."""
    limit = page_of(limit)
    required_labels = labels or {}
    found: list[AgentView] = []
    last = (caller.tenant, after)
    while len(found) < limit:
        names = await plane.store.list_rows(
            AgentNameRecord, {"tenant": caller.tenant}, after=last, limit=limit
        )
        for named in names:
            row = await plane.store.find(AgentRecord, (named.agent,))
            if row is None or not is_agent(row) or (states and row.state not in states):
                continue
            view = _view(row)
            agent_labels = view.spec.get("labels", {})
            if all(agent_labels.get(key) == value for key, value in required_labels.items()):
                found.append(view)
        if len(names) < limit:
            break
        last = (caller.tenant, names[-1].name)
    return found[:limit]


async def list_resources(plane: Plane, caller: Caller, name: str) -> list[ResourceView]:
    """The resources that providers hold, or may hold, for an agent."""
    row = await get_agent_row(plane, caller, name)
    found = await plane.store.list_resources(caller.tenant, row.uid)
    unused = serving_of(row).unused_key
    return [
        ResourceView(
            one.slot, one.key, one.state, one.operation,
            one.step,
        )
        for one in found
        if one.slot and one.key != unused
    ]  # fmt: skip


async def holdings_of(plane: Plane, tenant: str, agent: str) -> dict[str, list[HeldResource]]:
    """The resources that an agent holds or may hold, by slot, newest first."""
    holds: dict[str, list[HeldResource]] = {}
    generations: dict[str, int] = {}
    for one in await plane.store.list_resources(tenant, agent):
        if not one.slot:
            continue
        operation = one.operation
        if operation not in generations:
            row = await plane.store.find(OperationRecord, (operation,))
            generations[operation] = 0 if row is None else row.generation
        resource = HeldResource(operation, one.step, one.key, generations[operation])
        holds.setdefault(one.slot, []).insert(0, resource)
    return holds


def key_of(plane: Plane, row: AgentRecord, slot: str, resource: HeldResource) -> ResourceKey:
    """The key of a resource that the agent of this row holds."""
    return resource_key(
        plane.id, tenant=row.tenant, agent=row.uid, generation=resource.generation,
        slot=slot, name=resource.step, text=resource.key,
    )  # fmt: skip


def preview_plan(
    plane: Plane, verb: VerbName, row: AgentRecord | None
) -> tuple[Plan, list[PlannedStep]]:
    """The plan that a verb would follow now, and its steps with the keys of their resources."""
    plan = plane.catalogue.newest(verb)
    steps: list[PlannedStep] = []
    for step in plan.steps.values():
        key = ""
        if step.slot and row is not None:
            key = resource_key(
                plane.id, tenant=row.tenant, agent=row.uid,
                generation=row.generation + 1, slot=step.slot, name=step.name,
            ).text  # fmt: skip
        undo = "call" if step.has_undo else str(step.undo or "")
        steps.append(PlannedStep(step.name, str(step.kind), undo, step.slot, key))
    return plan, steps


async def logs(plane: Plane, caller: Caller, name: str, *, lines: int = 100) -> str:
    """The last lines that the agent printed."""
    runtime, key = await _runtime(plane, caller, name)
    return "" if key is None else await runtime.logs(key, lines=lines)


async def follow_logs(plane: Plane, caller: Caller, name: str, *, since: int) -> LogPart:
    """The agent's output from this offset on."""
    runtime, key = await _runtime(plane, caller, name)
    return LogPart("", since) if key is None else await runtime.follow(key, since=since)


async def _runtime(
    plane: Plane, caller: Caller, name: str
) -> tuple[RuntimeProvider, ResourceKey | None]:
    """The newest runtime that the agent holds or may hold; without one, the last that it had."""
    row = await get_agent_row(plane, caller, name)
    unused = serving_of(row).unused_key
    holds = (await holdings_of(plane, caller.tenant, row.uid)).get("runtime", [])
    holds = [one for one in holds if one.key != unused]
    runtime = cast(RuntimeProvider, plane.providers["runtime"])
    resource = holds[0] if holds else await _last_runtime(plane, row)
    if resource is None:
        return runtime, None
    return runtime, key_of(plane, row, "runtime", resource)


async def _last_runtime(plane: Plane, row: AgentRecord) -> HeldResource | None:
    """The runtime of the agent's last operation that had one: its log may outlive it."""
    operations = await list_all(plane.store, OperationRecord, {"agent": row.uid})
    for one in reversed(operations):
        intent = await plane.store.find(IntentRecord, (one.id, RUNTIME_STEP))
        if intent is not None and intent.slot == "runtime":
            generation = one.generation
            return HeldResource(one.id, RUNTIME_STEP, intent.key, generation)
    return None


def _view(row: NamedAgentRecord) -> AgentView:
    return AgentView(
        row.uid,
        row.name,
        AgentState(row.state),
        row.generation,
        row.epoch,
        row.next or row.operation or "",
        row.parent or "",
        stored_spec(row).spec,
        row.created_at,
        row.updated_at,
        etag(row),
    )
