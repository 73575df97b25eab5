"""What every clock and every source of chance must keep: the promises of their two ports as tests.

Derive `ClockContract` and give it one fixture `hold`, which runs a scenario with a fresh clock;
derive `EntropyContract` and give it one fixture `entropy`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tenure.ports.clock import Clock
from tenure.ports.entropy import Entropy

Scenario = Callable[[Clock], Coroutine[Any, Any, None]]
Hold = Callable[[Scenario], None]
ROUNDING = 1e-3
"""What a clock's own grain may take away."""


class ClockContract:
    """Derive and give the fixture `hold`."""

    @pytest.fixture
    def hold(self) -> Hold:
        """How to run a scenario with a fresh clock."""
        raise NotImplementedError

    def test_now_is_seconds_since_the_epoch(self, hold: Hold) -> None:
        async def scenario(clock: Clock) -> None:
            assert 1_500_000_000 < clock.now() < 5_000_000_000

        hold(scenario)

    def test_monotonic_never_goes_back(self, hold: Hold) -> None:
        async def scenario(clock: Clock) -> None:
            seen = []
            for _ in range(100):
                seen.append(clock.monotonic())
                await clock.sleep(0)
            assert seen == sorted(seen)

        hold(scenario)

    def test_sleep_lasts_at_least_so_long(self, hold: Hold) -> None:
        async def scenario(clock: Clock) -> None:
            began = clock.monotonic()
            await clock.sleep(0.05)
            assert clock.monotonic() - began >= 0.05 - ROUNDING

        hold(scenario)

    def test_now_moves_on_with_monotonic(self, hold: Hold) -> None:
        async def scenario(clock: Clock) -> None:
            early, now, late = clock.monotonic(), clock.now(), clock.monotonic()
            await clock.sleep(0.05)
            earlier, then, later = clock.monotonic(), clock.now(), clock.monotonic()
            # Whoever asks may have to wait between two questions.
            assert earlier - late - 0.04 < then - now < later - early + 0.04

        hold(scenario)

    def test_others_run_while_one_sleeps(self, hold: Hold) -> None:
        async def scenario(clock: Clock) -> None:
            order: list[str] = []

            async def nap(name: str, seconds: float) -> None:
                await clock.sleep(seconds)
                order.append(name)

            await asyncio.gather(nap("long", 0.06), nap("short", 0.01))
            assert order == ["short", "long"]

        hold(scenario)


class EntropyContract:
    """Derive and give the fixture `entropy`."""

    @pytest.fixture
    def entropy(self) -> Entropy:
        """The source under test."""
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
