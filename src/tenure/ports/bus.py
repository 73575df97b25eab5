"""The bus: how events leave.  One adapter for each way out, in process, by webhook, by NATS.

What is published was committed before, and may be published again: whoever receives an event tells
a second copy by its id.  The relay never hands in an agent's next event before it has the receipt
of the one before; so order for each agent is the relay's word, and a bus may send what it is given
in one call in any order.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Outgoing(NamedTuple):
    """One event on its way out."""

    id: str
    """The same whenever this event is told."""
    tenant: str
    agent: str
    operation: str
    type: str
    """As in `tenure.core.events`, without the prefix of CloudEvents."""
    sequence: int
    body: bytes
    """The event as CloudEvents JSON."""


class Destination(NamedTuple):
    """Where to."""

    id: str
    target: str
    """A URL, a subject, or a name, as the adapter reads it."""
    secrets: tuple[bytes, ...] = ()
    """Keys to sign with; two while they are being changed."""
    tenant: str = ""
    """Whose it is; empty: the plane's own."""


class DeliveryVerdict(StrEnum):
    """What became of one event."""

    DELIVERED = "delivered"
    """It is theirs: stored, answered with a yes, or applied."""
    REFUSED = "refused"
    """They live and said a definite no to this event."""
    UNAVAILABLE = "unavailable"
    """Nobody answered, or not in a way that tells; it may have arrived."""


class Receipt(NamedTuple):
    """What a destination made of one event."""

    verdict: DeliveryVerdict
    why: str = ""
    retry_seconds: float = 0.0
    """How long it asks us to wait; 0: it did not say."""


DELIVERED = Receipt(DeliveryVerdict.DELIVERED)


class Bus(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.bus`."""

    async def publish(
        self, destination: Destination, events: Sequence[Outgoing]
    ) -> Sequence[Receipt]:
        """Send them, each of another agent; a receipt for each, in the same order.

        Raises nothing: whatever goes wrong is a receipt.  It ends within a bounded time.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; a second close does nothing."""
        ...
