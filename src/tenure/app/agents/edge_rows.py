"""The rows of edges.

This module builds every write of the table `edge`.
"""

from tenure.core.edge import REVOKE, EdgeKind
from tenure.core.records import EdgeRecord, key_of
from tenure.ports.store import Drop, Put, Set


def put_edge(
    tenant: str, owner: str, kind: EdgeKind, target: str, *, on_delete: str = REVOKE, now: float
) -> Put:
    """The row of an edge, to be committed with its target."""
    return Put.of(EdgeRecord(owner, kind, target, tenant, on_delete, now))


def set_on_delete(edge: EdgeRecord, on_delete: str) -> Set:
    """Write what happens to the target when its owner is deleted."""
    return Set("edge", key_of(edge), {"on_delete": on_delete})


def drop_edge(edge: EdgeRecord) -> Drop:
    """The write that ends an edge."""
    return drop_edge_between(edge.owner, edge.kind, edge.target)


def drop_edge_between(owner: str, kind: str, target: str) -> Drop:
    """The write that ends an edge which was not read."""
    return Drop("edge", (owner, kind, target))
