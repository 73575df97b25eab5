"""What providers report is what we recorded.

A pass checks a limited number of agents that no operation works on.  Agents with open findings come
first; the next pass continues with the other agents.  A difference is repaired if the agent's spec,
or else the plane, says `repair`.  The plan `recover_runtime` replaces a runtime that died; any
other missing resource is made again under its own key.  Nothing is repaired at the first sighting,
and a repair that fails is retried with growing pauses.  A provider that cannot be reached is a
finding too, since its resources are not verified.

`tenure.app.safety.agent_condition` decides which runtimes are replaced.  Runtimes of agents that
seem to be deleted or suspended elsewhere are not replaced.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.app.agents import commands as agents
from tenure.app.agents.ownership import without_ended_grants
from tenure.app.agents.views import holdings_of, stored_spec
from tenure.app.operations.handle import load_handle
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.agent_condition import (
    CREDENTIALS,
    RUNTIME,
    AgentCondition,
    AgentResource,
    condition_of,
    is_idle,
    is_open,
    resources_of,
)
from tenure.core.agent import AgentState
from tenure.core.errors import CallerError, ProviderError, Rejected
from tenure.core.finding import FindingKind
from tenure.core.operation import OPERATION
from tenure.core.records import AgentNameRecord, AgentRecord, FindingRecord
from tenure.core.retry import DRIFT_REPAIR
from tenure.core.roles import Caller, Role
from tenure.ports.provider import Call, Observation, Presence
from tenure.reconcilers.circuit_breaker import CALL_SECONDS, ProviderBreaker
from tenure.reconcilers.passes import FindingAbout, Pass, Tick

SENTENCE = "What providers report is what we recorded."
NAME = "drift"
AT_ONCE = 16
"""Agents that are checked at the same time."""
NO_ANSWER = f"no answer within {CALL_SECONDS:.0f} s"
SOON_SECONDS = 3.0
"""From the first sighting to the second."""
SIGHTINGS = 2
LAPSE_SECONDS = 7 * 86_400.0
"""How long before a registration lapses that is reported."""
DELETED_ELSEWHERE = (
    "the agent seems to be deleted elsewhere, perhaps after the backup that was restored."
    " None of its resources is made again: tenure agent delete {name}"
)
SUSPENDED_ELSEWHERE = (
    "its credentials are closed: the agent seems to be suspended elsewhere, perhaps after the"
    " backup that was restored. It is not started again: tenure agent suspend {name}, then tenure"
    " agent resume {name} if it is to run"
)
CLOSED_ELSEWHERE = (
    "are closed: the agent seems to be suspended elsewhere, perhaps after the backup that was"
    " restored. It is READY and gets no credentials: tenure agent suspend {name}, then tenure agent"
    " resume {name} if it is to run"
)
NOT_VERIFIED = "it is not replaced before all other resources of the agent are verified"

Difference = tuple[FindingKind, str, bool]
"""The kind of a finding, its text, and whether the difference can be repaired."""


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Check up to `limit` agents; the next pass continues with the others."""
    this_pass = this_pass or Pass(plane, NAME)
    open_findings = await findings.list_open(plane, this_pass.reconciler)
    first = list(dict.fromkeys(row.agent for row in open_findings))[:limit]
    uids = first + [uid for uid in await _next_agents(plane, limit) if uid not in first]
    breaker = ProviderBreaker(plane, NAME)
    uids.sort(key=breaker.order_of)
    fixed, verified = 0, set[str]()
    retry_times: list[float] = []
    for start in range(0, len(uids), AT_ONCE):
        checks = [
            _check_agent(plane, this_pass, uid, breaker) for uid in uids[start : start + AT_ONCE]
        ]
        for uid, (is_verified, repaired, retry_at) in zip(
            uids[start:], await asyncio.gather(*checks), strict=False
        ):
            fixed += repaired
            retry_times += [] if retry_at is None else [retry_at]
            if is_verified:
                verified.add(uid)
    for row in open_findings:
        if row.agent in verified or not await _has_resource(plane, row):
            await this_pass.resolve(row)
    return Tick(len(uids), fixed, min(retry_times, default=None))


async def _has_resource(plane: Plane, finding: FindingRecord) -> bool:
    """Whether, by our records, the agent still has the resource of this finding."""
    holds = await holdings_of(plane, finding.tenant, finding.agent)
    return any(one.key == finding.resource for some in holds.values() for one in some)


async def _next_agents(plane: Plane, limit: int) -> list[str]:
    """The next agents by name, from where the last pass ended."""
    tenant, _, name = plane.reconcile_state.cursors.get(NAME, "").partition(" ")
    rows = await plane.store.list_rows(AgentNameRecord, {}, after=(tenant, name), limit=limit)
    last = f"{rows[-1].tenant} {rows[-1].name}" if len(rows) == limit else ""
    plane.reconcile_state.cursors[NAME] = last
    return [row.agent for row in rows]


async def _check_agent(
    plane: Plane, this_pass: Pass, uid: str, breaker: ProviderBreaker
) -> tuple[bool, int, float | None]:
    """Whether the agent was checked completely, how many repairs were made, when to check again."""
    row = await plane.store.find(AgentRecord, (uid,))
    if row is None or not is_idle(row):
        return row is None, 0, None  # an operation works on the agent and changes its resources
    if row.state not in {AgentState.READY, AgentState.SUSPENDED}:
        return True, 0, None
    everything = [await _inspect(plane, one, breaker) for one in await resources_of(plane, row)]
    is_open_now, error = await _is_open(plane, row, everything, breaker)
    condition = condition_of(row, everything, is_open=is_open_now)
    if condition is AgentCondition.CLOSED and await _has_changed(plane, row):
        return False, 0, None
    not_repaired = _slots_not_repaired(row, everything, condition)
    credentials_difference = _credentials_difference(row, everything, condition, error)
    is_verified, fixed, retry_at = is_open_now is not None, 0, None
    for resource in everything:
        if resource.seen is None:
            is_verified = False
            if resource.error:
                text = f"cannot be verified: {resource.error}"
                await _report_only(
                    plane, this_pass, row, resource, kind=FindingKind.UNVERIFIABLE, text=text
                )
            continue
        difference = _difference(plane, row, resource, resource.seen)
        if difference is None and resource.slot == CREDENTIALS:
            difference = credentials_difference
        if difference is None:
            continue
        kind, text, repairable = difference
        if why := not_repaired.get(resource.slot):
            await _report_only(plane, this_pass, row, resource, kind=kind, text=f"{text}; {why}")
        elif repairable and _may_repair(this_pass, row):
            repaired, later = await _repair(plane, this_pass, row, resource, text)
            fixed += repaired
            retry_at = later if retry_at is None else min(retry_at, later or retry_at)
        else:
            await _report_only(plane, this_pass, row, resource, kind=kind, text=text)
    return is_verified, fixed, retry_at


async def _inspect(
    plane: Plane, resource: AgentResource, breaker: ProviderBreaker
) -> AgentResource:
    """The same resource with the observation of its provider, or with an error."""
    if breaker.skips(resource.slot, resource.key.agent):
        return resource
    try:
        async with breaker.call(resource.slot, resource.key.agent):
            return resource._replace(
                seen=await plane.providers[resource.slot].inspect(resource.key)
            )
    except TimeoutError:
        return resource._replace(error=NO_ANSWER)
    except ProviderError as error:
        return resource._replace(error=repr(error))


async def _is_open(
    plane: Plane, row: AgentRecord, everything: Sequence[AgentResource], breaker: ProviderBreaker
) -> tuple[bool | None, str]:
    """Whether a READY agent is open at its credentials provider; None, and why, if that is unknown.

    A provider that has just not answered about the agent's credentials is not called again.
    """
    uid = row.uid
    if row.state != AgentState.READY:
        return True, ""
    timed_out = any(one.slot == CREDENTIALS and one.error == NO_ANSWER for one in everything)
    if timed_out or breaker.skips(CREDENTIALS, uid):
        return None, ""
    try:
        async with breaker.call(CREDENTIALS, uid):
            return await is_open(plane, row), ""
    except TimeoutError:
        return None, NO_ANSWER
    except ProviderError as error:
        return None, repr(error)


async def _has_changed(plane: Plane, row: AgentRecord) -> bool:
    """Whether an operation has begun since the agent was read; it may have closed the agent."""
    now = await plane.store.find(AgentRecord, (row.uid,))
    return now is None or now.generation != row.generation


def _slots_not_repaired(
    row: AgentRecord, everything: Sequence[AgentResource], condition: AgentCondition
) -> Mapping[str, str]:
    """Slots in which a missing resource is not made again, with the reason."""
    if row.state != AgentState.READY:
        return {}
    match condition:
        case AgentCondition.RUNS | AgentCondition.NEEDS_RUNTIME:
            return {}
        case AgentCondition.DELETED:
            gone = [one.slot for one in everything if one.is_gone]
            return dict.fromkeys(gone, DELETED_ELSEWHERE.format(name=row.name))
        case AgentCondition.CLOSED:
            return {RUNTIME: SUSPENDED_ELSEWHERE.format(name=row.name)}
        case AgentCondition.UNVERIFIED:
            return {RUNTIME: NOT_VERIFIED}


def _credentials_difference(
    row: AgentRecord, everything: Sequence[AgentResource], condition: AgentCondition, error: str
) -> Difference | None:
    """The difference of an agent's credentials that exist; None if they are as recorded.

    While the runtime is dead there is no finding here, as the finding of the runtime says the same.
    """
    if any(one.is_dead for one in everything):
        return None
    if condition is AgentCondition.CLOSED:
        return FindingKind.DRIFT, CLOSED_ELSEWHERE.format(name=row.name), False
    text = f"exist, and it is unknown whether the agent is open: {error}"
    return (FindingKind.UNVERIFIABLE, text, False) if error else None


def _difference(
    plane: Plane, row: AgentRecord, resource: AgentResource, seen: Observation
) -> Difference | None:
    """How a resource of an agent differs from its record; None if it does not."""
    match seen.presence:
        case Presence.READY | Presence.STARTING:
            lapses_at = seen.reference.get("lapses_at")
            if isinstance(lapses_at, int | float):
                left = lapses_at - plane.store.now()
                if left < LAPSE_SECONDS:
                    return FindingKind.CONFIRMED, f"lapses in {max(0.0, left) / 3_600:.0f} h", False
            return None
        case Presence.FOREIGN:
            return FindingKind.UNVERIFIABLE, "belongs to another owner now", False
        case Presence.BROKEN if resource.slot == RUNTIME:
            return FindingKind.DRIFT, "has died", row.state == AgentState.READY
        case Presence.ABSENT if resource.slot == RUNTIME:
            return FindingKind.DRIFT, "is gone", row.state == AgentState.READY
        case Presence.BROKEN:
            text = "is broken: delete the agent and create it again"
            return FindingKind.DRIFT, text, False
        case Presence.ABSENT:
            return FindingKind.DRIFT, "was deleted at its provider", True


def _may_repair(this_pass: Pass, row: AgentRecord) -> bool:
    policy = stored_spec(row).spec.get("on_drift")
    return (this_pass.repairs and policy != "report") or (
        policy == "repair" and not this_pass.read_only
    )


def _finding_key(row: AgentRecord, resource: AgentResource) -> str:
    return f"{row.uid} {resource.key.text}"


async def _report(
    this_pass: Pass,
    row: AgentRecord,
    resource: AgentResource,
    kind: FindingKind,
    text: str,
    **more: object,
) -> FindingRecord | None:
    what = f"{resource.slot} {resource.key.text} of agent {row.name} {text}"
    return await this_pass.report(
        kind,
        _finding_key(row, resource),
        what,
        about=FindingAbout(row.tenant, row.uid, resource.key.text),
        details={**more, "provider": resource.slot},
    )


async def _report_only(
    plane: Plane,
    this_pass: Pass,
    row: AgentRecord,
    resource: AgentResource,
    *,
    kind: FindingKind,
    text: str,
) -> None:
    """Report a difference without a repair; the finding keeps the attempts of earlier passes."""
    before = await findings.find(plane, this_pass.reconciler, _finding_key(row, resource))
    await _report(this_pass, row, resource, kind, text, **_attempts_of(before))


def _attempts_of(finding: FindingRecord | None) -> dict[str, Any]:
    """The fields of a finding that describe attempts to repair it."""
    body: dict[str, Any] = {} if finding is None else findings.body_of(finding)
    return {name: body[name] for name in body if name not in {"what", "provider"}}


async def _repair(
    plane: Plane, this_pass: Pass, row: AgentRecord, resource: AgentResource, text: str
) -> tuple[int, float | None]:
    """Repair the resource at the second sighting; retry a failed repair with growing pauses."""
    now = plane.store.now()
    before = await findings.find(plane, this_pass.reconciler, _finding_key(row, resource))
    earlier = _attempts_of(before)
    attempts, again_at = int(earlier.get("attempts", 0)), float(earlier.get("again_at", 0.0))
    # At the last sighting the provider was not called, or did not answer.
    was_unverified = before is None or before.kind == FindingKind.UNVERIFIABLE
    if before is None or was_unverified or before.sightings + 1 < SIGHTINGS:
        await _report(this_pass, row, resource, FindingKind.DRIFT, text, **earlier)
        return 0, now + SOON_SECONDS
    if now < again_at:
        await _report(this_pass, row, resource, FindingKind.DRIFT, text, **earlier)
        return 0, again_at
    again_at = now + DRIFT_REPAIR.delay_seconds(attempts)
    attempt: dict[str, object] = {"attempts": attempts + 1, "again_at": again_at}
    try:
        if resource.slot == RUNTIME:
            attempt["operation"] = await _recover(plane, this_pass, row)
        else:
            await _repeat_step(plane, row, resource)
    except (CallerError, ProviderError, TimeoutError) as error:
        attempt["error"] = str(error)
        text = f"{text}; it could not be made again"
        if isinstance(error, Rejected) and resource.slot != RUNTIME:
            text += ": if this continues, delete the agent and create it again"
        await _report(this_pass, row, resource, FindingKind.DRIFT, text, **attempt)
        return 0, again_at
    await _report(
        this_pass,
        row,
        resource,
        FindingKind.CONFIRMED,
        f"{text}; it is being made again",
        **attempt,
    )
    return 1, now + SOON_SECONDS


async def _recover(plane: Plane, this_pass: Pass, row: AgentRecord) -> str:
    """Request the plan that replaces the runtime; a repeated request finds the same operation."""
    caller = Caller(row.tenant, f"reconciler {this_pass.reconciler}", Role.OPERATOR)
    uid = row.uid
    request_options = agents.RequestOptions(idempotency_key=f"drift/{uid}/{row.generation}")
    return (await agents.recover_runtime(plane, caller, uid, request_options=request_options)).id


async def _repeat_step(plane: Plane, row: AgentRecord, resource: AgentResource) -> None:
    """Perform the step that made the resource again, under the same key; Rejected if it is burned.

    PlanUnknown if only a newer release knows that step: a process of that release repairs it.
    """
    operation = await load_handle(plane.store, plane.catalogue, plane.id, resource.operation)
    if operation is None or operation.state not in OPERATION.final:
        raise Rejected(f"operation {resource.operation}, which made it, has not ended")
    current = await plane.store.find(AgentRecord, (row.uid,))
    if current is None or current.generation != row.generation:
        raise Rejected("the agent has changed since it was checked")
    plan = plane.catalogue.restore(operation.plan.body(), operation.plan.digest)
    done, signals = operation.progress.done, operation.progress.signals
    values = await without_ended_grants(plane, operation.input)
    call = Call(resource.key, values, done, signals, plane.providers)
    async with asyncio.timeout(CALL_SECONDS):
        await plan.steps[resource.key.name].do(call)
