"""The rows of acknowledgements that operations wait for, and whether a tenant is strict.

This module builds every write of the tables `awaited` and `tenancy`, and the guards on them.
"""

from tenure.core.records import AcknowledgementRecord, TenancyRecord, key_of
from tenure.ports.store import Drop, Is, Put, Set


def put_acknowledgement(
    operation: str, subscription: str, *, tenant: str, agent: str, now: float
) -> Put:
    """An operation waits for a subscriber from now on."""
    return Put.of(
        AcknowledgementRecord(
            operation, subscription, tenant, agent, now, acknowledged_at=None, principal=None
        )
    )


def set_acknowledged(row: AcknowledgementRecord) -> Set:
    """The subscriber has acknowledged: when, and by whom, is in the row."""
    columns = {"acknowledged_at": row.acknowledged_at, "principal": row.principal}
    return Set("awaited", key_of(row), columns)


def drop_acknowledgement(row: AcknowledgementRecord) -> Drop:
    """The operation has ended."""
    return Drop("awaited", key_of(row))


def is_missing(row: AcknowledgementRecord) -> Is:
    """Guard: the acknowledgement has not come yet."""
    return Is("awaited", key_of(row), {"acknowledged_at": None})


def is_unchanged(row: AcknowledgementRecord) -> Is:
    """Guard: the acknowledgement is as it was read."""
    return Is("awaited", key_of(row), {"acknowledged_at": row.acknowledged_at})


def put_tenancy(tenant: str, *, strict: bool) -> Put:
    """The first settings of a tenant."""
    return Put.of(TenancyRecord(tenant, strict=int(strict), revision=1))


def set_tenancy(row: TenancyRecord, *, strict: bool) -> Set:
    """New settings of a tenant."""
    columns = {"strict": int(strict), "revision": row.revision + 1}
    return Set("tenancy", (row.tenant,), columns)


def raise_revision(row: TenancyRecord) -> Set:
    """An acknowledgement is newly waited for: whoever has read the row before must read again."""
    return Set("tenancy", (row.tenant,), {"revision": row.revision + 1})


def tenancy_is_unchanged(row: TenancyRecord) -> Is:
    """Guard: the settings are as they were read, and nothing is newly waited for."""
    return Is("tenancy", (row.tenant,), {"revision": row.revision})
