"""The rows of a plane itself: its name, home, epoch and named values, and its plans.

This module builds every write of the tables `plane` and `plan`, and the guards on them.  An engine
stores a value there too; adapters do not import `app`, so it is here.
"""

from tenure.core.plan import Plan
from tenure.core.records.plane import PlanRecord
from tenure.ports.store import Drop, Is, Put, Set

PLANE_ROW = ("this",)
"""The key of the row that names the plane of this store, and has its epoch and pause."""
HOME_ROW = ("home",)
"""The key of the row that names the home of its processes, if several share a store."""


def put_plane_value(key: tuple[str], text: str) -> Put:
    """Store a value for all processes under its key; the plane's name is one such value."""
    return Put("plane", key, {"name": text})


def set_plane_value(key: tuple[str], text: str) -> Set:
    """Replace a stored value."""
    return Set("plane", key, {"name": text})


def drop_plane_value(key: tuple[str]) -> Drop:
    """Drop a stored value."""
    return Drop("plane", key)


def plane_value_is(key: tuple[str], text: str) -> Is:
    """Guard: the value is still this text."""
    return Is("plane", key, {"name": text})


def set_epoch(epoch: int, pause_reason: str | None) -> Set:
    """The plane is in this epoch; `pause_reason` is empty if it is not paused."""
    return Set("plane", PLANE_ROW, {"epoch": epoch, "held": pause_reason})


def end_pause() -> Set:
    """An operator has confirmed that the plane may continue."""
    return Set("plane", PLANE_ROW, {"held": None})


def epoch_is(epoch: int) -> Is:
    """Guard: no later epoch was begun."""
    return Is("plane", PLANE_ROW, {"epoch": epoch})


def put_plan(plan: Plan) -> Put:
    """A plan that operations may follow to their end."""
    return Put.of(PlanRecord(plan.digest, plan.name, plan.version, plan.body()))
