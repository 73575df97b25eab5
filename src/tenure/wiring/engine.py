"""Builds the engine that the settings name, embedded or Temporal, and starts it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.app.operations.executor import Executor
from tenure.app.operations.handle import OperationHandle
from tenure.app.operations.single_claims import SingleClaims
from tenure.app.plane import Plane
from tenure.app.safety.pause import Pause
from tenure.core.errors import EngineError, Invalid, StoreError
from tenure.core.records import LeaseRecord
from tenure.ports import lease_rows
from tenure.ports.clock import Clock
from tenure.ports.engine import Engine
from tenure.ports.entropy import Entropy
from tenure.ports.store import Change, Store
from tenure.settings import Settings
from tenure.wiring.extras import extra
from tenure.wiring.store import is_shared, read_row

if TYPE_CHECKING:
    from tenure.adapters.engine.temporal import TemporalSettings

log = logging.getLogger("tenure.wiring")
EMBEDDED = "embedded"
TEMPORAL_LEASES = ("worker/temporal", "worker/temporal/rest")
"""Leases without expiry.  While they exist, an embedded engine claims no operation."""


def build_engine(
    settings: Settings, executor: Executor, *, store: Store, clock: Clock, entropy: Entropy
) -> tuple[Engine[OperationHandle], Callable[[Plane], None]]:
    """The engine that the settings name, and a function to call with the plane before its start."""
    if settings.engine == EMBEDDED:
        behaviour = EngineSettings(
            concurrency_max=settings.concurrency_max,
            lease_ttl_seconds=settings.lease_ttl_seconds,
        )
        embedded = EmbeddedEngine(
            executor, store=store, clock=clock, entropy=entropy, settings=behaviour
        )
        return embedded, lambda _: None
    temporal_settings = _temporal(settings)
    from tenure.adapters.engine import temporal

    claims = SingleClaims(temporal.WORKER, idle_worker=temporal.IDLE_WORKER)
    engine = temporal.TemporalEngine(
        executor, claims, store=store, clock=clock, entropy=entropy, settings=temporal_settings
    )
    return engine, claims.attach


def _temporal(settings: Settings) -> "TemporalSettings":
    """The settings of the Temporal engine; Invalid if the plane cannot use it."""
    if settings.engine != "temporal":
        raise Invalid(f"the engine is embedded or temporal, not {settings.engine!r}")
    if not is_shared(settings):
        raise Invalid("the Temporal engine needs a shared store: --store postgresql://…")
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
        executes_operations=settings.executes_operations,
    )


async def refuse_second_engine(settings: Settings, store: Store) -> None:
    """Refuse an embedded engine on a store that Temporal serves, or leave Temporal if requested.

    With both, each engine would ignore the operations that the other has claimed.
    """
    if settings.engine != EMBEDDED:
        if settings.leave_temporal:
            raise Invalid("--leave-temporal needs --engine embedded. Nothing was changed")
        return
    if await store.find(LeaseRecord, (TEMPORAL_LEASES[0],)) is None:
        return
    if not settings.leave_temporal:
        raise Invalid(
            "Temporal executes the operations of this store, and this process has --engine"
            " embedded: nothing was changed. Use --engine temporal (TENURE_ENGINE), as the other"
            " processes do. To leave Temporal for good, stop every process of this plane, then"
            " start tenure up once with --engine embedded --leave-temporal"
        )
    drops = tuple(lease_rows.drop_lease(name) for name in TEMPORAL_LEASES)
    await store.commit(Change("", (), drops))
    log.warning(
        "the embedded engine executes the operations of this store from now on, not Temporal"
    )


async def probe_engine(settings: Settings) -> str:
    """Probe the engine as `probe_store` probes the store."""
    if settings.engine == EMBEDDED:
        return "embedded: in the plane's own processes"
    temporal_settings = _temporal(settings)
    from tenure.adapters.engine import temporal

    return await temporal.probe(temporal_settings)


async def probe_workers(settings: Settings) -> str:
    """A sentence on Temporal's workers; EngineError if there is none; empty without Temporal."""
    if settings.engine == EMBEDDED:
        return ""
    temporal_settings = _temporal(settings)
    from tenure.adapters.engine import temporal

    if not temporal_settings.task_queue:
        with suppress(StoreError):  # the store's own probe reports its problem
            queue = await temporal.find_queue(partial(read_row, settings))
            temporal_settings = replace(temporal_settings, task_queue=queue)
    if not temporal_settings.task_queue:
        raise EngineError("the plane has no task queue yet: no worker has run with Temporal")
    return await temporal.probe_workers(temporal_settings, SystemClock().now())


async def wait_forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


async def run_engine(engine: Engine[OperationHandle], pause: Pause) -> None:
    """Wait until the engine stops; if the plane is paused, first start it when the pause ends."""
    if pause.why:
        await pause.confirmation.wait()
        await engine.start()
    await engine.join()
