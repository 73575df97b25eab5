"""The relay to Temporal: what stands still is followed, and what moves is not even read."""

from typing import Any, cast

from tenure.adapters.clock.system import SystemEntropy
from tenure.adapters.engine.temporal.relay import Relay
from tenure.adapters.store import memory
from tenure.app import operations
from tenure.app.claims import OneByOne
from tenure.app.operations import Accept
from tenure.app.plane import Plane, prepare
from tenure.core.endings import Done
from tenure.core.plan import Plan, Step, nothing
from tenure.plans.catalogue import Catalogue
from tenure.testing.loop import VirtualClock, run

WORKER, RESTING, MARGIN = "temporal", "temporal/rest", 15.0


class Nobody:
    """An engine that moves nothing."""

    worker = ""

    def take(self, live):
        pass


class Bench:
    """Operations on a virtual clock, and a relay that notes whom it follows."""

    def __init__(self, loop: Any) -> None:
        async def do(_call):
            return Done({})

        self.clock = VirtualClock(loop)
        self.store = cast(Any, memory.build(clock=self.clock, tables=memory.Tables()))
        self.reads = 0
        self.followed: list[str] = []
        catalogue = Catalogue([Plan("single", stages=(Step("one", do, undo=nothing, inspect=do),))])
        self.plane = Plane(
            id="plane", store=self.store, engine=cast(Any, Nobody()), entropy=SystemEntropy(),
            catalogue=catalogue, providers={},
        )  # fmt: skip
        self.claims = OneByOne(WORKER, resting=RESTING)
        self.claims.serve(self.plane)
        find = self.store.find

        async def counted(table, key):
            self.reads += table == "operation"
            return await find(table, key)

        self.store.find = counted

    async def begun(self) -> str:
        """An operation that a worker of Temporal holds."""
        await prepare(self.plane)
        name = (await operations.accept(self.plane, Accept("single"))).id
        await self.claims.begin(name)
        return name

    def relay(self) -> Relay:
        async def follow(name: str, _wake: bool) -> None:
            self.followed.append(name)

        return Relay(
            self.store, follow, worker=WORKER, resting=RESTING, margin_seconds=MARGIN
        )  # fmt: skip

    async def look(self, relay: Relay, seconds: float) -> None:
        """Once a second for so long."""
        for _ in range(int(seconds)):
            await relay.look()
            await self.clock.sleep(1.0)


def held(scenario) -> None:
    async def main(loop) -> None:
        await scenario(Bench(loop))

    run(0, main)


def test_what_begins_beside_a_relay_is_read_only_when_it_has_stood_for_a_margin():
    async def scenario(bench: Bench) -> None:
        relay = bench.relay()
        await relay.look()
        name = await bench.begun()
        await bench.look(relay, MARGIN)
        assert bench.reads == 0
        assert not bench.followed
        await bench.look(relay, 3)
        assert bench.followed == [name]

    held(scenario)


def test_what_stood_before_there_was_a_relay_is_followed_at_once():
    async def scenario(bench: Bench) -> None:
        name = await bench.begun()
        await bench.clock.sleep(MARGIN + 1.0)
        await bench.relay().look()
        assert bench.followed == [name]

    held(scenario)
