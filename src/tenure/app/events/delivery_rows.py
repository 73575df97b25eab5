"""The rows of deliveries: cursors, parked streams, dead letters.

This module builds every write of the tables `cursor`, `parked` and `letter`, and the guards on
them.  The relay and the requests of callers both change these rows.
"""

from tenure.core.records import CursorRecord, EventRecord, LetterRecord, ParkedRecord, key_of
from tenure.ports.store import Drop, Is, Put, Row, Set

LETTERS_PER_COMMIT = 500
"""Rows of dead letters and parked streams that one commit drops."""

# --- cursors --------------------------------------------------------------------------------------


def put_cursor(destination: str, *, position: int = 0) -> Put:
    """The cursor of a destination that is to receive the events after this position."""
    return Put.of(
        CursorRecord(destination, position, attempts=0, due_at=0.0, why="", since=None, missed=0)
    )


def move_cursor(destination: str, position: int) -> Set:
    """A cursor at another position."""
    return Set("cursor", (destination,), {"position": position})


def advance_cursor(cursor: CursorRecord, position: int) -> Set:
    """The destination has received everything up to a position, so it does not fail any more."""
    if not cursor.attempts:
        return move_cursor(cursor.destination, position)
    columns: Row = {"position": position, "attempts": 0, "due_at": 0.0, "why": "", "since": None}
    return Set("cursor", (cursor.destination,), columns)


def back_off_cursor(
    cursor: CursorRecord, *, attempts: int, due_at: float, why: str, now: float
) -> Set:
    """The destination accepts nothing: nothing is sent before `due_at`."""
    since = cursor.since or now
    columns: Row = {"attempts": attempts, "due_at": due_at, "why": why, "since": since}
    return Set("cursor", (cursor.destination,), columns)


def make_cursor_due(destination: str, now: float) -> Set:
    """A destination that backs off is tried again now."""
    return Set("cursor", (destination,), {"due_at": now})


def count_missed(cursor: CursorRecord, count: int) -> Set:
    """So many more events were dropped before the destination received them."""
    return Set("cursor", (cursor.destination,), {"missed": cursor.missed + count})


def drop_cursor(destination: str) -> Drop:
    """The destination is gone."""
    return Drop("cursor", (destination,))


def cursor_is_at(cursor: CursorRecord) -> Is:
    """Guard: the cursor has not been moved since it was read."""
    return Is("cursor", (cursor.destination,), {"position": cursor.position})


def cursor_has_failed(cursor: CursorRecord) -> Is:
    """Guard: the destination has been tried as often as when its cursor was read."""
    return Is("cursor", (cursor.destination,), {"attempts": cursor.attempts})


# --- parked streams -------------------------------------------------------------------------------


def put_stream(stream: ParkedRecord) -> Put:
    """From here on the events of this agent become dead letters of this destination."""
    return Put.of(stream)


def retry_stream_later(
    stream: ParkedRecord, *, attempts: int, due_at: float | None, why: str
) -> Set:
    """The stream was refused again."""
    return Set("parked", key_of(stream), {"attempts": attempts, "due_at": due_at, "why": why})


def make_stream_due(stream: ParkedRecord, now: float) -> Set:
    """The stream is tried again now, and as often as a new one."""
    return Set("parked", key_of(stream), {"due_at": now, "attempts": 0})


def drop_stream(stream: ParkedRecord) -> Drop:
    """The stream has no letters any more: its next event is sent as usual."""
    return Drop("parked", key_of(stream))


def stream_was_tried(stream: ParkedRecord) -> Is:
    """Guard: the stream has been tried as often as when it was read."""
    return Is("parked", key_of(stream), {"attempts": stream.attempts})


def stream_is_parked(stream: ParkedRecord) -> Is:
    """Guard: this stream is still parked, and has not been discarded and parked again."""
    return Is("parked", key_of(stream), {"since": stream.since})


# --- dead letters ---------------------------------------------------------------------------------


def put_letter(destination: str, event: EventRecord) -> Put:
    """The dead letter of an event that this destination has not accepted."""
    return Put.of(
        LetterRecord(
            destination, event.agent, event.position, event.tenant, event.operation, event.type,
            event.at, event.body, event.sequence,
        )
    )  # fmt: skip


def drop_letter(letter: LetterRecord) -> Drop:
    """The letter was delivered or discarded, or its destination is gone."""
    return Drop("letter", key_of(letter))
