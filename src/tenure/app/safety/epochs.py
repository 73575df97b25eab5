"""Notices that a store is not what it was, holds the plane then, and lets it go when told.

A plane is held when its store was restored, or an older copy was put in its place.  It answers
reads and moves nothing, until an operator has seen what would happen and confirms.  What is
remembered for this lies outside the store, and can only rise.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, cast

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import every
from tenure.app.plane import PLANE_ROW, Plane
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
from tenure.core.records import AuditRecord, OperationRecord, PlaneRecord
from tenure.core.roles import Caller, Role
from tenure.ports.store import Change, Is, Row, Set

LOOK_SECONDS = 30.0
"""How long a provider may take to say what it holds."""
ASK_SECONDS = 10.0
"""How long it may take to say one thing of one agent."""
CALLS = 2
"""So many that are not answered in time, and it is asked no more."""
AT_ONCE = 16
"""Agents that are asked about side by side."""
LISTED_MAX = 1_000
"""Findings of one kind that a review lists; it counts them all."""
Answer = TypeVar("Answer")


# --- at the start, and now and then ---------------------------------------------------------------


async def compare(plane: Plane) -> None:
    """Compare the store with what is remembered outside it, before anything moves.

    A store that lacks what was seen in it before is an older copy: a new epoch begins, and the
    plane is held.  A greater epoch in the store was begun by another process, and is taken over.
    """
    hold = plane.pause
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    stored = None if row is None else row.epoch
    theirs = stored or 1
    held = (row and row.held) or ""
    if theirs > hold.epoch:
        await hold.remember(epoch=theirs, held=hold.why or held, position=0, head="")
    elif not hold.why:
        older = await _older(plane, theirs)
        if older:
            await hold.remember(epoch=hold.epoch + 1, held=older, position=0, head="")
        elif held and theirs == hold.epoch:
            await hold.remember(held=held)
    if hold.epoch > theirs or stored is None:
        await _begin(plane, theirs)
    await note(plane)


async def _older(plane: Plane, theirs: int) -> str:
    """What shows that the store is older than what was seen of it; empty: nothing does."""
    hold = plane.pause
    if theirs < hold.epoch:
        return f"the store is of epoch {theirs}, and this home has seen {hold.epoch}"
    if not await _has_last(plane):
        at = hold.memo.position
        return f"line {at} of the audit log is not the one that was seen here before"
    return await watermark.find_missing(plane)


async def _has_last(plane: Plane) -> bool:
    """Whether the last line of the audit log that was seen here is still as it was."""
    memo = plane.pause.memo
    if not memo.position:
        return True
    line = await plane.store.find(AuditRecord, (memo.position,))
    return line is not None and line.hash == memo.head


async def _begin(plane: Plane, theirs: int) -> None:
    """Write the epoch to the store; if it is a later one, no number of an agent is used again."""
    hold = plane.pause
    said: Row = {"epoch": hold.epoch, "held": hold.why or None}
    if hold.epoch == theirs:
        await plane.store.commit(Change("", (), (Set("plane", PLANE_ROW, said),)))
        return
    async for agent in every(plane.store, "agent"):
        raised: Row = {
            column: hold.epoch * SPAN + value % SPAN
            for column in ("generation", "epoch")
            if (value := cast("int | None", agent[column])) is not None
        }
        await plane.store.commit(Change("", (), (Set("agent", (str(agent["uid"]),), raised),)))
    await plane.store.begin_epoch(hold.epoch)
    owner = Caller(TENANT, "plane", Role.ADMIN)
    told = entry(
        owner, "plane.hold", target=plane.id, now=plane.store.now(), epoch=hold.epoch,
        before=theirs, why=hold.why,
    )  # fmt: skip
    await plane.store.commit(Change("", (), (Set("plane", PLANE_ROW, said), told)))


async def note(plane: Plane) -> None:
    """Remember the last line of the audit log outside the store, and raise its watermark.

    If the one that is remembered is not there any more, it stays: a verification tells of it, and
    the next start holds the plane.
    """
    hold = plane.pause
    if not await _has_last(plane):
        return
    position, head = hold.memo.position, hold.memo.head
    while rows := await plane.store.list_rows(AuditRecord, {}, after=(position,), limit=PAGE_MAX):
        position, head = rows[-1].position, rows[-1].hash
    await hold.remember(position=position, head=head)
    if plane.shared and hold.has_watermarks and not hold.why:
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
    pause.is_over = True


async def follow(plane: Plane) -> bool:
    """Whether this process must let go: another has begun a later epoch, or holds the plane.

    From then on it is held itself, until it is started anew.  What was held from the start is let
    go once another process was told so.
    """
    hold = plane.pause
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    epoch, held = (row and row.epoch) or 1, (row and row.held) or ""
    if hold.why and not hold.is_over and epoch == hold.epoch and not held:
        await hold.remember(held="")
        hold.let_go.set()
    if hold.why or (epoch <= hold.epoch and not held):
        return False
    why = held or f"epoch {epoch} was begun elsewhere"
    hold.memo = hold.memo._replace(
        epoch=max(epoch, hold.epoch), held=f"{why}: start this process anew"
    )
    hold.is_over = True
    return True


# --- what an operator asks -----------------------------------------------------------------------


class OpenOperation(NamedTuple):
    """An open operation, which goes on once the plane is let go."""

    operation: str
    tenant: str
    kind: str
    agent: str
    state: str


class Missing(NamedTuple):
    """Something that the store says an agent holds, and its provider does not have."""

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
    """Something of this plane's that a provider has and the store knows nothing of."""

    slot: str
    key: str
    agent: str


class Review(NamedTuple):
    """What letting the plane go would mean; lists hold the first thousand of each kind."""

    epoch: int
    held: str
    open_operations: int
    resumed: list[OpenOperation]
    missing_resources: int
    missing: list[Missing]
    started_agents: int
    started: list[ReadyAgent]
    """Those whose runtime alone is missing or dead: drift starts them again, where it repairs."""
    shut_agents: int
    shut: list[ReadyAgent]
    """Those whose credentials are shut: suspended since.  They are not started again."""
    untold_agents: int
    untold: list[ReadyAgent]
    """Those of which nobody can tell yet: a provider says nothing, or something else differs."""
    unknown_resources: int
    unknown: list[Unknown]
    silent: list[str]
    """Providers that did not say what they hold, or what they were asked, and why."""


class _Asked:
    """Providers that are asked for a review, and what those said that gave no answer."""

    def __init__(self) -> None:
        self.silent: dict[str, str] = {}
        self.missed = Counter[str]()

    async def ask(
        self, slot: str, question: Callable[[], Awaitable[Answer]], *,
        seconds: float = ASK_SECONDS, counts: int = 1,
    ) -> Answer | None:  # fmt: skip
        """None if it cannot be told; not answered in time, it counts as so many calls."""
        if self.missed[slot] >= CALLS:
            return None
        try:
            async with asyncio.timeout(seconds):
                return await question()
        except TimeoutError:
            self.missed[slot] += counts
            self.silent.setdefault(slot, "no answer in time")
        except ProviderError as error:
            self.silent.setdefault(slot, str(error))
        return None


async def review(plane: Plane, caller: Caller) -> Review:
    """Compare every provider with the store, providers first; nothing is changed."""
    require_owner(caller)
    theirs: dict[str, dict[str, str]] = {}
    asked = _Asked()
    for slot, provider in plane.providers.items():
        if hasattr(provider, "list_owned"):
            lists = partial(_list, plane, slot)
            said = await asked.ask(slot, lists, seconds=LOOK_SECONDS, counts=CALLS)
            theirs |= {} if said is None else {slot: said}
    ours: dict[str, set[str]] = {slot: set() for slot in theirs}
    missing: list[Missing] = []
    stand: dict[Standing, list[ReadyAgent]] = {stands: [] for stands in Standing}
    ready: list[Row] = []
    async for agent in every(plane.store, "agent"):
        tenant, uid = str(agent["tenant"]), str(agent["uid"])
        for intent in await plane.store.list_resources(tenant, uid):
            slot, key = intent.slot, intent.key
            ours.setdefault(slot, set()).add(key)
            if intent.state == IntentState.PRESENT and slot in theirs and key not in theirs[slot]:
                missing.append(Missing(uid, str(agent["name"] or ""), tenant, slot, key))
        if agent["state"] == AgentState.READY and is_at_rest(agent):
            ready.append(agent)
        if len(ready) == AT_ONCE:
            await _sort(plane, asked, ready, stand)
            ready = []
    await _sort(plane, asked, ready, stand)
    unknown = [
        Unknown(slot, key, agent_of)
        for slot, held in theirs.items()
        for key, agent_of in held.items()
        if key not in ours[slot]
    ]
    resumed = [
        OpenOperation(row.id, row.tenant, row.kind, row.agent,
                str(row.state))
        async for row in every(plane.store, OperationRecord, {"ended_at": None})
    ]  # fmt: skip
    most = LISTED_MAX
    started, shut, untold = (
        stand[one] for one in (Standing.REPLACED, Standing.SHUT, Standing.UNTOLD)
    )
    return Review(
        plane.pause.epoch, plane.pause.why, len(resumed), resumed[:most], len(missing),
        missing[:most], len(started), started[:most], len(shut), shut[:most],
        len(untold), untold[:most], len(unknown), unknown[:most],
        [f"{slot}: {why}" for slot, why in asked.silent.items()],
    )  # fmt: skip


async def _list(plane: Plane, slot: str) -> dict[str, str]:
    """What a provider holds, and whose it is."""
    return {one.key: one.agent async for one in plane.providers[slot].list_owned(plane.id)}


async def _sort(
    plane: Plane, asked: _Asked, ready: Sequence[Row], stand: Mapping[Standing, list[ReadyAgent]]
) -> None:
    """Put agents to those that stand as they do."""
    all_stand = await asyncio.gather(*(_stands(plane, asked, one) for one in ready))
    for row, stands in zip(ready, all_stand, strict=True):
        stand[stands].append(ReadyAgent(str(row["uid"]), str(row["name"]), str(row["tenant"])))


async def _stands(plane: Plane, asked: _Asked, row: Row) -> Standing:
    """How one agent stands; all else of it is asked about only if its runtime is dead."""

    async def seen(held: AgentResource) -> AgentResource:
        inspect = partial(plane.providers[held.slot].inspect, held.key)
        return held._replace(seen=await asked.ask(held.slot, inspect))

    held = [await seen(one) if one.slot == RUNTIME else one for one in await held_by(plane, row)]
    if any(one.is_dead for one in held):
        held = [one if one.slot == RUNTIME else await seen(one) for one in held]
    opened = await asked.ask(CREDENTIALS, partial(is_open, plane, row))
    return standing(row, held, is_open=opened)


async def confirm(
    plane: Plane, caller: Caller, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> None:
    """Let the plane go: operations move again.  Twice is a Conflict."""
    require_owner(caller)
    hold = plane.pause
    if hold.is_over:
        raise Conflict(f"{hold.why}: it is not to be confirmed here", code=ConflictCode.NOT_HELD)
    if not hold.why:
        raise Conflict(
            "the plane is not held: there is nothing to confirm", code=ConflictCode.NOT_HELD
        )
    now, why = plane.store.now(), hold.why
    told = entry(caller, "plane.confirm", target=plane.id, now=now, epoch=hold.epoch, why=why)
    epoch = Is("plane", PLANE_ROW, {"epoch": hold.epoch})
    change = Change("", (epoch,), (Set("plane", PLANE_ROW, {"held": None}), told))
    if await idempotency.commit(plane, change, None) is not None:
        raise Conflict(
            "a later epoch was begun elsewhere: start this process anew", code=ConflictCode.NOT_HELD
        )
    await hold.remember(held="")
    hold.let_go.set()
