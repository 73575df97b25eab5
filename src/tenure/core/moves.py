"""Moves: the actions that `tenure.core.saga` decides on, each for one step."""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tenure.core.plan import Step


class Act(StrEnum):
    """The kinds of move.  The last two are decisions: a record with no call."""

    DO = "do"
    INSPECT = "inspect"
    UNDO = "undo"
    GIVE_UP = "give_up"
    """Nobody can tell what became of the call: STUCK."""
    FORGET = "forget"
    """Its undo is `nothing`, and no call of it is running."""


# Under names of their own: before Python 3.12 an enum's attribute takes ten times as long to find.
DO, INSPECT, UNDO, GIVE_UP, FORGET = Act


class Move(NamedTuple):
    """The next thing to perform."""

    act: Act
    step: "Step"


class Moves(NamedTuple):
    """What to perform now, and when to check again if nothing happens (None: not by time)."""

    now: tuple[Move, ...]
    wake_at: float | None


AT_REST = Moves((), None)
