"""Planes on a seeded loop whose store and steps a test can reach into.

`virtual` turns a coroutine into a test in virtual time.  It is given a `Solo`: a cluster whose
planes use a `Reached` store, and whose plans are made of steps that end as the test has scripted.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from proofs.harness.cluster import SETTINGS, Cluster, Process
from tenure.app.operations import admission
from tenure.app.operations.admission import Accept
from tenure.core.endings import Done
from tenure.core.errors import StoreError
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, Step, nothing, repeat
from tenure.ports.provider import Call
from tenure.ports.store import Store
from tenure.testing.fakes import World
from tenure.testing.faults import Faults
from tenure.testing.loop import SeededLoop, run
from tenure.testing.plans import PLANS, providers_of

TENANT = "default"
LIMITS = StepLimits(
    call_seconds=1.0,
    deadline_seconds=10.0,
    undo_seconds=5.0,
    retry_first_seconds=0.2,
    retry_cap_seconds=4.0,
)
Way = Callable[..., Awaitable[object]]


class Script:
    """What a do, undo or inspect will end like, call after call; Done once all of it is used up.

    An ending is returned, an exception raised, a coroutine function called with the `Call`.
    """

    def __init__(self, *endings: object) -> None:
        self.endings = list(endings)
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> object:
        self.calls.append(call)
        ending = self.endings.pop(0) if self.endings else Done()
        if isinstance(ending, BaseException):
            raise ending
        return await ending(call) if inspect.iscoroutinefunction(ending) else ending


class Reached:
    """A store, and what a test wants to happen first when a verb of it is used."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.before: dict[str, list[Way]] = {}
        self.after: dict[str, list[Way]] = {}

    def __getattr__(self, verb: str) -> Any:
        use = getattr(self._inner, verb)
        if verb == "now":
            return use

        async def reached(*given: object, **named: object) -> object:
            if self.before.get(verb):
                await self.before[verb].pop(0)()
            answer = await use(*given, **named)
            if self.after.get(verb):
                await self.after[verb].pop(0)()
            return answer

        return reached


async def refuse() -> None:
    """As a disk that has no room at the moment."""
    raise StoreError("the disk refused to take this")


class Solo(Cluster):
    """One world and the planes in it, all of one process."""

    def __init__(self, loop: SeededLoop) -> None:
        self.faults = Faults()
        world = World(loop)
        providers = providers_of(world, self.faults)
        super().__init__(loop, plans=PLANS.values(), world=world, providers=providers)
        self.stores: list[Reached] = []

    def wrap(self, store: Store, work: Any) -> tuple[Store, Any]:
        reached: Any = Reached(store)
        self.stores.append(reached)
        return reached, self.work_of(reached, work._providers)

    def plan(self, name: str, *stages: Any) -> None:
        """One more plan that can be asked for."""
        self.catalogue.register(Plan(name, stages=stages))

    async def start(self, **settings: Any) -> Process:
        """One more plane that runs."""
        self.settings = type(SETTINGS)(**{"lease_ttl_seconds": 6.0, **settings})
        process = self.boot(f"plane/{len(self.processes)}")
        await process.start()
        return process

    def holds(self) -> list[str]:
        """The providers that hold something."""
        return sorted(thing.provider for thing in self.world.holds())


def step(name: str, do: Way, undo: Any = nothing, look: Any = repeat, **more: Any) -> Step:
    """A step that is performed by these."""
    return Step(name, do, undo, look, **{"limits": LIMITS, **more})


async def accept(plane: Any, plan: str, agent: str = "", **given: object) -> str:
    """A new operation of this plan; its id."""
    return (await admission.accept(plane, Accept(plan, agent, given))).id


async def journal(plane: Any, operation: str) -> list[str]:
    """What was recorded for an operation, in order."""
    loaded = await plane.store.load(operation)
    return [" ".join(filter(None, (row.kind, row.step))) for row in loaded.journal]


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test in virtual time, given a fresh `Solo` before whatever else it asks for."""

    def played(**given: object) -> None:
        run(0, lambda loop: test(Solo(loop), **given))

    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "solo"
    played.__name__, played.__doc__ = test.__name__, test.__doc__
    played.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return played
