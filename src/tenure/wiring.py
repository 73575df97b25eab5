"""Settings → Plane.  The only production file that imports adapters."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from tenure.adapters.clock.system import SteadyClock, SystemClock, SystemEntropy
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.adapters.store import sqlite
from tenure.app.advance import Advance, Observe
from tenure.app.live import Live
from tenure.app.plane import Plane, prepare
from tenure.app.roster import PlaneRoster
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.plans.lifecycle import PLANS
from tenure.ports.engine import Engine
from tenure.ports.provider import Provider
from tenure.reconcilers.driver import reconciling
from tenure.settings import Settings
from tenure.telemetry import both, watching


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    plans: Iterable[Plan],
    providers: Mapping[str, Provider],
    before: Callable[[Plane], None] | None = None,
    observe: Observe | None = None,
) -> AsyncIterator[Plane]:
    """A plane that has recovered every open operation and moves them until the block is left.

    If the store fails the block is left at once, whatever it waits for, by CommitUnknown: stop the
    process then.  `before` is told of the plane before anything moves, `observe`
    of every move that was performed.
    """
    thresholds = gc.get_threshold()
    clock, entropy, catalogue = SteadyClock(SystemClock()), SystemEntropy(), Catalogue(plans)
    store = sqlite.build(settings.store, clock=clock)
    try:
        if settings.collect_after:
            gc.set_threshold(settings.collect_after, *thresholds[1:])
        work = Advance(
            settings.plane,
            store=store,
            entropy=entropy,
            catalogue=catalogue,
            providers=providers,
            observe=observe,
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
        if before is not None:
            before(plane)
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
async def managing(
    settings: Settings,
    *,
    observe: Observe | None = None,
    instead: Mapping[str, Provider] | None = None,
) -> AsyncIterator[Plane]:
    """A plane with the plans of an agent's life and the embedded providers, below one directory.

    `instead` are other providers, by the names of those they stand for.
    """
    home = _made(settings.home)
    async with AsyncExitStack() as stack:
        roster = PlaneRoster()
        providers = await _embedded(settings, home, stack)
        providers |= {**(instead or {}), "roster": cast(Provider, roster)}
        settings = replace(settings, store=str(home / "tenure.db"))
        plane = await stack.enter_async_context(
            running(
                settings,
                plans=PLANS,
                providers=providers,
                before=roster.serve,
                observe=both(observe, watching(settings)),
            )
        )
        reconcile = reconciling(plane, clock=SystemClock(), seconds=settings.reconcile_seconds)
        await stack.enter_async_context(reconcile)
        yield plane


def _made(home: str) -> Path:
    """The directory, for its owner alone."""
    path = Path(home)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()


async def _embedded(
    settings: Settings, home: Path, stack: AsyncExitStack
) -> dict[str, Provider]:
    """The four embedded providers, each with a file or directory of its own."""
    from tenure.adapters.access import local as access
    from tenure.adapters.credentials import local as credentials
    from tenure.adapters.identity import local as identity
    from tenure.adapters.runtime.process import ProcessRuntime

    clock = SystemClock()
    issuer = settings.issuer or f"http://{settings.host}:{settings.port}"
    known = identity.build(home / "identity.db", issuer=issuer, clock=clock)
    stack.push_async_callback(known.close)
    granted = access.build(home / "access.db", clock=clock)
    stack.push_async_callback(granted.close)
    registered = credentials.build(home / "credentials.db", clock=clock)
    stack.push_async_callback(registered.close)
    path = os.environ.get("PATH", os.defpath)
    runtime = ProcessRuntime(
        home / "runtimes", clock=clock, path=path, hidden=(home,), sandbox=settings.sandbox
    )
    stack.callback(runtime.close)
    return {
        "identity": known, "access": granted, "runtime": runtime, "credentials": registered,
    }  # fmt: skip


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
