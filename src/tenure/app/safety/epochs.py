"""Pauses the plane when its store has gone backwards, until an operator confirms.

The plane is paused when its store was restored or replaced by an older copy.  A paused plane
answers reads and moves no operation, until an operator has reviewed what would follow and confirms.
The memo by which this is noticed is kept outside the store, and its numbers only rise.
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
from tenure.app.safety.pause import SPAN
from tenure.app.safety.standing import (
    CREDENTIALS,
    RUNTIME,
    AgentResource,
    Standing,
    held_by,
    is_at_rest,
    is_open,
    standing,
)
from tenure.app.tenancy.audit import entry
from tenure.app.tenancy.tokens import TENANT, require_owner
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


async def compare(plane: Plane) -> None:
    """Compare the store with the memo outside it, before any operation moves.

    A store that lacks rows which it had before is an older copy: a new epoch begins, and the plane
    is paused.  If the store has a greater epoch, another process has begun it, and it is adopted.
    """
    pause = plane.pause
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    stored = None if row is None else row.epoch
    theirs = stored or 1
    held = (row and row.held) or ""
    if theirs > pause.epoch:
        await pause.remember(epoch=theirs, held=pause.why or held, position=0, head="")
    elif not pause.why:
        older = await _reason_store_is_older(plane, theirs)
        if older:
            await pause.remember(epoch=pause.epoch + 1, held=older, position=0, head="")
        elif held and theirs == pause.epoch:
            await pause.remember(held=held)
    if pause.epoch > theirs or stored is None:
        await _write_epoch(plane, theirs)
    await note(plane)


async def _reason_store_is_older(plane: Plane, theirs: int) -> str:
    """Why the store is older than it was; empty if nothing shows that."""
    pause = plane.pause
    if theirs < pause.epoch:
        return f"the store is of epoch {theirs}, and this home has seen {pause.epoch}"
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


async def _write_epoch(plane: Plane, theirs: int) -> None:
    """Write the epoch to the store; for a later one, raise the numbers of all agents first."""
    pause = plane.pause
    write = plane_rows.set_epoch(pause.epoch, pause.why or None)
    if pause.epoch == theirs:
        await plane.store.commit(Change("", (), (write,)))
        return
    async for agent in every(plane.store, AgentRecord):
        raised = agent_rows.set_numbers(
            agent,
            generation=pause.epoch * SPAN + agent.generation % SPAN,
            epoch=None if agent.epoch is None else pause.epoch * SPAN + agent.epoch % SPAN,
        )
        await plane.store.commit(Change("", (), (raised,)))
    await plane.store.begin_epoch(pause.epoch)
    owner = Caller(TENANT, "plane", Role.ADMIN)
    audit_row = entry(
        owner, "plane.hold", target=plane.id, now=plane.store.now(), epoch=pause.epoch,
        before=theirs, why=pause.why,
    )  # fmt: skip
    await plane.store.commit(Change("", (), (write, audit_row)))


async def note(plane: Plane) -> None:
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
    await pause.remember(position=position, head=head)
    if plane.shared and pause.has_watermarks and not pause.why:
        await watermark.raise_watermark(plane)


async def pause_if_rewound(plane: Plane) -> bool:
    """Whether this process must stop: the store lacks the watermark that the home has."""
    why = "" if plane.pause.why else await watermark.find_missing(plane)
    if why:
        await pause_after_rewind(plane, why)
    return bool(why)


async def pause_after_rewind(plane: Plane, why: str) -> None:
    """Pause the plane in a new epoch, as after a restore; this process does nothing more in it.

    That is written to the home first: the next start begins the epoch in the store, and waits for
    an operator who confirms.
    """
    pause = plane.pause
    if pause.why:
        return
    await pause.remember(epoch=pause.epoch + 1, held=why, position=0, head="")
    pause.memo = pause.memo._replace(held=f"{why}: start this process anew")
    pause.must_restart = True


async def follow(plane: Plane) -> bool:
    """Whether this process must stop: another one has begun a later epoch, or paused the plane.

    From then on this process is paused until it is started again.  A pause since the start ends
    here once another process has received the operator's confirmation.
    """
    pause = plane.pause
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    epoch, held = (row and row.epoch) or 1, (row and row.held) or ""
    if pause.why and not pause.must_restart and epoch == pause.epoch and not held:
        await pause.remember(held="")
        pause.confirmation.set()
    if pause.why or (epoch <= pause.epoch and not held):
        return False
    why = held or f"epoch {epoch} was begun elsewhere"
    pause.memo = pause.memo._replace(
        epoch=max(epoch, pause.epoch), held=f"{why}: start this process anew"
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
    """A resource that an agent holds by the store, and that its provider does not have."""

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
    """Agents that only lack their runtime; drift starts it again, if it repairs."""
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
        self, slot: str, question: Callable[[], Awaitable[Answer]], *,
        seconds: float = CALL_SECONDS, counts: int = 1,
    ) -> Answer | None:  # fmt: skip
        """The answer; None if the call failed.  A timeout counts as `counts` timeouts."""
        if self.timeouts[slot] >= TIMEOUTS_MAX:
            return None
        try:
            async with asyncio.timeout(seconds):
                return await question()
        except TimeoutError:
            self.timeouts[slot] += counts
            self.silent.setdefault(slot, "no answer in time")
        except ProviderError as error:
            self.silent.setdefault(slot, str(error))
        return None


async def review(plane: Plane, caller: Caller) -> Review:
    """Compare every provider with the store, providers first; nothing is changed."""
    require_owner(caller)
    theirs: dict[str, dict[str, str]] = {}
    calls = _ReviewCalls()
    for slot, provider in plane.providers.items():
        if hasattr(provider, "list_owned"):
            lists = partial(_list_owned, plane, slot)
            listed = await calls.call(slot, lists, seconds=LIST_SECONDS, counts=TIMEOUTS_MAX)
            theirs |= {} if listed is None else {slot: listed}
    ours: dict[str, set[str]] = {slot: set() for slot in theirs}
    missing: list[Missing] = []
    stand: dict[Standing, list[ReadyAgent]] = {stands: [] for stands in Standing}
    ready: list[AgentRecord] = []
    async for agent in every(plane.store, AgentRecord):
        tenant, uid = agent.tenant, agent.uid
        for intent in await plane.store.list_resources(tenant, uid):
            slot, key = intent.slot, intent.key
            ours.setdefault(slot, set()).add(key)
            if intent.state == IntentState.PRESENT and slot in theirs and key not in theirs[slot]:
                missing.append(Missing(uid, agent.name or "", tenant, slot, key))
        if agent.state == AgentState.READY and is_at_rest(agent):
            ready.append(agent)
        if len(ready) == AT_ONCE:
            await _group_by_standing(plane, calls, ready, stand)
            ready = []
    await _group_by_standing(plane, calls, ready, stand)
    unknown = [
        Unknown(slot, key, agent_of)
        for slot, held in theirs.items()
        for key, agent_of in held.items()
        if key not in ours[slot]
    ]
    resumed = [
        OpenOperation(row.id, row.tenant, row.plan_name, row.agent,
                str(row.state))
        async for row in every(plane.store, OperationRecord, {"ended_at": None})
    ]  # fmt: skip
    most = LISTED_MAX
    started, shut, untold = (
        stand[one] for one in (Standing.NEEDS_RUNTIME, Standing.CLOSED, Standing.UNVERIFIED)
    )
    return Review(
        plane.pause.epoch, plane.pause.why, len(resumed), resumed[:most], len(missing),
        missing[:most], len(started), started[:most], len(shut), shut[:most],
        len(untold), untold[:most], len(unknown), unknown[:most],
        [f"{slot}: {why}" for slot, why in calls.silent.items()],
    )  # fmt: skip


async def _list_owned(plane: Plane, slot: str) -> dict[str, str]:
    """The keys that a provider holds, each with the uid of its agent."""
    return {one.key: one.agent async for one in plane.providers[slot].list_owned(plane.id)}


async def _group_by_standing(
    plane: Plane,
    calls: _ReviewCalls,
    ready: Sequence[AgentRecord],
    stand: Mapping[Standing, list[ReadyAgent]],
) -> None:
    """Add each of these agents to the list of its standing."""
    all_stand = await asyncio.gather(*(_standing_of(plane, calls, one) for one in ready))
    for row, stands in zip(ready, all_stand, strict=True):
        stand[stands].append(ReadyAgent(row.uid, row.name or "", row.tenant))


async def _standing_of(plane: Plane, calls: _ReviewCalls, row: AgentRecord) -> Standing:
    """The standing of one agent; other resources are inspected only if its runtime is dead."""

    async def inspected(held: AgentResource) -> AgentResource:
        inspect = partial(plane.providers[held.slot].inspect, held.key)
        return held._replace(seen=await calls.call(held.slot, inspect))

    held = [
        await inspected(one) if one.slot == RUNTIME else one for one in await held_by(plane, row)
    ]
    if any(one.is_dead for one in held):
        held = [one if one.slot == RUNTIME else await inspected(one) for one in held]
    is_open_now = await calls.call(CREDENTIALS, partial(is_open, plane, row))
    return standing(row, held, is_open=is_open_now)


async def confirm(
    plane: Plane, caller: Caller, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> None:
    """End the pause, so that operations move again; Conflict if the plane is not paused."""
    require_owner(caller)
    pause = plane.pause
    if pause.must_restart:
        raise Conflict(f"{pause.why}: it is not to be confirmed here", code=ConflictCode.NOT_HELD)
    if not pause.why:
        raise Conflict(
            "the plane is not held: there is nothing to confirm", code=ConflictCode.NOT_HELD
        )
    now, why = plane.store.now(), pause.why
    audit_row = entry(caller, "plane.confirm", target=plane.id, now=now, epoch=pause.epoch, why=why)
    guard = plane_rows.epoch_is(pause.epoch)
    change = Change("", (guard,), (plane_rows.end_pause(), audit_row))
    if await idempotency.commit(plane, change, None) is not None:
        raise Conflict(
            "a later epoch was begun elsewhere: start this process anew", code=ConflictCode.NOT_HELD
        )
    await pause.remember(held="")
    pause.confirmation.set()
