"""Records of quotas: how much a tenant may have, and what counts against it."""

from typing import NamedTuple

from tenure.core.records.table import declares_table


@declares_table("quota", key=("tenant", "kind"))
class QuotaRecord(NamedTuple):
    """How many things of one kind a tenant may have at a time."""

    tenant: str
    """The tenant that is limited."""
    kind: str
    """What is counted, such as `agents`."""
    most: int
    """The largest number allowed."""
    revision: int
    """Raised by every reservation, so that two of them cannot both take the last place."""


@declares_table("reservation", key=("tenant", "kind", "agent"))
class ReservationRecord(NamedTuple):
    """One thing that counts against a quota; there is a row for each, and never a counter."""

    tenant: str
    """The tenant whose quota it counts against."""
    kind: str
    """What is counted, as in the quota."""
    agent: str
    """The uid of the agent that is counted."""
    operation: str
    """The operation that made the reservation."""
    at: float
    """When it was made."""
