"""The simulation of operations: callers ask for the plans of `tenure.testing.plans`."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from proofs.harness.rest import Patience, until_at_rest
from proofs.harness.schedule import DrawnFaults
from proofs.harness.simulation import ClusterParts, OpenDisk, Simulation, memory_disk
from proofs.harness.snapshot import Snapshot
from proofs.operations.callers import Callers
from proofs.operations.history import CallerHistory, request_of, violations_in_time
from proofs.operations.invariants import Evidence, violations
from proofs.operations.profiles import PROFILES, Request, alphabet
from tenure.core.records import OperationRecord
from tenure.testing.fakes import World
from tenure.testing.loop import SeededLoop
from tenure.testing.plans import EFFECTS, PLANS, providers_of

PATIENCE = Patience(total_seconds=150.0, stuck_seconds=9.0, poll_seconds=1.0)


class OperationsSimulation(Simulation):
    """One run of operations."""

    profiles = PROFILES

    def __init__(self, loop: SeededLoop, profile: Any, disk: OpenDisk = memory_disk) -> None:
        """Nothing has happened yet."""
        super().__init__(loop, profile, disk)
        self.history = CallerHistory()
        self.callers = Callers(self, self.history)

    def build(self, loop: SeededLoop) -> ClusterParts:
        """Every plan of the tests, over fakes."""
        world, faults = World(loop), DrawnFaults(self.schedule, loop, alphabet)
        return ClusterParts(PLANS.values(), world, providers_of(world, faults), faults)

    def clients(self) -> Iterable[Coroutine[Any, Any, None]]:
        """One caller for each request."""
        return (self.callers.pursue(request) for request in self.schedule.requests)

    async def rest(self, is_busy: Callable[[], bool]) -> list[str]:
        """An operator resolves some of what is stuck, once nothing is on its way any more."""
        resolved: set[str] = set()

        async def attend(row: OperationRecord, seconds: float) -> bool:
            name = row.id
            request: Request = self.schedule.requests[request_of(row.input)]
            if request.operator == "resolve" and name not in resolved and self.is_quiet():
                resolved.add(name)
                await self.callers.resolve(name)
                return True
            return seconds < PATIENCE.stuck_seconds

        until = self.schedule.calm_at + PATIENCE.total_seconds
        return await until_at_rest(self, PATIENCE, until=until, is_busy=is_busy, attend=attend)

    async def check(self, snapshot: Snapshot) -> list[str]:
        """The invariants of operations, what callers were told, and rules about time."""
        plans = {plan.digest: plan for plan in PLANS.values()}
        evidence = Evidence(snapshot, self.world, plans, self.history.accepted, EFFECTS)
        schedule = self.schedule
        soon = None if schedule.is_disrupted else 4.0 + 10.0 * schedule.flush_seconds
        return [
            *violations(evidence),
            *self.history.violations(snapshot),
            *violations_in_time(
                evidence, self.parts.faults, is_paused=schedule.pauses, soon_seconds=soon
            ),
        ]
