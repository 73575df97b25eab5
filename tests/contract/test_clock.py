"""Who is held to the contracts of time and chance: the machine's own, and those of a seeded run."""

import asyncio

import pytest

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.testing.contracts.clock import ClockContract, EntropyContract
from tenure.testing.loop import SeededEntropy, VirtualClock, run


class TestSystemClock(ClockContract):
    @pytest.fixture
    def hold(self):
        return lambda scenario: asyncio.run(scenario(SystemClock()))


class TestVirtualClock(ClockContract):
    @pytest.fixture
    def hold(self):
        return lambda scenario: run(0, lambda loop: scenario(VirtualClock(loop)))


class TestVirtualClockThatIsWrong(ClockContract):
    @pytest.fixture
    def hold(self):
        return lambda scenario: run(
            0, lambda loop: scenario(VirtualClock(loop, skew=-3600, rate=2))
        )


class TestSystemEntropy(EntropyContract):
    @pytest.fixture
    def entropy(self):
        return SystemEntropy()


class TestSeededEntropy(EntropyContract):
    @pytest.fixture
    def entropy(self):
        return SeededEntropy(7)


def test_a_seed_draws_the_same_again():
    one, other = SeededEntropy(7), SeededEntropy(7)
    assert [one.bits() for _ in range(5)] == [other.bits() for _ in range(5)]
    assert SeededEntropy(8).bits() != SeededEntropy(7).bits()
