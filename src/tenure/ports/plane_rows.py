"""The rows of a plane itself: its name, home and epoch, what its parts note, and its plans.

This module builds every write of the tables `plane` and `plan`, and the guards on them.  An engine
notes something there too; adapters do not import `app`, so it is here.
"""

from tenure.core.plan import Plan
from tenure.core.records.plane import PlanRecord
from tenure.ports.store import Drop, Is, Put, Set

PLANE_ROW = ("this",)
"""The key of the row that names the plane of this store, and has its epoch and pause."""
HOME_ROW = ("home",)
"""The key of the row that names the home of its processes, if several share a store."""


def put_note(key: tuple[str], text: str) -> Put:
    """What a part of the plane notes for all processes, such as the plane's name."""
    return Put("plane", key, {"name": text})


def set_note(key: tuple[str], text: str) -> Set:
    """The same, once it was noted."""
    return Set("plane", key, {"name": text})


def drop_note(key: tuple[str]) -> Drop:
    """Forget it."""
    return Drop("plane", key)


def note_is(key: tuple[str], text: str) -> Is:
    """Guard: the note still has this text."""
    return Is("plane", key, {"name": text})


def set_epoch(epoch: int, held: str | None) -> Set:
    """The plane is in this epoch; `held` says why it is paused."""
    return Set("plane", PLANE_ROW, {"epoch": epoch, "held": held})


def end_pause() -> Set:
    """An operator has confirmed that the plane may continue."""
    return Set("plane", PLANE_ROW, {"held": None})


def epoch_is(epoch: int) -> Is:
    """Guard: no later epoch was begun."""
    return Is("plane", PLANE_ROW, {"epoch": epoch})


def put_plan(plan: Plan) -> Put:
    """A plan that operations may follow to their end."""
    return Put.of(PlanRecord(plan.digest, plan.name, plan.version, plan.body()))
