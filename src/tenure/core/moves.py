"""Moves: what `tenure.core.saga` decides to do with one step, and the executor then performs."""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tenure.core.plan import Step


class Act(StrEnum):
    """The kinds of move.  The last two call no provider; they only write a journal entry.

    The values stand in histories of Temporal, so they keep their first words.
    """

    DO = "do"
    INSPECT = "inspect"
    UNDO = "undo"
    DECLARE_STUCK = "give_up"
    """The outcome of the call cannot be found out: the step becomes STUCK."""
    COUNT_UNDONE = "forget"
    """It counts as undone without a call: its undo is `nothing`, and no do of it is running."""


# Module constants: before Python 3.12 reading an attribute of an enum takes ten times as long.
DO, INSPECT, UNDO, DECLARE_STUCK, COUNT_UNDONE = Act


class Move(NamedTuple):
    """One action on one step."""

    act: Act
    step: "Step"


class Moves(NamedTuple):
    """The moves to perform now, and when to check again; `wake_at` None: only after a signal."""

    due: tuple[Move, ...]
    wake_at: float | None


NO_MOVES = Moves((), None)
