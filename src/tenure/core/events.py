"""Events of operations, and what all events have: types, numbers and ids.

An event is a past fact, committed with the change that it describes.
"""

from enum import StrEnum
from hashlib import blake2b
from typing import Final

from tenure.core.operation import EntryKind, OperationState


class OperationEvent(StrEnum):
    """The types of the events of an operation, as they stand on the wire."""

    ACCEPTED = "operation.accepted"
    STEP_DONE = "operation.step_done"
    COMPENSATING = "operation.compensating"
    STEP_UNDONE = "operation.step_undone"
    STUCK = "operation.stuck"
    SIGNALLED = "operation.signalled"
    RETRIED = "operation.retried"
    SUCCEEDED = "operation.succeeded"
    COMPENSATED = "operation.compensated"
    ABANDONED = "operation.abandoned"


PREFIX: Final = "tenure."
"""The prefix of event types in CloudEvents."""
SEQUENCE_DIGITS: Final = 20


EPOCH_SPAN: Final = 1_000_000_000
"""Event numbers of one epoch: a number divided by this is the epoch in which it was given."""


def in_epoch(number: int, epoch: int) -> int:
    """The same number in this epoch; it is greater than all numbers of earlier epochs."""
    return epoch * EPOCH_SPAN + number % EPOCH_SPAN


def event_id(position: int, agent: str, sequence: int | None, at: float) -> str:
    """The unique id of an event; it is the same at every delivery.

    After a restore positions are used again: the hash tells the new events from the old.
    """
    parts = repr((agent, sequence, at)).encode()
    return f"{position}-{blake2b(parts, digest_size=8).hexdigest()}"


def sequence_text(sequence: int | None) -> str:
    """A sequence number in the form of CloudEvents: text that sorts as the numbers do."""
    return f"{sequence or 0:0{SEQUENCE_DIGITS}}"


EVENT_OF_END: Final = {
    OperationState.SUCCEEDED: OperationEvent.SUCCEEDED,
    OperationState.COMPENSATED: OperationEvent.COMPENSATED,
    OperationState.ABANDONED: OperationEvent.ABANDONED,
}

EVENT_OF_ENTRY: Final = {
    EntryKind.ACCEPTED: OperationEvent.ACCEPTED,
    EntryKind.DONE: OperationEvent.STEP_DONE,
    EntryKind.ADOPTED: OperationEvent.STEP_DONE,
    EntryKind.REFUSED: OperationEvent.COMPENSATING,
    EntryKind.COMPENSATING: OperationEvent.COMPENSATING,
    EntryKind.UNDONE: OperationEvent.STEP_UNDONE,
    EntryKind.MARKED_ABSENT: OperationEvent.RETRIED,
    EntryKind.STUCK: OperationEvent.STUCK,
    EntryKind.SIGNALLED: OperationEvent.SIGNALLED,
    EntryKind.RETRIED: OperationEvent.RETRIED,
    EntryKind.ABANDONED: OperationEvent.ABANDONED,
}


def event_of(kind: EntryKind, state: OperationState) -> OperationEvent:
    """The event of a journal entry after which the operation is in `state`."""
    return EVENT_OF_END.get(state) or EVENT_OF_ENTRY[kind]
