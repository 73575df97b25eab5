"""The journal entries of an operation as server-sent events, until it ends or is stuck.

The id of an event is the number of its journal entry, so that a client that lost its connection can
resume after the last entry it received.  A commit does not tell which operation it belongs to, so
the stream polls: soon after an entry, then less often, and at once when the engine reports that the
operation has ended or is stuck.
"""

import asyncio

import msgspec

from tenure.app.operations import reads
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.events import EVENT_OF_END, EVENT_OF_ENTRY
from tenure.core.operation import ENDED_OR_STUCK, JournalEntry, OperationState
from tenure.core.retry import OPERATION_STREAM
from tenure.faces.api.schemas import operations as schemas
from tenure.faces.http.authenticate import caller_of
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import HttpRequest, Send, Stream
from tenure.faces.http.sse import HEADERS, HEARTBEAT_SECONDS, last_seen, wait_for_disconnect

TOKEN_CHECK_SECONDS = 0.5
"""How often the token is checked."""
encode = msgspec.json.encode


async def progress(request: HttpRequest, operation: str) -> Stream:
    """A stream of the journal of this operation; NotFound is raised before anything is sent."""
    await reads.get_operation(request.plane, request.tenant, operation)
    last = last_seen(request.headers)

    async def write(send: Send) -> int:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        disconnect = asyncio.ensure_future(wait_for_disconnect(request.receive))
        try:
            await _follow(request, operation, last=last, disconnect=disconnect, send=send)
        except (StoreError, CommitUnknown):
            pass  # the process is ending: the client reconnects with the last id
        finally:
            disconnect.cancel()
        await send({"type": "http.response.body", "body": b""})
        return 200

    return Stream(write)


async def _follow(
    request: HttpRequest,
    operation: str,
    *,
    last: int,
    disconnect: "asyncio.Future[None]",
    send: Send,
) -> None:
    plane, loop = request.plane, asyncio.get_running_loop()
    revision: object = None
    pauses, beat_at = OPERATION_STREAM.delays(), loop.time() + HEARTBEAT_SECONDS
    checked_at = loop.time()
    while not disconnect.done():
        if loop.time() >= checked_at + TOKEN_CHECK_SECONDS:
            checked_at = loop.time()
            try:
                await caller_of(request.headers, authenticate=request.http_state.authenticate)
            except ProblemError:
                return  # the token was revoked, or has expired
        found = await reads.entries_after(plane, operation, last, known_revision=revision)
        if found is not None:
            revision, state, entries = found
            last_entry = entries[-1] if entries and state in EVENT_OF_END else None
            text = b"".join(_event(entry, state, ends=entry is last_entry) for entry in entries)
            last = entries[-1].seq if entries else last
            if state in ENDED_OR_STUCK:
                whole = schemas.operation(
                    await reads.get_operation(plane, request.tenant, operation)
                )
                text += b"event: settled\ndata: " + encode(whole) + b"\n\n"
            await send({"type": "http.response.body", "body": text, "more_body": True})
            if state in ENDED_OR_STUCK:
                return
            pauses, beat_at = OPERATION_STREAM.delays(), loop.time() + HEARTBEAT_SECONDS
        if request.http_state.stopping.is_set():
            return
        if loop.time() >= beat_at:
            await send(
                {"type": "http.response.body", "body": b": heartbeat\n\n", "more_body": True}
            )
            beat_at = loop.time() + HEARTBEAT_SECONDS
        await plane.engine.wait(operation, next(pauses))


def _event(entry: JournalEntry, state: OperationState, *, ends: bool) -> bytes:
    """One entry as an event; the entry that ends the operation has the type of its end event."""
    data = schemas.StreamedEntry(
        seq=entry.seq,
        kind=entry.kind,
        step=entry.step,
        at=entry.at,
        state=state,
        body=entry.body,
    )
    name = (EVENT_OF_END[state] if ends else EVENT_OF_ENTRY[entry.kind]).encode()
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (entry.seq, name, encode(data))
