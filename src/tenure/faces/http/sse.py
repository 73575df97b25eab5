"""Server-sent events: headers, heartbeat and resume position that all streams share."""

import re

from tenure.core.limits import POSITION_MAX
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import Receive

HEARTBEAT_SECONDS = 5.0
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
LAST_EVENT_ID = re.compile(rb"([0-9]{1,19})(?:-[0-9a-f]{1,64})?")


def last_seen(headers: dict[bytes, bytes]) -> int:
    """The position of the last event that the client has received; 0 without the header.

    The `id` in the stream is the position alone; the `id` of an event starts with it.
    """
    match = LAST_EVENT_ID.fullmatch(headers.get(b"last-event-id", b"0"))
    if match is None or int(match[1]) > POSITION_MAX:
        detail = "Last-Event-ID must be an `id` of the stream, or the id of an event"
        raise ProblemError("invalid_header", detail, "Last-Event-Id")
    return int(match[1])


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
