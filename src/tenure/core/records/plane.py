"""Records of the plane itself: whose store it is, its plans, the leases of its processes."""

from typing import NamedTuple

from tenure.core.records.table import declares_table


@declares_table(
    "plane", key=("one",), columns={"note": "one", "text": "name", "pause_reason": "held"}
)
class PlaneRecord(NamedTuple):
    """A fact about this store; the row `this` has the plane's name, epoch and pause."""

    note: str
    """Which fact: `this`, `home`, or a name that a part of the plane chose; the column is `one`."""
    text: str
    """The fact; in the row `this` the plane's name, part of all keys.  The column is `name`."""
    epoch: int | None
    """How often this store was restored; a restored store has a higher epoch than its copy."""
    pause_reason: str | None
    """Why nothing may move until an operator confirms; NULL or empty: the plane is not paused."""


@declares_table("plan", key=("digest",))
class PlanRecord(NamedTuple):
    """A plan that some operation of this store follows or followed."""

    digest: str
    """The hash of the body."""
    name: str
    """The name that the catalogue has for it."""
    version: int
    """The version that its author gave it."""
    body: str
    """The stages and steps as JSON."""


@declares_table("lease", key=("name",))
class LeaseRecord(NamedTuple):
    """A lease that one process holds until it expires or is released."""

    name: str
    """What is leased: `worker/<id>` for a worker's operations, or a role such as the leader's."""
    holder: str
    """The process that has it."""
    token: int
    """The fence token; it grows whenever the lease changes hands."""
    until: float
    """The instant after which others may take it."""
