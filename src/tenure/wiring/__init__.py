"""Builds a control plane from its settings and runs it; recovery after a crash starts here.

Only this package imports adapters in production code.  The modules `store`, `engine` and `bus` each
choose the adapter of the port with that name; `providers` opens the four embedded providers.
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
from tenure.app.agents.in_flight import POLL_SECONDS, InFlight
from tenure.app.agents.plane_api import AgentPlaneApi
from tenure.app.agents.subject import SUBJECTS
from tenure.app.events.reactions import REACTIONS, Reaction
from tenure.app.operations.executor import Executor, Observe
from tenure.app.operations.handle import OperationHandle
from tenure.app.plane import Plane
from tenure.app.safety import epochs
from tenure.app.safety.operator_command import writes_for_command
from tenure.app.safety.pause import Pause
from tenure.app.start_checks import prepare
from tenure.app.wakeups import Wakeup
from tenure.concurrency import background
from tenure.core.errors import Invalid, Unavailable
from tenure.core.plan import Plan
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import SharedSettingsFile, shared_values
from tenure.home.watermark_file import WatermarkFile
from tenure.plans.agents.lifecycle import PLANS
from tenure.plans.catalogue import Catalogue
from tenure.ports.clock import Clock
from tenure.ports.engine import Engine
from tenure.ports.provider import Provider
from tenure.ports.seal import Seal
from tenure.ports.store import WakeHint
from tenure.ports.subject import Subject
from tenure.reconcilers import epoch
from tenure.reconcilers.driver import ReconcilePolicy, reconciling
from tenure.reconcilers.passes import RetentionPeriods
from tenure.settings import Settings
from tenure.telemetry import build_observer, combine
from tenure.upkeep.homes import STORE
from tenure.wiring.bus import NATS_PAGE, probe_bus, publishing
from tenure.wiring.engine import (
    EMBEDDED,
    build_engine,
    probe_engine,
    probe_workers,
    refuse_second_engine,
    run_engine,
    wait_forever,
)
from tenure.wiring.preflight import run_preflight
from tenure.wiring.providers import create_home, open_embedded_providers, own_shared_settings
from tenure.wiring.store import is_shared, open_store, probe_replication, probe_store
from tenure.wiring.upkeep import (
    files_of_a_home,
    inspect_shared_store,
    move_store,
    now,
    plans_of_agents,
)

__all__ = [
    "NATS_PAGE", "files_of_a_home", "inspect_shared_store", "move_store", "now",
    "open_embedded_providers", "plans_of_agents", "probe_bus", "probe_engine", "probe_replication",
    "probe_store", "probe_workers", "run_agent_plane", "run_plane",
]  # fmt: skip
log = logging.getLogger("tenure.wiring")
DAY = 86_400.0


@asynccontextmanager
async def run_plane(
    settings: Settings,
    *,
    plans: Iterable[Plan],
    providers: Mapping[str, Provider],
    on_plane_ready: Callable[[Plane], None] | None = None,
    observe: Observe | None = None,
    seal: Seal | None = None,
    in_flight: InFlight | None = None,
    pause: Pause | None = None,
    home: str = "",
    provider_outage: Callable[[], str] = lambda: "",
    subjects: Mapping[str, Subject] = SUBJECTS,
) -> AsyncIterator[Plane]:
    """Run a plane: claim every open operation, then execute operations until the block ends.

    CommitUnknown ends the block at once: stop the process then.  `on_plane_ready` is called before
    any operation is executed, `observe` after every move.  A paused plane executes none.
    """
    clock, entropy = SteadyClock(SystemClock()), SystemEntropy()
    catalogue, api, wakeup = Catalogue(plans, subjects), AgentPlaneApi(), Wakeup()
    if pause is None or not pause.why:
        await probe_engine(settings)  # before any file is created, as its error texts promise
    store = await open_store(settings, clock=clock, entropy=entropy, wakeup=wakeup)
    restore_collector = _set_collector_threshold(settings)
    invoker = AiohttpInvoker()
    try:
        executor = Executor(
            settings.plane,
            store=store,
            entropy=entropy,
            catalogue=catalogue,
            providers=providers,
            api=api,
            observe=observe,
        )
        engine, attach_claims = build_engine(
            settings, executor, store=store, clock=clock, entropy=entropy
        )
        plane = Plane(
            id=settings.plane, store=store, engine=engine, entropy=entropy,
            catalogue=catalogue, providers=providers, commits=wakeup, seal=seal, invoker=invoker,
            allow_local_webhooks=settings.webhooks_here, in_flight=in_flight or InFlight(),
            pause=pause or Pause(), home=home, shared=is_shared(settings),
            provider_outage=provider_outage, writes_for_command=writes_for_command,
        )  # fmt: skip

        store.listen(partial(_on_notification, engine, wakeup))
        await refuse_second_engine(settings, store)
        await prepare(plane, new_home=settings.new_home)
        await epochs.compare_with_memo(plane)
        attach_claims(plane)
        api.attach(plane)
        if on_plane_ready is not None:
            on_plane_ready(plane)
        # A Temporal engine is always started: it also starts and signals workflow runs.
        starts_engine = settings.executes_operations or settings.engine != EMBEDDED
        try:
            if starts_engine and not plane.pause.why:
                with _without_collector(settings):
                    await engine.start()
            engine_task = run_engine(engine, plane.pause) if starts_engine else wait_forever()
            async with background(engine_task, name="tenure engine", required=True):
                yield plane
        finally:
            await engine.stop()
    finally:
        restore_collector()
        await invoker.close()
        await store.close()


def _on_notification(engine: Engine[OperationHandle], wakeup: Wakeup, wake_hint: WakeHint) -> None:
    """Wake the engine and the readers of events after a commit of another process."""
    engine.on_notification(
        wake_hint.operation, interrupt=wake_hint.interrupt, unclaimed=wake_hint.unclaimed
    )
    wakeup.notify()


def _set_collector_threshold(settings: Settings) -> Callable[[], None]:
    """Set the threshold of Python's cycle collector; returns a function that restores it."""
    thresholds = gc.get_threshold()
    if settings.collect_after:
        gc.set_threshold(settings.collect_after, *thresholds[1:])

    def undo() -> None:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

    return undo


@contextmanager
def _without_collector(settings: Settings) -> Iterator[None]:
    """Exclude the objects created in this block from cycle collection, now and later.

    Recovered operations live until they end, and are then freed by reference counting.
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
async def run_agent_plane(
    settings: Settings,
    *,
    observe: Observe | None = None,
    provider_overrides: Mapping[str, Provider] | None = None,
    reactions: Mapping[str, Reaction] = REACTIONS,
) -> AsyncIterator[Plane]:
    """Run a plane for agents: the lifecycle plans, the embedded providers and the reconcilers.

    All its files are in one home directory.  `provider_overrides` replace embedded providers by
    name.  `reactions` are functions of this process that receive events.
    """
    clock = SystemClock()
    if settings.is_worker:
        await SharedSettingsFile(Path(settings.home)).wait_for_first_start(clock)
    await run_preflight(settings)
    home = create_home(settings.home)
    pause = Pause(EpochFile(home), WatermarkFile(home))
    if pause.memo.restoring:
        message = (
            f"a restore of {pause.memo.restoring} was interrupted: nothing was started."
            " Run tenure restore again"
        )
        raise Invalid(message)
    async with AsyncExitStack() as stack:
        open_providers = partial(open_embedded_providers, settings, home, pause)
        stopped = settings.stopped_seconds
        shared = await stack.enter_async_context(
            provider_host.open_shared_providers(
                home, open_providers, clock=clock, stopped_seconds=stopped
            )
        )
        shared_settings = SharedSettingsFile(home).read_agreed(own_shared_settings(settings))
        settings = replace(settings, **shared_values(shared_settings))
        marks = provider_host.FileMarks(home)
        stack.callback(marks.close)
        providers = {**shared, **(provider_overrides or {})}
        if not is_shared(settings):
            settings = replace(settings, store=str(home / STORE))
        plane = await stack.enter_async_context(
            run_plane(
                settings,
                plans=PLANS,
                providers=providers,
                observe=combine(observe, build_observer(settings)),
                in_flight=InFlight(marks),
                seal=LocalSeal(home / "secrets.key"),
                pause=pause,
                home=shared_settings.home if is_shared(settings) else "",
                provider_outage=partial(provider_host.outage_of, shared),
            )
        )
        if is_shared(settings):
            aborts = _poll_remote_aborts(plane.in_flight, clock)
            await stack.enter_async_context(background(aborts, name="tenure aborts", required=True))
        every = settings.reconcile_seconds
        await stack.enter_async_context(epoch.following(plane, clock=clock, seconds=every))
        await stack.enter_async_context(publishing(plane, settings, reactions))
        retention = RetentionPeriods(
            settings.keep_findings_days * DAY, settings.keep_operations_days * DAY
        )
        policy = ReconcilePolicy(every, repairs=settings.drift == "repair", retention=retention)
        await stack.enter_async_context(reconciling(plane, clock=clock, policy=policy))
        # At the end of the block do not wait for a store that cannot be reached.
        stack.callback(plane.store.stop_waiting)
        yield plane


async def _poll_remote_aborts(in_flight: InFlight, clock: Clock) -> None:
    """End invocations of this process when another process ends the drain of their agent."""
    while True:
        try:
            in_flight.apply_remote_aborts()
        except Unavailable as error:
            log.warning("cannot read which drains other processes have ended: %s", error)
        await clock.sleep(POLL_SECONDS)
