"""What workflow and activities tell each other: ids, names of steps and numbers, never an input.

For people there are the agent's name, and a line of how a step ended and of why an operation did.

All of it stands in histories that outlive this code.  A field may be added with a default; none
may be renamed, and none may change its meaning.
"""

from dataclasses import dataclass, field

WORKFLOW = "Operation"
WAKE = "wake"
LOAD = "operation.load"
CANCEL = "operation.cancel"
REST = "operation.rest"
"""Activities on the operation as a whole; no step's name has a dot."""


@dataclass(frozen=True)
class Due:
    """A move to start: its step, what to do with it, and the token of its intent."""

    step: str
    act: str
    token: int


@dataclass(frozen=True)
class Answer:
    """What there is to do for an operation, as decided by whoever has just read or moved it."""

    state: str
    token: int
    """Under which it is held; 0: it is not held by this run yet."""
    revision: int = 0
    moves: list[Due] = field(default_factory=list)
    wait: float | None = None
    """Seconds until `then` is to be started, if nothing else happens; None: not by time."""
    then: list[Due] = field(default_factory=list)
    over: bool = False
    """The operation has ended, was put to rest, or is held by another: this run is over."""
    look: bool = False
    """Nothing was read or moved: read the operation again."""
    interrupt: bool = False
    """Calls of do's that are under way are to be stopped."""
    ticket: str = ""
    """Names this answer to the worker that gave it: it has kept what it knew then."""
    said: str = ""
    """How the step stands after this move.  This and the next are for people: one line, bounded."""
    why: str = ""
    """Why the operation is stuck or was turned back, and if it rests until when."""


@dataclass(frozen=True)
class Start:
    """The input of a run."""

    operation: str
    title: str = ""
    """What people read beside every activity."""
    answer: Answer | None = None
    """None: read the operation first."""
    attributes: bool = True
    """Whether the namespace has our search attributes."""


@dataclass(frozen=True)
class Task:
    """The input of an activity; step and act are empty for one on the operation as a whole."""

    operation: str
    token: int
    step: str = ""
    act: str = ""
    fence: int = 0
    """The token of the step's intent when the move was decided."""
    ticket: str = ""
    """Of the answer that asks for this, if nothing has happened since what it tells of."""
