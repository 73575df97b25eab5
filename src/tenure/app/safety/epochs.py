"""Pauses the plane when its store has gone backwards, until an operator confirms.

The plane is paused when its store was restored or replaced by an older copy.  A paused plane
answers reads and continues no operation, until an operator has reviewed the effects and confirms.
A memo outside the store has the epoch and the last known line of the audit log.  A store that
lacks them is an older copy.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from tenure.app.agents import agent_rows
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.app.safety import watermark
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
from tenure.app.safety.pause import GENERATIONS_PER_EPOCH
from tenure.app.tenancy.audit import audit_line
from tenure.app.tenancy.tokens import PLANE_TENANT, require_plane_admin
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict, ConflictCode, ProviderError
from tenure.core.limits import PAGE_MAX
from tenure.core.operation import IntentState
from tenure.core.records import AgentRecord, AuditRecord, OperationRecord, PlaneRecord
from tenure.core.roles import Caller, Role
from tenure.ports import plane_rows
from tenure.ports.plane_rows import PLANE_ROW
from tenure.ports.store import Change

LIST_SECONDS = 30.0
"""How long a provider may take to list its resources."""
CALL_SECONDS = 10.0
"""How long a provider may take for a call about one agent."""
TIMEOUTS_MAX = 2
"""After so many timeouts a provider is not called any more."""
AT_ONCE = 16
"""Agents that are checked at the same time."""
LISTED_MAX = 1_000
"""Findings of one kind that a review lists; it counts them all."""
Answer = TypeVar("Answer")


# --- at the start, and in each pass ---------------------------------------------------------------


async def compare_with_memo(plane: Plane) -> None:
    """Compare the store with the memo outside it, before any operation continues.

    A store that lacks rows which it had before is an older copy: a new epoch starts, and the plane
    is paused.  If the store has a greater epoch, another process has started it, and this process
    takes it over.
    """
    pause = plane.pause
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    stored = None if row is None else row.epoch
    store_epoch = stored or 1
    pause_reason = (row and row.pause_reason) or ""
    if store_epoch > pause.epoch:
        why = pause.why or pause_reason
        await pause.update_memo(epoch=store_epoch, pause_reason=why, position=0, head="")
    elif not pause.why:
        older = await _reason_store_is_older(plane, store_epoch)
        if older:
            await pause.update_memo(epoch=pause.epoch + 1, pause_reason=older, position=0, head="")
        elif pause_reason and store_epoch == pause.epoch:
            await pause.update_memo(pause_reason=pause_reason)
    if pause.epoch > store_epoch or stored is None:
        await _write_epoch(plane, store_epoch)
    await record_audit_head(plane)


async def _reason_store_is_older(plane: Plane, store_epoch: int) -> str:
    """Why the store is an older copy; empty if nothing shows that."""
    pause = plane.pause
    if store_epoch < pause.epoch:
        return f"the store is of epoch {store_epoch}, and this home has seen {pause.epoch}"
    if not await _has_last_audit_line(plane):
        at = pause.memo.position
        return f"line {at} of the audit log is not the one that was seen here before"
    return await watermark.find_missing(plane)


async def _has_last_audit_line(plane: Plane) -> bool:
    """Whether the last line of the audit log that the memo knows is unchanged."""
    memo = plane.pause.memo
    if not memo.position:
        return True
    line = await plane.store.find(AuditRecord, (memo.position,))
    return line is not None and line.hash == memo.head


async def _write_epoch(plane: Plane, store_epoch: int) -> None:
    """Write the epoch to the store; for a new one, raise the generations of all agents first."""
    pause = plane.pause
    write = plane_rows.set_epoch(pause.epoch, pause.why or None)
    if pause.epoch == store_epoch:
        await plane.store.commit(Change("", (), (write,)))
        return
    async for agent in every(plane.store, AgentRecord):
        raised = agent_rows.set_generation_and_epoch(
            agent,
            generation=_raise_number(agent.generation, pause.epoch),
            epoch=None if agent.epoch is None else _raise_number(agent.epoch, pause.epoch),
        )
        await plane.store.commit(Change("", (), (raised,)))
    await plane.store.begin_epoch(pause.epoch)
    owner = Caller(PLANE_TENANT, "plane", Role.ADMIN)
    audit_row = audit_line(
        owner, "plane.hold", target=plane.id, now=plane.store.now(), epoch=pause.epoch,
        before=store_epoch, why=pause.why,
    )  # fmt: skip
    await plane.store.commit(Change("", (), (write, audit_row)))


def _raise_number(number: int, epoch: int) -> int:
    """A generation or epoch of an agent, raised into this epoch of the plane."""
    return epoch * GENERATIONS_PER_EPOCH + number % GENERATIONS_PER_EPOCH


async def record_audit_head(plane: Plane) -> None:
    """Write the last line of the audit log to the memo, and raise the watermark.

    If the line that the memo has is missing in the store, the memo stays as it is: a verification
    reports it, and the next start pauses the plane.
    """
    pause = plane.pause
    if not await _has_last_audit_line(plane):
        return
    position, head = pause.memo.position, pause.memo.head
    while rows := await plane.store.list_rows(AuditRecord, {}, after=(position,), limit=PAGE_MAX):
        position, head = rows[-1].position, rows[-1].hash
    await pause.update_memo(position=position, head=head)
    if plane.shared and pause.has_watermarks and not pause.why:
        await watermark.raise_watermark(plane)


async def pause_if_rewound(plane: Plane) -> bool:
    """Whether this process must stop: the store lacks the watermark that the home has."""
    why = "" if plane.pause.why else await watermark.find_missing(plane)
    if why:
        await pause_after_rewind(plane, why)
    return bool(why)


async def pause_after_rewind(plane: Plane, why: str) -> None:
    """Pause the plane in a new epoch, as after a restore; this process changes nothing more.

    The memo in the home is written first.  The next start writes the new epoch to the store, and
    waits for an operator's confirmation.
    """
    pause = plane.pause
    if pause.why:
        return
    await pause.update_memo(epoch=pause.epoch + 1, pause_reason=why, position=0, head="")
    pause.memo = pause.memo._replace(pause_reason=f"{why}: restart this process")
    pause.must_restart = True


async def follow_epoch(plane: Plane) -> bool:
    """Whether this process must stop: another one has started a later epoch, or paused the plane.

    This process is then paused until it is restarted.  If it was paused since its start, the pause
    ends here after another process has received the operator's confirmation.
    """
    pause = plane.pause
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    epoch, pause_reason = (row and row.epoch) or 1, (row and row.pause_reason) or ""
    if pause.why and not pause.must_restart and epoch == pause.epoch and not pause_reason:
        await pause.update_memo(pause_reason="")
        pause.confirmation.set()
    if pause.why or (epoch <= pause.epoch and not pause_reason):
        return False
    why = pause_reason or f"another process has started epoch {epoch}"
    pause.memo = pause.memo._replace(
        epoch=max(epoch, pause.epoch), pause_reason=f"{why}: restart this process"
    )
    pause.must_restart = True
    return True


# --- requests of an operator ----------------------------------------------------------------------


class OpenOperation(NamedTuple):
    """An open operation, which continues after the confirmation."""

    operation: str
    tenant: str
    kind: str
    agent: str
    state: str


class Missing(NamedTuple):
    """A resource that an agent has by the store, and that its provider does not have."""

    agent: str
    name: str
    tenant: str
    slot: str
    key: str


class ReadyAgent(NamedTuple):
    """An agent that is READY in the store."""

    agent: str
    name: str
    tenant: str


class Unknown(NamedTuple):
    """A resource of this plane that a provider has and the store does not know."""

    slot: str
    key: str
    agent: str


class Review(NamedTuple):
    """What would follow a confirmation; each list has the first thousand of its kind."""

    epoch: int
    held: str
    open_operations: int
    resumed: list[OpenOperation]
    missing_resources: int
    missing: list[Missing]
    started_agents: int
    started: list[ReadyAgent]
    """Agents that lack only their runtime; drift starts it again if it may repair."""
    shut_agents: int
    shut: list[ReadyAgent]
    """Agents whose credentials are closed: suspended since the backup.  They are not started."""
    untold_agents: int
    untold: list[ReadyAgent]
    """Agents that cannot be judged: a provider does not answer, or another resource differs."""
    unknown_resources: int
    unknown: list[Unknown]
    silent: list[str]
    """Providers that could not be listed or called, with the reason."""


class _ReviewCalls:
    """The calls of a review, with the errors of providers that did not answer."""

    def __init__(self) -> None:
        self.silent: dict[str, str] = {}
        self.timeouts = Counter[str]()

    async def call(
        self, slot: str, request: Callable[[], Awaitable[Answer]], *,
        seconds: float = CALL_SECONDS, timeouts: int = 1,
    ) -> Answer | None:  # fmt: skip
        """The answer; None if the call failed.  A timeout is counted as so many `timeouts`."""
        if self.timeouts[slot] >= TIMEOUTS_MAX:
            return None
        try:
            async with asyncio.timeout(seconds):
                return await request()
        except TimeoutError:
            self.timeouts[slot] += timeouts
            self.silent.setdefault(slot, "no answer in time")
        except ProviderError as error:
            self.silent.setdefault(slot, str(error))
        return None


async def review(plane: Plane, caller: Caller) -> Review:
    """Compare every provider with the store, providers first; nothing is changed."""
    require_plane_admin(caller)
    at_providers: dict[str, dict[str, str]] = {}
    calls = _ReviewCalls()
    for slot in plane.providers:
        listing = partial(_list_owned, plane, slot)
        listed = await calls.call(slot, listing, seconds=LIST_SECONDS, timeouts=TIMEOUTS_MAX)
        at_providers |= {} if listed is None else {slot: listed}
    in_store: dict[str, set[str]] = {slot: set() for slot in at_providers}
    missing: list[Missing] = []
    agents: dict[AgentCondition, list[ReadyAgent]] = {one: [] for one in AgentCondition}
    ready: list[AgentRecord] = []
    async for agent in every(plane.store, AgentRecord):
        tenant, uid = agent.tenant, agent.uid
        for intent in await plane.store.list_resources(tenant, uid):
            slot, key = intent.slot, intent.key
            in_store.setdefault(slot, set()).add(key)
            is_listed = slot not in at_providers or key in at_providers[slot]
            if intent.state == IntentState.PRESENT and not is_listed:
                missing.append(Missing(uid, agent.name or "", tenant, slot, key))
        if agent.state == AgentState.READY and is_idle(agent):
            ready.append(agent)
        if len(ready) == AT_ONCE:
            await _group_by_condition(plane, calls, ready, agents)
            ready = []
    await _group_by_condition(plane, calls, ready, agents)
    unknown = [
        Unknown(slot, key, agent_of)
        for slot, keys in at_providers.items()
        for key, agent_of in keys.items()
        if key not in in_store[slot]
    ]
    resumed = [
        OpenOperation(row.id, row.tenant, row.plan_name, row.agent,
                str(row.state))
        async for row in every(plane.store, OperationRecord, {"ended_at": None})
    ]  # fmt: skip
    most = LISTED_MAX
    started, shut = agents[AgentCondition.NEEDS_RUNTIME], agents[AgentCondition.CLOSED]
    untold = agents[AgentCondition.UNVERIFIED]
    return Review(
        plane.pause.epoch, plane.pause.why, len(resumed), resumed[:most], len(missing),
        missing[:most], len(started), started[:most], len(shut), shut[:most],
        len(untold), untold[:most], len(unknown), unknown[:most],
        [f"{slot}: {why}" for slot, why in calls.silent.items()],
    )  # fmt: skip


async def _list_owned(plane: Plane, slot: str) -> dict[str, str]:
    """The keys of this plane's resources at a provider, each with the uid of its agent."""
    return {one.key: one.agent async for one in plane.providers[slot].list_owned(plane.id)}


async def _group_by_condition(
    plane: Plane,
    calls: _ReviewCalls,
    ready: Sequence[AgentRecord],
    agents: Mapping[AgentCondition, list[ReadyAgent]],
) -> None:
    """Add each of these agents to the list of its condition."""
    conditions = await asyncio.gather(*(_inspect_agent(plane, calls, one) for one in ready))
    for row, condition in zip(ready, conditions, strict=True):
        agents[condition].append(ReadyAgent(row.uid, row.name or "", row.tenant))


async def _inspect_agent(plane: Plane, calls: _ReviewCalls, row: AgentRecord) -> AgentCondition:
    """The condition of one agent; other resources are inspected only if its runtime is dead."""

    async def inspect(resource: AgentResource) -> AgentResource:
        request = partial(plane.providers[resource.slot].inspect, resource.key)
        return resource._replace(seen=await calls.call(resource.slot, request))

    resources = [
        await inspect(one) if one.slot == RUNTIME else one for one in await resources_of(plane, row)
    ]
    if any(one.is_dead for one in resources):
        resources = [one if one.slot == RUNTIME else await inspect(one) for one in resources]
    is_open_now = await calls.call(CREDENTIALS, partial(is_open, plane, row))
    return condition_of(row, resources, is_open=is_open_now)


async def confirm(
    plane: Plane, caller: Caller, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> None:
    """End the pause, so that operations continue; Conflict if the plane is not paused."""
    require_plane_admin(caller)
    pause = plane.pause
    if pause.must_restart:
        message = f"{pause.why}: it cannot be confirmed in this process"
        raise Conflict(message, code=ConflictCode.NOT_HELD)
    if not pause.why:
        raise Conflict(
            "the plane is not paused: there is nothing to confirm", code=ConflictCode.NOT_HELD
        )
    now, why = plane.store.now(), pause.why
    audit_row = audit_line(
        caller, "plane.confirm", target=plane.id, now=now, epoch=pause.epoch, why=why
    )
    guard = plane_rows.epoch_is(pause.epoch)
    change = Change("", (guard,), (plane_rows.end_pause(), audit_row))
    if await idempotency.commit(plane, change, None) is not None:
        raise Conflict(
            "another process has started a later epoch: restart this process",
            code=ConflictCode.NOT_HELD,
        )
    await pause.update_memo(pause_reason="")
    pause.confirmation.set()
