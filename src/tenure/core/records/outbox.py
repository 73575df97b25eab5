"""The record of the outbox, in which every event stands."""

from typing import NamedTuple

from tenure.core.records.table import declares_table


@declares_table("outbox", key=("position",))
class OutboxRecord(NamedTuple):
    """An event, written in the commit that it reports."""

    position: int
    """Its place among all events of the store."""
    tenant: str
    """The tenant that it concerns."""
    agent: str
    """The uid of the agent that it concerns."""
    operation: str
    """The operation that caused it."""
    type: str
    """Its type, such as `agent.ready`."""
    at: float
    """When it happened."""
    body: str
    """Its data as JSON."""
    sequence: int | None
    """Its number among the events of its agent; NULL: a release without numbers wrote it."""
