"""Operations on the wire."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tenure.app.operations import views as operation_views
from tenure.core.operation import EntryKind, IntentState, OperationState
from tenure.core.plan import StepKind
from tenure.faces.api.schemas.forms import Cursor, Id, Instant, Limit, RequestFields, ResponseBody
from tenure.faces.http.route_table import WAIT_SECONDS_MAX


class OperationStep(ResponseBody, frozen=True):
    """One step of an operation."""

    name: str
    kind: StepKind
    state: IntentState | None
    """null: the step has no intent yet."""
    key: str
    attempts: int
    due_at: float | None
    stuck: bool
    unknown: bool
    detail: str
    slot: str
    waiting_on: str
    result: Any


class Operation(ResponseBody, frozen=True):
    """One operation with its steps."""

    id: Id
    kind: str
    agent: str
    agent_name: str
    generation: int
    state: OperationState
    done: bool
    steps: list[OperationStep]
    error: str
    created_at: Instant
    updated_at: Instant


class OperationSummary(ResponseBody, frozen=True):
    """One operation as a list shows it."""

    id: Id
    kind: str
    agent: str
    agent_name: str
    generation: int
    state: OperationState
    done: bool
    error: str
    created_at: Instant
    updated_at: Instant


class Operations(ResponseBody, frozen=True):
    """A page of operations, oldest first."""

    items: list[OperationSummary]
    next: str | None


class StreamedEntry(ResponseBody, frozen=True):
    """The data of one event: an entry of the journal.

    The event's name is the type under which it is published; its id is `seq`.  The last event is
    called `settled`, and its data is the operation.
    """

    seq: int
    kind: EntryKind
    step: str
    at: Instant
    state: OperationState
    """The state of the operation when the event was sent."""
    body: Any
    """The content of the entry: a result, a cause or the payload of a signal."""


class ListOperations(RequestFields, frozen=True):
    """The operations to list."""

    agent: Annotated[str, Meta(max_length=63, description="Only of this agent: a name or uid.")] = (
        ""
    )
    state: Annotated[
        tuple[OperationState, ...],
        Meta(description="Only in this state; may occur several times."),
    ] = ()
    after: Cursor = ""
    limit: Limit = 100


class Wait(RequestFields, frozen=True):
    """How long to wait for the operation."""

    seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 30.0


class Adopt(RequestFields, frozen=True):
    """The result of a step that an operator declares as done."""

    result: Any = None


def operation(view: operation_views.OperationView) -> Operation:
    """The response body for an operation."""
    return Operation(
        id=view.id,
        kind=view.plan_name,
        agent=view.agent,
        agent_name=view.agent_name,
        generation=view.generation,
        state=view.state,
        done=view.done,
        steps=[_step(step) for step in view.steps],
        error=view.error,
        created_at=view.created_at,
        updated_at=view.updated_at,
    )


def _step(step: operation_views.StepView) -> OperationStep:
    return OperationStep(
        name=step.name,
        kind=StepKind(step.kind),
        state=step.state,
        key=step.key,
        attempts=step.attempts,
        due_at=step.due_at,
        stuck=step.stuck,
        unknown=step.unknown,
        detail=step.detail,
        slot=step.slot,
        waiting_on=step.waiting_on,
        result=step.result,
    )


def summary(row: object) -> OperationSummary:
    """The entry of a list for one row."""
    return msgspec.convert(row, OperationSummary, strict=False)
