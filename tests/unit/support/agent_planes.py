"""Planes with agents on a seeded loop, over the fakes of `proofs.agents.lifecycle`.

`alive` turns a coroutine into a test in virtual time; it is given a `Lives`, whose plane runs.
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
from tenure.app.plane import Plane, prepare
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.roles import Caller, Role
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Change, Ring, Store
from tenure.testing.faults import FaultPoint
from tenure.testing.loop import run

STRANGER = Caller("elsewhere", "stranger", Role.ADMIN)
VIEWER = Caller(TENANT, "viewer", Role.VIEWER)


def keyed(key: str) -> RequestOptions:
    return RequestOptions(idempotency_key=key)


class Lives(AgentCluster):
    """One world of agents, and the plane that a test asks."""

    plane: Plane

    async def start(self, name: str = "plane") -> Process:
        process = self.boot(name)
        await process.start()
        self.plane = process.plane
        return process

    async def newer(self, *names: str) -> Plane:
        """A plane of a newer release beside ours, which has newer plans of these names."""
        newer = (Plan(one, stages=PLANS[one].stages, version=2, subject="agent") for one in names)
        self.catalogue = Catalogue((*PLANS.values(), *newer), SUBJECTS)
        front = self.boot("newer")  # its engine stays off: it accepts, and works on nothing
        await prepare(front.plane)
        return front.plane

    async def done(self, operation: OperationView, seconds: float = 60.0) -> OperationView:
        return await reads.wait(self.plane, TENANT, operation.id, seconds=seconds)

    async def made(self, name: str = "alpha", **more: object) -> str:
        """An agent that is READY; its uid."""
        asked = await agents.create_agent(self.plane, CALLER, spec_of(name, **more))
        operation = await self.done(asked)
        assert operation.state == OperationState.SUCCEEDED, operation.error
        return operation.agent

    async def verb(self, verb: str, name: str = "alpha", **more: Any) -> OperationView:
        """Ask for a verb and wait for its end."""
        ask = getattr(agents, f"{verb}_agent")
        return await self.done(await ask(self.plane, CALLER, name, **more))

    async def state(self, name: str = "alpha") -> AgentState:
        return (await agent_views.get_agent(self.plane, CALLER, name)).state

    async def loop_until(self, at: float) -> None:
        """Wait, in virtual time, until the store's clock says so."""
        await asyncio.sleep(max(0.0, at - self.plane.store.now()) + 0.001)

    async def rows(self, table: str) -> list[Any]:
        return list(await self.plane.store.list_rows(table, {}, limit=1_000))

    def held(self, agent: str = "") -> list[str]:
        """The providers that hold something of an agent."""
        return sorted(thing.provider for thing in self.world.holds(agent=agent))

    def rings(self) -> list[Ring]:
        """What other processes are told from now on, as the plane's changes say."""
        told: list[Ring] = []
        plane = self.plane

        class RingRecorder:
            def __getattr__(self, name: str) -> Any:
                return getattr(plane.store, name)

            def commit(self, change: Change) -> Any:
                if change.ring is not None:
                    told.extend((alone(change.ring, others=()), *change.ring.others))
                return plane.store.commit(change)

        self.plane = replace(plane, store=cast(Store, RingRecorder()))
        return told

    async def wrong(self) -> list[str]:
        """Every sentence about agents that does not hold."""
        store = self.disk.observer()
        return violations(await read_agents(store, self.world, self.fakes, plans=PLANS))


def alive(
    test: Callable[..., Coroutine[Any, Any, None]], *, plans: Mapping[str, Plan] = PLANS
) -> Callable[..., None]:
    """A test in virtual time, given a `Lives` that runs."""

    def played(**given: object) -> None:
        async def play(loop: Any) -> None:
            lives = Lives(loop, plans=plans)
            await lives.start()
            await test(lives, **given)

        run(0, play)

    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "lives"
    played.__name__, played.__doc__ = test.__name__, test.__doc__
    played.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return played


async def refusal(asked, code):
    with pytest.raises(Conflict) as refused:
        await asked
    assert refused.value.code == code
    return refused.value


@contextmanager
def instead(lives, slot, **verbs):
    """Verbs of a provider do something else meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for verb, does in verbs.items():
            patch.setattr(lives.plane.providers[slot], verb, does)
        yield


def fault(lives, provider, verb, what, nth=None):
    """Strike the next call of a verb, or the nth."""
    nth = nth or lives.faults.calls[provider, verb] + 1
    lives.faults.script[FaultPoint(provider, verb, nth)] = what
