"""Starts the delivery of events: to functions of this process, to webhooks, to a NATS server."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from tenure.adapters.clock.system import SystemClock
from tenure.app.events.cloudevents import EventFilter
from tenure.app.events.deliveries import OWN_NATS
from tenure.app.events.reactions import Reaction
from tenure.app.plane import Plane
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import relaying
from tenure.delivery.retention import RetentionLimits
from tenure.ports.bus import Bus, Destination
from tenure.settings import Settings
from tenure.wiring.extras import extra

NATS_PAGE = 2_000
"""Events that are published to a NATS server in one batch."""


@asynccontextmanager
async def publishing(
    plane: Plane, settings: Settings, reactions: Mapping[str, Reaction]
) -> AsyncIterator[None]:
    """Deliver events to the plane's reactions, its subscriptions and the NATS server."""
    from tenure.adapters.bus.local import LocalBus
    from tenure.adapters.bus.webhook import WebhookBus

    local_bus = LocalBus({name: partial(one.react, plane) for name, one in reactions.items()})
    routes = [
        DestinationRoute(
            Destination(f"tenure:{name}", name), local_bus, EventFilter(types=one.types)
        )
        for name, one in reactions.items()
    ]
    buses: dict[SubscriptionKind, Bus] = {
        SubscriptionKind.WEBHOOK: WebhookBus(clock=SystemClock(), loopback=settings.webhooks_here)
    }
    if settings.bus:
        with extra("nats"):
            from tenure.adapters.bus.nats import NatsBus
        buses[SubscriptionKind.NATS] = NatsBus(settings.bus)
        all_events = Destination(OWN_NATS, "")
        routes.append(
            DestinationRoute(
                all_events, buses[SubscriptionKind.NATS], page=NATS_PAGE, kind=SubscriptionKind.NATS
            )
        )
    try:
        limits = RetentionLimits(tenant_max=settings.keep_events_per_tenant)
        async with relaying(plane, buses=buses, fixed_routes=routes, limits=limits):
            yield
    finally:
        for bus in buses.values():
            await bus.close()


async def probe_bus(settings: Settings) -> str:
    """Probe the NATS server as `probe_store` probes the store."""
    with extra("nats"):
        from tenure.adapters.bus.nats import probe
    return await probe(settings.bus)
