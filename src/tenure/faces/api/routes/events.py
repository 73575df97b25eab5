"""Events: a page of them, or a stream."""

from typing import cast

from tenure.app import events
from tenure.app.agent_views import get_agent_row
from tenure.app.events import Wanted, cloud_event, wanted_types
from tenure.core.limits import POSITION_MAX
from tenure.core.roles import Role
from tenure.faces.api import event_stream
from tenure.faces.api.problems import Refusal
from tenure.faces.api.schemas import events as schemas
from tenure.faces.api.sse import last_seen
from tenure.faces.api.table import Ask, Route, Stream


async def list_events(ask: Ask) -> schemas.Events | Stream:
    """A page of the tenant's events, or all that come."""
    query = cast(schemas.ListEvents, ask.query)
    agent = ""
    if query.agent:
        agent = str((await get_agent_row(ask.plane, ask.caller, query.agent))["uid"])
    wanted = Wanted(agent, wanted_types(query.type), query.operation)
    after = int(query.after or 0)
    if after > POSITION_MAX:
        raise Refusal("invalid_parameter", "after is `next` of the page before", "after")
    resumes = b"last-event-id" in ask.headers
    last = last_seen(ask.headers) if resumes else after
    if event_stream.wants_stream(ask):
        return event_stream.follow(ask, wanted, await events.position_of(ask.plane, last))
    after = await events.position_of(ask.plane, after)
    page = await events.list_events(
        ask.plane, ask.caller, wanted, after=after, limit=query.limit
    )
    items = [cloud_event(ask.plane.id, row) for row in page.items]
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
