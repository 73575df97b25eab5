"""The rows of quotas.

This module builds every write of the tables `quota` and `reservation`.
"""

from tenure.core.records import QuotaRecord, ReservationRecord, key_of
from tenure.ports.store import ChangePart, Drop, Is, Put, Set

AGENTS = "agents"
"""The kind of quota that counts agents."""


def put_quota(tenant: str, kind: str, most: int) -> Put:
    """Write the first quota of a kind."""
    return Put.of(QuotaRecord(tenant, kind, most, 1))


def change_quota(quota: QuotaRecord, *, most: int) -> ChangePart:
    """Set the largest number, if nobody has changed or used the quota since it was read."""
    return _change(
        quota, Set("quota", key_of(quota), {"most": most, "revision": quota.revision + 1})
    )


def use_quota(quota: QuotaRecord) -> ChangePart:
    """Raise the revision with a reservation: of two that take the last place one is refused."""
    return _change(quota, Set("quota", key_of(quota), {"revision": quota.revision + 1}))


def _change(quota: QuotaRecord, write: Set) -> ChangePart:
    return ChangePart((Is.of(quota, "revision"),), (write,))


def put_reservation(tenant: str, kind: str, agent: str, *, operation: str, now: float) -> Put:
    """Count an agent against the quota of its tenant."""
    return Put.of(ReservationRecord(tenant, kind, agent, operation, now))


def drop_reservation(tenant: str, kind: str, agent: str) -> Drop:
    """Count an agent no longer."""
    return Drop("reservation", (tenant, kind, agent))
