"""Moves as Temporal's activities perform them, on what their worker has kept: also if it is stale.

The store is asked what became of it, the providers what they were called for.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.temporal import TemporalSettings
from tenure.adapters.engine.temporal import activities as activities_file
from tenure.adapters.engine.temporal import engine as temporal_engine
from tenure.adapters.engine.temporal.activities import Activities
from tenure.adapters.engine.temporal.cloakroom import KEPT_SECONDS, Cloakroom
from tenure.adapters.engine.temporal.engine import About, TemporalEngine
from tenure.adapters.engine.temporal.messages import Answer, Due, Task
from tenure.adapters.engine.temporal.payloads import CONVERTER
from tenure.adapters.store import memory
from tenure.app import operations
from tenure.app.advance import Advance
from tenure.app.claims import OneByOne
from tenure.app.live import read
from tenure.app.operations import Accept
from tenure.app.plane import Plane, prepare
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import EngineError, OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import StepLimits
from tenure.core.operation import State
from tenure.core.plan import Kind, Plan, Step, repeat
from tenure.plans.catalogue import Catalogue
from tenure.testing.operators import by
from tenure.testing.patches import patched

TENANT = "default"
WORKER, RESTING = "temporal", "temporal/rest"


REFUSED = (Rejected("the image is not there\nand more"), Done({}))
STUCK = (Unavailable("the disk is full"),)
LATER = (
    NotYet(1e-9, "still booting"), OutcomeUnknown("reset"), Waiting("approval"), Waiting("approval")
)  # fmt: skip


class Hands:
    """What an engine does when an operation is accepted or woken, and nothing more."""

    worker = ""
    deaf = False
    """Nothing is heard of what others record."""

    def __init__(self, activities: Activities[Any]) -> None:
        self.activities = activities

    def take(self, live):
        self.activities.keep(live)

    def wake(self, operation, *, interrupt=False):
        if not self.deaf:
            self.activities.forget(operation)


class Bench:
    """A plane, two workers on it, and providers that count."""

    def __init__(self) -> None:
        self.store = cast(Any, memory.build(clock=SystemClock(), tables=memory.Tables()))
        self.called: Counter[str] = Counter()
        self.made: set[str] = set()
        self.time = 100.0
        self.loads = self.moves = 0
        load = self.store.load

        async def counted(operation):
            self.loads += 1
            return await load(operation)

        self.store.load = counted
        plans = [
            Plan("pivoted", stages=(self._step("one"), self._pivot())),
            Plan("linear", stages=tuple(self._step(name) for name in ("one", "two", "three"))),
            Plan("refused", stages=(self._step("one"), self._named("two", *REFUSED))),
            Plan("stuck", stages=(self._named("one", Rejected("no"), *STUCK),)),
            Plan("later", stages=(self._named("one", *LATER),)),
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

    def _named(self, name: str, *ends: Any) -> Step:
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

        return Step("two", do, kind=Kind.PIVOT, inspect=repeat)

    def _worker(self, plans: list[Plan]) -> tuple[Plane, Activities[Any]]:
        store, entropy, catalogue = self.store, SystemEntropy(), Catalogue(plans)
        work: Any = Advance(
            "plane", store=store, entropy=entropy, catalogue=catalogue, providers={}
        )
        claims: Any = OneByOne(WORKER, resting=RESTING)
        activities: Activities[Any] = Activities(
            work, claims, store=store, resting=RESTING, monotonic=lambda: self.time,
            tell=lambda _name, _state: None, fail=lambda _error: None,
        )  # fmt: skip
        plane = Plane(
            id="plane", store=store, engine=cast(Any, Hands(activities)), entropy=entropy,
            catalogue=catalogue, providers={},
        )  # fmt: skip
        claims.serve(plane)
        return plane, activities

    async def accept(self, plan: str = "linear") -> tuple[str, Answer]:
        """An operation, and what its run is started with."""
        await prepare(self.plane)
        name = (await operations.accept(self.plane, Accept(plan))).id
        return name, Answer("PENDING", 0, 1, [Due("one", "do", 0)])

    async def move(
        self,
        name: str,
        answer: Answer,
        *,
        by: Activities[Any] | None = None,
        attempt: int = 1,
        said: list[object] | None = None,
    ) -> Answer:
        """The first move of this answer, as its run would ask for it.

        `said` is what the attempt before has left, and is what this one leaves.
        """
        due = answer.moves[0]
        task = Task(name, answer.token, due.step, due.act, due.token, answer.ticket)
        environment = ActivityEnvironment()
        environment.payload_converter = CONVERTER.payload_converter
        said = [] if said is None else said
        self.moves += 1
        environment.info = replace(
            environment.info, activity_id=str(self.moves), attempt=attempt,
            heartbeat_details=list(said),
        )  # fmt: skip
        environment.on_heartbeat = lambda *words: said.__setitem__(slice(None), words)
        payload = CONVERTER.payload_converter.to_payload(task)
        told = environment.run((by or self.here).move, [RawValue(payload)])
        return await told

    async def follow(self, name: str, answer: Answer) -> str:
        """All that is left of it; the state it ends in."""
        while not answer.over:
            answer = await self.move(name, answer)
        return answer.state


def held(scenario) -> None:
    async def main() -> None:
        await scenario(Bench())

    asyncio.run(main())


def test_a_worker_that_performs_all_moves_reads_the_operation_never():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        assert await bench.follow(name, answer) == State.SUCCEEDED
        assert bench.loads == 0
        assert bench.called == {"one.do": 1, "two.do": 1, "three.do": 1}

    held(scenario)


def test_another_worker_reads_what_it_has_not_seen():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        answer = await bench.move(name, answer, by=bench.beside)
        assert bench.loads == 1
        # Here is kept what stood before: it does not know all that the run was told.
        assert await bench.follow(name, answer) == State.SUCCEEDED
        assert bench.loads == 2
        assert bench.called == {"one.do": 1, "two.do": 1, "three.do": 1}

    held(scenario)


def test_a_cancel_that_was_heard_of_stops_the_next_call():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        await operations.cancel(bench.plane, by("the caller"), name)
        assert await bench.follow(name, answer) == State.COMPENSATED
        assert bench.called == {"one.do": 1, "two.undo": 1, "one.undo": 1}

    held(scenario)


def test_what_was_called_for_though_it_was_cancelled_is_undone():
    """Nobody was told of the cancel: as if it had come while the call was under way."""

    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        with patched(Hands, deaf=True):
            await operations.cancel(bench.plane, by("the caller"), name)
        assert await bench.follow(name, answer) == State.COMPENSATED
        assert bench.called == {"one.do": 1, "two.do": 1, "two.undo": 1, "one.undo": 1}
        assert not bench.made

    held(scenario)


def test_what_was_cancelled_before_anybody_claimed_it_calls_nobody():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        with patched(Hands, deaf=True):
            await operations.cancel(bench.plane, by("the caller"), name)
        assert await bench.follow(name, answer) == State.COMPENSATED
        assert not bench.called

    held(scenario)


async def polled_beside(bench: Bench) -> str:
    """Another worker's call of the pivot has no answer; then it is called on what is kept here."""
    name, answer = await bench.accept("pivoted")
    answer = await bench.move(name, answer)
    answer = await bench.move(name, answer, by=bench.beside)
    assert answer.wait is not None
    await asyncio.sleep(answer.wait + 0.01)
    await bench.move(name, replace(answer, moves=answer.then, then=[], ticket=""))
    assert bench.called["pivot.do"] == 2
    return str((await bench.store.load(name)).operation["state"])


def test_what_was_polled_elsewhere_is_known_before_it_is_called_again():
    """A refusal of a pivot that may have been applied turns nothing back."""

    async def scenario(bench: Bench) -> None:
        assert await polled_beside(bench) == State.RUNNING

    held(scenario)


def test_ablation_without_its_ticket_a_pivot_that_may_be_applied_is_turned_back(tally):
    def any_ticket(self, operation, token, ticket):
        kept = self._lives.pop(operation, None)
        return kept and kept.live

    async def scenario(bench: Bench) -> None:
        with patched(Cloakroom, take=any_ticket):
            assert await polled_beside(bench) != State.RUNNING

    held(scenario)
    tally.add("ablations")


def test_a_second_attempt_reads_and_asks():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        answer = await bench.move(name, answer, attempt=2)
        assert bench.called == {"one.do": 1, "two.inspect": 1}
        assert await bench.follow(name, answer) == State.SUCCEEDED

    held(scenario)


def taken_over(bench: Bench, name: str) -> Any:
    """Another run has claimed it, at another worker."""
    claims: Any = bench.beside._claims
    return claims.take_over(name)


def test_one_that_was_taken_over_records_nothing_on_what_it_has_kept():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        await taken_over(bench, name)
        before = (await bench.store.load(name)).journal
        late = await bench.move(name, answer)
        assert late.over
        assert (await bench.store.load(name)).journal == before
        assert bench.called["two.do"] == 1

    held(scenario)


def test_one_that_slept_for_long_calls_nobody_on_what_it_has_kept():
    async def scenario(bench: Bench) -> None:
        assert not await slept(bench)

    held(scenario)


async def slept(bench: Bench) -> int:
    """How often a worker calls that was away for longer than it may be."""
    name, answer = await bench.accept()
    answer = await bench.move(name, answer)
    bench.time += KEPT_SECONDS + 1.0
    await taken_over(bench, name)
    assert (await bench.move(name, answer)).over
    return bench.called["two.do"]


def test_ablation_what_is_kept_for_ever_is_seen_to_call():
    def kept_for_ever(self, operation, token, ticket):
        return self._lives.pop(operation).live

    async def scenario(bench: Bench) -> None:
        with patched(Cloakroom, take=kept_for_ever):
            assert await slept(bench)

    held(scenario)


def test_a_step_that_another_attempt_has_taken_is_left_to_it():
    """What is kept says no, or may be wrong: the store is asked."""

    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        answer = await bench.move(name, answer)
        (due,) = answer.moves
        stale = replace(answer, moves=[replace(due, token=due.token + 1)])
        told = await bench.move(name, stale)
        assert bench.called == {"one.do": 1}
        assert told.moves == answer.moves
        assert await bench.follow(name, told) == State.SUCCEEDED

    held(scenario)


def test_siblings_never_share_what_is_kept():
    async def scenario(bench: Bench) -> None:
        name, _ = await bench.accept("siblings")
        loaded = await ActivityEnvironment().run(bench.here.load, Task(name, 0))
        first, second = loaded.moves
        told = await asyncio.gather(
            bench.move(name, replace(loaded, moves=[first])),
            bench.move(name, replace(loaded, moves=[second])),
        )
        last = max(told, key=lambda one: one.revision)
        assert last.state == State.SUCCEEDED
        assert bench.called == {"one.do": 1, "two.do": 1}

    held(scenario)


# --- what people read ---------------------------------------------------------------------------


async def told_by(bench: Bench, plan: str, moves: int) -> list[tuple[str, str]]:
    """What is said of each of so many moves, and why the operation stands as it does then."""
    name, answer = await bench.accept(plan)
    told: list[tuple[str, str]] = []
    while len(told) < moves:
        if not answer.moves:
            await asyncio.sleep((answer.wait or 0.0) + 0.01)
            answer = replace(answer, moves=answer.then, ticket="")
        answer = await bench.move(name, answer)
        told.append((answer.said, answer.why))
    return told


def test_an_answer_says_how_its_step_ended_and_why_the_operation_turned_back():
    async def scenario(bench: Bench) -> None:
        why = "two was refused: the image is not there"
        assert await told_by(bench, "refused", 4) == [
            ("done", ""), ("refused: the image is not there", why), ("undone", why), ("undone", why)
        ]  # fmt: skip

    held(scenario)


def test_an_answer_says_what_is_not_over_yet():
    async def scenario(bench: Bench) -> None:
        said = [said for said, _ in await told_by(bench, "later", 3)]
        assert said == ["not yet: still booting", "unknown: reset", "waits for approval"]

    held(scenario)


def test_a_run_that_ends_since_its_operation_is_stuck_says_until_when():
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept("stuck")
        for _ in range(2):
            answer = await bench.move(name, answer)
        assert (answer.state, answer.said) == (State.STUCK, "stuck: the disk is full")
        rest = await ActivityEnvironment().run(bench.here.rest, Task(name, answer.token))
        assert rest.over
        assert rest.why.startswith("rests until 20")
        until, _, why = rest.why.partition(", when a new run follows: ")
        assert until.endswith("+00:00")
        assert why == "one was refused: no; one is stuck: the disk is full"

    held(scenario)


def test_of_the_words_of_others_temporal_is_told_one_line_that_is_bounded():
    assert activities_file.line(" one\ntwo") == "one"
    assert activities_file.line("x" * 5_000) == "x" * activities_file.LINE_MAX + "…"


# --- releases -------------------------------------------------------------------------------------


def test_what_only_a_newer_release_knows_is_left_to_another_worker_for_seconds(caplog):
    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        for attempt, seconds in ((1, 0.1), (2, 0.13), (100, 30.0)):
            with pytest.raises(ApplicationError, match="nobody here knows how") as raised:
                await bench.move(name, answer, by=bench.older, attempt=attempt)
            assert raised.value.next_retry_delay == timedelta(seconds=seconds)
        assert caplog.text.count("linear@1/one: another worker is asked") == 1
        assert await bench.follow(name, answer) == State.SUCCEEDED

    held(scenario)


def test_what_is_not_in_this_planes_store_is_never_answered_but_left_to_its_own(caplog):
    """Two planes at one task queue: each worker is asked for what is the other's."""

    async def scenario(bench: Bench) -> None:
        name, answer = await bench.accept()
        failed: list[BaseException] = []
        other = Bench()
        other.here._fail = failed.append
        with pytest.raises(ApplicationError, match="not in the store of this plane") as raised:
            await bench.move(name, answer, by=other.here)
        assert raised.value.next_retry_delay == timedelta(seconds=0.1)
        asked = (other.here.load, other.here.cancel, other.here.rest)
        for ask, token in itertools.product(asked, (0, 1)):
            with pytest.raises(ApplicationError, match="not in the store of this plane"):
                await ActivityEnvironment().run(ask, Task(name, token))
        assert not failed
        assert caplog.text.count("--temporal-queue") == 1
        assert await bench.follow(name, answer) == State.SUCCEEDED

    held(scenario)


def test_what_was_said_to_be_unknown_is_not_remembered_without_bound():
    async def scenario(bench: Bench) -> None:
        with patched(activities_file, SAID_MAX=2):
            for name in "abc":
                with pytest.raises(ApplicationError):
                    await ActivityEnvironment().run(bench.here.load, Task(name, 0))
        assert len(bench.here._unknown) == 1

    held(scenario)


async def tried_in_vain(bench: Bench, attempts: int) -> tuple[str, Answer, list[object]]:
    """A second step, for which so many workers of an older release were asked."""
    name, answer = await bench.accept()
    answer = await bench.move(name, answer)
    said: list[object] = []
    for attempt in range(1, attempts + 1):
        with pytest.raises(ApplicationError):
            await bench.move(name, answer, by=bench.older, attempt=attempt, said=said)
    return name, answer, said


def test_after_workers_that_called_nobody_the_call_is_made_at_once():
    async def scenario(bench: Bench) -> None:
        name, answer, said = await tried_in_vain(bench, 3)
        await bench.move(name, answer, attempt=4, said=said)
        assert bench.called == {"one.do": 1, "two.do": 1}

    held(scenario)


def test_after_one_that_may_have_called_none_counts_as_the_first():
    """The second attempt was lost; who comes after it cannot say that nobody was called."""

    async def scenario(bench: Bench) -> None:
        name, answer, said = await tried_in_vain(bench, 1)
        with pytest.raises(ApplicationError):
            await bench.move(name, answer, by=bench.older, attempt=3, said=said)
        await bench.move(name, answer, attempt=4, said=said)
        assert bench.called == {"one.do": 1, "two.inspect": 1}

    held(scenario)


def test_what_was_recorded_by_others_is_not_kept():
    """Else the next call would be made and undone, though the cancel was told of here."""

    async def scenario(bench: Bench) -> None:
        hands: Any = None
        engine: Any = TemporalEngine(
            hands, hands, store=bench.store, clock=SystemClock(), entropy=SystemEntropy()
        )
        for tell in (engine.wake, engine.heard):
            name, _ = await bench.accept()
            engine._activities.keep(await read(bench.store, bench.plane.catalogue, "plane", name))
            assert len(engine._activities._cloakroom) == 1
            tell(name)
            assert len(engine._activities._cloakroom) == 0

    held(scenario)


class Gone:
    """A server that says this of every run."""

    def __init__(self, status: RPCStatusCode) -> None:
        self.status = status

    def get_workflow_handle(self, _name: str) -> Any:
        return self

    async def describe(self, **_: object) -> None:
        raise RPCError("it is away", self.status, b"")


def test_a_run_that_is_not_there_is_nowhere_else_and_of_others_it_is_not_known():
    async def scenario(bench: Bench) -> None:
        hands: Any = None
        engine: Any = TemporalEngine(
            hands, hands, store=bench.store, clock=SystemClock(), entropy=SystemEntropy()
        )
        engine._client = Gone(RPCStatusCode.NOT_FOUND)
        assert not await engine._is_elsewhere("x")
        engine._client = Gone(RPCStatusCode.UNAVAILABLE)
        with pytest.raises(EngineError, match=r"did not tell of operation x \(it is away\)"):
            await engine._is_elsewhere("x")

    held(scenario)


def test_runs_that_start_at_once_in_a_namespace_without_attributes_all_start_without():
    """One of them adds what is missing, and none is left to the relay meanwhile."""
    asked: list[str] = []

    async def registered(_client: object, settings: TemporalSettings) -> bool:
        asked.append(settings.namespace)
        await asyncio.sleep(0)
        return True

    async def start(pairs: Sequence[object]) -> None:
        await asyncio.sleep(0)
        if pairs:
            raise RPCError("no mapping defined", RPCStatusCode.INVALID_ARGUMENT, b"")

    async def scenario(bench: Bench) -> None:
        hands: Any = None
        engine: Any = TemporalEngine(
            hands, hands, store=bench.store, clock=SystemClock(), entropy=SystemEntropy()
        )
        engine._client, engine._attributes = object(), True
        about = About("kind", "agent", "name")
        with patched(temporal_engine, register_attributes=registered):
            await asyncio.gather(*(engine._with_attributes(start, about) for _ in range(3)))
        assert asked == ["default"]
        assert engine._attributes

    held(scenario)


def test_a_run_is_titled_by_its_agents_name_if_it_has_one():
    assert About("create_agent", "01a1", "hello").title == "create_agent of hello (01a1)"
    assert About("linear", "01a1", "").title == "linear of 01a1"
