"""Planes inside a seeded run: processes that die and come back, and their clients.

A `Cluster` is one world, one disk and the processes on it.  A `Process` is a whole plane (store
handle, engine, use cases) inside a `Node`, so that it can be killed at any instant.  A `Client`
stands outside: it asks again until it is answered, always with the same idempotency key, and
remembers what was acknowledged.  What the processes do is the product's own code; nothing of it is
replaced but the ports.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.app.agents.plane_api import AgentPlaneApi
from tenure.app.agents.subject import SUBJECTS
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.executor import Executor
from tenure.app.operations.handle import OperationHandle
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.app.safety.operator_command import writes_for_command
from tenure.app.start_checks import prepare
from tenure.core.errors import CommitUnknown, StoreError
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.ports.clock import Clock
from tenure.ports.provider import NO_PLANE, Provider
from tenure.ports.store import Store
from tenure.testing import memory_store
from tenure.testing.fakes import World
from tenure.testing.loop import Dead, Node, SeededEntropy, SeededLoop, VirtualClock
from tenure.testing.tripwire import CrossingSide, Tripwire, WiredProvider

PLANE = "plane"
LEASE_SECONDS = 6.0
RESTART_SECONDS = 0.5
"""From a death to the next start."""
ASK_AGAIN_SECONDS = 0.1
SETTINGS = EngineSettings(lease_ttl_seconds=LEASE_SECONDS)
CROSSING_VERBS = frozenset(
    {
        "status",
        "wait_ready",
        "stop",
        "logs",
        "follow",
        "raise_epoch",
        "close_agent",
        "reopen_agent",
        "revoke_granter",
    }
)
"""Verbs of providers, beside the four of the port, at which a process can die."""

T = TypeVar("T")


class Disk(Protocol):
    """What outlives a process."""

    def open(self, clock: Clock) -> Store:
        """A handle for one process."""
        ...

    def kill(self, store: Store) -> None:
        """The process of this handle was killed."""
        ...

    def observer(self) -> Store:
        """A handle to read what is committed, whoever lives."""
        ...


class MemoryDisk:
    """Tables that outlive the processes of a run; see `Disk`."""

    def __init__(self, clock: Clock) -> None:
        """Empty tables."""
        self.tables = memory_store.Tables()
        self._observer = memory_store.build(clock=clock, tables=self.tables)

    def open(self, clock: Clock) -> Store:
        """A handle on the tables."""
        return memory_store.build(clock=clock, tables=self.tables)

    def kill(self, store: Store) -> None:
        """This handle answers nobody any more."""
        assert isinstance(store, memory_store.MemoryStore)
        store.kill()

    def observer(self) -> Store:
        """A handle of nobody's process."""
        return self._observer


class WiredVerbs(WiredProvider):
    """A provider with every crossing counted, also those of verbs beside the four of the port."""

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._inner, verb)
        if verb not in CROSSING_VERBS:
            return found
        name = f"{self._names['ensure'].partition('.')[0]}.{verb}"

        async def cross(*args: object, **kwargs: object) -> object:
            return await self._wire.cross(name, lambda: found(*args, **kwargs))

        return cross


class Process:
    """One plane that can be killed."""

    def __init__(
        self,
        cluster: "Cluster",
        name: str,
        *,
        crash_at: int = 0,
        side: CrossingSide = CrossingSide.BEFORE,
        clock: Clock | None = None,
    ) -> None:
        """Wired, not started; it dies at its crossing `crash_at`, if that is not 0."""
        self.node = Node(cluster.loop, name)
        self.wire = Tripwire(self.node, crash_at=crash_at, side=side)
        self._cluster = cluster
        self.raw: Store = cluster.disk.open(cluster.clock)
        store: Store = self.wire.store(self.raw)
        providers: dict[str, Provider] = {
            name: cast(Provider, WiredVerbs(self.wire, name, fake))
            for name, fake in cluster.providers.items()
        }
        api = AgentPlaneApi()
        store, work = cluster.wrap(store, cluster.work_of(store, providers, api))
        self.engine: EmbeddedEngine[OperationHandle] = EmbeddedEngine(
            work,
            store=store,
            clock=clock or cluster.clock,
            entropy=cluster.entropy,
            settings=cluster.settings,
        )
        self.plane = Plane(
            id=PLANE,
            store=store,
            engine=self.engine,
            entropy=cluster.entropy,
            catalogue=cluster.catalogue,
            providers=providers,
            writes_for_command=writes_for_command,
        )
        api.attach(self.plane)

    async def start(self) -> None:
        """Start the plane; Dead if it dies on the way."""
        await self.node.run(self._start())

    async def _start(self) -> None:
        await prepare(self.plane)
        await self.engine.start()

    async def ask(self, question: Callable[[Plane], Awaitable[T]]) -> T:
        """Ask this plane something from outside; Dead if it dies before it has answered."""

        async def inside() -> T:
            return await question(self.plane)

        return await self.node.run(inside())

    async def wait_gone(self) -> None:
        """Return when the process is over: killed, or stopped by its own store."""
        try:
            await self.node.run(self.engine.join())
        except (Dead, CommitUnknown):
            self.crash()

    def crash(self) -> None:
        """Kill -9."""
        self.node.crash()
        if self.raw is not None:
            self._cluster.disk.kill(self.raw)

    async def stop(self) -> None:
        """Shut down in peace."""
        await self.node.run(self.engine.stop())
        await self.node.run(_close(self.plane.store))


async def _close(store: Store) -> None:
    await store.close()


class Cluster:
    """One world, one disk, and the processes on it."""

    def __init__(
        self,
        loop: SeededLoop,
        *,
        plans: Iterable[Plan],
        world: World,
        providers: Mapping[str, Provider],
        disk: Disk | None = None,
        settings: EngineSettings = SETTINGS,
    ) -> None:
        """Nothing runs yet."""
        self.loop = loop
        self.world = world
        self.providers = providers
        self.catalogue = Catalogue(plans, SUBJECTS)
        self.settings = settings
        self.clock = VirtualClock(loop)
        self.entropy = SeededEntropy(loop.seed)
        self.disk: Disk = disk or MemoryDisk(self.clock)
        self.processes: list[Process] = []
        self.serving: list[Process] = []

    def wrap(self, store: Store, work: Any) -> tuple[Store, Any]:
        """A place for a harness to put something between a process and its ports."""
        return store, work

    def work_of(
        self, store: Store, providers: Mapping[str, Provider], api: object = NO_PLANE
    ) -> Executor:
        """The product's own way to move an operation."""
        return Executor(
            PLANE,
            store=store,
            entropy=self.entropy,
            catalogue=self.catalogue,
            providers=providers,
            api=api,
        )

    def boot(
        self,
        name: str,
        *,
        crash_at: int = 0,
        side: CrossingSide = CrossingSide.BEFORE,
        clock: Clock | None = None,
    ) -> Process:
        """One more process, not started."""
        process = Process(self, name, crash_at=crash_at, side=side, clock=clock)
        self.processes.append(process)
        return process

    async def supervise(
        self,
        name: str,
        *,
        crash_at: int = 0,
        side: CrossingSide = CrossingSide.BEFORE,
        clock: Clock | None = None,
    ) -> None:
        """Start a process, and a fresh one whenever it is gone; only the first can trip."""
        life = 0
        while True:
            life += 1
            process = self.boot(f"{name}/{life}", crash_at=crash_at, side=side, clock=clock)
            crash_at = 0
            try:
                await process.start()
                self.serving.append(process)
                await process.wait_gone()
            except (Dead, CommitUnknown):
                process.crash()
            self.serving = [other for other in self.serving if other is not process]
            await asyncio.sleep(RESTART_SECONDS)

    async def any_process(self) -> Process:
        """A process that serves, as soon as there is one."""
        while True:
            alive = [process for process in self.serving if not process.node.dead]
            if alive:
                return alive[self.loop.random.randrange(len(alive))] if len(alive) > 1 else alive[0]
            await asyncio.sleep(ASK_AGAIN_SECONDS)


class Client:
    """Someone outside who asks until there is an answer."""

    def __init__(self, cluster: Cluster) -> None:
        """Nothing was asked yet."""
        self._cluster = cluster
        self.acknowledged_ids: list[str] = []
        """Operations that were acknowledged to this client."""
        self.refused = 0
        """How often there was no room."""

    async def accept(self, command: OperationRequest) -> OperationView:
        """Ask for an operation until it is acknowledged, always with the same idempotency key."""
        assert command.idempotency_key
        accepted = await self.ask(lambda plane: admission.accept(plane, command))
        self.acknowledged_ids.append(accepted.id)
        return accepted

    async def ask(self, question: Callable[[Plane], Awaitable[T]]) -> T:
        """Ask whoever serves, and again if there was no answer; refusals are answers."""
        while True:
            process = await self._cluster.any_process()
            try:
                return await process.ask(question)
            except (Dead, CommitUnknown):
                pass
            except StoreError:
                self.refused += 1
            await asyncio.sleep(ASK_AGAIN_SECONDS)


def command(plan: str, key: str, *, agent: str = "", **kwargs: object) -> OperationRequest:
    """A request for an operation with an idempotency key of its own."""
    return OperationRequest(plan, agent, kwargs, idempotency_key=key)
