"""Every event: a past fact, committed with the change it tells of."""

from enum import StrEnum
from hashlib import blake2b
from typing import Final

from tenure.core import agent
from tenure.core.operation import OperationState, RecordKind


class Event(StrEnum):
    """The types of event, as they stand on the wire."""

    OPERATION_ACCEPTED = "operation.accepted"
    OPERATION_STEP_DONE = "operation.step_done"
    OPERATION_COMPENSATING = "operation.compensating"
    OPERATION_STEP_UNDONE = "operation.step_undone"
    OPERATION_STUCK = "operation.stuck"
    OPERATION_SIGNALLED = "operation.signalled"
    OPERATION_RETRIED = "operation.retried"
    OPERATION_SUCCEEDED = "operation.succeeded"
    OPERATION_COMPENSATED = "operation.compensated"
    OPERATION_ABANDONED = "operation.abandoned"
    AGENT_CREATING = "agent.creating"
    AGENT_CREATE_FAILED = "agent.create_failed"
    AGENT_READY = "agent.ready"
    AGENT_SUSPENDING = "agent.suspending"
    AGENT_SUSPENDED = "agent.suspended"
    AGENT_RESUMING = "agent.resuming"
    AGENT_DELETING = "agent.deleting"
    AGENT_DELETE_FAILED = "agent.delete_failed"
    AGENT_DELETED = "agent.deleted"


PREFIX: Final = "tenure."
"""What the types of event begin with in CloudEvents."""
SEQUENCE_DIGITS: Final = 20


EPOCH_SPAN: Final = 1_000_000_000
"""Events in one epoch: the milliards of a number are the epoch it was given in."""


def in_epoch(number: int, epoch: int) -> int:
    """The same number in this epoch: greater than any that was given in an earlier one."""
    return epoch * EPOCH_SPAN + number % EPOCH_SPAN


def event_id(position: int, agent: str, sequence: int | None, at: float) -> str:
    """The same for the same event whenever it is told, and no other's.

    After a restore positions are given again: the rest keeps the new ones apart from the old.
    """
    told = repr((agent, sequence, at)).encode()
    return f"{position}-{blake2b(told, digest_size=8).hexdigest()}"


def sequence_text(sequence: int | None) -> str:
    """A sequence number in the form of CloudEvents: text that sorts as the numbers do."""
    return f"{sequence or 0:0{SEQUENCE_DIGITS}}"


OF_END: Final = {
    OperationState.SUCCEEDED: Event.OPERATION_SUCCEEDED,
    OperationState.COMPENSATED: Event.OPERATION_COMPENSATED,
    OperationState.ABANDONED: Event.OPERATION_ABANDONED,
}

OF_RECORD: Final = {
    RecordKind.ACCEPTED: Event.OPERATION_ACCEPTED,
    RecordKind.DONE: Event.OPERATION_STEP_DONE,
    RecordKind.ADOPTED: Event.OPERATION_STEP_DONE,
    RecordKind.REFUSED: Event.OPERATION_COMPENSATING,
    RecordKind.COMPENSATING: Event.OPERATION_COMPENSATING,
    RecordKind.UNDONE: Event.OPERATION_STEP_UNDONE,
    RecordKind.MARKED_ABSENT: Event.OPERATION_RETRIED,
    RecordKind.STUCK: Event.OPERATION_STUCK,
    RecordKind.SIGNALLED: Event.OPERATION_SIGNALLED,
    RecordKind.RETRIED: Event.OPERATION_RETRIED,
    RecordKind.ABANDONED: Event.OPERATION_ABANDONED,
}


def agent_event(state: agent.AgentState) -> Event:
    """The event that tells of an agent which is now in `state`."""
    return Event(f"agent.{state.lower()}")


def event_of(kind: RecordKind, state: OperationState) -> Event:
    """The event that tells of a record which left the operation in `state`; an end comes first."""
    return OF_END.get(state) or OF_RECORD[kind]
