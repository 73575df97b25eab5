"""Turns what the saga decided into a `Change`: journal, state, intents and event in one value.

Nothing is decided here, and nothing in memory changes before the store has said yes
(`take_effect`).
"""

from dataclasses import replace
from typing import Any

from tenure.app.lifecycle import VERBS, agent_writes, tombstones
from tenure.app.live import OUTBOX, POSITION, Live, decode, encode, sequence_of
from tenure.core import saga
from tenure.core.errors import Defect, Invalid, LimitExceeded
from tenure.core.events import event_of
from tenure.core.limits import DEPTH_MAX, RESULT_BYTES_MAX
from tenure.core.operation import (
    OPERATION,
    PENDING,
    RUNNING,
    STUCK,
    Hold,
    Intent,
    Noted,
    Record,
    State,
)
from tenure.core.plain import refuse_odd
from tenure.core.plan import Step
from tenure.core.progress import Progress
from tenure.core.saga import Columns, Said, Settled
from tenure.ports.store import Add, Change, Is, Ring, Row, Set, Write

JOURNAL = ("journal", "tenant", "kind", "step", "at", "body")
INTENT = ("intent", "tenant", "slot", "key", "state", "token", "attempts", "due_at")
IMPLIED: Columns = {"state": Hold.PRESENT}
"""Not written: the record that a step is done says so already (see `Live.merge`)."""
BYTES_A_CHARACTER = 4
"""The most that UTF-8 needs."""


def kept(
    body: object, what: str = "a result or payload", limit: int = RESULT_BYTES_MAX
) -> tuple[str, Any]:
    """The text under which a body is kept, and the body as it is read back from there.

    Invalid if it is no plain data, LimitExceeded if it is too much of it.
    """
    try:
        text = encode(body)
        value = decode(text)
    except (TypeError, ValueError, RecursionError) as error:
        refuse_odd(body, what)  # it knows best what is odd
        message = f"{what} must be plain data: {error}"
        raise Invalid(message) from None
    if value != body or text.count("[") + text.count("{") > DEPTH_MAX:
        refuse_odd(body, what)  # a tuple is read back as a list; anything else is odd, or too deep
    if len(text) * BYTES_A_CHARACTER > limit and (size := len(text.encode())) > limit:
        message = f"{what} has at most {limit} bytes as JSON; this one has {size}"
        raise LimitExceeded(message)
    return text, value


class Writing:
    """A change on its way to the store, and what it means in memory once it is there."""

    __slots__ = ("change", "due_at", "fresh", "progress", "said", "seq", "state")

    def __init__(self, live: Live, progress: Progress, state: State, due_at: float | None) -> None:
        """The operation will stand so."""
        self.change: Change
        self.progress = progress
        self.state = state
        self.due_at = due_at
        self.seq = live.seq
        self.said: Said = {}
        """Columns of intents that change, by step."""
        self.fresh: tuple[Intent, ...] = ()
        """Intents that are new."""

    def take_effect(self, live: Live) -> None:
        """The store has said yes."""
        if self.seq != live.seq:
            live.seq = self.seq
            live.revision += 1
        live.progress = self.progress
        live.state = self.state
        live.due_at = self.due_at
        for step, columns in self.said.items():
            intent = live.intents[step]
            for name, value in columns.items():
                setattr(intent, name, value)
        for fresh in self.fresh:
            live.intents[fresh.step] = fresh


def recorded(live: Live, step: Step, settled: Settled, now: float) -> Writing:
    """What an ended move writes: a record and all that follows, or a poll's next due time."""
    if settled.record is None:
        return _polled(live, step, settled, now)
    kind, body = settled.record
    guard = Is("intent", (live.id, step.name), {"token": live.intents[step.name].token})
    said = {step.name: settled.intent}
    return noted(
        live, kind, step.name, body, now, said=said, guards=(guard,), burned=settled.burned
    )


def noted(
    live: Live,
    kind: Noted,
    step: str,
    body: object,
    now: float,
    *,
    said: Said | None = None,
    guards: tuple[Is, ...] = (),
    burned: tuple[tuple[str, str], ...] = (),
) -> Writing:
    """One more record, and all that follows from it: state, intents of the next stage, event."""
    seq, before = live.seq + 1, live.progress
    text, value = kept(body)  # later steps see what a restart would show them
    progress = saga.after(live.plan, before, Record(seq, kind, step, now, value))
    state = saga.state_of(live.plan, progress, live.intents)
    if live.state is PENDING and state is RUNNING:
        state = PENDING  # only a claim makes it run: a signal before it has called nobody
    stuck = said if kind is Noted.STUCK else None
    due_at = _next_look(live, progress, _ahead(live, stuck), now) if stuck else 0.0
    writing = Writing(live, progress, state, due_at)
    writing.seq = seq
    writes: list[Write] = [
        Add(JOURNAL, (live.id, seq), (live.tenant, kind, step, now, text)),
        event(live, kind, step, state, now=now, why=progress.cause),
    ]
    row = _columns(live, writing, kind, now)
    if progress.end is None and progress.stage > before.stage:
        writes += intended(live, writing, progress.stage)
    if progress.end is not None or (state is not live.state and live.kind in VERBS):
        writes += agent_writes(live, progress, state, now)
    writes.append(Set("operation", (live.id,), row))
    if said:
        writing.said = said
    if progress.compensating_at is not None and before.compensating_at is None:
        writing.said = writing.said | saga.turned_back(live.plan, progress, live.intents)
    writes += [
        Set("intent", (live.id, name), columns)
        for name, columns in writing.said.items()
        if columns != IMPLIED
    ]
    if burned:
        writes += [Set("intent", other, saga.REMOVED) for other in burned]
        writes += tombstones(burned, now)
        others = dict.fromkeys(other for other, _ in burned)  # kept from now on: see `retention`
        writes += [Set("operation", (other,), {"updated_at": now}) for other in others]
    guard = Is("operation", (live.id,), {"revision": live.revision})
    # Two processes may try for this number, for siblings or by a verb: the id says whose it is.
    name = f"{live.id}/{seq}/{live.intents[step].token if guards else live.token}/{step or kind}"
    ring = Ring(live.id) if _is_settled(live, writing) else None
    writing.change = Change(name, (*guards, guard), tuple(writes), ring=ring)
    return writing


def _columns(live: Live, writing: Writing, kind: Noted, now: float) -> Row:
    """What the record changes in the operation's own row."""
    state, progress = writing.state, writing.progress
    row: Row = {"revision": live.revision + 1, "updated_at": now}
    if state is not live.state:
        if not OPERATION.permits(live.state, state):
            message = f"operation {live.id}: {kind} leads from {live.state} to {state}: no such row"
            raise Defect(message)
        row["state"] = state
    if live.due_at != writing.due_at:
        row["due_at"] = writing.due_at
    if progress.cause != live.progress.cause:
        row["error"] = progress.cause
    if progress.end is not None:
        row["ended_at"] = now
    return row


def _is_settled(live: Live, writing: Writing) -> bool:
    """Whether it ends or gets stuck by this: who waits for it elsewhere wants to know."""
    stuck = writing.state is STUCK and live.state is not STUCK
    return writing.progress.end is not None or stuck


def intended(live: Live, writing: Writing, stage: int) -> list[Add]:
    """Rows that intend every step of a stage: durable before the call leaves."""
    puts: list[Add] = []
    for step in live.plan.stages[stage]:
        key = live.new_key(step)
        writing.fresh += (Intent(step.name, step.slot, key, token=live.token),)
        row = (live.tenant, step.slot, key, Hold.INTENDED, live.token, 0, 0.0)
        puts.append(Add(INTENT, (live.id, step.name), row))
    return puts


def event(
    live: Live, kind: Noted, step: str, state: State, *, now: float, why: str = ""
) -> Add:
    """The event that tells of a record, to be committed with it."""
    told = live.kind, kind, step, state
    body = _told.get(told)
    if body is None:
        data = {"kind": live.kind, "record": kind, "step": step, "state": state}
        body = _told[told] = encode(data)
    if why:
        body = f'{body[:-1]},"why":{encode(why)}}}'
    row = (
        live.tenant, live.agent, live.id, event_of(kind, state), now, body, sequence_of(live.agent)
    )  # fmt: skip
    return Add(OUTBOX, POSITION, row)


_told: dict[tuple[str, Noted, str, State], str] = {}
"""Bodies of events without their cause: as many as plans have steps and states."""


def _polled(live: Live, step: Step, settled: Settled, now: float) -> Writing:
    """Not there yet: only the due time moves; journal and revision do not grow with polls."""
    said = {step.name: settled.intent}
    ahead = _ahead(live, said)
    due_at = _next_look(live, live.progress, ahead, now)
    state = saga.state_of(live.plan, live.progress, ahead)
    writing = Writing(live, live.progress, state, due_at)
    writing.said = said
    row: Row = {"due_at": due_at, "state": state, "updated_at": now}
    guards = (
        Is("intent", (live.id, step.name), {"token": live.intents[step.name].token}),
        Is("operation", (live.id,), {"revision": live.revision}),
    )
    writes = (
        Set("operation", (live.id,), row),
        Set("intent", (live.id, step.name), settled.intent),
    )
    writing.change = Change("", guards, writes)
    return writing


def _next_look(
    live: Live, progress: Progress, intents: dict[str, Intent], now: float
) -> float | None:
    """When the operation is due once its intents are so; None: not by time."""
    moves = saga.next_moves(live.plan, progress, intents, now)
    # A sibling whose call is out has no time of its own: after a crash it is looked at at once.
    out = any(intent.busy for intent in intents.values())
    return 0.0 if moves.now or out else moves.wake_at


def _ahead(live: Live, said: Said) -> dict[str, Intent]:
    """The intents as they will be; whose move has ended is no longer busy."""
    ahead = {
        name: replace(live.intents[name], **columns, busy=False)  # type: ignore[arg-type]
        for name, columns in said.items()
    }
    return live.intents | ahead
