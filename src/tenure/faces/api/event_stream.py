"""A stream of a tenant's events as server-sent events, from a position on.

The id of an event is its position, so that a client that lost its connection can resume after the
last event it received.  A commit of this process wakes the stream; commits of other processes are
polled.  The stream checks its token before each write and ends when the token is no longer valid.
"""

import asyncio
from collections import Counter

import msgspec

from tenure.app.events import cloudevents
from tenure.app.events.cloudevents import EventFilter, cloud_event
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.limits import STREAMS_MAX
from tenure.core.roles import Role
from tenure.faces.http.authenticate import authorise, caller_of
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import HttpRequest, Send, Stream
from tenure.faces.http.sse import HEADERS, HEARTBEAT_SECONDS, wait_for_disconnect

POLL_SECONDS = 0.5
"""How often events that other processes committed are read."""
PAGE = 200
encode = msgspec.json.encode


def wants_stream(request: HttpRequest) -> bool:
    """Whether the client accepts a stream; otherwise it gets a page."""
    return b"text/event-stream" in request.headers.get(b"accept", b"")


def follow(request: HttpRequest, event_filter: EventFilter, last: int) -> Stream:
    """A stream of all events after the position `last`, including future ones."""
    open_now: Counter[str] = request.http_state.streams
    if open_now[request.tenant] >= STREAMS_MAX:
        detail = f"this tenant has {STREAMS_MAX} open streams, its maximum; close one"
        raise ProblemError("too_many_streams", detail)

    async def write(send: Send) -> int:
        open_now[request.tenant] += 1
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        disconnect = asyncio.ensure_future(wait_for_disconnect(request.receive))
        try:
            await _follow(request, event_filter, last, disconnect=disconnect, send=send)
        except (StoreError, CommitUnknown):
            pass  # the process is ending: the client reconnects with the last id
        except ProblemError:
            pass  # the token is no longer valid
        finally:
            disconnect.cancel()
            open_now[request.tenant] -= 1
        await send({"type": "http.response.body", "body": b""})
        return 200

    return Stream(write)


async def _follow(
    request: HttpRequest,
    event_filter: EventFilter,
    last: int,
    *,
    disconnect: "asyncio.Future[None]",
    send: Send,
) -> None:
    plane, loop = request.plane, asyncio.get_running_loop()
    beat_at = loop.time() + HEARTBEAT_SECONDS
    disconnect.add_done_callback(lambda _: plane.commits.notify())
    await send({"type": "http.response.body", "body": b": ok\n\n", "more_body": True})
    while not disconnect.done() and not request.http_state.stopping.is_set():
        number = plane.commits.number
        page = await cloudevents.list_events(
            plane, request.caller, event_filter, after=last, limit=PAGE
        )
        authorise(
            await caller_of(request.headers, authenticate=request.http_state.authenticate),
            Role.VIEWER,
        )
        text = b"event: missed\ndata: {}\n\n" if page.missed else b""
        for row in page.items:
            event = cloud_event(plane.id, row)
            position = row.position
            name = event.type.encode()
            text += b"id: %d\nevent: %b\ndata: %b\n\n" % (position, name, encode(event))
        last = page.position
        if not text and loop.time() >= beat_at:
            text = b": heartbeat\n\n"
        if text:
            await send({"type": "http.response.body", "body": text, "more_body": True})
            beat_at = loop.time() + HEARTBEAT_SECONDS
        if not page.more:
            await plane.commits.wait_for_newer(number, seconds=POLL_SECONDS)
