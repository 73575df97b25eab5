"""Server-sent events: an operation's records as they are made, until it is settled.

The id of an event is its record's number in the journal, so that whoever lost the connection goes
on after the last one seen.  Nobody tells which operation a commit was about: a stream looks, soon
after a record and then less often, and at once when the engine says that the operation settled.
"""

import asyncio
import re

import msgspec

from tenure.app import operations
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.events import OF_END, OF_RECORD
from tenure.core.limits import POSITION_MAX
from tenure.core.operation import SETTLED, Record, State
from tenure.faces.api.authenticate import caller_of
from tenure.faces.api.problems import Refusal
from tenure.faces.api.schemas import operations as schemas
from tenure.faces.api.table import Ask, Receive, Send, Stream

HEARTBEAT_SECONDS = 5.0
KNOWN_SECONDS = 0.5
"""How long a token that was good is taken to be."""
LOOK_SECONDS, LOOK_SECONDS_MAX = 0.02, 0.5
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
SEEN = re.compile(rb"([0-9]{1,19})(?:-[0-9a-f]{1,64})?")
encode = msgspec.json.encode


async def progress(ask: Ask, operation: str) -> Stream:
    """Everything that was and is recorded for this operation; NotFound before anything is sent."""
    await operations.get(ask.plane, ask.tenant, operation)
    last = last_seen(ask.headers)

    async def write(send: Send) -> int:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        gone = asyncio.ensure_future(gone_of(ask.receive))
        try:
            await _follow(ask, operation, last=last, gone=gone, send=send)
        except (StoreError, CommitUnknown):
            pass  # the process is ending: whoever follows comes back with the last id
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})
        return 200

    return Stream(write)


def last_seen(headers: dict[bytes, bytes]) -> int:
    """The position of the last event that a client has seen, 0 if it says none.

    A stream's `id` is the position alone; the `id` of an event begins with it.
    """
    named = SEEN.fullmatch(headers.get(b"last-event-id", b"0"))
    if named is None or int(named[1]) > POSITION_MAX:
        words = "Last-Event-ID is the `id` of a line of the stream, or of an event"
        raise Refusal("invalid_header", words, "Last-Event-Id")
    return int(named[1])


async def gone_of(receive: Receive) -> None:
    """Return when whoever asked has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _follow(
    ask: Ask, operation: str, *, last: int, gone: "asyncio.Future[None]", send: Send
) -> None:
    plane, loop = ask.plane, asyncio.get_running_loop()
    revision: object = None
    pause, beat_at = LOOK_SECONDS, loop.time() + HEARTBEAT_SECONDS
    known_at = loop.time()
    while not gone.done():
        if loop.time() >= known_at + KNOWN_SECONDS:
            known_at = loop.time()
            try:
                await caller_of(ask.headers, authenticate=ask.api.authenticate)
            except Refusal:
                return  # the token was revoked, or has expired
        found = await operations.records_after(plane, operation, last, unless=revision)
        if found is not None:
            revision, state, records = found
            ends = records[-1] if records and state in OF_END else None
            text = b"".join(_event(record, state, ends=record is ends) for record in records)
            last = records[-1].seq if records else last
            if state in SETTLED:
                whole = schemas.operation(await operations.get(plane, ask.tenant, operation))
                text += b"event: settled\ndata: " + encode(whole) + b"\n\n"
            await send({"type": "http.response.body", "body": text, "more_body": True})
            if state in SETTLED:
                return
            pause, beat_at = LOOK_SECONDS, loop.time() + HEARTBEAT_SECONDS
        if ask.api.stopping.is_set():
            return
        if loop.time() >= beat_at:
            await send(
                {"type": "http.response.body", "body": b": heartbeat\n\n", "more_body": True}
            )
            beat_at = loop.time() + HEARTBEAT_SECONDS
        await plane.engine.wait(operation, pause)
        pause = min(pause * 1.5, LOOK_SECONDS_MAX)


def _event(record: Record, state: State, *, ends: bool) -> bytes:
    """One record; the one that ends its operation is called what is published of it."""
    told = schemas.Followed(
        seq=record.seq, kind=record.kind, step=record.step, at=record.at, state=state,
        body=record.body,
    )  # fmt: skip
    name = (OF_END[state] if ends else OF_RECORD[record.kind]).encode()
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (record.seq, name, encode(told))
