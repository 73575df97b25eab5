"""Records of event delivery: subscriptions, cursors, parked streams, acknowledgements."""

from typing import Annotated, NamedTuple

from tenure.core.records.outbox import OutboxRecord
from tenure.core.records.table import declares_table
from tenure.core.subscription import SubscriptionKind


@declares_table("subscription", key=("id",))
class SubscriptionRecord(NamedTuple):
    """A subscriber: which events it wants and how they reach it."""

    id: str
    """The identifier."""
    tenant: str
    """The tenant that it belongs to."""
    principal: str
    """The caller who made it."""
    name: str
    """The name that people use for it; two subscriptions may have the same."""
    kind: Annotated[str, SubscriptionKind]
    """How events reach it."""
    target: str
    """The URL or the subject that they are sent to; empty: it reads them itself."""
    agent: str
    """The uid of the one agent that it is about; empty: all agents of the tenant."""
    types: str
    """The types of event that it wants, as JSON; an empty list: all."""
    required: int
    """1: an operation waits for its acknowledgement; 0: none does."""
    secret: str | None
    """The sealed secret that signs its webhooks; NULL: it has none."""
    secret_before: str | None
    """The sealed secret before the last rotation, which signs too for a while."""
    before_until: float | None
    """The instant until which the earlier secret signs."""
    revision: int
    """Raised by every change of this row."""
    created_at: float
    """When it was made."""
    updated_at: float
    """When it was last changed."""


@declares_table("cursor", key=("destination",))
class CursorRecord(NamedTuple):
    """How far a destination is: an event up to here was delivered or is a dead letter."""

    destination: str
    """The destination: a subscription, or a name of the plane's own."""
    position: int
    """The position of the last event that it is done with."""
    attempts: int
    """How often it failed in a row."""
    due_at: float
    """The instant before which it is not tried again."""
    why: str
    """Why it failed last; empty: it did not."""
    since: float | None
    """Since when it fails; NULL: it does not."""
    missed: int
    """How many of its events were trimmed before they were delivered."""


@declares_table("parked", key=("destination", "agent"))
class ParkedRecord(NamedTuple):
    """The stream of one agent that a destination refuses while it takes others."""

    destination: str
    """The destination."""
    agent: str
    """The uid of the agent whose events it refused."""
    attempts: int
    """How often the first of them was refused."""
    due_at: float | None
    """When it is tried again; NULL: not before an operator says so."""
    why: str
    """Why it was refused last."""
    since: float
    """When the first refusal was."""


@declares_table("letter", key=("destination", "agent", "position"))
class LetterRecord(NamedTuple):
    """An event of a parked stream, kept until it is delivered or discarded."""

    destination: str
    """The destination that did not take it."""
    agent: str
    """The uid of the agent that it concerns."""
    position: int
    """Its place among all events of the store."""
    tenant: str
    """The tenant that it concerns."""
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


@declares_table("awaited", key=("operation", "subscription"))
class AcknowledgementRecord(NamedTuple):
    """An acknowledgement that an operation waits for or waited for; the table is `awaited`."""

    operation: str
    """The operation that waits."""
    subscription: str
    """The required subscriber."""
    tenant: str
    """The tenant of both."""
    agent: str
    """The uid of the agent that the operation is about."""
    since: float
    """When the operation was accepted."""
    acknowledged_at: float | None
    """When the acknowledgement came; NULL: it has not."""
    principal: str | None
    """The caller who acknowledged; NULL: nobody has."""


EventRecord = OutboxRecord | LetterRecord
"""An event, in the outbox or as a dead letter: both have the same columns."""
