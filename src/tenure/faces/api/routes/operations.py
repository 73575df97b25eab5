"""Routes of operations: list, show, wait, follow, cancel, and resolve a stuck one."""

from typing import cast

from tenure.app.agents.views import get_agent_row
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.operations import views as operation_views
from tenure.app.operations.handle import stored_input_of
from tenure.core.operation import ENDED_OR_STUCK, OPERATION
from tenure.core.records import dict_of
from tenure.core.roles import Role
from tenure.faces.api import operation_stream
from tenure.faces.api.schemas import operations as schemas
from tenure.faces.http.route_table import HttpRequest, Repeat, Reply, Route, Stream

WAIT_PIECE_SECONDS = 1.0
"""A wait is cut into pieces of this length; after each one it ends if the process is stopping."""
OPERATOR_PROBLEMS = ("ended", "plan_unknown", "conflict")


async def wait_until_settled(
    request: HttpRequest, operation: str, seconds: float
) -> operation_views.OperationView:
    """The operation once it is settled, the time is over or the process is stopping."""
    plane = request.plane
    until = plane.store.now() + seconds
    while True:
        remaining = max(0.0, min(until - plane.store.now(), WAIT_PIECE_SECONDS))
        view = await reads.wait(plane, request.tenant, operation, seconds=remaining)
        if (
            view.state in ENDED_OR_STUCK
            or plane.store.now() >= until
            or request.http_state.stopping.is_set()
        ):
            return view


async def reply_accepted(request: HttpRequest, operation: operation_views.OperationView) -> Reply:
    """202 with the location of the operation, after the wait that the request prefers."""
    headers = [(b"location", f"/v1/operations/{operation.id}".encode())]
    if request.wait_seconds is not None:
        headers.append((b"preference-applied", f"wait={request.wait_seconds}".encode()))
        if operation.state not in ENDED_OR_STUCK:
            until = request.plane.store.now() + request.wait_seconds
            # The operation was read just now: it is not read again before it has settled.
            await request.plane.engine.wait(
                operation.id, min(request.wait_seconds, WAIT_PIECE_SECONDS)
            )
            remaining = max(0.0, until - request.plane.store.now())
            operation = await wait_until_settled(request, operation.id, remaining)
    return Reply(schemas.operation(operation), 202, tuple(headers))


async def list_operations(request: HttpRequest) -> schemas.Operations:
    """A page of the tenant's operations."""
    query = cast(schemas.ListOperations, request.query)
    agent = ""
    if query.agent:
        agent = (await get_agent_row(request.plane, request.caller, query.agent)).uid
    rows = await reads.list_operations(
        request.plane, request.tenant, agent=agent, states=query.state, after=query.after,
        limit=query.limit,
    )  # fmt: skip
    items = [
        schemas.summary(
            {
                **dict_of(row),
                "agent_name": request.plane.catalogue.subject_of(row.plan_name).name_of(
                    stored_input_of(row)
                ),
                "error": row.error or "",
                "done": row.state in OPERATION.final,
            }
        )
        for row in rows
    ]
    return schemas.Operations(items=items, next=items[-1].id if len(items) == query.limit else None)


async def get_operation(request: HttpRequest) -> schemas.Operation:
    """One operation."""
    return schemas.operation(
        await reads.get_operation(request.plane, request.tenant, request.names["operation"])
    )


async def wait_operation(request: HttpRequest) -> schemas.Operation:
    """One operation once it is settled, or its state after so many seconds."""
    query = cast(schemas.Wait, request.query)
    return schemas.operation(
        await wait_until_settled(request, request.names["operation"], query.seconds)
    )


async def follow_operation(request: HttpRequest) -> Stream:
    """The journal entries of one operation as they are made."""
    return await operation_stream.progress(request, request.names["operation"])


async def cancel_operation(request: HttpRequest) -> Reply:
    """Undo an operation."""
    operation = await operations.cancel(
        request.plane,
        request.caller,
        request.names["operation"],
        idempotency_key=request.idempotency_key,
    )
    return await reply_accepted(request, operation)


async def retry_operation(request: HttpRequest) -> Reply:
    """Retry the stuck steps of an operation."""
    operation = await operations.retry(
        request.plane,
        request.caller,
        request.names["operation"],
        idempotency_key=request.idempotency_key,
    )
    return await reply_accepted(request, operation)


async def abandon_operation(request: HttpRequest) -> Reply:
    """End a stuck operation without undoing it."""
    operation = await operations.abandon(
        request.plane,
        request.caller,
        request.names["operation"],
        idempotency_key=request.idempotency_key,
    )
    return await reply_accepted(request, operation)


async def adopt_step(request: HttpRequest) -> Reply:
    """Declare a stuck step as done."""
    operation = await operations.adopt(
        request.plane,
        request.caller,
        request.names["operation"],
        step=request.names["step"],
        result=cast(schemas.Adopt, request.body).result,
        idempotency_key=request.idempotency_key,
    )
    return await reply_accepted(request, operation)


async def mark_step_absent(request: HttpRequest) -> Reply:
    """Declare that a stuck step holds nothing."""
    operation = await operations.mark_absent(
        request.plane,
        request.caller,
        request.names["operation"],
        step=request.names["step"],
        idempotency_key=request.idempotency_key,
    )
    return await reply_accepted(request, operation)


ONE = "/v1/operations/{operation}"
ROUTES = (
    Route(
        "GET", "/v1/operations", list_operations, "List operations, oldest first",
        role=Role.VIEWER, answer=schemas.Operations, query=schemas.ListOperations,
        problems=("not_found",),
    ),
    Route(
        "GET", ONE, get_operation, "Show an operation with its steps",
        role=Role.VIEWER, answer=schemas.Operation,
    ),
    Route(
        "GET", f"{ONE}/wait", wait_operation, "Wait until an operation has ended or is stuck",
        role=Role.VIEWER, answer=schemas.Operation, query=schemas.Wait,
    ),
    Route(
        "GET", f"{ONE}/events", follow_operation,
        "Follow the journal entries of an operation as they are made",
        role=Role.VIEWER, answer=schemas.StreamedEntry, media="text/event-stream",
        headers=(("Last-Event-ID", "Resume after this entry."),),
    ),
    Route(
        "POST", f"{ONE}:cancel", cancel_operation, "Undo an operation",
        role=Role.OPERATOR, answer=schemas.Operation, status=202, waits=True,
        repeat=Repeat.RESULT, problems=("past_pivot", "not_its_turn", *OPERATOR_PROBLEMS),
    ),
    Route(
        "POST", f"{ONE}:retry", retry_operation, "Retry the stuck steps of an operation now",
        role=Role.OPERATOR, answer=schemas.Operation, status=202, waits=True,
        repeat=Repeat.RESULT, problems=("not_stuck", *OPERATOR_PROBLEMS),
    ),
    Route(
        "POST", f"{ONE}:abandon", abandon_operation, "End a stuck operation without undoing it",
        role=Role.OPERATOR, answer=schemas.Operation, status=202, waits=True,
        repeat=Repeat.RESULT, problems=("not_stuck", *OPERATOR_PROBLEMS),
    ),
    Route(
        "POST", f"{ONE}/steps/{{step}}:adopt", adopt_step,
        "Declare a stuck step as done, with its result",
        role=Role.OPERATOR, answer=schemas.Operation, status=202, waits=True,
        repeat=Repeat.RESULT, body=schemas.Adopt, empty_body=True,
        problems=("not_stuck", "compensating", "limit_exceeded", "invalid", *OPERATOR_PROBLEMS),
    ),
    Route(
        "POST", f"{ONE}/steps/{{step}}:mark-absent", mark_step_absent,
        "Declare that a stuck step holds nothing",
        role=Role.OPERATOR, answer=schemas.Operation, status=202, waits=True,
        repeat=Repeat.RESULT, problems=("not_stuck", *OPERATOR_PROBLEMS),
    ),
)  # fmt: skip
