"""Settings → Plane.  The only production code that imports adapters.

Here a plane is put together.  Which technology stands behind a port is chosen in the file of the
port's name, `store`, `engine` or `bus`, and for the four providers in `homes`.
"""

import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tenure.adapters.clock.system import SteadyClock, SystemClock, SystemEntropy
from tenure.adapters.invoker.aiohttp import AiohttpInvoker
from tenure.adapters.provider_host import unix as provider_host
from tenure.adapters.seal.local import LocalSeal
from tenure.app.agents.in_flight import HEED_SECONDS, InFlight
from tenure.app.agents.plane_api import ServingPlaneApi
from tenure.app.agents.subject import SUBJECTS
from tenure.app.events.reactions import REACTIONS, Reaction
from tenure.app.operations.executor import Executor, Observe
from tenure.app.operations.handle import OperationHandle
from tenure.app.plane import Plane, prepare
from tenure.app.safety import epochs
from tenure.app.safety.operator_rows import write_operator_rows
from tenure.app.safety.pause import Pause
from tenure.app.wakeups import Wakeup
from tenure.concurrency import background
from tenure.core.errors import Invalid, Unavailable
from tenure.core.plan import Plan
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import TermsFile, agreed_of
from tenure.home.watermark_file import WatermarkFile
from tenure.plans.agents.lifecycle import PLANS
from tenure.plans.catalogue import Catalogue
from tenure.ports.clock import Clock
from tenure.ports.engine import Engine
from tenure.ports.provider import Provider
from tenure.ports.seal import Seal
from tenure.ports.store import Ring
from tenure.reconcilers import epoch
from tenure.reconcilers.driver import Ways, reconciling
from tenure.reconcilers.term import KeptFor
from tenure.settings import Settings
from tenure.telemetry import both, watching
from tenure.upkeep.homes import STORE
from tenure.wiring import providers as homes
from tenure.wiring.bus import NATS_PAGE, probe_bus, publishing
from tenure.wiring.engine import (
    EMBEDDED,
    build_engine,
    for_ever,
    keep_to_one,
    life_of,
    probe_engine,
    probe_workers,
)
from tenure.wiring.preflight import refuse_unfit
from tenure.wiring.providers import embedded
from tenure.wiring.store import is_shared, open_store, probe_replication, probe_store
from tenure.wiring.upkeep import (
    files_of_a_home,
    look_at_store,
    move_store,
    now,
    plans_of_agents,
)

__all__ = [
    "NATS_PAGE", "embedded", "files_of_a_home", "look_at_store", "managing", "move_store", "now",
    "plans_of_agents", "probe_bus", "probe_engine", "probe_replication", "probe_store",
    "probe_workers", "running",
]  # fmt: skip
log = logging.getLogger("tenure.wiring")
DAY = 86_400.0


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    plans: Iterable[Plan],
    providers: Mapping[str, Provider],
    before: Callable[[Plane], None] | None = None,
    observe: Observe | None = None,
    seal: Seal | None = None,
    in_flight: InFlight | None = None,
    held: Pause | None = None,
    home: str = "",
    unserved: Callable[[], str] = lambda: "",
) -> AsyncIterator[Plane]:
    """A plane that has recovered every open operation and moves them until the block is left.

    If the store fails the block is left at once, whatever it waits for, by CommitUnknown: stop the
    process then.  `before` is told of the plane before anything moves, `observe` of every move that
    was performed.  While it is `held` nothing moves: see `tenure.app.safety.epochs`.
    """
    clock, entropy = SteadyClock(SystemClock()), SystemEntropy()
    catalogue, api = Catalogue(plans, SUBJECTS), ServingPlaneApi()
    news = Wakeup()
    if held is None or not held.why:
        await probe_engine(settings)  # or nothing is made: that is what its refusals say
    store = await open_store(settings, clock=clock, entropy=entropy, news=news)
    collect_as_before = _collect_rarely(settings)
    invoker = AiohttpInvoker()
    try:
        work = Executor(
            settings.plane,
            store=store,
            entropy=entropy,
            catalogue=catalogue,
            providers=providers,
            api=api,
            observe=observe,
        )
        engine, serve = build_engine(settings, work, store=store, clock=clock, entropy=entropy)
        plane = Plane(
            id=settings.plane, store=store, engine=engine, entropy=entropy,
            catalogue=catalogue, providers=providers, commits=news, seal=seal, invoker=invoker,
            allow_local_webhooks=settings.webhooks_here, in_flight=in_flight or InFlight(),
            pause=held or Pause(), home=home, shared=is_shared(settings), provider_outage=unserved,
            operator_rows=write_operator_rows,
        )  # fmt: skip

        store.listen(partial(_hear, engine, news))
        await keep_to_one(settings, store)
        await prepare(plane, new_home=settings.new_home)
        await epochs.compare(plane)
        serve(plane)
        api.serve(plane)
        if before is not None:
            before(plane)
        # A process that only accepts has an engine that never starts, unless it tells Temporal.
        moves = settings.works or settings.engine != EMBEDDED
        try:
            if moves and not plane.pause.why:
                with _uncollected(settings):
                    await engine.start()
            life = life_of(engine, plane.pause) if moves else for_ever()
            async with background(life, name="tenure engine", required=True):
                yield plane
        finally:
            await engine.stop()
    finally:
        collect_as_before()
        await invoker.close()
        await store.close()


def _hear(engine: Engine[OperationHandle], news: Wakeup, ring: Ring) -> None:
    """Wake the engine and the readers of the feed when another process has committed."""
    engine.on_notification(ring.operation, interrupt=ring.interrupt, unclaimed=ring.unclaimed)
    news.notify()


def _collect_rarely(settings: Settings) -> Callable[[], None]:
    """Have Python's cycle collector look as seldom as is set; the answer undoes that."""
    thresholds = gc.get_threshold()
    if settings.collect_after:
        gc.set_threshold(settings.collect_after, *thresholds[1:])

    def undo() -> None:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

    return undo


@contextmanager
def _uncollected(settings: Settings) -> Iterator[None]:
    """Nothing that is made in here is looked through for garbage, then or later.

    What is taken over lives until it ends, and then goes without the collector.
    """
    if not settings.collect_after or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@asynccontextmanager
async def managing(
    settings: Settings,
    *,
    observe: Observe | None = None,
    instead: Mapping[str, Provider] | None = None,
    reactions: Mapping[str, Reaction] = REACTIONS,
) -> AsyncIterator[Plane]:
    """A plane with the plans of an agent's life and the embedded providers, below one directory.

    `instead` are other providers, by the names of those they stand for; `reactions` are the
    plane's own subscribers.
    """
    clock = SystemClock()
    if settings.joins:
        await TermsFile(Path(settings.home)).begun(clock)
    await refuse_unfit(settings)
    home = homes.made(settings.home)
    held = Pause(EpochFile(home), WatermarkFile(home))
    if held.memo.restoring:
        message = (
            f"a restore of {held.memo.restoring} was interrupted: nothing was started."
            " Say tenure restore again"
        )
        raise Invalid(message)
    async with AsyncExitStack() as stack:
        opening = partial(embedded, settings, home, held)
        stopped = settings.stopped_seconds
        shared = await stack.enter_async_context(
            provider_host.open_shared_providers(home, opening, clock=clock, stopped_seconds=stopped)
        )
        terms = TermsFile(home).agreed(homes.told(settings))
        settings = replace(settings, **agreed_of(terms))
        marks = provider_host.FileMarks(home)
        stack.callback(marks.close)
        providers = {**shared, **(instead or {})}
        if not is_shared(settings):
            settings = replace(settings, store=str(home / STORE))
        plane = await stack.enter_async_context(
            running(
                settings,
                plans=PLANS,
                providers=providers,
                observe=both(observe, watching(settings)),
                in_flight=InFlight(marks),
                seal=LocalSeal(home / "secrets.key"),
                held=held,
                home=terms.home if is_shared(settings) else "",
                unserved=partial(provider_host.outage_of, shared),
            )
        )
        if is_shared(settings):
            cuts = _read_remote_cuts(plane.in_flight, clock)
            await stack.enter_async_context(background(cuts, name="tenure cuts", required=True))
        every = settings.reconcile_seconds
        await stack.enter_async_context(epoch.following(plane, clock=clock, seconds=every))
        await stack.enter_async_context(publishing(plane, settings, reactions))
        kept = KeptFor(settings.keep_findings_days * DAY, settings.keep_operations_days * DAY)
        ways = Ways(every, repairs=settings.drift == "repair", kept=kept)
        await stack.enter_async_context(reconciling(plane, clock=clock, ways=ways))
        stack.callback(plane.store.hurry)  # whoever leaves waits for nobody who is away
        yield plane


async def _read_remote_cuts(in_flight: InFlight, clock: Clock) -> None:
    """End invocations of this process when another process ends the drain of their agent."""
    while True:
        try:
            in_flight.heed()
        except Unavailable as error:
            log.warning("cannot read which drains other processes have ended: %s", error)
        await clock.sleep(HEED_SECONDS)
