"""Server-sent events: what every stream of them shares."""

import re

from tenure.core.limits import POSITION_MAX
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.table import Receive

HEARTBEAT_SECONDS = 5.0
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
SEEN = re.compile(rb"([0-9]{1,19})(?:-[0-9a-f]{1,64})?")


def last_seen(headers: dict[bytes, bytes]) -> int:
    """The position of the last event that a client has seen, 0 if it says none.

    A stream's `id` is the position alone; the `id` of an event begins with it.
    """
    named = SEEN.fullmatch(headers.get(b"last-event-id", b"0"))
    if named is None or int(named[1]) > POSITION_MAX:
        words = "Last-Event-ID is the `id` of a line of the stream, or of an event"
        raise ProblemError("invalid_header", words, "Last-Event-Id")
    return int(named[1])


async def gone_of(receive: Receive) -> None:
    """Return when whoever asked has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
