"""An operation: one execution of a plan, as its caller sees it; its records and its intents.

The journal (`Record`) is append-only and is the truth.  An `Intent` is what one step holds, or may
hold, in the world: its key, who may record its end (token), when it is due again.  Both states are
tables.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tenure.core.states import Table


class State(StrEnum):
    """Where an operation is."""

    __hash__ = str.__hash__  # Enum's own is a function in Python, and of the name

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPENSATING = "COMPENSATING"
    STUCK = "STUCK"
    SUCCEEDED = "SUCCEEDED"
    COMPENSATED = "COMPENSATED"
    ABANDONED = "ABANDONED"


# Those that are asked for most: before Python 3.12 an enum's attribute takes ten times as long.
PENDING, RUNNING, WAITING, COMPENSATING, STUCK, SUCCEEDED, COMPENSATED, _ = State


class Trigger(StrEnum):
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
    start=State.PENDING,
    final={State.SUCCEEDED, State.COMPENSATED, State.ABANDONED},
    rows=[
        (State.PENDING, Trigger.CLAIMED, State.RUNNING),
        (State.PENDING, Trigger.CANCELLED, State.COMPENSATED),  # never claimed: nothing to undo
        (State.RUNNING, Trigger.GIVEN_BACK, State.PENDING),  # by who cannot perform it: uncalled
        (State.RUNNING, Trigger.PARKED, State.WAITING),
        (State.RUNNING, Trigger.TURNED_BACK, State.COMPENSATING),
        (State.RUNNING, Trigger.GAVE_UP, State.STUCK),
        (State.RUNNING, Trigger.ALL_DONE, State.SUCCEEDED),
        (State.RUNNING, Trigger.ALL_UNDONE, State.COMPENSATED),  # turned back with nothing to undo
        (State.WAITING, Trigger.RESUMED, State.RUNNING),
        (State.WAITING, Trigger.TURNED_BACK, State.COMPENSATING),
        (State.WAITING, Trigger.GAVE_UP, State.STUCK),
        (State.WAITING, Trigger.ALL_DONE, State.SUCCEEDED),
        (State.WAITING, Trigger.ALL_UNDONE, State.COMPENSATED),
        (State.COMPENSATING, Trigger.GAVE_UP, State.STUCK),
        (State.COMPENSATING, Trigger.ALL_UNDONE, State.COMPENSATED),
        (State.STUCK, Trigger.RESUMED, State.RUNNING),
        (State.STUCK, Trigger.PARKED, State.WAITING),
        (State.STUCK, Trigger.TURNED_BACK, State.COMPENSATING),
        (State.STUCK, Trigger.ALL_DONE, State.SUCCEEDED),
        (State.STUCK, Trigger.ALL_UNDONE, State.COMPENSATED),
        (State.STUCK, Trigger.ABANDONED, State.ABANDONED),
    ],
)


SETTLED = OPERATION.final | {State.STUCK}
"""The states in which whoever waits for an operation is told."""


class Hold(StrEnum):
    """What a step holds in the world, as far as we know."""

    __hash__ = str.__hash__

    INTENDED = "INTENDED"
    PRESENT = "PRESENT"
    REFUSED = "REFUSED"
    REMOVING = "REMOVING"
    BURNED = "BURNED"


class Fate(StrEnum):
    """What changes what a step holds."""

    __hash__ = str.__hash__

    DONE = "done"
    REFUSED = "refused"
    TURNED_BACK = "turned_back"
    UNDONE = "undone"
    REMOVED = "removed"


INTENT = Table(
    "intent",
    start=Hold.INTENDED,
    final={Hold.BURNED},
    rows=[
        (Hold.INTENDED, Fate.DONE, Hold.PRESENT),
        (Hold.INTENDED, Fate.REFUSED, Hold.REFUSED),
        (Hold.INTENDED, Fate.TURNED_BACK, Hold.REMOVING),
        (Hold.INTENDED, Fate.UNDONE, Hold.BURNED),  # never called, or its undo is `nothing`
        (Hold.PRESENT, Fate.TURNED_BACK, Hold.REMOVING),
        (Hold.PRESENT, Fate.REMOVED, Hold.BURNED),  # by a later operation, or by a reconciler
        (Hold.REFUSED, Fate.TURNED_BACK, Hold.REMOVING),  # a refusal can leave residue
        (Hold.REMOVING, Fate.UNDONE, Hold.BURNED),
    ],
)


class Noted(StrEnum):
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
    kind: Noted
    step: str
    at: float
    body: object


@dataclass(slots=True)
class Intent:
    """What one step holds, or may hold, and when to look at it again."""

    step: str
    slot: str
    key: str
    state: Hold = Hold.INTENDED
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
