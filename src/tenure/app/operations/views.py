"""Reads for callers: an operation as it is shown.  No rules live here."""

from typing import cast

from msgspec import Struct

from tenure.app.operations.handle import Live
from tenure.core.operation import OPERATION, Hold, State
from tenure.core.plan import Plan
from tenure.ports.store import Row


class Step(Struct, frozen=True, gc=False):
    """One step of an operation as it is shown; `state` is None before it is intended."""

    name: str
    kind: str
    state: Hold | None
    key: str = ""
    attempts: int = 0
    due_at: float | None = None
    stuck: bool = False
    unknown: bool = False
    detail: str = ""
    """The provider's last words, while it is not done."""
    slot: str = ""
    waiting_on: str = ""
    """The signal it waits for."""
    result: object = None
    """What it returned, once it is done."""


class Operation(Struct, frozen=True, gc=False):
    """One operation as its caller sees it."""

    id: str
    kind: str
    agent: str
    agent_name: str
    """Empty: the plan is none of an agent's lifecycle, and knows of no name."""
    generation: int
    state: State
    steps: tuple[Step, ...]
    error: str
    created_at: float
    updated_at: float

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.state in OPERATION.final

    @property
    def left(self) -> tuple[Step, ...]:
        """The steps that hold, or may hold, something in the world."""
        held = [s for s in self.steps if s.state not in (None, Hold.BURNED)]
        return tuple(s for s in held if s.slot or s.unknown)


def operation(live: Live, row: Row) -> Operation:
    """An operation with its steps in the order of its plan."""
    return Operation(
        id=live.id,
        kind=live.kind,
        agent=live.agent,
        agent_name=live.agent_name,
        generation=live.generation,
        state=live.state,
        steps=tuple(_step(live, name) for name in live.plan.steps),
        error=live.error,
        created_at=cast(float, row.get("created_at", 0.0)),
        updated_at=cast(float, row.get("updated_at", 0.0)),
    )


def accepted(live: Live, now: float) -> Operation:
    """An operation that was accepted just now: its first stage is intended, no more."""
    return Operation(
        id=live.id,
        kind=live.kind,
        agent=live.agent,
        agent_name=live.agent_name,
        generation=live.generation,
        state=live.state,
        steps=_fresh.get(live.plan.digest) or _steps_of_new(live.plan),
        error="",
        created_at=now,
        updated_at=now,
    )


_fresh: dict[str, tuple[Step, ...]] = {}
"""The steps of a new operation, by its plan's digest."""


def _steps_of_new(plan: Plan) -> tuple[Step, ...]:
    steps = _fresh[plan.digest] = tuple(
        Step(step.name, str(step.kind), None if number else Hold.INTENDED, slot=step.slot)
        for number, stage in enumerate(plan.stages)
        for step in stage
    )
    return steps


def _step(live: Live, name: str) -> Step:
    planned = live.plan.steps[name]
    kind = str(planned.kind)
    intent = live.intents.get(name)
    if intent is None:
        return Step(name, kind, None, slot=planned.slot)
    return Step(
        name,
        kind,
        intent.state,
        key=intent.key,
        attempts=intent.attempts,
        due_at=intent.due_at,
        stuck=name in live.progress.stuck,
        unknown=intent.unknown_since is not None and intent.state is Hold.INTENDED,
        detail=intent.detail or "",
        slot=planned.slot,
        waiting_on=(intent.waiting_on or "").partition(":")[2],
        result=live.progress.done.get(name),
    )
