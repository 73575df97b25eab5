"""Operations as callers ask for them: accept, watch, cancel, signal, and an operator's exits.

Each verb reads, asks the saga whether it may, and commits one change guarded by the revision it has
read; if someone was faster it reads again and decides again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from msgspec import Struct, field
from msgspec.structs import replace

from tenure.app import views
from tenure.app.audit import entry
from tenure.app.changes import JOURNAL, OPERATION_KEY, Writing, event, intended, kept, noted
from tenure.app.findings import abandoned
from tenure.app.idempotency import Once, once, refuse_odd_key
from tenure.app.lifecycle import QUEUED
from tenure.app.live import OUTBOX, Live, input_of, read, record_of
from tenure.app.pages import every, page_of
from tenure.app.plane import Plane
from tenure.app.views import Operation
from tenure.core import decisions, saga
from tenure.core.agent import CLOSING
from tenure.core.errors import CommitUnknown, Conflict, Invalid, LimitExceeded, NotFound
from tenure.core.ids import uuid7
from tenure.core.limits import (
    IDENTIFIER_CHARACTERS_MAX,
    INPUT_BYTES_MAX,
    SIGNALS_MAX,
)
from tenure.core.operation import SETTLED, Hold, Noted, Record, State
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import (
    Change,
    Header,
    Is,
    Line,
    Loaded,
    Put,
    Ring,
    Row,
    Set,
    Writes,
    together,
)

IN_PROGRESS = "operation_in_progress"
AGENT = Header("agent", ("uid",), ("tenant", "generation", "operation"), adds=True)
OPERATION = Header(
    "operation",
    OPERATION_KEY,
    ("tenant", "principal", "kind", "plan", "agent", "generation", "state", "revision", "token",
     "worker", "due_at", "input", "created_at", "updated_at"),
    adds=True,
)  # fmt: skip


class Accept(Struct, frozen=True):
    """Ask for an operation.

    Args:
        plan: the plan's name; the newest version is used.
        agent: the agent's uid; empty makes a new one.
        input: plain data for the plan's steps.
        idempotency_key: the same key and request answer with the same operation for a day.
    """

    plan: str
    agent: str = ""
    input: Mapping[str, object] = field(default_factory=dict)
    tenant: str = "default"
    principal: str = "local"
    idempotency_key: str = ""
    route: str = "operations"
    """What the key is for: the same key may be used anew for another verb."""


class Ground(NamedTuple):
    """What a new operation stands on: its agent, and what must hold and be written with it."""

    agent: str
    generation: int
    guards: tuple[Is, ...] = ()
    writes: Writes = ()
    input: Mapping[str, object] | None = None
    """What the steps are given, if it is not what the caller sent."""
    rings: tuple[Ring, ...] = ()
    """Other operations that learn of it once it is on disk, whoever works on them."""
    headers: tuple[Header, ...] = ()
    lines: tuple[Line, ...] = ()
    is_new: bool = False
    """Nothing was ever told of this agent."""


Prepare = Callable[[float, str], Awaitable[Ground]]
"""Reads, and says what an operation of this id that begins now stands on; or refuses it."""


async def accept(plane: Plane, command: Accept) -> Operation:
    """Accept an operation: when this returns, it is on disk and will end."""
    _refuse_odd_name("agent", command.agent or "new")
    return await submit(plane, command, partial(_agent, plane, command))


async def submit(plane: Plane, command: Accept, prepare: Prepare) -> Operation:
    """Accept an operation on the ground that `prepare` finds; if that moved, look again."""
    plan = plane.catalogue.newest(command.plan)
    if not isinstance(command.input, dict):
        message = f"the input must be a dict of plain data, not a {type(command.input).__name__}"
        raise Invalid(message)
    text, given = kept(command.input, "the input", INPUT_BYTES_MAX)
    _refuse_odd_name("tenant", command.tenant)
    _refuse_odd_name("principal", command.principal)
    refuse_odd_key(command.idempotency_key)
    only = _once(command) if command.idempotency_key else None
    while True:
        now = plane.store.now()
        earlier = None if only is None else await only.holder(plane, now)
        if earlier:
            return await get(plane, command.tenant, earlier)
        operation = uuid7(now, plane.entropy.bits())
        try:
            ground = await prepare(now, operation)
        except Conflict:
            # What stands in the way may be the same request, accepted since we looked for it.
            twin = None if only is None else await only.holder(plane, now)
            if not twin:
                raise
            return await get(plane, command.tenant, twin)
        if ground.input is not None:
            text, given = kept(ground.input, "the input", INPUT_BYTES_MAX)
        live = Live(
            operation,
            tenant=command.tenant,
            kind=plan.name,
            agent=ground.agent,
            generation=ground.generation,
            input=given,
            plan=plan,
            plane=plane.id,
        )
        worker = plane.engine.worker
        if worker:
            live.token, live.worker, live.state = 1, worker, State.RUNNING
        keyed = () if only is None else only.kept(operation, now)
        writing = _accepted(live, command.principal, ground, keyed, text=text, now=now)
        try:
            refused = await plane.store.commit(writing.change)
        except CommitUnknown as error:
            message = f"{error} Whether operation {live.id} was accepted is known then."
            raise CommitUnknown(message) from None
        if refused is None:
            live.progress.since = now
            writing.take_effect(live)
            for ring in ground.rings:
                plane.engine.wake(ring.operation, interrupt=ring.interrupt)
            plane.engine.take(live)
            return views.accepted(live, now)


def _accepted(
    live: Live, principal: str, ground: Ground, keyed: tuple[Put, ...], *, text: str, now: float
) -> Writing:
    """A new operation on its ground: it, its first record, its event and its first intents."""
    headers = [*ground.headers, OPERATION, JOURNAL, OUTBOX]
    lines: list[Line] = [
        *ground.lines,
        (live.id, live.tenant, principal, live.kind, live.plan.digest, live.agent,
         live.generation, live.state, 1, live.token, live.worker, 0.0, text, now, now),
        (live.id, 1, live.tenant, Noted.ACCEPTED, "", now, "{}"),
        event(live, Noted.ACCEPTED, "", live.state, now=now, first=ground.is_new),
    ]  # fmt: skip
    fresh = intended(live, 0, headers, lines)
    # What closes an agent may use the room that is kept for accepted work.
    admits = live.kind not in CLOSING
    rings = ground.rings if live.worker else (Ring(live.id, unclaimed=True), *ground.rings)
    change = Change(
        live.id, ground.guards, keyed, admits,
        ring=together(*rings), headers=headers, lines=lines,
    )  # fmt: skip
    if ground.writes:  # they come first: what they tell of the agent is told first
        change = change.plain()
        change = replace(change, writes=ground.writes + change.writes)
    return Writing(change, live.progress, live.state, 0.0, 1, {}, fresh)


def _once(command: Accept) -> Once:
    request = [command.plan, command.agent, command.input]
    who = command.tenant, command.principal
    return once(*who, command.route, command.idempotency_key, request, of_operation=True)


def _refuse_odd_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or not name:
        message = f"a {what} is named by printable text, not by {name!r}"
        raise Invalid(message)
    if len(name) > IDENTIFIER_CHARACTERS_MAX:
        message = f"a {what}'s name has at most {IDENTIFIER_CHARACTERS_MAX} characters"
        raise LimitExceeded(message)


async def _agent(plane: Plane, command: Accept, now: float, operation: str) -> Ground:
    """The agent, the generation that this operation will be, and what makes it the only one."""
    uid = command.agent or uuid7(now, plane.entropy.bits())
    row = await plane.store.find("agent", (uid,)) if command.agent else None
    if row is None:
        line = (uid, command.tenant, 1, operation)
        return Ground(uid, 1, headers=(AGENT,), lines=(line,), is_new=not command.agent)
    if row["tenant"] != command.tenant:
        message = f"there is no agent {uid}"
        raise NotFound(message)
    refuse_held(row)
    generation = cast(int, row["generation"])
    free: Row = {"generation": generation, "operation": None, "next": None}
    taken: Row = {"generation": generation + 1, "operation": operation}
    guard, write = Is("agent", (uid,), free), Set("agent", (uid,), taken)
    return Ground(uid, generation + 1, (guard,), (write,))


def refuse_held(agent: Row) -> None:
    """Conflict if an operation works on this agent, or waits to."""
    holder = str(agent["operation"] or agent["next"] or "")
    if holder:
        message = f"operation {holder} works on this agent; wait for it or cancel it"
        raise Conflict(message, code=IN_PROGRESS, holder=holder)


async def get(plane: Plane, tenant: str, operation: str) -> Operation:
    """One operation with its steps; NotFound if this tenant has none of that id."""
    live, row = await _live(plane, tenant, operation, only_look=True)
    return views.operation(live, row)


async def records_after(
    plane: Plane, operation: str, last: int, *, unless: object = None
) -> tuple[object, State, list[Record]] | None:
    """What was recorded after this one: the revision now, where the operation stands, the records.

    None if the revision is still the one that was seen before, or there is no such operation.
    """
    row = await plane.store.find("operation", (operation,))
    if row is None or row["revision"] == unless:
        return None
    loaded = cast(Loaded, await plane.store.load(operation))
    state = State(cast(str, loaded.operation["state"]))
    return row["revision"], state, [record_of(row) for row in loaded.journal[last:]]


async def list_operations(
    plane: Plane,
    tenant: str,
    *,
    agent: str = "",
    states: Sequence[str] = (),
    after: str = "",
    limit: int = 100,
) -> list[Row]:
    """Operations of a tenant, oldest first, as rows; `after` is the last id of the page before.

    `agent` is a uid: only of that one.
    """
    if isinstance(states, str) or not set(State).issuperset(states):
        message = f"states are a tuple of {', '.join(State)}; not {states!r}"
        raise Invalid(message)
    limit = page_of(limit)
    if not agent:
        rows = await plane.store.list_operations(tenant, states=states, after=after, limit=limit)
        return list(rows)
    found: list[Row] = []
    async for row in every(plane.store, "operation", {"agent": agent}, after=(after,)):
        if row["tenant"] == tenant and (not states or row["state"] in states):
            found.append(row)
            if len(found) == limit:
                break
    return found


async def wait(plane: Plane, tenant: str, operation: str, *, seconds: float = 60.0) -> Operation:
    """The operation when it has ended or is STUCK, or as it stands after so many seconds."""
    until = plane.store.now() + seconds
    while True:
        seen = await get(plane, tenant, operation)
        left = until - plane.store.now()
        if seen.state in SETTLED or left <= 0:
            return seen
        await plane.engine.wait(operation, min(left, 1.0))


async def cancel(plane: Plane, caller: Caller, operation: str) -> Operation:
    """Undo all of it; Conflict `past_pivot` once the pivot is intended, `ended` at the end."""

    def decide(live: Live, now: float) -> Writing | None:
        if live.progress.compensating_at is not None:
            return None  # being undone already
        back = turned_back(live, {"why": f"cancelled by {caller.principal}"}, now)
        if back is None:
            pivot = live.plan.stages[live.plan.pivot_stage][0].name
            message = f"{pivot} is under way or done, after which there is only forward"
            raise Conflict(message, code="past_pivot", holder=live.id)
        return back

    await _refuse_before_its_turn(plane, caller.tenant, operation)
    return await _decide(plane, caller, operation, decide, verb="cancel", interrupt=True)


def turned_back(live: Live, body: Mapping[str, object], now: float) -> Writing | None:
    """Record that it is to be undone; None if it is past its pivot: then there is only forward."""
    unclaimed = live.state is State.PENDING
    if not unclaimed and saga.past_pivot(live.plan, live.progress):
        return None
    said = {**body, "unclaimed": True} if unclaimed else body
    return noted(live, Noted.COMPENSATING, "", said, now)


async def signal(
    plane: Plane, caller: Caller, operation: str, *, name: str, payload: object = None
) -> Operation:
    """Tell an operation something it waits for, or will wait for."""
    _refuse_odd_name("signal", name)
    if name.startswith("tenure:"):
        message = f"a signal of a caller is not called {name!r}: what begins with tenure: is ours"
        raise Invalid(message)

    def decide(live: Live, now: float) -> Writing:
        count = sum(len(payloads) for payloads in live.progress.signals.values())
        if count >= SIGNALS_MAX:
            message = f"operation {live.id} has {count} signals already, which is the most it keeps"
            raise LimitExceeded(message)
        body = {"signal": name, "payload": payload, "by": caller.principal}
        return noted(live, Noted.SIGNALLED, "", body, now)

    return await _decide(plane, caller, operation, decide, verb="signal")


async def retry(plane: Plane, caller: Caller, operation: str) -> Operation:
    """Try what is stuck again, now; its clock starts anew."""

    def decide(live: Live, now: float) -> Writing:
        _must_be_stuck(live)
        said = decisions.retried(live.progress)
        return noted(live, Noted.RETRIED, "", {"by": caller.principal}, now, said=said)

    return await _decide(plane, caller, operation, decide, verb="retry")


async def adopt(
    plane: Plane, caller: Caller, operation: str, *, step: str, result: object = None
) -> Operation:
    """An operator's word that a stuck step did happen: it counts as done, with this result."""

    def decide(live: Live, now: float) -> Writing:
        _must_be_stuck(live, step)
        if live.progress.compensating_at is not None and live.plan.steps[step].undoes:
            message = f"operation {live.id} is being undone; say mark-absent or abandon"
            raise Conflict(message, code="compensating", holder=live.id)
        said = decisions.adopted(live.intents[step], caller.principal)
        return noted(live, Noted.ADOPTED, step, result, now, said=said)

    return await _decide(plane, caller, operation, decide, verb="adopt")


async def mark_absent(plane: Plane, caller: Caller, operation: str, *, step: str) -> Operation:
    """An operator's word that a stuck step holds nothing: do it again, or count it undone."""

    def decide(live: Live, now: float) -> Writing:
        _must_be_stuck(live, step)
        said = decisions.marked_absent(live.progress, live.intents[step], caller.principal)
        return noted(live, Noted.MARKED_ABSENT, step, {"by": caller.principal}, now, said=said)

    return await _decide(plane, caller, operation, decide, verb="mark_absent")


async def abandon(plane: Plane, caller: Caller, operation: str) -> Operation:
    """End a stuck operation as it is; the answer lists what was left behind."""

    def decide(live: Live, now: float) -> Writing:
        _must_be_stuck(live)
        left = [
            {"step": intent.step, "key": intent.key, "state": intent.state}
            for intent in live.intents.values()
            if intent.state is not Hold.BURNED
        ]
        writing = noted(live, Noted.ABANDONED, "", {"by": caller.principal, "left": left}, now)
        told = abandoned(
            caller.tenant, live.agent, live.id, kind=live.kind, by=caller.principal, now=now
        )
        writing.change = replace(writing.change, writes=(*writing.change.writes, told))
        return writing

    return await _decide(plane, caller, operation, decide, verb="abandon", interrupt=True)


async def _refuse_before_its_turn(plane: Plane, tenant: str, operation: str) -> None:
    """An operation that has closed its agent cannot be taken back until its turn has come."""
    row = await plane.store.find("operation", (operation,))
    if row is None or row["tenant"] != tenant or row["kind"] not in CLOSING:
        return
    if input_of(row).get(QUEUED):
        return
    agent = await plane.store.find("agent", (str(row["agent"]),))
    if agent is not None and agent["next"] == operation:
        message = (
            f"operation {operation} has closed the agent and waits for {agent['operation']!s};"
            " cancel it once that has ended"
        )
        raise Conflict(message, code="not_its_turn", holder=operation)


def _must_be_stuck(live: Live, step: str = "") -> None:
    if step and step not in live.plan.steps:
        message = f"operation {live.id} has no step {step!r}; it has {', '.join(live.plan.steps)}"
        raise NotFound(message)
    if not live.progress.stuck or (step and step not in live.progress.stuck):
        stuck = ", ".join(sorted(live.progress.stuck))
        what = f"step {step} of operation {live.id}" if step else f"operation {live.id}"
        there = f"stuck there: {stuck}" if stuck else f"it is {live.state}; cancel it, or wait"
        message = f"{what} is not stuck: {there}"
        raise Conflict(message, code="not_stuck", holder=live.id)


async def _live(
    plane: Plane, tenant: str, operation: str, *, only_look: bool = False
) -> tuple[Live, Row]:
    live = await read(plane.store, plane.catalogue, plane.id, operation, only_look=only_look)
    if live is None or live.tenant != tenant:
        message = f"there is no operation {operation}"
        raise NotFound(message)
    row = await plane.store.find("operation", (operation,))
    return live, row or {}


async def _decide(
    plane: Plane,
    caller: Caller,
    operation: str,
    decide: Callable[[Live, float], Writing | None],
    *,
    verb: str,
    interrupt: bool = False,
) -> Operation:
    """Commit what `decide` says of the operation; read again while others are faster."""
    require(caller, Role.OPERATOR)
    while True:
        live, row = await _live(plane, caller.tenant, operation)
        if live.progress.end is not None:
            message = f"operation {operation} has ended as {live.progress.end}"
            raise Conflict(message, code="ended", holder=operation)
        live.due_at = None  # so that it is set: a poll may have moved it, and raises no revision
        now = plane.store.now()
        writing = decide(live, now)
        if writing is None:
            return views.operation(live, row)
        told = entry(caller, f"operation.{verb}", target=operation, now=now, record=writing.seq)
        ring = Ring(operation, interrupt=interrupt)
        change = replace(writing.change, writes=(*writing.change.writes, told), ring=ring)
        if await plane.store.commit(change) is None:
            writing.take_effect(live)
            plane.engine.wake(operation, interrupt=interrupt)
            return views.operation(live, {**row, "updated_at": now})
