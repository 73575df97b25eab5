"""Settings → Plane.  The only production file that imports adapters."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tenure.adapters.clock.system import SteadyClock, SystemClock, SystemEntropy
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.adapters.house import unix as house
from tenure.adapters.seal.local import LocalSeal
from tenure.adapters.store import sqlite
from tenure.app import epochs
from tenure.app.advance import Advance, Observe
from tenure.app.claims import OneByOne
from tenure.app.events import Wanted
from tenure.app.hold import Hold
from tenure.app.in_flight import HEED_SECONDS, InFlight
from tenure.app.live import Live
from tenure.app.news import News
from tenure.app.plane import Plane, prepare
from tenure.app.reactions import REACTIONS, Reaction
from tenure.app.roster import PlaneRoster
from tenure.core.errors import Invalid, Unavailable
from tenure.core.plan import Plan
from tenure.core.subscription import Kind
from tenure.plans.catalogue import Catalogue
from tenure.plans.lifecycle import PLANS
from tenure.ports.bus import Bus, Destination
from tenure.ports.clock import Clock
from tenure.ports.engine import Engine
from tenure.ports.entropy import Entropy
from tenure.ports.provider import Provider
from tenure.ports.seal import Seal
from tenure.ports.store import Ring, Store
from tenure.reconcilers import epoch
from tenure.reconcilers.driver import Ways, reconciling
from tenure.reconcilers.outbox import Route
from tenure.reconcilers.relay import relaying
from tenure.reconcilers.term import Kept
from tenure.settings import Settings
from tenure.storage.epoch import EpochFile
from tenure.storage.gate import APPLICATION_ID
from tenure.storage.holdings import steps_of
from tenure.storage.migrations import read_migrations
from tenure.storage.terms import Terms, TermsFile, agreed_of
from tenure.telemetry import both, watching
from tenure.upkeep.backup import Told
from tenure.upkeep.homes import STORE, Held
from tenure.upkeep.move import Compared, move

if TYPE_CHECKING:
    from tenure.adapters.engine.temporal import TemporalSettings

log = logging.getLogger("tenure.wiring")
EMBEDDED = "embedded"
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
    held: Hold | None = None,
    home: str = "",
) -> AsyncIterator[Plane]:
    """A plane that has recovered every open operation and moves them until the block is left.

    If the store fails the block is left at once, whatever it waits for, by CommitUnknown: stop the
    process then.  `before` is told of the plane before anything moves, `observe` of every move that
    was performed.  While it is `held` nothing moves: see `tenure.app.epochs`.
    """
    clock, entropy, catalogue = SteadyClock(SystemClock()), SystemEntropy(), Catalogue(plans)
    news = News()
    store = await _opened(settings, clock=clock, entropy=entropy, news=news)
    collect_as_before = _collect_rarely(settings)
    try:
        work = Advance(
            settings.plane,
            store=store,
            entropy=entropy,
            catalogue=catalogue,
            providers=providers,
            observe=observe,
        )
        engine, serve = _moved_by(settings, work, store=store, clock=clock, entropy=entropy)
        plane = Plane(
            id=settings.plane, store=store, engine=engine, entropy=entropy,
            catalogue=catalogue, providers=providers, news=news, seal=seal,
            webhooks_here=settings.webhooks_here, in_flight=in_flight or InFlight(),
            hold=held or Hold(), home=home, shared=is_shared(settings),
        )  # fmt: skip

        def heard(ring: Ring) -> None:
            engine.heard(ring.operation, interrupt=ring.interrupt, unclaimed=ring.unclaimed)
            news.tell()

        store.listen(heard)
        await prepare(plane, new_home=settings.new_home)
        await epochs.compare(plane)
        serve(plane)
        if before is not None:
            before(plane)
        # A process that only accepts has an engine that never starts, unless it tells Temporal.
        moves = settings.works or settings.engine != EMBEDDED
        try:
            if moves and not plane.hold.why:
                with _uncollected(settings):
                    await engine.start()
            async with _ended_by(_life(engine, plane.hold) if moves else _for_ever()):
                yield plane
        finally:
            await engine.stop()
    finally:
        collect_as_before()
        await store.close()


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


async def _opened(
    settings: Settings, *, clock: Clock, entropy: Entropy, news: News
) -> Store:
    """The store that the settings name: a file, or a PostgreSQL."""
    if not is_shared(settings):
        return sqlite.build(settings.store, clock=clock, landed=news.tell)
    with _extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.build(
        settings.store, clock=clock, entropy=entropy, landed=news.tell
    )


def is_shared(settings: Settings) -> bool:
    """Whether the store is one that several processes use."""
    return settings.store.startswith(("postgresql://", "postgres://"))


def _moved_by(
    settings: Settings, work: Advance, *, store: Store, clock: Clock, entropy: Entropy
) -> tuple[Engine[Live], Callable[[Plane], None]]:
    """The engine that the settings name, and what it must be told of the plane before it starts."""
    if settings.engine == EMBEDDED:
        behaviour = EngineSettings(
            concurrency_max=settings.concurrency_max,
            lease_ttl_seconds=settings.lease_ttl_seconds,
        )
        embedded = EmbeddedEngine(
            work, store=store, clock=clock, entropy=entropy, settings=behaviour
        )
        return embedded, lambda _: None
    there = _temporal(settings)
    from tenure.adapters.engine import temporal

    claims = OneByOne(temporal.WORKER, resting=temporal.RESTING)
    engine = temporal.TemporalEngine(work, claims, store=store, clock=clock, settings=there)
    return engine, claims.serve


def _temporal(settings: Settings) -> "TemporalSettings":
    """Where Temporal is; Invalid if these settings cannot have it as their engine."""
    if settings.engine != "temporal":
        raise Invalid(f"the engine is embedded or temporal, not {settings.engine!r}")
    if not is_shared(settings):
        raise Invalid("Temporal moves operations of a store that is shared: --store postgresql://…")
    with _extra("temporal"):
        from tenure.adapters.engine import temporal
    return temporal.TemporalSettings(
        address=settings.temporal_address,
        namespace=settings.temporal_namespace,
        task_queue=settings.temporal_queue,
        tls_server_ca=settings.temporal_tls_ca,
        tls_client_certificate=settings.temporal_tls_certificate,
        tls_client_key=settings.temporal_tls_key,
        api_key=settings.temporal_api_key,
        works=settings.works,
    )


async def probe_store(settings: Settings) -> str:
    """What a start would find of a store that is named by a URL; nothing is changed.

    A sentence, or a TenureError with one that says what stands in the way.
    """
    with _extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.probe(settings.store)


async def probe_engine(settings: Settings) -> str:
    """What a start would find of its engine; as `probe_store`."""
    if settings.engine == EMBEDDED:
        return "embedded: in the plane's own processes"
    there = _temporal(settings)
    from tenure.adapters.engine import temporal

    return await temporal.probe(there)


async def probe_bus(settings: Settings) -> str:
    """What the first event would find of the NATS server; as `probe_store`."""
    with _extra("nats"):
        from tenure.adapters.bus.nats import probe
    return await probe(settings.bus)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Say how to install what is not needed by everybody."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = (
            f"{error.name} is not installed: in a checkout make .venv/scale.installed brings it,"
            f" elsewhere the extra [{name}] of the package"
        )
        raise Invalid(message) from None


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
        opening = partial(embedded, settings, home, held)
        shared = await stack.enter_async_context(house.shared(home, opening, clock=clock))
        terms = TermsFile(home).agreed(_told(settings))
        settings = replace(settings, **agreed_of(terms))
        marks = house.FileMarks(home)
        stack.callback(marks.close)
        providers = {**shared, **(instead or {}), "roster": cast(Provider, roster)}
        if not is_shared(settings):
            settings = replace(settings, store=str(home / STORE))
        plane = await stack.enter_async_context(
            running(
                settings,
                plans=PLANS,
                providers=providers,
                before=roster.serve,
                observe=both(observe, watching(settings)),
                in_flight=InFlight(marks),
                seal=LocalSeal(home / "secrets.key"),
                held=held,
                home=terms.home if is_shared(settings) else "",
            )
        )
        if is_shared(settings):
            await stack.enter_async_context(_heeding(plane.in_flight, clock))
        every = settings.reconcile_seconds
        await stack.enter_async_context(epoch.following(plane, clock=clock, seconds=every))
        await stack.enter_async_context(_publishing(plane, settings, reactions))
        kept = Kept(settings.keep_findings_days * DAY, settings.keep_operations_days * DAY)
        ways = Ways(every, repairs=settings.drift == "repair", kept=kept)
        await stack.enter_async_context(reconciling(plane, clock=clock, ways=ways))
        stack.callback(plane.store.hurry)  # whoever leaves waits for nobody who is away
        yield plane


@asynccontextmanager
async def _heeding(in_flight: InFlight, clock: Clock) -> AsyncIterator[None]:
    """Invocations through this process end when another one, where their agent drains, says so."""

    async def heed() -> None:
        while True:
            try:
                in_flight.heed()
            except Unavailable as error:
                log.warning("whether a drain was forced elsewhere is not known: %s", error)
            await clock.sleep(HEED_SECONDS)

    async with _ended_by(heed()):
        yield


NATS_PAGE = 2_000
"""Events that are handed to a NATS server together."""


@asynccontextmanager
async def _publishing(
    plane: Plane, settings: Settings, reactions: Mapping[str, Reaction]
) -> AsyncIterator[None]:
    """Events leave: to the plane's own subscribers, to subscriptions, to the NATS server."""
    from tenure.adapters.bus.local import LocalBus
    from tenure.adapters.bus.webhook import WebhookBus

    own = LocalBus({name: partial(one.react, plane) for name, one in reactions.items()})
    always = [
        Route(Destination(f"tenure:{name}", name), own, Wanted(types=one.types))
        for name, one in reactions.items()
    ]
    buses: dict[Kind, Bus] = {
        Kind.WEBHOOK: WebhookBus(clock=SystemClock(), loopback=settings.webhooks_here)
    }
    if settings.bus:
        with _extra("nats"):
            from tenure.adapters.bus.nats import NatsBus
        buses[Kind.NATS] = NatsBus(settings.bus)
        always.append(Route(Destination("tenure:nats", ""), buses[Kind.NATS], page=NATS_PAGE))
    try:
        async with relaying(plane, buses=buses, always=always):
            yield
    finally:
        for bus in buses.values():
            await bus.close()


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


async def move_store(source: Path, url: str, *, told: Told) -> list[Compared]:
    """Move an embedded store to the PostgreSQL that the URL names; what was compared."""
    with _extra("postgres"):
        from tenure.adapters.store.postgres.landing import landing
    async with landing(url) as target:
        return await move(source, target, files_of_a_home()[0], told=told)


def now() -> float:
    """The time, by the system's clock."""
    return SystemClock().now()


def _made(home: str) -> Path:
    """The directory, for its owner alone."""
    path = Path(home)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()


def _told(settings: Settings) -> Terms | None:
    """What this process was told of its home; None: it joins, and takes what holds there."""
    if settings.joins:
        return None
    issuer = settings.issuer or f"http://{settings.host}:{settings.port}"
    store = _shown(settings)
    return Terms("", store, issuer, **agreed_of(settings))


def _shown(settings: Settings) -> str:
    """Where the records are, as it may be told; empty: in the home."""
    if not is_shared(settings):
        return ""
    with _extra("postgres"):
        from tenure.adapters.store.postgres.server import read_address
    return read_address(settings.store).shown()


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

    clock, terms = SystemClock(), TermsFile(home).opened(_told(settings), issuer)
    async with AsyncExitStack() as stack:
        known = identity.build(
            home / "identity.db", issuer=terms.issuer, clock=clock, epoch=lambda: held.epoch
        )
        stack.push_async_callback(known.close)
        granted = access.build(home / "access.db", clock=clock)
        stack.push_async_callback(granted.close)
        registered = credentials.build(home / "credentials.db", clock=clock)
        stack.push_async_callback(registered.close)
        path = os.environ.get("PATH", os.defpath)
        runtime = ProcessRuntime(
            home / "runtimes", clock=clock, path=path, hidden=(home,), sandbox=terms.sandbox
        )
        stack.callback(runtime.close)
        yield {
            "identity": known, "access": granted, "runtime": runtime, "credentials": registered,
        }  # fmt: skip


async def _for_ever() -> None:
    """Until somebody stops waiting."""
    await asyncio.Event().wait()


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
