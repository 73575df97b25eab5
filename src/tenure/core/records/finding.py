"""Records of findings."""

from typing import Annotated, NamedTuple

from tenure.core.finding import FindingKind
from tenure.core.records.table import declares_table


@declares_table("finding", key=("id",))
class FindingRecord(NamedTuple):
    """Something that a reconciler has seen, from its first sighting on."""

    id: str
    """The identifier: the same whenever this reconciler sees the same thing."""
    tenant: str
    """The tenant that it concerns; empty: the plane as a whole."""
    reconciler: str
    """The reconciler that saw it."""
    kind: Annotated[str, FindingKind]
    """How sure the reconciler is."""
    agent: str
    """The uid of the agent that it concerns; empty: none is known."""
    resource: str
    """The key of the resource that it concerns; empty: none is known."""
    first_seen: float
    """When it was first seen."""
    last_seen: float
    """When it was last seen."""
    sightings: int
    """How often it was seen."""
    resolved_at: float | None
    """When it was so no longer; NULL: it still is."""
    resolved_by: str | None
    """The caller or the reconciler that resolved it; NULL: it is not resolved."""
    body: str
    """Further details as JSON."""
