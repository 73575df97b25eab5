"""Settings → Plane.  The only production file that imports adapters."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.adapters.store import sqlite
from tenure.app.advance import Advance
from tenure.app.live import Live
from tenure.app.plane import Plane, prepare
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.ports.engine import Engine
from tenure.ports.provider import Provider
from tenure.settings import Settings


@asynccontextmanager
async def running(
    settings: Settings, *, plans: Iterable[Plan], providers: Mapping[str, Provider]
) -> AsyncIterator[Plane]:
    """A plane that has recovered every open operation and moves them until the block is left.

    If the store fails the block is left at once, whatever it waits for, by CommitUnknown: stop the
    process then.
    """
    thresholds = gc.get_threshold()
    clock, entropy, catalogue = SystemClock(), SystemEntropy(), Catalogue(plans)
    store = sqlite.build(settings.store, clock=clock)
    try:
        if settings.collect_after:
            gc.set_threshold(settings.collect_after, *thresholds[1:])
        work = Advance(
            settings.plane, store=store, entropy=entropy, catalogue=catalogue, providers=providers
        )
        engine = EmbeddedEngine(
            work,
            store=store,
            clock=clock,
            entropy=entropy,
            settings=EngineSettings(
                concurrency_max=settings.concurrency_max,
                lease_ttl_seconds=settings.lease_ttl_seconds,
            ),
        )
        plane = Plane(
            id=settings.plane,
            store=store,
            engine=engine,
            entropy=entropy,
            catalogue=catalogue,
            providers=providers,
        )
        await prepare(plane)
        try:
            await engine.start()
            async with _ended_by(engine):
                yield plane
        finally:
            await engine.stop()
    finally:
        gc.set_threshold(*thresholds)
        await store.close()


@asynccontextmanager
async def _ended_by(engine: Engine[Live]) -> AsyncIterator[None]:
    """End the block by what stops the engine: a host that only sleeps must learn of it."""
    host = asyncio.current_task()
    joined = asyncio.ensure_future(engine.join())
    failure: BaseException | None = None

    def tell(joined: asyncio.Future[None]) -> None:
        nonlocal failure
        failure = joined.exception()
        if host is not None and failure is not None:
            host.cancel()

    joined.add_done_callback(tell)
    try:
        yield
    except asyncio.CancelledError:
        if host is not None and failure is not None and not host.uncancel():
            raise failure from None
        raise
    finally:
        joined.remove_done_callback(tell)
        joined.cancel()
