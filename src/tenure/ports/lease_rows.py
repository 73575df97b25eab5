"""The rows of leases.

This module builds every write of the table `lease`, and the guards on it.  Engines, leaders and
reconcilers change these rows; adapters do not import `app`, so it is here.
"""

from tenure.core.records.plane import LeaseRecord
from tenure.core.records.table import columns_of
from tenure.ports.store import Below, Drop, Is, Put, Set


def put_lease(row: LeaseRecord) -> Put:
    """Insert a new lease."""
    return Put.of(row)


def set_lease(row: LeaseRecord) -> Set:
    """Renew a lease, or give it to another worker."""
    return Set("lease", (row.name,), columns_of(row))


def extend_lease(name: str, until: float) -> Set:
    """Extend a lease until this time."""
    return Set("lease", (name,), {"until": until})


def drop_lease(name: str) -> Drop:
    """Delete a lease and its token."""
    return Drop("lease", (name,))


def lease_has_token(name: str, token: int) -> Is:
    """Guard: the lease still has this token."""
    return Is("lease", (name,), {"token": token})


def lease_has_lapsed(row: LeaseRecord, before: float) -> Is:
    """Guard: the lease that was read has lapsed before this time, and was not renewed."""
    return Is("lease", (row.name,), {"until": Below(before), "token": row.token})
