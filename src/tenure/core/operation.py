"""An operation: one execution of a plan, as its caller sees it; its records and its intents.

The journal (`Record`) is append-only and is the truth.  An `Intent` is what one step holds, or may
hold, in the world: its key, who may record its end (token), when it is due again.  Both states are
tables.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tenure.core.states import Table


class OperationState(StrEnum):
    """Where an operation is."""

    __hash__ = str.__hash__  # Enum's own is a function in Python, and of the name

    PENDING = "PENDING"
    """On disk, and no worker has claimed it: nothing was called."""
    RUNNING = "RUNNING"
    """Its steps are being done."""
    WAITING = "WAITING"
    """Every step that it could do waits for a signal."""
    COMPENSATING = "COMPENSATING"
    """It is being undone."""
    STUCK = "STUCK"
    """A step needs an operator: retry, adopt, mark-absent or abandon."""
    SUCCEEDED = "SUCCEEDED"
    """The end: every step is done."""
    COMPENSATED = "COMPENSATED"
    """The end: every step that was intended is undone."""
    ABANDONED = "ABANDONED"
    """The end by an operator's word: something may be left, and is listed."""


# Those that are asked for most: before Python 3.12 an enum's attribute takes ten times as long.
PENDING, RUNNING, WAITING, COMPENSATING, STUCK, SUCCEEDED, COMPENSATED, _ = OperationState


class OperationTrigger(StrEnum):
    """What moves an operation from one state to another."""

    CLAIMED = "claimed"
    GIVEN_BACK = "given_back"
    CANCELLED = "cancelled"
    PARKED = "parked"
    RESUMED = "resumed"
    TURNED_BACK = "turned_back"
    GAVE_UP = "gave_up"
    ALL_DONE = "all_done"
    ALL_UNDONE = "all_undone"
    ABANDONED = "abandoned"


OPERATION = Table(
    "operation",
    start=OperationState.PENDING,
    final={OperationState.SUCCEEDED, OperationState.COMPENSATED, OperationState.ABANDONED},
    rows=[
        (OperationState.PENDING, OperationTrigger.CLAIMED, OperationState.RUNNING),
        (
            OperationState.PENDING,
            OperationTrigger.CANCELLED,
            OperationState.COMPENSATED,
        ),  # never claimed: nothing to undo
        (
            OperationState.RUNNING,
            OperationTrigger.GIVEN_BACK,
            OperationState.PENDING,
        ),  # by who cannot perform it: uncalled
        (OperationState.RUNNING, OperationTrigger.PARKED, OperationState.WAITING),
        (OperationState.RUNNING, OperationTrigger.TURNED_BACK, OperationState.COMPENSATING),
        (OperationState.RUNNING, OperationTrigger.GAVE_UP, OperationState.STUCK),
        (OperationState.RUNNING, OperationTrigger.ALL_DONE, OperationState.SUCCEEDED),
        (
            OperationState.RUNNING,
            OperationTrigger.ALL_UNDONE,
            OperationState.COMPENSATED,
        ),  # turned back with nothing to undo
        (OperationState.WAITING, OperationTrigger.RESUMED, OperationState.RUNNING),
        (OperationState.WAITING, OperationTrigger.TURNED_BACK, OperationState.COMPENSATING),
        (OperationState.WAITING, OperationTrigger.GAVE_UP, OperationState.STUCK),
        (OperationState.WAITING, OperationTrigger.ALL_DONE, OperationState.SUCCEEDED),
        (OperationState.WAITING, OperationTrigger.ALL_UNDONE, OperationState.COMPENSATED),
        (OperationState.COMPENSATING, OperationTrigger.GAVE_UP, OperationState.STUCK),
        (OperationState.COMPENSATING, OperationTrigger.ALL_UNDONE, OperationState.COMPENSATED),
        (OperationState.STUCK, OperationTrigger.RESUMED, OperationState.RUNNING),
        (OperationState.STUCK, OperationTrigger.PARKED, OperationState.WAITING),
        (OperationState.STUCK, OperationTrigger.TURNED_BACK, OperationState.COMPENSATING),
        (OperationState.STUCK, OperationTrigger.ALL_DONE, OperationState.SUCCEEDED),
        (OperationState.STUCK, OperationTrigger.ALL_UNDONE, OperationState.COMPENSATED),
        (OperationState.STUCK, OperationTrigger.ABANDONED, OperationState.ABANDONED),
    ],
)


SETTLED = OPERATION.final | {OperationState.STUCK}
"""The states in which whoever waits for an operation is told."""


class IntentState(StrEnum):
    """What a step holds in the world, as far as we know."""

    __hash__ = str.__hash__

    INTENDED = "INTENDED"
    """It may have been called; it is not known to be done."""
    PRESENT = "PRESENT"
    """It is done."""
    REFUSED = "REFUSED"
    """The provider refused it; it is undone all the same."""
    REMOVING = "REMOVING"
    """It is being undone."""
    BURNED = "BURNED"
    """It is undone, and its key is never used again."""


class IntentTrigger(StrEnum):
    """What changes what a step holds."""

    __hash__ = str.__hash__

    DONE = "done"
    REFUSED = "refused"
    TURNED_BACK = "turned_back"
    UNDONE = "undone"
    REMOVED = "removed"


INTENT = Table(
    "intent",
    start=IntentState.INTENDED,
    final={IntentState.BURNED},
    rows=[
        (IntentState.INTENDED, IntentTrigger.DONE, IntentState.PRESENT),
        (IntentState.INTENDED, IntentTrigger.REFUSED, IntentState.REFUSED),
        (IntentState.INTENDED, IntentTrigger.TURNED_BACK, IntentState.REMOVING),
        (
            IntentState.INTENDED,
            IntentTrigger.UNDONE,
            IntentState.BURNED,
        ),  # never called, or its undo is `nothing`
        (IntentState.PRESENT, IntentTrigger.TURNED_BACK, IntentState.REMOVING),
        (
            IntentState.PRESENT,
            IntentTrigger.REMOVED,
            IntentState.BURNED,
        ),  # by a later operation, or by a reconciler
        (
            IntentState.REFUSED,
            IntentTrigger.TURNED_BACK,
            IntentState.REMOVING,
        ),  # a refusal can leave residue
        (IntentState.REMOVING, IntentTrigger.UNDONE, IntentState.BURNED),
    ],
)


class RecordKind(StrEnum):
    """What a journal record can say."""

    __hash__ = str.__hash__

    ACCEPTED = "accepted"
    DONE = "done"
    REFUSED = "refused"
    COMPENSATING = "compensating"
    UNDONE = "undone"
    STUCK = "stuck"
    SIGNALLED = "signalled"
    RETRIED = "retried"
    ADOPTED = "adopted"
    MARKED_ABSENT = "marked_absent"
    ABANDONED = "abandoned"


ACKNOWLEDGED = "tenure:acknowledged"
"""The signal that a required subscriber has acknowledged, or is no longer waited for."""
CLOSED = "tenure:closed"
"""The signal that another operation has closed the agent: this one has no say in its state now."""
DOUBTED = "tenure:doubted"
"""The signal that a look found nothing of a pivot that had been called."""


class Record(NamedTuple):
    """One line of the journal.  `body` is plain data: a result, a cause, a signal's payload."""

    seq: int
    kind: RecordKind
    step: str
    at: float
    body: object


@dataclass(slots=True)
class Intent:
    """What one step holds, or may hold, and when to look at it again."""

    step: str
    slot: str
    key: str
    state: IntentState = IntentState.INTENDED
    token: int = 0
    attempts: int = 0
    due_at: float | None = 0.0
    """None: not before a signal."""
    unknown_since: float | None = None
    """Since when a call may be out whose end we do not know; None: none is."""
    waiting_on: str | None = None
    """`count:signal`: parked until that many signals of that name are in the journal."""
    detail: str | None = None
    """The provider's last words."""
    busy: bool = False
    """A move of this step is being performed or recorded in this very process (never stored)."""
