"""An operation: one execution of a plan, as its caller sees it; its records and its intents.

The journal (`Record`) is append-only and is the truth.  An `Intent` is what one step holds, or may
hold, in the world: its key, the token that permits a record of its end, when it is due again.
Both states are tables.
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


# The most frequent members: before Python 3.12 an enum's attribute takes ten times as long.
PENDING, RUNNING, WAITING, COMPENSATING, STUCK, SUCCEEDED, COMPENSATED, _ = OperationState


class OperationTrigger(StrEnum):
    """What moves an operation from one state to another."""

    CLAIMED = "claimed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    AWAITS_SIGNAL = "awaits_signal"
    RESUMED = "resumed"
    COMPENSATION_STARTED = "compensation_started"
    STEP_STUCK = "step_stuck"
    ALL_DONE = "all_done"
    ALL_UNDONE = "all_undone"
    ABANDONED = "abandoned"


# fmt: off
S, T = OperationState, OperationTrigger
OPERATION = Table(
    "operation",
    start=S.PENDING,
    final={S.SUCCEEDED, S.COMPENSATED, S.ABANDONED},
    rows=[
        # from           trigger        to
        (S.PENDING,      T.CLAIMED,     S.RUNNING),
        (S.PENDING,      T.CANCELLED,   S.COMPENSATED),  # never claimed: nothing to undo
        (S.RUNNING,      T.RELEASED,  S.PENDING),  # its plan is unknown here: nobody was called
        (S.RUNNING,      T.AWAITS_SIGNAL, S.WAITING),
        (S.RUNNING,      T.COMPENSATION_STARTED, S.COMPENSATING),
        (S.RUNNING,      T.STEP_STUCK,     S.STUCK),
        (S.RUNNING,      T.ALL_DONE,    S.SUCCEEDED),
        (S.RUNNING,      T.ALL_UNDONE,  S.COMPENSATED),  # turned back with nothing to undo
        (S.WAITING,      T.RESUMED,     S.RUNNING),
        (S.WAITING,      T.COMPENSATION_STARTED, S.COMPENSATING),
        (S.WAITING,      T.STEP_STUCK,     S.STUCK),
        (S.WAITING,      T.ALL_DONE,    S.SUCCEEDED),
        (S.WAITING,      T.ALL_UNDONE,  S.COMPENSATED),
        (S.COMPENSATING, T.STEP_STUCK,     S.STUCK),
        (S.COMPENSATING, T.ALL_UNDONE,  S.COMPENSATED),
        (S.STUCK,        T.RESUMED,     S.RUNNING),
        (S.STUCK,        T.AWAITS_SIGNAL, S.WAITING),
        (S.STUCK,        T.COMPENSATION_STARTED, S.COMPENSATING),
        (S.STUCK,        T.ALL_DONE,    S.SUCCEEDED),
        (S.STUCK,        T.ALL_UNDONE,  S.COMPENSATED),
        (S.STUCK,        T.ABANDONED,   S.ABANDONED),
    ],
)
del S, T
# fmt: on


ENDED_OR_STUCK = OPERATION.final | {OperationState.STUCK}
"""The states in which a wait for an operation returns."""


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
    COMPENSATION_STARTED = "compensation_started"
    UNDONE = "undone"
    REMOVED = "removed"


# fmt: off
IS, IT = IntentState, IntentTrigger
INTENT = Table(
    "intent",
    start=IS.INTENDED,
    final={IS.BURNED},
    rows=[
        # from        trigger         to
        (IS.INTENDED, IT.DONE,        IS.PRESENT),
        (IS.INTENDED, IT.REFUSED,     IS.REFUSED),
        (IS.INTENDED, IT.COMPENSATION_STARTED, IS.REMOVING),
        (IS.INTENDED, IT.UNDONE,      IS.BURNED),  # never called, or its undo is `nothing`
        (IS.PRESENT,  IT.COMPENSATION_STARTED, IS.REMOVING),
        (IS.PRESENT,  IT.REMOVED,     IS.BURNED),  # by a later operation, or by a reconciler
        (IS.REFUSED,  IT.COMPENSATION_STARTED, IS.REMOVING),  # a refusal can leave residue
        (IS.REMOVING, IT.UNDONE,      IS.BURNED),
    ],
)
del IS, IT
# fmt: on


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
PIVOT_NOT_FOUND = "tenure:doubted"
"""The signal that an inspect found nothing of a pivot that had been called."""


class Record(NamedTuple):
    """One line of the journal.  `body` is plain data: a result, a cause, a signal's payload."""

    seq: int
    kind: RecordKind
    step: str
    at: float
    body: object


@dataclass(slots=True)
class Intent:
    """What one step holds, or may hold, and when it is due again."""

    step: str
    slot: str
    key: str
    state: IntentState = IntentState.INTENDED
    token: int = 0
    attempts: int = 0
    due_at: float | None = 0.0
    """None: not before a signal."""
    unknown_since: float | None = None
    """Since when the outcome of a call is unknown; None: it is known."""
    waiting_on: str | None = None
    """`count:signal`: waits until that many signals of that name are in the journal."""
    detail: str | None = None
    """The provider's last message."""
    busy: bool = False
    """A move of this step is being performed or recorded in this very process (never stored)."""
