"""Delivers events to functions of this process: a destination is the name of a function.

A function that returns has applied the event.  If it raises CallerError the event is rejected for
good; after any other error it is delivered again later.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tenure.core.errors import CallerError
from tenure.ports.bus import DELIVERED, DeliveryVerdict, Destination, Outgoing, Receipt

log = logging.getLogger("tenure.bus")
Handler = Callable[[Outgoing], Awaitable[None]]


class LocalBus:
    """Implements `tenure.ports.bus.Bus` by calling functions of this process."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    async def publish(
        self, destination: Destination, events: Sequence[Outgoing]
    ) -> Sequence[Receipt]:
        """Call the function for each event, one after the other."""
        handler = self._handlers.get(destination.target)
        if handler is None:
            why = f"there is no function {destination.target}"
            return [Receipt(DeliveryVerdict.UNAVAILABLE, why)] * len(events)
        return [await self._call(handler, event) for event in events]

    async def _call(self, handler: Handler, event: Outgoing) -> Receipt:
        try:
            await handler(event)
        except CallerError as error:
            return Receipt(DeliveryVerdict.REFUSED, str(error))
        except Exception as error:  # noqa: BLE001 (other events are delivered all the same)
            log.info("event %s was not applied: %r", event.id, error)
            return Receipt(DeliveryVerdict.UNAVAILABLE, f"{type(error).__name__}: {error}")
        return DELIVERED

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
