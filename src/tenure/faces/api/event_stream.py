"""Events of a tenant as server-sent events, from any position on and as they are committed.

The id of an event is its position, so that whoever lost the connection goes on after the last one
seen.  A stream is woken by the commit itself.  It looks at its token before everything it sends,
and ends once that is no good any more.
"""

import asyncio
from collections import Counter
from typing import cast

import msgspec

from tenure.app.events import cloudevents
from tenure.app.events.cloudevents import EventFilter, cloud_event
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.limits import STREAMS_MAX
from tenure.core.roles import Role
from tenure.faces.http.authenticate import authorise, caller_of
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.sse import HEADERS, HEARTBEAT_SECONDS, wait_for_disconnect
from tenure.faces.http.table import HttpRequest, Send, Stream

LOOK_SECONDS = 0.5
"""How often it is looked for what other processes commit."""
PAGE = 200
encode = msgspec.json.encode


def wants_stream(request: HttpRequest) -> bool:
    """Whether whoever asks would rather follow than have a page."""
    return b"text/event-stream" in request.headers.get(b"accept", b"")


def follow(request: HttpRequest, wanted: EventFilter, last: int) -> Stream:
    """Everything after a position, and what comes."""
    open_now: Counter[str] = request.http_state.streams
    if open_now[request.tenant] >= STREAMS_MAX:
        detail = f"{STREAMS_MAX} streams of this tenant are open here; close one"
        raise ProblemError("too_many_streams", detail)

    async def write(send: Send) -> int:
        open_now[request.tenant] += 1
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        gone = asyncio.ensure_future(wait_for_disconnect(request.receive))
        try:
            await _follow(request, wanted, last, gone=gone, send=send)
        except (StoreError, CommitUnknown):
            pass  # the process is ending: whoever follows comes back with the last id
        except ProblemError:
            pass  # the token is no good any more
        finally:
            gone.cancel()
            open_now[request.tenant] -= 1
        await send({"type": "http.response.body", "body": b""})
        return 200

    return Stream(write)


async def _follow(
    request: HttpRequest,
    wanted: EventFilter,
    last: int,
    *,
    gone: "asyncio.Future[None]",
    send: Send,
) -> None:
    plane, loop = request.plane, asyncio.get_running_loop()
    beat_at = loop.time() + HEARTBEAT_SECONDS
    gone.add_done_callback(lambda _: plane.commits.notify())
    await send({"type": "http.response.body", "body": b": ok\n\n", "more_body": True})
    while not gone.done() and not request.http_state.stopping.is_set():
        number = plane.commits.number
        page = await cloudevents.list_events(plane, request.caller, wanted, after=last, limit=PAGE)
        authorise(
            await caller_of(request.headers, authenticate=request.http_state.authenticate),
            Role.VIEWER,
        )
        text = b"event: missed\ndata: {}\n\n" if page.missed else b""
        for row in page.items:
            told = cloud_event(plane.id, row)
            position = cast(int, row["position"])
            name = told.type.encode()
            text += b"id: %d\nevent: %b\ndata: %b\n\n" % (position, name, encode(told))
        last = page.position
        if not text and loop.time() >= beat_at:
            text = b": heartbeat\n\n"
        if text:
            await send({"type": "http.response.body", "body": text, "more_body": True})
            beat_at = loop.time() + HEARTBEAT_SECONDS
        if not page.more:
            await plane.commits.beyond(number, seconds=LOOK_SECONDS)
