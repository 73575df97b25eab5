"""The rows of leases.

This module builds every write of the table `lease`, and the guards on it.  Engines, leaders and
reconcilers change these rows; adapters do not import `app`, so it is here.
"""

from tenure.core.records.plane import LeaseRecord
from tenure.core.records.table import columns_of
from tenure.ports.store import Below, Drop, Is, Put, Set


def put_lease(row: LeaseRecord) -> Put:
    """A lease that nobody had before."""
    return Put.of(row)


def set_lease(row: LeaseRecord) -> Set:
    """The lease is renewed, or has another holder from now on."""
    return Set("lease", (row.name,), columns_of(row))


def extend_lease(name: str, until: float) -> Set:
    """The holder keeps the lease until then."""
    return Set("lease", (name,), {"until": until})


def drop_lease(name: str) -> Drop:
    """Nobody has the lease any more, and its token is forgotten."""
    return Drop("lease", (name,))


def lease_has_token(name: str, token: int) -> Is:
    """Guard: the lease has not changed hands since this token was given out."""
    return Is("lease", (name,), {"token": token})


def lease_has_lapsed(row: LeaseRecord, before: float) -> Is:
    """Guard: the lease that was read has lapsed before this time, and was not renewed."""
    return Is("lease", (row.name,), {"until": Below(before), "token": row.token})
