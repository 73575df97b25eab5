"""The rows of subscriptions.

This module builds every write of the table `subscription`, and the guards on it.
"""

from tenure.core.records import SubscriptionRecord
from tenure.ports.store import Drop, Is, Put, Set


def put_subscription(row: SubscriptionRecord) -> Put:
    """A new subscription."""
    return Put.of(row)


def rotate_subscription_secret(
    row: SubscriptionRecord, secret: str, *, before_until: float, now: float
) -> Set:
    """A new sealed secret; the one before signs as well until `before_until`."""
    columns = {
        "secret": secret, "secret_before": row.secret, "before_until": before_until,
        "updated_at": now, "revision": row.revision + 1,
    }  # fmt: skip
    return Set("subscription", (row.id,), columns)


def drop_subscription(row: SubscriptionRecord) -> Drop:
    """The subscription is deleted."""
    return Drop("subscription", (row.id,))


def subscription_exists(row: SubscriptionRecord) -> Is:
    """Guard: the subscription has not been deleted."""
    return Is("subscription", (row.id,), {"tenant": row.tenant})


def subscription_is_unchanged(row: SubscriptionRecord) -> Is:
    """Guard: no other request has changed it since it was read."""
    return Is("subscription", (row.id,), {"revision": row.revision})
