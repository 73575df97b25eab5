"""Events: a page of them, or a stream."""

from typing import cast

from tenure.app.agents.views import get_agent_row
from tenure.app.events import cloudevents
from tenure.app.events.cloudevents import EventFilter, cloud_event, parse_types
from tenure.core.limits import POSITION_MAX
from tenure.core.roles import Role
from tenure.faces.api import event_stream
from tenure.faces.api.schemas import events as schemas
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.sse import last_seen
from tenure.faces.http.table import HttpRequest, Route, Stream


async def list_events(request: HttpRequest) -> schemas.Events | Stream:
    """A page of the tenant's events, or all that come."""
    query = cast(schemas.ListEvents, request.query)
    agent = ""
    if query.agent:
        agent = str((await get_agent_row(request.plane, request.caller, query.agent))["uid"])
    wanted = EventFilter(agent, parse_types(query.type), query.operation)
    after = int(query.after or 0)
    if after > POSITION_MAX:
        raise ProblemError("invalid_parameter", "after is `next` of the page before", "after")
    resumes = b"last-event-id" in request.headers
    last = last_seen(request.headers) if resumes else after
    if event_stream.wants_stream(request):
        return event_stream.follow(
            request, wanted, await cloudevents.position_of(request.plane, request.tenant, last)
        )
    after = await cloudevents.position_of(request.plane, request.tenant, after)
    page = await cloudevents.list_events(
        request.plane, request.caller, wanted, after=after, limit=query.limit
    )
    items = [cloud_event(request.plane.id, row) for row in page.items]
    here = str(page.position)
    return schemas.Events(
        items=items,
        next=here if page.more else None,
        position=here,
        missed=page.missed,
    )


ROUTES = (
    Route(
        "GET", "/v1/events", list_events,
        "List events, or follow them with `Accept: text/event-stream`",
        role=Role.VIEWER, answer=schemas.Events, query=schemas.ListEvents, streams=True,
        problems=("invalid", "not_found", "too_many_streams"),
        headers=(
            ("Accept", "`text/event-stream`: stay and be told of what comes."),
            ("Last-Event-ID", "With a stream: go on after this event."),
        ),
    ),
)  # fmt: skip
