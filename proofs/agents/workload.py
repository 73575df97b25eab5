"""The simulation of agents: several planes race on one disk while callers ask for everything.

On the way an invoker asks again and again where the agents are reached: after a close was
acknowledged, nothing may start.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from proofs.agents.lifecycle import CALLER, PLANS, Fakes
from proofs.agents.profiles import DELAYS, PROFILES, Request, alphabet
from proofs.agents.scenarios import PATIENCE, check_agents, perform, wait_for_rest
from proofs.harness.cluster import Client
from proofs.harness.schedule import DrawnFaults
from proofs.harness.simulation import ClusterParts, OpenDisk, Simulation, memory_disk
from proofs.harness.snapshot import TENANT, Snapshot
from tenure.app.agents import invocations
from tenure.app.agents.commands import RequestOptions
from tenure.app.operations import commands as operations
from tenure.app.tenancy import quotas
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.operation import OperationState
from tenure.core.records import AgentNameRecord, AgentRecord, OperationRecord, ReservationRecord
from tenure.core.verb import VerbName
from tenure.plans.agents.lifecycle import CLOSING
from tenure.testing.fakes import World
from tenure.testing.loop import SeededLoop
from tenure.testing.operators import by

INVOKE_SECONDS = 0.05


class AgentsSimulation(Simulation):
    """One run of agents."""

    profiles = PROFILES

    def __init__(self, loop: SeededLoop, profile: Any, disk: OpenDisk = memory_disk) -> None:
        """Nothing has happened yet."""
        super().__init__(loop, profile, disk)
        self.client = Client(self)
        self.closed: dict[str, tuple[str, float]] = {}
        """By name, the close that was acknowledged last, and when; until somebody opens again."""
        self.invoked = 0

    def build(self, loop: SeededLoop) -> ClusterParts:
        """The plans of the lifecycle over fakes."""
        world, faults = World(loop), DrawnFaults(self.schedule, loop, alphabet, DELAYS)
        self.fakes = Fakes(world, faults)
        return ClusterParts(PLANS.values(), world, self.fakes.all(), faults)

    async def before_clients(self) -> None:
        """Set the quota of the tenant."""
        most = self.profile.quota
        if most is not None:
            await self.client.ask(lambda plane: quotas.set_quota(plane, CALLER, most=most))

    def clients(self) -> Iterable[Coroutine[Any, Any, None]]:
        """One caller for each request."""
        return (self._ask(number, one) for number, one in enumerate(self.schedule.requests))

    def observers(self) -> Iterable[Coroutine[Any, Any, None]]:
        """One invoker."""
        return (self._invoke(),)

    async def rest(self, is_busy: Callable[[], bool]) -> list[str]:
        """Wait until the agents are at rest."""
        while is_busy():  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(PATIENCE.poll_seconds)
        return await wait_for_rest(self)

    async def check(self, snapshot: Snapshot) -> list[str]:
        """The invariants of agents, and the quota."""
        wrong = await check_agents(self, self.fakes, snapshot, self.client.acknowledged_ids)
        used = await self.disk.observer().count_rows(ReservationRecord, {})
        most = self.profile.quota
        over = most is not None and used > most
        return wrong + ([f"quota_is_kept: {used} places of {most} are taken"] if over else [])

    def counts(self) -> Mapping[str, int]:
        """Invocations that were let through."""
        return {"invocations": self.invoked}

    async def _ask(self, number: int, request: Request) -> None:
        """Ask until there is an answer, and perhaps cancel it."""
        await asyncio.sleep(request.at)
        act, name = request.act, request.act.name
        opens = act.verb in {VerbName.RESUME, VerbName.CREATE}
        if opens:
            self.closed.pop(name, None)
        options = RequestOptions(idempotency_key=f"request {number}", queue=request.queue)
        try:
            accepted = await self.client.ask(
                lambda plane: perform(plane, act, request_options=options)
            )
        except CallerError:
            return
        self.client.acknowledged_ids.append(accepted.id)
        if act.verb in CLOSING:
            row = await self.disk.observer().find(OperationRecord, (accepted.id,))
            newest = await self.disk.observer().find(AgentRecord, (accepted.agent,))
            assert row is not None
            assert newest is not None
            faster = row.generation != newest.generation
            if not faster and "queued" not in row.input:
                self.closed[name] = (accepted.id, self.loop.time())
        if request.cancel_after is not None:
            await asyncio.sleep(request.cancel_after)
            with suppress(CallerError):
                await self.client.ask(
                    lambda plane: operations.cancel(plane, by("a caller"), accepted.id)
                )

    async def _invoke(self) -> None:
        """Ask where agents are reached; after a close that was acknowledged nobody may be told."""
        while True:
            await asyncio.sleep(INVOKE_SECONDS)
            for name in self.profile.names:
                before = self.closed.get(name)
                with suppress(CallerError, CommitUnknown):
                    await self.client.ask(
                        lambda plane, name=name: invocations.address_of(plane, CALLER, name)  # type: ignore[misc]
                    )
                    self.invoked += 1
                    if before is not None and self.closed.get(name) == before:
                        await self._let_through(name, before[0])

    async def _let_through(self, name: str, operation: str) -> None:
        """An invocation was let through though the agent was closed; unless that was taken back."""
        row = await self.disk.observer().find(OperationRecord, (operation,))
        taken = await self.disk.observer().find(AgentNameRecord, (TENANT, name))
        if row is None or row.state == OperationState.COMPENSATED:
            return
        if taken is None or taken.agent != row.agent:
            return  # another agent has the name by now
        agent = await self.disk.observer().find(AgentRecord, (row.agent,))
        if agent is None or agent.generation != row.generation:
            return  # somebody has asked for something else since
        self.wrong.append(f"closed_serves_nothing: {name} was reached after {row.plan_name!s}")
