"""The relay to Temporal: what stands still is followed, and what moves is not even read."""

from itertools import pairwise
from typing import Any, cast

from tenure.adapters.clock.system import SystemEntropy
from tenure.adapters.engine.temporal.run_starter import RunStarter
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.single_claims import SingleClaims
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.endings import Done
from tenure.core.errors import EngineError
from tenure.core.plan import Plan, Step, nothing
from tenure.core.records import OperationRecord
from tenure.core.retry import TEMPORAL_WAKE
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Change, Set
from tenure.testing import memory_store
from tenure.testing.loop import VirtualClock, run

WORKER, IDLE_WORKER, MARGIN = "temporal", "temporal/rest", 15.0


REST_OF_A_DAY = 6 * 3600.0


class Nobody:
    """An engine that moves nothing."""

    worker = ""

    def execute(self, handle):
        pass


class Bench:
    """Operations on a virtual clock, and a relay that notes whom it follows."""

    def __init__(self, loop: Any) -> None:
        async def do(_call):
            return Done({})

        self.clock = VirtualClock(loop)
        self.store = cast(Any, memory_store.build(clock=self.clock, tables=memory_store.Tables()))
        self.reads = 0
        self.away = False
        self.followed: list[str] = []
        catalogue = Catalogue([Plan("single", stages=(Step("one", do, undo=nothing, inspect=do),))])
        self.plane = Plane(
            id="plane",
            store=self.store,
            engine=cast(Any, Nobody()),
            entropy=SystemEntropy(),
            catalogue=catalogue,
            providers={},
        )
        self.claims = SingleClaims(WORKER, idle_worker=IDLE_WORKER)
        self.claims.attach(self.plane)
        find = self.store.find

        async def count_find(table, key):
            self.reads += table == "operation"
            return await find(table, key)

        self.store.find = count_find

    async def start(self) -> str:
        """An operation that a worker of Temporal holds."""
        await prepare(self.plane)
        name = (await admission.accept(self.plane, OperationRequest("single"))).id
        await self.claims.begin(name)
        return name

    def relay(self) -> RunStarter:
        async def follow(name: str, _wake: bool) -> None:
            if self.away:
                raise EngineError("Temporal is away")
            self.followed.append(name)

        return RunStarter(
            self.store, follow, worker=WORKER, idle_worker=IDLE_WORKER, margin_seconds=MARGIN
        )

    async def run_passes(self, relay: RunStarter, seconds: float) -> None:
        """Once a second for so long."""
        for _ in range(int(seconds)):
            await relay.run_pass()
            await self.clock.sleep(1.0)


def run_scenario(scenario) -> None:
    async def main(loop) -> None:
        await scenario(Bench(loop))

    run(0, main)


def test_what_begins_beside_a_relay_is_read_only_when_it_has_stood_for_a_margin():
    async def scenario(bench: Bench) -> None:
        relay = bench.relay()
        await relay.run_pass()
        name = await bench.start()
        await bench.run_passes(relay, MARGIN)
        assert bench.reads == 0
        assert not bench.followed
        await bench.run_passes(relay, 3)
        assert bench.followed == [name]

    run_scenario(scenario)


def test_what_stood_before_there_was_a_relay_is_followed_at_once():
    async def scenario(bench: Bench) -> None:
        name = await bench.start()
        await bench.clock.sleep(MARGIN + 1.0)
        await bench.relay().run_pass()
        assert bench.followed == [name]

    run_scenario(scenario)


def test_one_that_stands_still_though_it_was_woken_is_woken_ever_more_seldom():
    """Its plan is unknown to every worker that is left: each wake is events in its history."""

    async def scenario(bench: Bench) -> None:
        name = await bench.start()
        relay, woken_at = bench.relay(), []
        for _ in range(int(REST_OF_A_DAY / 5)):
            before = len(bench.followed)
            await relay.run_pass()
            if len(bench.followed) > before:
                woken_at.append(bench.clock.monotonic())
            await bench.clock.sleep(5.0)
        gaps = [later - earlier for earlier, later in pairwise(woken_at)]
        assert gaps == sorted(gaps)
        assert gaps[0] <= 2 * MARGIN
        longest = TEMPORAL_WAKE.scaled_to(MARGIN).cap_seconds
        assert longest <= gaps[-1] <= longest + 10.0
        assert set(bench.followed) == {name}

    run_scenario(scenario)


def test_one_that_moved_after_it_was_woken_is_not_left_alone_for_longer():
    async def scenario(bench: Bench) -> None:
        name = await bench.start()
        relay = bench.relay()
        await bench.run_passes(relay, 8 * MARGIN)
        often = len(bench.followed)
        row = await bench.store.find(OperationRecord, (name,))
        moved = {"revision": row.revision + 1, "updated_at": bench.store.now()}
        assert await bench.store.commit(Change("", (), (Set("operation", (name,), moved),))) is None
        await bench.run_passes(relay, 16 * MARGIN)  # its last wait of the earlier case is over then
        late = len(bench.followed) - often
        assert late >= often

    run_scenario(scenario)


def test_one_is_not_left_alone_for_longer_because_temporal_was_away():
    async def scenario(bench: Bench) -> None:
        name = await bench.start()
        relay = bench.relay()
        bench.away = True
        await bench.run_passes(relay, 20 * MARGIN)
        assert not bench.followed
        bench.away = False
        await bench.run_passes(relay, 2 * MARGIN + 3)
        assert bench.followed == [name, name]

    run_scenario(scenario)
