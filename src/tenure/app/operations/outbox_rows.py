"""The rows of events in the outbox.

This module builds every write of the table `outbox`.  An event is written in the commit that it
reports, mostly with the prepared write `NEW_EVENT`.
"""

from tenure.core.records.outbox import OutboxRecord
from tenure.ports.store import Drop, Next, PreparedWrite

POSITION = Next("outbox")
"""The place of a new event among all events of the store."""
NEW_EVENT = PreparedWrite(
    "outbox",
    ("position",),
    ("tenant", "agent", "operation", "type", "at", "body", "sequence"),
    adds=True,
    generated=(0, 7),
)


def event_sequence_of(agent: str) -> Next:
    """The counter that numbers the events of an agent."""
    return Next(f"event/{agent}")


def drop_event(event: OutboxRecord) -> Drop:
    """No destination needs the event any more, or its tenant has too many."""
    return Drop("outbox", (event.position,))
