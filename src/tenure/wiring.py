"""Settings → Plane.  The only production file that imports adapters."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.adapters.house import unix as house
from tenure.adapters.store import sqlite
from tenure.app import epochs
from tenure.app.advance import Advance, Observe
from tenure.app.hold import Hold
from tenure.app.in_flight import InFlight
from tenure.app.live import Live
from tenure.app.plane import Plane, prepare
from tenure.app.roster import PlaneRoster
from tenure.core.errors import Invalid
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.plans.lifecycle import PLANS
from tenure.ports.engine import Engine
from tenure.ports.provider import Provider
from tenure.reconcilers.driver import reconciling
from tenure.settings import Settings
from tenure.storage.epoch import EpochFile
from tenure.storage.gate import APPLICATION_ID
from tenure.storage.holdings import steps_of
from tenure.storage.migrations import read_migrations
from tenure.telemetry import both, watching
from tenure.upkeep.homes import STORE, Held


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    plans: Iterable[Plan],
    providers: Mapping[str, Provider],
    before: Callable[[Plane], None] | None = None,
    observe: Observe | None = None,
    held: Hold | None = None,
    in_flight: InFlight | None = None,
) -> AsyncIterator[Plane]:
    """A plane that has recovered every open operation and moves them until the block is left.

    If the store fails the block is left at once, whatever it waits for, by CommitUnknown: stop the
    process then.  `before` is told of the plane before anything moves, `observe`
    of every move that was performed.  While it is `held` nothing moves: see `tenure.app.epochs`.
    """
    thresholds = gc.get_threshold()
    clock, entropy, catalogue = SystemClock(), SystemEntropy(), Catalogue(plans)
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
            in_flight=in_flight or InFlight(),
            hold=held or Hold(),
        )
        await prepare(plane)
        await epochs.compare(plane)
        if before is not None:
            before(plane)
        try:
            if not plane.hold.why:
                await engine.start()
            async with _ended_by(_life(engine, plane.hold)):
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
    held = Hold(EpochFile(home))
    if held.kept.restoring:
        message = (
            f"a restore of {held.kept.restoring} was interrupted: nothing was started."
            " Say tenure restore again"
        )
        raise Invalid(message)
    async with AsyncExitStack() as stack:
        roster = PlaneRoster()
        clock = SystemClock()
        opening = partial(embedded, settings, home, held)
        shared = await stack.enter_async_context(house.shared(home, opening, clock=clock))
        marks = house.FileMarks(home)
        stack.callback(marks.close)
        providers = {**shared, **(instead or {}), "roster": cast(Provider, roster)}
        settings = replace(settings, store=str(home / STORE))
        plane = await stack.enter_async_context(
            running(
                settings,
                plans=PLANS,
                providers=providers,
                before=roster.serve,
                observe=both(observe, watching(settings)),
                in_flight=InFlight(marks),
                held=held,
            )
        )
        reconcile = reconciling(plane, clock=clock, seconds=settings.reconcile_seconds)
        await stack.enter_async_context(reconcile)
        yield plane


def files_of_a_home() -> list[Held]:
    """What `managing` keeps in a home and a backup holds, the store first."""
    from tenure.adapters.access import local as access
    from tenure.adapters.credentials import local as credentials
    from tenure.adapters.identity import local as identity

    return [
        Held(STORE, APPLICATION_ID, read_migrations(Path(sqlite.__file__).parent / "migrations")),
        *(
            Held(f"{name}.db", application_id, steps_of(Path(str(file)).parent), renew)
            for name, application_id, file, renew in (
                ("identity", identity.APPLICATION_ID, identity.__file__, identity.renew),
                ("access", access.APPLICATION_ID, access.__file__, lambda _: None),
                ("credentials", credentials.APPLICATION_ID, credentials.__file__, lambda _: None),
            )
        ),
    ]


def plans_of_agents() -> Iterable[Plan]:
    """Every plan that `managing` can perform."""
    return PLANS


def now() -> float:
    """The time, by the system's clock."""
    return SystemClock().now()


def _made(home: str) -> Path:
    """The directory, for its owner alone."""
    path = Path(home)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()


@asynccontextmanager
async def embedded(
    settings: Settings, home: Path, held: Hold, issuer: str
) -> AsyncIterator[house.Providers]:
    """The four embedded providers, each with a file or directory of its own.

    `issuer` is the one that other processes of this home have: it is kept.
    """
    from tenure.adapters.access import local as access
    from tenure.adapters.credentials import local as credentials
    from tenure.adapters.identity import local as identity
    from tenure.adapters.runtime.process import ProcessRuntime

    clock = SystemClock()
    issuer = issuer or settings.issuer or f"http://{settings.host}:{settings.port}"
    async with AsyncExitStack() as stack:
        known = identity.build(
            home / "identity.db", issuer=issuer, clock=clock, epoch=lambda: held.epoch
        )
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
        yield {
            "identity": known, "access": granted, "runtime": runtime, "credentials": registered,
        }  # fmt: skip


async def _life(engine: Engine[Live], held: Hold) -> None:
    """Until the engine has stopped; if the plane is held, it starts when that is over."""
    if held.why:
        await held.let_go.wait()
        await engine.start()
    await engine.join()


@asynccontextmanager
async def _ended_by(life: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """End the block by what stops the engine: a host that only sleeps must learn of it."""
    host = asyncio.current_task()
    joined = asyncio.ensure_future(life)
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
