"""The bus: sends committed events to a destination: a function, a webhook or a NATS server.

An event can be sent more than once; the receiver recognises a copy by its id.  The relay passes the
next event of an agent only after the receipt of the one before.  So the relay keeps the order of
each agent's events, and a bus may send the events of one call in any order.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Outgoing(NamedTuple):
    """One event, ready to be sent."""

    id: str
    """The same at every delivery of this event."""
    tenant: str
    agent: str
    operation: str
    type: str
    """As in `tenure.core.events`, without the prefix of CloudEvents."""
    sequence: int
    body: bytes
    """The event as CloudEvents JSON."""


class Destination(NamedTuple):
    """The receiver of events."""

    id: str
    target: str
    """A URL, a NATS subject or the name of a function, depending on the adapter."""
    secrets: tuple[bytes, ...] = ()
    """Keys that sign the request; two while a key is being rotated."""
    tenant: str = ""
    """The tenant that it belongs to; empty: it belongs to the plane itself."""


class DeliveryVerdict(StrEnum):
    """The result of one delivery."""

    DELIVERED = "delivered"
    """The receiver has accepted it."""
    REFUSED = "refused"
    """The receiver answered and rejected this event."""
    UNAVAILABLE = "unavailable"
    """There was no answer, or no clear one; the event may have arrived."""


class Receipt(NamedTuple):
    """How a destination answered one event."""

    verdict: DeliveryVerdict
    why: str = ""
    retry_seconds: float = 0.0
    """How long the receiver asks us to wait; 0: it did not say."""


DELIVERED = Receipt(DeliveryVerdict.DELIVERED)


class Bus(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.bus`."""

    async def publish(
        self, destination: Destination, events: Sequence[Outgoing]
    ) -> Sequence[Receipt]:
        """Send events of different agents; return one receipt for each, in the same order.

        It raises nothing: every failure is a receipt.  It ends within a bounded time.
        """
        ...

    async def close(self) -> None:
        """Close all connections; a second call does nothing."""
        ...
