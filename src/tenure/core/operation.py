"""An operation: one execution of a plan, with its journal and its intents.

The journal is an append-only list of `JournalEntry`; the operation's progress is computed from it.
An `Intent` is written before the first call of a step.  It has the key of the step's resource, the
fence token without which the step's outcome cannot be recorded, and the time of the next attempt.
The states of operations and of intents are tables.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tenure.core.states import StateMachine


class OperationState(StrEnum):
    """The state of an operation."""

    __hash__ = str.__hash__  # faster than the hash of Enum

    PENDING = "PENDING"
    """It is on disk, and no worker has claimed it: no step was called."""
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
    """The end by an operator: resources may be left, and are listed."""


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
OPERATION = StateMachine(
    "operation",
    start=S.PENDING,
    final={S.SUCCEEDED, S.COMPENSATED, S.ABANDONED},
    rows=[
        # from           trigger        to
        (S.PENDING,      T.CLAIMED,     S.RUNNING),
        (S.PENDING,      T.CANCELLED,   S.COMPENSATED),  # never claimed: nothing to undo
        (S.RUNNING,      T.RELEASED,  S.PENDING),  # its plan is unknown here; no step was called
        (S.RUNNING,      T.AWAITS_SIGNAL, S.WAITING),
        (S.RUNNING,      T.COMPENSATION_STARTED, S.COMPENSATING),
        (S.RUNNING,      T.STEP_STUCK,     S.STUCK),
        (S.RUNNING,      T.ALL_DONE,    S.SUCCEEDED),
        (S.RUNNING,      T.ALL_UNDONE,  S.COMPENSATED),  # compensated with nothing to undo
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
    """Whether a step's resource exists, as far as we know."""

    __hash__ = str.__hash__

    INTENDED = "INTENDED"
    """The step may have been called; it is not known to be done."""
    PRESENT = "PRESENT"
    """It is done."""
    REFUSED = "REFUSED"
    """The provider refused it.  Its undo is called: a refused call can leave something."""
    REMOVING = "REMOVING"
    """It is being undone."""
    BURNED = "BURNED"
    """It is undone, and its key is never used again."""


class IntentTrigger(StrEnum):
    """What changes the state of an intent."""

    __hash__ = str.__hash__

    DONE = "done"
    REFUSED = "refused"
    COMPENSATION_STARTED = "compensation_started"
    UNDONE = "undone"
    REMOVED = "removed"


# fmt: off
IS, IT = IntentState, IntentTrigger
INTENT = StateMachine(
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
        (IS.REFUSED,  IT.COMPENSATION_STARTED, IS.REMOVING),  # a refused call can leave something
        (IS.REMOVING, IT.UNDONE,      IS.BURNED),
    ],
)
del IS, IT
# fmt: on


class EntryKind(StrEnum):
    """The kinds of journal entries."""

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


SUPERSEDED = "tenure:closed"
"""The signal that another operation now decides over the thing that this one acts on.

Journals hold the value, so it keeps its first word.
"""
PIVOT_NOT_FOUND = "tenure:doubted"
"""The signal that an inspect found nothing under the key of a pivot that was called.

Journals hold the value, so it keeps its first word.
"""


class JournalEntry(NamedTuple):
    """One entry of the journal; `body` is a result, a cause or a signal's payload."""

    seq: int
    kind: EntryKind
    step: str
    at: float
    body: object


@dataclass(slots=True)
class Intent:
    """The resource that one step has made or may have made, and when the step is due again."""

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
    """Whether this process is performing or recording a move of this step; never stored."""
