"""Who is held to the provider's contract: the fake, slow or lagging or wired."""

import asyncio

import pytest

from tenure.testing.contracts.provider import ProviderCase, ProviderContract, Scenario
from tenure.testing.fakes import FakeProvider, World
from tenure.testing.loop import Node, SeededLoop, run
from tenure.testing.tripwire import Tripwire


def held_by(*, through_wire: bool = False, lag: float = 0.0, ready: float = 0.0):
    """How to run a scenario on a fake of this kind, under three seeds."""

    def run_scenario(scenario: Scenario) -> None:
        async def main(loop: SeededLoop) -> None:
            world = World(loop)
            fake = FakeProvider(world, "thing", lag_seconds=lag, ready_seconds=ready)
            wire = Tripwire(Node(loop, "one"))

            async def plant(key):
                world.plant("thing", key)

            async def settle():
                await asyncio.sleep(lag)

            await scenario(
                ProviderCase(wire.provider("thing", fake) if through_wire else fake, plant, settle)
            )

        for seed in range(3):
            run(seed, main)

    return run_scenario


class TestFakeProvider(ProviderContract):
    @pytest.fixture
    def run_scenario(self):
        return held_by()


class TestFakeProviderThatLags(ProviderContract):
    @pytest.fixture
    def run_scenario(self):
        return held_by(lag=5.0, ready=3.0)


class TestWiredProvider(ProviderContract):
    @pytest.fixture
    def run_scenario(self):
        return held_by(through_wire=True)
