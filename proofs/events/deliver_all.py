"""Delivers all events that can be delivered now, without the tasks and timers of a relay."""

from tenure.delivery.outbox import DeliveryResult, deliver_page
from tenure.delivery.relay import Relay


async def deliver_all(relay: Relay) -> DeliveryResult:
    """Deliver to one destination after the other; nothing if another process leads."""
    seen = delivered = 0
    retry_at: float | None = None
    if not await relay.leader.renew():
        return DeliveryResult()
    for _, route in (await relay.routes()).values():
        result = DeliveryResult(more=True)
        while result.more:
            result = await deliver_page(relay.plane, relay.leader, route, skipped=result.skipped)
            seen, delivered = seen + result.seen, delivered + result.delivered
        if result.retry_at is not None:
            retry_at = result.retry_at if retry_at is None else min(retry_at, result.retry_at)
    return DeliveryResult(seen, delivered, retry_at)
