"""The route of events: a page or a stream."""

from typing import cast

from tenure.app.agents.views import get_agent_row
from tenure.app.events import cloudevents
from tenure.app.events.cloudevents import EventFilter, cloud_event, parse_types
from tenure.core.limits import POSITION_MAX
from tenure.core.roles import Role
from tenure.faces.api import event_stream
from tenure.faces.api.schemas import events as schemas
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import HttpRequest, Route, Stream
from tenure.faces.http.sse import last_seen


async def list_events(request: HttpRequest) -> schemas.Events | Stream:
    """A page of the tenant's events, or a stream of them."""
    query = cast(schemas.ListEvents, request.query)
    agent = ""
    if query.agent:
        agent = (await get_agent_row(request.plane, request.caller, query.agent)).uid
    event_filter = EventFilter(agent, parse_types(query.type), query.operation)
    after = int(query.after or 0)
    if after > POSITION_MAX:
        raise ProblemError("invalid_parameter", "after must be `next` of a page", "after")
    resumes = b"last-event-id" in request.headers
    last = last_seen(request.headers) if resumes else after
    if event_stream.wants_stream(request):
        return event_stream.follow(
            request,
            event_filter,
            await cloudevents.position_of(request.plane, request.tenant, last),
        )
    after = await cloudevents.position_of(request.plane, request.tenant, after)
    page = await cloudevents.list_events(
        request.plane, request.caller, event_filter, after=after, limit=query.limit
    )
    items = [cloud_event(request.plane.id, row) for row in page.items]
    position = str(page.position)
    return schemas.Events(
        items=items,
        next=position if page.more else None,
        position=position,
        missed=page.missed,
    )


ROUTES = (
    Route(
        "GET", "/v1/events", list_events,
        "List events, or follow them with `Accept: text/event-stream`",
        role=Role.VIEWER, answer=schemas.Events, query=schemas.ListEvents, streams=True,
        problems=("invalid", "not_found", "too_many_streams"),
        headers=(
            ("Accept", "`text/event-stream`: follow the events as they are committed."),
            ("Last-Event-ID", "With a stream: resume after this event."),
        ),
    ),
)  # fmt: skip
