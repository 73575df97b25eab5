"""The crash matrix runner: every port crossing × every side of it × every single fault.

Goal: after a crash at any instant and a restart on the same store, every operation reaches its goal
or is undone, counted in the world.  Method: run a scenario with one fault (or none) and record its
crossings; then run it again for each crossing and side, die there, start a fresh plane on the same
disk, let virtual time pass until everything is at rest and the last late request has arrived, and
check every invariant.  A `Case` that fails is run alone by `Matrix.run`.

A subject says in a `Matrix` which scenarios there are, how its cluster is built, what the callers
of a scenario ask, how it waits for rest, and what must hold.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from proofs.harness.cluster import Client, Cluster, Disk, MemoryDisk
from proofs.harness.snapshot import Snapshot, journal_only_grew, read_snapshot
from tenure.core.errors import CommitUnknown
from tenure.ports.clock import Clock
from tenure.testing.faults import Fault, FaultPoint, Faults
from tenure.testing.loop import Dead, SeededLoop, VirtualClock, run
from tenure.testing.tripwire import CrossingSide, sides_of

REPEATS_MAX = 2
"""Of a call that a scenario repeats so many are struck; a later one would be the same again."""
CRASHES = (CrossingSide.BEFORE, CrossingSide.DURING, CrossingSide.AFTER)
FIRST = "plane"
"""The process that can die at a crossing."""
CALM: tuple[None, None] = (None, None)
"""No fault."""

OpenDisk = Callable[[Clock], Disk]
Struck = tuple[FaultPoint | None, Fault | None]


class Scenario(Protocol):
    """What happens in a scenario when nothing else fails."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def script(self) -> Mapping[FaultPoint, Fault]:
        """The faults that are part of the scenario."""
        ...

    @property
    def ends(self) -> str:
        """The states of its operations at the end, agent by agent."""
        ...


S = TypeVar("S", bound=Scenario)


class Case(NamedTuple):
    """One run of the matrix; printed, it can be run again as it is."""

    scenario: str
    call: FaultPoint | None = None
    fault: Fault | None = None
    crash_at: int = 0
    side: CrossingSide = CrossingSide.BEFORE
    seed: int = 0
    planes: int = 1
    """How many share the store; the first one dies."""


class CaseResult(NamedTuple):
    """What came of a case."""

    case: Case
    wrong: list[str]
    crossings: list[str]
    """Of the first process."""
    calls: list[FaultPoint]
    states: str
    """Of the operations, agent by agent, in the order of acceptance."""
    trace: str
    seconds: float
    """In virtual time."""


class Attempt(NamedTuple, Generic[S]):
    """A scenario that is under way."""

    cluster: Cluster
    client: Client
    scenario: S


@dataclass(frozen=True, slots=True)
class Matrix(Generic[S]):
    """The crash matrix of one subject."""

    module: str
    """Where `MATRIX` is imported from, to run a case again."""
    scenarios: Mapping[str, S]
    alphabet: Mapping[str, tuple[Fault, ...]]
    """The faults that can strike a call, by verb."""
    build: Callable[[SeededLoop, S, Faults, Disk], Cluster]
    """The cluster of a scenario, nothing started."""
    ask: Callable[[Attempt[S]], Awaitable[list[asyncio.Task[None]]]]
    """Ask until the last request is acknowledged; requests that come later are returned."""
    rest: Callable[[Attempt[S]], Awaitable[list[str]]]
    """Wait until nothing can move any more."""
    check: Callable[[Attempt[S], Snapshot], Awaitable[list[str]]]
    """Every violation of the subject's invariants."""
    more_calls: Callable[[list[FaultPoint]], list[FaultPoint]] = lambda _: []
    """Calls that a scenario does not make, and would make after a fault."""
    spared: Callable[[S, FaultPoint], frozenset[Fault]] = lambda _scenario, _call: frozenset()
    """Faults of a call that nobody could survive in a scenario."""

    def run(self, case: Case, *, disk: OpenDisk = MemoryDisk) -> CaseResult:
        """Run one case alone; the same case gives the same trace."""
        return run(case.seed, lambda loop: self._run(loop, case, disk))

    async def _run(self, loop: SeededLoop, case: Case, disk: OpenDisk) -> CaseResult:
        scenario = self.scenarios[case.scenario]
        script = dict(scenario.script)
        if case.call is not None and case.fault is not None:
            script[case.call] = case.fault
        faults = Faults(script)
        cluster = self.build(loop, scenario, faults, disk(VirtualClock(loop)))
        supervisors = [
            loop.create_task(cluster.supervise(FIRST, crash_at=case.crash_at, side=case.side)),
            *(
                loop.create_task(cluster.supervise(f"{FIRST} {more}"))
                for more in range(2, case.planes + 1)
            ),
        ]
        attempt = Attempt(cluster, Client(cluster), scenario)
        later = await self.ask(attempt)
        before = await read_snapshot(cluster.disk.observer())
        wrong = await self.rest(attempt)
        for task in later:
            await task
        await cluster.any_process()
        for supervisor in supervisors:
            supervisor.cancel()
        for process in cluster.serving:
            with suppress(Dead, CommitUnknown):  # the crossing may be in the shutdown itself
                await process.stop()
        await cluster.world.quiet()
        snapshot = await read_snapshot(cluster.disk.observer())
        wrong += await self.check(attempt, snapshot) + journal_only_grew(before, snapshot)
        snapshot.add_to(cluster.world.trace)
        (crossings,) = (p.wire.crossings for p in cluster.processes if p.node.name == f"{FIRST}/1")
        states, trace = " ".join(snapshot.states()), cluster.world.trace.hexdigest()
        return CaseResult(case, wrong, crossings, faults.past_calls(), states, trace, loop.time())

    # --- which cases there are --------------------------------------------------------------------

    def faults_of(self, scenario: str) -> list[Struck]:
        """No fault, and every single fault at every call that the scenario makes or may make."""
        script = self.scenarios[scenario].script
        calls = [c for c in self.run(Case(scenario)).calls if c.nth <= REPEATS_MAX]
        calls += self.more_calls(calls)
        return [
            CALM,
            *(
                (call, fault)
                for call in calls
                if call not in script
                for fault in self.alphabet[call.verb]
                if fault not in self.spared(self.scenarios[scenario], call)
            ),
        ]

    def cases_of(
        self, scenario: str, fault_case: Struck = CALM, *, seed: int = 0, planes: int = 1
    ) -> list[Case]:
        """The case without a crash, then one for each crossing and side of it."""
        calm = self.run(Case(scenario, *fault_case, seed=seed, planes=planes))
        return [calm.case, *self.crashes_of(calm)]

    def crashes_of(self, calm: CaseResult) -> Iterator[Case]:
        """One case for each crossing and side of a run without a crash.

        A store that fails is a fault too, so it is not combined with another.
        """
        for number, crossing in enumerate(calm.crossings, 1):
            for side in sides_of(crossing):
                if calm.case.fault is None or side in CRASHES:
                    yield calm.case._replace(crash_at=number, side=side)

    def results(
        self,
        scenario: str,
        fault_case: Struck = CALM,
        *,
        first: int = 0,
        one_in: int = 1,
        planes: int = 1,
        disk: OpenDisk = MemoryDisk,
    ) -> Iterator[CaseResult]:
        """Run the case without a crash, then every crash of it, or one in so many from the first.

        The run without a crash shows the crossings and is a result itself.
        """
        calm = self.run(Case(scenario, *fault_case, planes=planes), disk=disk)
        yield calm
        for case in itertools.islice(self.crashes_of(calm), first, None, one_in):
            yield self.run(case, disk=disk)

    def report(self, results: Iterable[CaseResult], limit: int = 5) -> tuple[int, str]:
        """How many results there were, and the failed ones, each as a call that repeats it."""
        count, failed = 0, []
        for result in results:
            count += 1
            if result.wrong:
                failed.append("\n    ".join((self.again(result.case), *result.wrong)))
        text = "\n".join(failed[:limit])
        return count, f"{len(failed)} of {count} runs:\n{text}" if failed else ""

    def again(self, case: Case) -> str:
        """The call that runs this case again."""
        return f"{self.module}.MATRIX.run({case!r})"
