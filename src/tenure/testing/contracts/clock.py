"""The contracts of a clock and of a source of randomness.

Derive a class from `ClockContract` and give it the fixture `run_scenario`, which runs a scenario
with a new clock.  Derive another from `EntropyContract` and give it the fixture `entropy`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tenure.ports.clock import Clock
from tenure.ports.entropy import Entropy

Scenario = Callable[[Clock], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]
ROUNDING = 1e-3
"""The resolution of a clock: a sleep may be shorter by this."""


class ClockContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario with a new clock."""
        raise NotImplementedError

    def test_now_is_seconds_since_the_epoch(self, run_scenario: RunScenario) -> None:
        async def scenario(clock: Clock) -> None:
            assert 1_500_000_000 < clock.now() < 5_000_000_000

        run_scenario(scenario)

    def test_monotonic_never_goes_back(self, run_scenario: RunScenario) -> None:
        async def scenario(clock: Clock) -> None:
            seen = []
            for _ in range(100):
                seen.append(clock.monotonic())
                await clock.sleep(0)
            assert seen == sorted(seen)

        run_scenario(scenario)

    def test_sleep_lasts_at_least_so_long(self, run_scenario: RunScenario) -> None:
        async def scenario(clock: Clock) -> None:
            began = clock.monotonic()
            await clock.sleep(0.05)
            assert clock.monotonic() - began >= 0.05 - ROUNDING

        run_scenario(scenario)

    def test_now_moves_on_with_monotonic(self, run_scenario: RunScenario) -> None:
        async def scenario(clock: Clock) -> None:
            early, now, late = clock.monotonic(), clock.now(), clock.monotonic()
            await clock.sleep(0.05)
            earlier, then, later = clock.monotonic(), clock.now(), clock.monotonic()
            # Whoever asks may have to wait between two questions.
            assert earlier - late - 0.04 < then - now < later - early + 0.04

        run_scenario(scenario)

    def test_others_run_while_one_sleeps(self, run_scenario: RunScenario) -> None:
        async def scenario(clock: Clock) -> None:
            order: list[str] = []

            async def nap(name: str, seconds: float) -> None:
                await clock.sleep(seconds)
                order.append(name)

            await asyncio.gather(nap("long", 0.06), nap("short", 0.01))
            assert order == ["short", "long"]

        run_scenario(scenario)


class EntropyContract:
    """Derive a class and give it the fixture `entropy`."""

    @pytest.fixture
    def entropy(self) -> Entropy:
        """The source of randomness under test."""
        raise NotImplementedError

    def test_bits_are_62_and_differ(self, entropy: Entropy) -> None:
        drawn = [entropy.bits() for _ in range(200)]
        assert all(0 <= bits < 2**62 for bits in drawn)
        assert len(set(drawn)) == len(drawn)
        assert max(drawn) >= 2**61

    def test_a_fraction_is_below_one_and_spread(self, entropy: Entropy) -> None:
        drawn = [entropy.fraction() for _ in range(200)]
        assert all(0 <= fraction < 1 for fraction in drawn)
        assert min(drawn) < 0.25
        assert max(drawn) > 0.75
