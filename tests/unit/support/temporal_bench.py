"""A plane with two workers of Temporal's activities on it, and providers that count; no server."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, cast

from temporalio.common import RawValue
from temporalio.testing import ActivityEnvironment

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.temporal.activities import Activities
from tenure.adapters.engine.temporal.messages import ActivityInput, Answer, DueMove
from tenure.adapters.engine.temporal.payloads import CONVERTER
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.executor import Executor
from tenure.app.operations.single_claims import SingleClaims
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.plans.catalogue import Catalogue
from tenure.testing import memory_store

TENANT = "default"
WORKER, IDLE_WORKER = "temporal", "temporal/rest"


REFUSED_ENDINGS = (Rejected("the image is not there\nand more"), Done({}))
STUCK_ENDINGS = (Unavailable("the disk is full"),)
LATER_ENDINGS = (
    NotYet(1e-9, "still booting"), OutcomeUnknown("reset"), Waiting("approval"), Waiting("approval")
)  # fmt: skip


class Hands:
    """What an engine does when an operation is accepted or woken, and nothing more."""

    worker = ""
    deaf = False
    """Nothing is heard of what others record."""

    def __init__(self, activities: Activities[Any]) -> None:
        self.activities = activities

    def execute(self, live):
        self.activities.cache(live)

    def wake(self, operation, *, interrupt=False):
        if not self.deaf:
            self.activities.discard_cached(operation)


class Bench:
    """A plane, two workers on it, and providers that count."""

    def __init__(self) -> None:
        tables = memory_store.Tables()
        self.store = cast(Any, memory_store.build(clock=SystemClock(), tables=tables))
        self.called: Counter[str] = Counter()
        self.made: set[str] = set()
        self.time = 100.0
        self.loads = self.moves = 0
        load = self.store.load

        async def count_load(operation):
            self.loads += 1
            return await load(operation)

        self.store.load = count_load
        plans = [
            Plan("pivoted", stages=(self._step("one"), self._pivot())),
            Plan("linear", stages=tuple(self._step(name) for name in ("one", "two", "three"))),
            Plan(
                "refused", stages=(self._step("one"), self._failing_step("two", *REFUSED_ENDINGS))
            ),
            Plan("stuck", stages=(self._failing_step("one", Rejected("no"), *STUCK_ENDINGS),)),
            Plan("later", stages=(self._failing_step("one", *LATER_ENDINGS),)),
            Plan("siblings", stages=((self._step("one"), self._step("two")),)),
        ]
        self.plane, self.here = self._worker(plans)
        _, self.beside = self._worker(plans)
        _, self.older = self._worker([])

    def _step(self, name: str) -> Step:
        async def do(call):
            self.called[f"{name}.do"] += 1
            self.made.add(name)
            return Done({})

        async def undo(call):
            self.called[f"{name}.undo"] += 1
            self.made.discard(name)
            return Done({})

        async def inspect(call):
            self.called[f"{name}.inspect"] += 1
            return Done({}) if name in self.made else Absent()

        return Step(name, do, undo=undo, inspect=inspect, slot=name)

    def _failing_step(self, name: str, *ends: Any) -> Step:
        """A step whose do, and then whose undo, ends like this; the last for ever."""
        left = list(ends)

        async def end(call):
            return left.pop(0) if left[1:] else left[0]

        limits = StepLimits(undo_seconds=1e-9)  # an undo that fails is stuck at once
        return Step(name, end, undo=end, inspect=end, slot=name, limits=limits)

    def _pivot(self) -> Step:
        """Its first call has no answer, and every later one is refused."""

        async def do(call):
            self.called["pivot.do"] += 1
            if self.called["pivot.do"] == 1:
                return OutcomeUnknown("the connection was reset")
            return Rejected("no")

        return Step("two", do, kind=StepKind.PIVOT, inspect=repeat)

    def _worker(self, plans: list[Plan]) -> tuple[Plane, Activities[Any]]:
        store, entropy, catalogue = self.store, SystemEntropy(), Catalogue(plans)
        work: Any = Executor(
            "plane", store=store, entropy=entropy, catalogue=catalogue, providers={}
        )
        claims: Any = SingleClaims(WORKER, idle_worker=IDLE_WORKER)
        activities: Activities[Any] = Activities(
            work,
            claims,
            store=store,
            idle_worker=IDLE_WORKER,
            monotonic=lambda: self.time,
            on_settled=lambda _name, _state: None,
            on_failure=lambda _error: None,
        )
        plane = Plane(
            id="plane",
            store=store,
            engine=cast(Any, Hands(activities)),
            entropy=entropy,
            catalogue=catalogue,
            providers={},
        )
        claims.attach(plane)
        return plane, activities

    async def accept(self, plan: str = "linear") -> tuple[str, Answer]:
        """An operation, and what its run is started with."""
        await prepare(self.plane)
        name = (await admission.accept(self.plane, OperationRequest(plan))).id
        return name, Answer("PENDING", 0, 1, [DueMove("one", "do", 0)])

    async def move(
        self,
        name: str,
        answer: Answer,
        *,
        by: Activities[Any] | None = None,
        attempt: int = 1,
        heartbeat: list[object] | None = None,
    ) -> Answer:
        """The first move of this answer, as its run would ask for it.

        `said` is what the attempt before has left, and is what this one leaves.
        """
        due = answer.moves[0]
        task = ActivityInput(name, answer.token, due.step, due.act, due.token, answer.cache_key)
        environment = ActivityEnvironment()
        environment.payload_converter = CONVERTER.payload_converter
        heartbeat = [] if heartbeat is None else heartbeat
        self.moves += 1
        environment.info = replace(
            environment.info,
            activity_id=str(self.moves),
            attempt=attempt,
            heartbeat_details=list(heartbeat),
        )
        environment.on_heartbeat = lambda *words: heartbeat.__setitem__(slice(None), words)
        payload = CONVERTER.payload_converter.to_payload(task)
        told = environment.run((by or self.here).move, [RawValue(payload)])
        return await told

    async def follow(self, name: str, answer: Answer) -> str:
        """All that is left of it; the state it ends in."""
        while not answer.ends_run:
            answer = await self.move(name, answer)
        return answer.state


def run_on_bench(scenario) -> None:
    async def main() -> None:
        await scenario(Bench())

    asyncio.run(main())
