"""The simulation of event delivery (P17): relays that die, and a receiver that is not always there.

Agents live on one plane; a relay delivers their events from a process of its own that is killed at
one crossing, of the store or of the bus, and followed by another.  The truth is what arrived in the
receiver's own world: every committed event, the first copies of each agent in order, each under one
id, and nothing that was not committed when it arrived.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from proofs.agents.lifecycle import CALLER, PLANS, Fakes, spec_of
from proofs.agents.scenarios import check_agents, wait_for_rest
from proofs.events.invariants import violations
from proofs.events.profiles import PROFILES
from proofs.harness.cluster import Client, Process
from proofs.harness.simulation import ClusterParts, OpenDisk, Simulation, memory_disk
from proofs.harness.snapshot import Snapshot
from tenure.adapters.bus.local import LocalBus
from tenure.app.agents import commands as agents
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.records import CursorRecord, OutboxRecord, ParkedRecord
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tenure.testing.fakes import World
from tenure.testing.faults import Faults
from tenure.testing.loop import Dead, SeededLoop
from tenure.testing.tripwire import CrossingSide

SINK = "sink"
PATIENCE_SECONDS = 7_200.0
"""Virtual: within which everything must have arrived."""


class EventsSimulation(Simulation):
    """One run of event delivery."""

    profiles = PROFILES

    def __init__(self, loop: SeededLoop, profile: Any, disk: OpenDisk = memory_disk) -> None:
        """Nothing has arrived."""
        super().__init__(loop, profile, disk)
        self.client = Client(self)
        self.arrived: list[Outgoing] = []

    def build(self, loop: SeededLoop) -> ClusterParts:
        """The plans of the lifecycle over fakes without faults."""
        world, faults = World(loop), Faults()
        self.fakes = Fakes(world, faults)
        return ClusterParts(PLANS.values(), world, self.fakes.all(), faults)

    def clients(self) -> Iterable[Coroutine[Any, Any, None]]:
        """None: one caller does everything before the calm."""
        return ()

    def observers(self) -> Iterable[Coroutine[Any, Any, None]]:
        """One relay after the other."""
        return (self._supervise_relays(),)

    async def until_calm(self) -> None:
        """Create, suspend, delete and resume agents, and wait until every event has arrived."""
        for name in ("alpha", "beta", "gamma"):
            await self._ask(lambda plane, n=name: agents.create_agent(plane, CALLER, spec_of(n)))  # type: ignore[misc]
        await wait_for_rest(self)
        await self._ask(lambda plane: agents.suspend_agent(plane, CALLER, "alpha"))
        await self._ask(lambda plane: agents.delete_agent(plane, CALLER, "beta"))
        await wait_for_rest(self)
        await self._ask(lambda plane: agents.resume_agent(plane, CALLER, "alpha"))
        await wait_for_rest(self)
        rows = await self._events()
        until = self.loop.time() + PATIENCE_SECONDS
        while self.loop.time() < until and not await self._has_arrived(rows):  # noqa: ASYNC110 (virtual)
            await asyncio.sleep(1.0)

    async def _ask(self, question: Callable[[Plane], Coroutine[Any, Any, OperationView]]) -> None:
        accepted = await self.client.ask(question)
        self.client.acknowledged_ids.append(accepted.id)

    async def rest(self, is_busy: Callable[[], bool]) -> list[str]:
        """Wait until the agents are at rest."""
        assert not is_busy()
        return await wait_for_rest(self)

    async def check(self, snapshot: Snapshot) -> list[str]:
        """The invariants of agents, and those of delivery."""
        wrong = await check_agents(self, self.fakes, snapshot, self.client.acknowledged_ids)
        return wrong + violations(self.arrived, await self._events())

    async def _events(self) -> list[OutboxRecord]:
        return list(await self.disk.observer().list_events(limit=10_000))

    async def _has_arrived(self, rows: list[OutboxRecord]) -> bool:
        store = self.disk.observer()
        cursor = await store.find(CursorRecord, (SINK,))
        parked = await store.count_rows(ParkedRecord, {})
        return cursor is not None and cursor.position == rows[-1].position and not parked

    async def _take(self, event: Outgoing) -> None:
        """Take an event, unless the profile refuses it; an event that is not committed is wrong."""
        self.profile.refuse(self.schedule.seed, self.loop.time(), event)
        position = int(event.id.partition("-")[0])
        if await self.disk.observer().find(OutboxRecord, (position,)) is None:
            self.wrong.append(f"uncommitted: {event.id} arrived before it was committed")
        self.arrived.append(event)

    async def _supervise_relays(self) -> None:
        """Run one relay after the other; the first dies at its crossing."""
        crossing, side = self.profile.death(self.schedule.seed)
        for number in itertools.count():
            process = self.boot(f"relay {number}", crash_at=crossing, side=side)
            crossing, side = 0, CrossingSide.BEFORE
            try:
                await process.node.run(self._relay(process).run())
            except Dead:
                process.crash()
                continue
            return

    def _relay(self, process: Process) -> Relay:
        async def take(event: Outgoing) -> None:
            await process.wire.cross("bus.publish", lambda: self._take(event))

        route = DestinationRoute(Destination(SINK, SINK), LocalBus({SINK: take}))
        return Relay(process.plane, buses={}, fixed_routes=[route])
