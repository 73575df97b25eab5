"""Who is held to the contracts of time and chance: the machine's own, and those of a seeded run."""

import asyncio
import time

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


def test_a_wall_clock_that_is_set_back_lengthens_nothing(monkeypatch):
    clock, real = SystemClock(), time.time
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: real() - 3_600)
    assert before <= clock.now() < before + 60
    assert before <= clock.now() < before + 60
    monkeypatch.setattr(time, "time", lambda: real() + 3_600)
    assert clock.now() > before + 3_500


def test_a_wall_clock_that_is_corrected_is_followed(monkeypatch):
    clock, real = SystemClock(), time.time
    monkeypatch.setattr(time, "time", lambda: real() - 0.5)
    told = [clock.now() for _ in range(100)]
    assert told == sorted(told)
    assert told[-1] < real() + 0.01
