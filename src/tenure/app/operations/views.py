"""Reads for callers: an operation as it is shown.  No rules live here."""

from typing import cast

from msgspec import Struct

from tenure.app.operations.handle import OperationHandle
from tenure.core.operation import OPERATION, IntentState, OperationState
from tenure.core.plan import Plan
from tenure.ports.store import Row


class StepView(Struct, frozen=True, gc=False):
    """One step of an operation as it is shown; `state` is None before it is intended."""

    name: str
    kind: str
    state: IntentState | None
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


class OperationView(Struct, frozen=True, gc=False):
    """One operation as its caller sees it."""

    id: str
    kind: str
    agent: str
    agent_name: str
    """Empty: the plan is none of an agent's lifecycle, and knows of no name."""
    generation: int
    state: OperationState
    steps: tuple[StepView, ...]
    error: str
    created_at: float
    updated_at: float

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.state in OPERATION.final

    @property
    def left(self) -> tuple[StepView, ...]:
        """The steps that hold, or may hold, something in the world."""
        held = [s for s in self.steps if s.state not in (None, IntentState.BURNED)]
        return tuple(s for s in held if s.slot or s.unknown)


def view_operation(live: OperationHandle, row: Row) -> OperationView:
    """An operation with its steps in the order of its plan."""
    return OperationView(
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


def view_accepted(live: OperationHandle, now: float) -> OperationView:
    """An operation that was accepted just now: its first stage is intended, no more."""
    return OperationView(
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


_fresh: dict[str, tuple[StepView, ...]] = {}
"""The steps of a new operation, by its plan's digest."""


def _steps_of_new(plan: Plan) -> tuple[StepView, ...]:
    steps = _fresh[plan.digest] = tuple(
        StepView(
            step.name, str(step.kind), None if number else IntentState.INTENDED, slot=step.slot
        )
        for number, stage in enumerate(plan.stages)
        for step in stage
    )
    return steps


def _step(live: OperationHandle, name: str) -> StepView:
    planned = live.plan.steps[name]
    kind = str(planned.kind)
    intent = live.intents.get(name)
    if intent is None:
        return StepView(name, kind, None, slot=planned.slot)
    return StepView(
        name,
        kind,
        intent.state,
        key=intent.key,
        attempts=intent.attempts,
        due_at=intent.due_at,
        stuck=name in live.progress.stuck,
        unknown=intent.unknown_since is not None and intent.state is IntentState.INTENDED,
        detail=intent.detail or "",
        slot=planned.slot,
        waiting_on=(intent.waiting_on or "").partition(":")[2],
        result=live.progress.done.get(name),
    )
