"""Inputs and results of the workflow and its activities: ids, step names and numbers.

They never contain the input of an operation.  The only free text is the agent's name and one line
about a step and about the operation.

These messages stay in workflow histories longer than this code exists.  A field may be added with a
default.  No stored key may be renamed or change its meaning; where a field's name here differs from
its key, the class maps it with `rename`.
"""

from msgspec import Struct, field

WORKFLOW = "Operation"
WAKE = "wake"
LOAD = "operation.load"
CANCEL = "operation.cancel"
REST = "operation.rest"
"""Activities for the operation as a whole; no step name contains a dot."""


class DueMove(Struct, frozen=True):
    """A move to start: its step, its act (do, undo or inspect), and the token of its intent."""

    step: str
    act: str
    token: int


ANSWER_KEYS = {
    "wait_seconds": "wait",
    "moves_after_wait": "then",
    "ends_run": "over",
    "must_reload": "look",
    "step_status": "said",
    "cache_key": "ticket",
    "reason": "why",
}


class Answer(Struct, frozen=True, rename=ANSWER_KEYS):
    """The result of every activity: the operation's state and what the run does next."""

    state: str
    token: int
    """The fence token of this run's claim; 0: this run has not claimed the operation yet."""
    revision: int = 0
    moves: list[DueMove] = field(default_factory=list)
    wait_seconds: float | None = None
    """Time until the run starts `moves_after_wait`; None: no timer."""
    moves_after_wait: list[DueMove] = field(default_factory=list)
    ends_run: bool = False
    """The operation has ended, rests, or was claimed by another run."""
    must_reload: bool = False
    """The activity read and moved nothing: load the operation again."""
    interrupt: bool = False
    """Cancel the running do and inspect calls."""
    cache_key: str = ""
    """The key of the cached operation in the worker that gave this answer."""
    step_status: str = ""
    """One bounded line for people: how the step ended."""
    reason: str = ""
    """One bounded line for people: why the operation is stuck or compensates."""


class RunInput(Struct, frozen=True):
    """The input of a run."""

    operation: str
    title: str = ""
    """Shown to people beside every activity."""
    answer: Answer | None = None
    """Where to continue; None: load the operation first."""
    attributes: bool = True
    """Whether the namespace has our search attributes."""


class ActivityInput(Struct, frozen=True, rename={"cache_key": "ticket"}):
    """The input of an activity; `step` and `act` are empty for the operation as a whole."""

    operation: str
    token: int
    step: str = ""
    act: str = ""
    fence: int = 0
    """The token of the step's intent when the move was decided."""
    cache_key: str = ""
    """The cache key of the answer that caused this move, if no other move was performed since."""
