"""Planes with agents on a seeded loop, over the fakes of `proofs.agents.lifecycle`.

`agent_test` turns a coroutine into a test in virtual time.  The test gets an `AgentHarness` with a
running plane.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec.structs import replace as alone

from proofs.agents.invariants import read_agents, violations
from proofs.agents.lifecycle import CALLER, PLANS, TENANT, AgentCluster, spec_of
from proofs.harness.cluster import Process
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.agents.commands import RequestOptions
from tenure.app.agents.subject import SUBJECTS
from tenure.app.operations import reads
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.roles import Caller, Role
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Change, R, Store, WakeHint
from tenure.testing.faults import FaultPoint
from tenure.testing.loop import run

STRANGER = Caller("elsewhere", "stranger", Role.ADMIN)
VIEWER = Caller(TENANT, "viewer", Role.VIEWER)


def options_with_key(key: str) -> RequestOptions:
    return RequestOptions(idempotency_key=key)


class AgentHarness(AgentCluster):
    """A cluster with agents, and the plane that a test calls."""

    plane: Plane

    async def start(self, name: str = "plane") -> Process:
        process = self.boot(name)
        await process.start()
        self.plane = process.plane
        return process

    async def boot_newer_release(self, *names: str) -> Plane:
        """Boot a plane of a newer release, which has newer plans of these names."""
        newer = (Plan(one, stages=PLANS[one].stages, version=2, subject="agent") for one in names)
        self.catalogue = Catalogue((*PLANS.values(), *newer), SUBJECTS)
        process = self.boot("newer")  # its engine does not run: it accepts operations only
        await prepare(process.plane)
        return process.plane

    async def wait_for(self, operation: OperationView, seconds: float = 60.0) -> OperationView:
        return await reads.wait(self.plane, TENANT, operation.id, seconds=seconds)

    async def create_ready(self, name: str = "alpha", **more: object) -> str:
        """Create an agent and wait until it is READY; return its uid."""
        accepted = await agents.create_agent(self.plane, CALLER, spec_of(name, **more))
        operation = await self.wait_for(accepted)
        assert operation.state == OperationState.SUCCEEDED, operation.error
        return operation.agent

    async def run_verb(self, verb: str, name: str = "alpha", **more: Any) -> OperationView:
        """Start a verb and wait for its end."""
        start = getattr(agents, f"{verb}_agent")
        return await self.wait_for(await start(self.plane, CALLER, name, **more))

    async def agent_state(self, name: str = "alpha") -> AgentState:
        return (await agent_views.get_agent(self.plane, CALLER, name)).state

    async def loop_until(self, at: float) -> None:
        """Wait, in virtual time, until the store's clock reaches this time."""
        await asyncio.sleep(max(0.0, at - self.plane.store.now()) + 0.001)

    async def rows(self, record: type[R]) -> list[R]:
        return list(await self.plane.store.list_rows(record, {}, limit=1_000))

    def holders(self, agent: str = "") -> list[str]:
        """The providers that hold a resource of an agent."""
        return sorted(thing.provider for thing in self.world.holds(agent=agent))

    def record_rings(self) -> list[WakeHint]:
        """Record the wakeups that the plane's changes send to other processes from now on."""
        wake_hints: list[WakeHint] = []
        plane = self.plane

        class RingRecorder:
            def __getattr__(self, name: str) -> Any:
                return getattr(plane.store, name)

            def commit(self, change: Change) -> Any:
                if change.wake_hint is not None:
                    wake_hints.extend(
                        (alone(change.wake_hint, others=()), *change.wake_hint.others)
                    )
                return plane.store.commit(change)

        self.plane = replace(plane, store=cast(Store, RingRecorder()))
        return wake_hints

    async def violations(self) -> list[str]:
        """The violated invariants of agents."""
        store = self.disk.observer()
        return violations(await read_agents(store, self.world, self.fakes, plans=PLANS))


def agent_test(
    test: Callable[..., Coroutine[Any, Any, None]], *, plans: Mapping[str, Plan] = PLANS
) -> Callable[..., None]:
    """A test in virtual time, which gets a running `AgentHarness`."""

    def run_test(**arguments: object) -> None:
        async def play(loop: Any) -> None:
            harness = AgentHarness(loop, plans=plans)
            await harness.start()
            await test(harness, **arguments)

        run(0, play)

    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "harness"
    run_test.__name__, run_test.__doc__ = test.__name__, test.__doc__
    run_test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return run_test


async def refusal(request, code):
    """The Conflict with this code, which the request must raise."""
    with pytest.raises(Conflict) as caught:
        await request
    assert caught.value.code == code
    return caught.value


@contextmanager
def override_verbs(harness, slot, **verbs):
    """Replace these verbs of a provider while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for verb, replacement in verbs.items():
            patch.setattr(harness.plane.providers[slot], verb, replacement)
        yield


def fault(harness, provider, verb, kind, nth=None):
    """Inject a fault into the next call of a verb, or into the nth call."""
    nth = nth or harness.faults.calls[provider, verb] + 1
    harness.faults.script[FaultPoint(provider, verb, nth)] = kind
