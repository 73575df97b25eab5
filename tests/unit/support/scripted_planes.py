"""Planes on a seeded loop whose store and steps a test can control.

`virtual_time_test` turns a coroutine into a test in virtual time.  The test gets a
`ScriptedCluster`: its planes use an `InterceptedStore`, and its steps end as the test has scripted.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from proofs.harness.cluster import SETTINGS, Cluster, Process
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
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
    """The endings of a do, undo or inspect, one for each call; Done after the last one.

    An ending is returned, an exception is raised, a coroutine function is called with the `Call`.
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


class InterceptedStore:
    """A store that runs callbacks of a test before or after a call of one of its methods."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.before: dict[str, list[Way]] = {}
        self.after: dict[str, list[Way]] = {}

    def __getattr__(self, verb: str) -> Any:
        use = getattr(self._inner, verb)
        if verb == "now":
            return use

        async def intercept(*args: object, **kwargs: object) -> object:
            if self.before.get(verb):
                await self.before[verb].pop(0)()
            answer = await use(*args, **kwargs)
            if self.after.get(verb):
                await self.after[verb].pop(0)()
            return answer

        return intercept


async def refuse() -> None:
    """Fail like a disk that is full at the moment."""
    raise StoreError("the disk refused to take this")


class ScriptedCluster(Cluster):
    """A cluster whose planes share one process and one world of fakes."""

    def __init__(self, loop: SeededLoop) -> None:
        self.faults = Faults()
        world = World(loop)
        providers = providers_of(world, self.faults)
        super().__init__(loop, plans=PLANS.values(), world=world, providers=providers)
        self.stores: list[InterceptedStore] = []

    def wrap(self, store: Store, work: Any) -> tuple[Store, Any]:
        intercepted: Any = InterceptedStore(store)
        self.stores.append(intercepted)
        return intercepted, self.work_of(intercepted, work._providers)

    def plan(self, name: str, *stages: Any) -> None:
        """Register one more plan."""
        self.catalogue.register(Plan(name, stages=stages))

    async def start(self, **settings: Any) -> Process:
        """Start one more plane."""
        self.settings = type(SETTINGS)(**{"lease_ttl_seconds": 6.0, **settings})
        process = self.boot(f"plane/{len(self.processes)}")
        await process.start()
        return process

    def holds(self) -> list[str]:
        """The providers that hold a resource."""
        return sorted(thing.provider for thing in self.world.holds())


def step(name: str, do: Way, undo: Any = nothing, inspect: Any = repeat, **more: Any) -> Step:
    """A step with these functions and the limits of this module."""
    return Step(name, do, undo, inspect, **{"limits": LIMITS, **more})


async def accept(plane: Any, plan: str, agent: str = "", **fields: object) -> str:
    """Start an operation of this plan with these input fields; return its id."""
    return (await admission.accept(plane, OperationRequest(plan, agent, fields))).id


async def journal(plane: Any, operation: str) -> list[str]:
    """The records of an operation, in order."""
    loaded = await plane.store.load(operation)
    return [" ".join(filter(None, (row.kind, row.step))) for row in loaded.journal]


def virtual_time_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test in virtual time, whose first argument is a fresh `ScriptedCluster`."""

    def run_test(**arguments: object) -> None:
        run(0, lambda loop: test(ScriptedCluster(loop), **arguments))

    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "cluster"
    run_test.__name__, run_test.__doc__ = test.__name__, test.__doc__
    run_test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return run_test
