"""Who is held to the contracts of time and chance: the machine's own, and those of a seeded run."""

import asyncio

import pytest

from tenure.adapters.clock.system import DRIFT, SteadyClock, SystemClock, SystemEntropy
from tenure.testing.contracts.clock import ClockContract, EntropyContract
from tenure.testing.loop import SeededEntropy, VirtualClock, run


class TestSystemClock(ClockContract):
    @pytest.fixture
    def run_scenario(self):
        return lambda scenario: asyncio.run(scenario(SystemClock()))


class TestSteadyClock(ClockContract):
    @pytest.fixture
    def run_scenario(self):
        return lambda scenario: asyncio.run(scenario(SteadyClock(SystemClock())))


class TestVirtualClock(ClockContract):
    @pytest.fixture
    def run_scenario(self):
        return lambda scenario: run(0, lambda loop: scenario(VirtualClock(loop)))


class TestVirtualClockThatIsWrong(ClockContract):
    @pytest.fixture
    def run_scenario(self):
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


class Machine:
    """A machine whose clock can be set."""

    def __init__(self):
        self.passed = 0.0
        self.set_by = 0.0

    def now(self):
        return 1_700_000_000.0 + self.passed + self.set_by

    def monotonic(self):
        return self.passed

    async def sleep(self, seconds):
        self.passed += seconds


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_steady_clock_does_not_jump_when_the_machines_is_set(hours):
    """What was due in ten seconds is due in ten seconds, give or take one."""
    machine = Machine()
    clock = SteadyClock(machine)
    machine.passed = 100.0
    due_at = clock.now() + 10.0
    machine.set_by = hours * 3600.0
    machine.passed += 10.0
    assert abs(clock.now() - due_at) <= 10.0 * DRIFT + 1e-6


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_steady_clock_comes_to_agree_with_the_machines_and_never_goes_back(hours):
    machine = Machine()
    clock = SteadyClock(machine)
    machine.set_by = hours * 3600.0
    seen = []
    for _ in range(1_000):
        machine.passed += 40.0
        seen.append(clock.now())
    assert seen == sorted(seen)
    assert abs(seen[-1] - machine.now()) < 1e-3
