"""The engine that the settings name, and what it means for the process that it has stopped."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.app.operations.claims import SingleClaims
from tenure.app.operations.executor import Executor
from tenure.app.operations.handle import OperationHandle
from tenure.app.plane import Plane
from tenure.app.safety.pause import Pause
from tenure.core.errors import EngineError, Invalid, StoreError
from tenure.core.records import LeaseRecord
from tenure.ports.clock import Clock
from tenure.ports.engine import Engine
from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Drop, Store
from tenure.settings import Settings
from tenure.wiring.extras import extra
from tenure.wiring.store import is_shared, look_up

if TYPE_CHECKING:
    from tenure.adapters.engine.temporal import TemporalSettings

log = logging.getLogger("tenure.wiring")
EMBEDDED = "embedded"
TEMPORAL_LEASES = ("worker/temporal", "worker/temporal/rest")
"""Those without end by which the Temporal engine keeps embedded ones from its operations."""


def build_engine(
    settings: Settings, work: Executor, *, store: Store, clock: Clock, entropy: Entropy
) -> tuple[Engine[OperationHandle], Callable[[Plane], None]]:
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

    claims = SingleClaims(temporal.WORKER, resting=temporal.RESTING)
    engine = temporal.TemporalEngine(
        work, claims, store=store, clock=clock, entropy=entropy, settings=there
    )
    return engine, claims.attach


def _temporal(settings: Settings) -> "TemporalSettings":
    """Where Temporal is; Invalid if these settings cannot have it as their engine."""
    if settings.engine != "temporal":
        raise Invalid(f"the engine is embedded or temporal, not {settings.engine!r}")
    if not is_shared(settings):
        raise Invalid("Temporal moves operations of a store that is shared: --store postgresql://…")
    with extra("temporal"):
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


async def keep_to_one(settings: Settings, store: Store) -> None:
    """Refuse an embedded engine beside Temporal, or leave Temporal if that was asked for.

    The one would leave the other's operations alone, and hide its own from it.
    """
    if settings.engine != EMBEDDED:
        if settings.leave_temporal:
            raise Invalid("to leave Temporal is to start with --engine embedded: nothing was done")
        return
    if await store.find(LeaseRecord, (TEMPORAL_LEASES[0],)) is None:
        return
    if not settings.leave_temporal:
        raise Invalid(
            "Temporal moves the operations of this store, and this process was to move them by"
            " itself: nothing was changed. Say --engine temporal (TENURE_ENGINE), as the others"
            " do. To leave Temporal for good, stop every process of this plane, then start"
            " tenure up once with --engine embedded --leave-temporal"
        )
    left = tuple(Drop("lease", (name,)) for name in TEMPORAL_LEASES)
    await store.commit(Change("", (), left))
    log.warning("the operations of this store are not moved by Temporal any more")


async def probe_engine(settings: Settings) -> str:
    """What a start would find of its engine; as `probe_store`."""
    if settings.engine == EMBEDDED:
        return "embedded: in the plane's own processes"
    there = _temporal(settings)
    from tenure.adapters.engine import temporal

    return await temporal.probe(there)


async def probe_workers(settings: Settings) -> str:
    """Who performs what Temporal holds; EngineError if nobody does.  Empty: it is not Temporal."""
    if settings.engine == EMBEDDED:
        return ""
    there = _temporal(settings)
    from tenure.adapters.engine import temporal

    if not there.task_queue:
        with suppress(StoreError):  # the store's own probe says what is the matter with it
            queue = await temporal.known_queue(partial(look_up, settings))
            there = replace(there, task_queue=queue)
    if not there.task_queue:
        raise EngineError("the plane has no task queue yet: nobody has moved its operations there")
    return await temporal.probe_workers(there, SystemClock().now())


async def for_ever() -> None:
    """Until somebody stops waiting."""
    await asyncio.Event().wait()


async def life_of(engine: Engine[OperationHandle], held: Pause) -> None:
    """Until the engine has stopped; if the plane is held, it starts when that is over."""
    if held.why:
        await held.let_go.wait()
        await engine.start()
    await engine.join()
