"""An operation as its caller sees it, in Python and over HTTP; no rules are decided here."""

from datetime import UTC, datetime

from msgspec import Struct

from tenure.app.operations.handle import OperationHandle
from tenure.core.operation import OPERATION, IntentState, OperationState
from tenure.core.plan import Plan
from tenure.core.records.operation import OperationRecord


class StepView(Struct, frozen=True, gc=False):
    """One step of an operation, as it stands."""

    name: str
    """The name of the step in its plan."""
    kind: str
    """`compensatable`, `pivot` or `retriable`."""
    state: IntentState | None
    """None before it is intended."""
    key: str = ""
    """The key of its resource at the provider; known before the first call."""
    attempts: int = 0
    """Calls that failed in a row; one that answered "not yet" or waits for a signal resets it."""
    due_at: float | None = None
    """When it is called again, while it is not done; None: once a signal has come."""
    stuck: bool = False
    """Whether it needs an operator: retry, adopt, mark_absent or abandon."""
    unknown: bool = False
    """Whether a call was made and nobody knows yet if it was carried out."""
    detail: str = ""
    """The last message of the provider, while the step is not done."""
    slot: str = ""
    """The kind of resource it makes; empty: it makes none."""
    waiting_on: str = ""
    """The signal it waits for; empty: it waits for none."""
    result: object = None
    """What the step returned, once it is done."""
    has_undo: bool = False
    """Whether its undo is a function, and not `nothing`."""


class OperationView(Struct, frozen=True, gc=False):
    """One execution of a plan, as it stood when it was read.

    Times are seconds since the epoch (`created_at`), and the same as UTC datetimes (`created`).
    """

    id: str
    """32 hexadecimal digits; later operations sort after earlier ones."""
    plan_name: str
    """The name of its plan."""
    agent: str
    """The uid of the agent that it locks: one operation at a time works on an agent."""
    agent_name: str
    """The name of that agent; empty for a plan that is no part of an agent's lifecycle."""
    generation: int
    """The number of this operation among those of its agent; part of every key it uses."""
    state: OperationState
    """PENDING, RUNNING, WAITING, COMPENSATING, STUCK, or one of the three ends: SUCCEEDED,
    COMPENSATED, ABANDONED.
    """
    steps: tuple[StepView, ...]
    """Every step of its plan, in the plan's order."""
    error: str
    """Why it is or was undone, and which steps are stuck and why; empty if neither is so."""
    created_at: float
    """When it was accepted."""
    updated_at: float
    """When it last changed."""
    ended_at: float | None = None
    """When it ended; None while it is open."""

    @property
    def done(self) -> bool:
        """Whether it has ended, in whichever way."""
        return self.state in OPERATION.final

    @property
    def left(self) -> tuple[StepView, ...]:
        """The steps that hold, or may hold, something: they were intended and are not undone.

        A step with `undo=nothing` and no slot holds nothing once its outcome is known.
        """
        intended = [s for s in self.steps if s.state not in (None, IntentState.BURNED)]
        return tuple(s for s in intended if s.has_undo or s.slot or s.unknown)

    @property
    def results(self) -> dict[str, object]:
        """What each step returned, by its name; a step that returned nothing is left out."""
        return {step.name: step.result for step in self.steps if step.result is not None}

    @property
    def result(self) -> object:
        """What the last step returned, once the operation has SUCCEEDED; None otherwise."""
        return self.steps[-1].result if self.state is OperationState.SUCCEEDED else None

    @property
    def created(self) -> datetime:
        """`created_at` as a datetime in UTC."""
        return datetime.fromtimestamp(self.created_at, UTC)

    @property
    def updated(self) -> datetime:
        """`updated_at` as a datetime in UTC."""
        return datetime.fromtimestamp(self.updated_at, UTC)

    @property
    def ended(self) -> datetime | None:
        """`ended_at` as a datetime in UTC; None while the operation is open."""
        return None if self.ended_at is None else datetime.fromtimestamp(self.ended_at, UTC)


def view_operation(handle: OperationHandle, row: OperationRecord) -> OperationView:
    """An operation with its steps in the order of its plan."""
    return OperationView(
        id=handle.id,
        plan_name=handle.plan_name,
        agent=handle.agent,
        agent_name=handle.agent_name,
        generation=handle.generation,
        state=handle.state,
        steps=tuple(_step(handle, name) for name in handle.plan.steps),
        error=handle.error,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
    )


def view_accepted(handle: OperationHandle, now: float) -> OperationView:
    """An operation that was just accepted: only its first stage is intended."""
    return OperationView(
        id=handle.id,
        plan_name=handle.plan_name,
        agent=handle.agent,
        agent_name=handle.agent_name,
        generation=handle.generation,
        state=handle.state,
        steps=_steps_of_new_plans.get(handle.plan.digest) or _steps_of_new(handle.plan),
        error="",
        created_at=now,
        updated_at=now,
    )


_steps_of_new_plans: dict[str, tuple[StepView, ...]] = {}
"""The steps of a new operation, by its plan's digest."""


def _steps_of_new(plan: Plan) -> tuple[StepView, ...]:
    steps = _steps_of_new_plans[plan.digest] = tuple(
        StepView(
            step.name,
            str(step.kind),
            None if number else IntentState.INTENDED,
            slot=step.slot,
            has_undo=step.has_undo,
        )
        for number, stage in enumerate(plan.stages)
        for step in stage
    )
    return steps


def _step(handle: OperationHandle, name: str) -> StepView:
    planned = handle.plan.steps[name]
    kind = str(planned.kind)
    intent = handle.intents.get(name)
    if intent is None:
        return StepView(name, kind, None, slot=planned.slot, has_undo=planned.has_undo)
    return StepView(
        name,
        kind,
        intent.state,
        key=intent.key,
        attempts=intent.attempts,
        due_at=intent.due_at,
        stuck=name in handle.progress.stuck,
        unknown=intent.unknown_since is not None and intent.state is IntentState.INTENDED,
        detail=intent.detail or "",
        slot=planned.slot,
        waiting_on=(intent.waiting_on or "").partition(":")[2],
        result=handle.progress.done.get(name),
        has_undo=planned.has_undo,
    )
