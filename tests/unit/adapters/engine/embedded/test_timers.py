"""One heap and one timer: each name is called for once, at the newest time set for it."""

import asyncio

from tenure.adapters.engine.embedded.timers import Timers
from tenure.testing.loop import VirtualClock, run


def run_timers(scenario):
    """Run a scenario with timers; what they called for, and when."""

    async def main(loop):
        called: list[tuple[float, str]] = []
        clock = VirtualClock(loop)
        began = clock.now()
        timers = Timers(clock.now, lambda name: called.append((clock.now() - began, name)))
        await scenario(timers, began, clock)
        return called

    return run(0, main)


def test_names_are_called_for_in_the_order_of_their_times():
    async def scenario(timers, began, clock):
        for name, after in (("b", 2.0), ("c", 3.0), ("a", 1.0), ("past", -5.0)):
            timers.set(name, began + after)
        assert len(timers) == 4
        await asyncio.sleep(10)
        assert len(timers) == 0

    assert run_timers(scenario) == [(0.0, "past"), (1.0, "a"), (2.0, "b"), (3.0, "c")]


def test_the_newest_time_of_a_name_counts_be_it_earlier_or_later():
    async def scenario(timers, began, clock):
        for name, after in (("a", 2.0), ("a", 1.0), ("b", 1.5), ("b", 3.0)):
            timers.set(name, began + after)
        await asyncio.sleep(10)

    assert run_timers(scenario) == [(1.0, "a"), (3.0, "b")]


def test_what_is_forgotten_or_closed_is_not_called_for():
    async def scenario(timers, began, clock):
        for name, after in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
            timers.set(name, began + after)
        timers.forget("b")
        timers.forget("unknown")
        await asyncio.sleep(1.5)
        timers.close()
        timers.close()
        await asyncio.sleep(10)
        timers.set("d", began + 20)
        await asyncio.sleep(10)

    assert run_timers(scenario) == [(1.0, "a"), (20.0, "d")]


def test_a_forgotten_time_at_the_top_of_the_heap_wakes_nobody():
    async def scenario(timers, began, clock):
        timers.set("a", began + 1.0)
        timers.set("b", began + 2.0)
        timers.set("c", began + 3.0)
        timers.forget("b")
        await asyncio.sleep(1.5)
        assert timers._armed_for == began + 3.0
        timers.forget("c")
        await asyncio.sleep(10)
        assert timers._timer is None

    assert run_timers(scenario) == [(1.0, "a")]


def test_the_heap_does_not_grow_with_changes():
    async def scenario(timers, began, clock):
        for number in range(10_000):
            timers.set("a", began + 5.0 + number / 10_000)
        assert len(timers._heap) < 100
        await asyncio.sleep(10)

    (call,) = run_timers(scenario)
    assert call[1] == "a"


def test_a_clock_that_is_set_back_or_forward_is_noticed_within_a_minute():
    async def scenario(timers, began, clock):
        timers.set("a", began + 3_600.0)
        await asyncio.sleep(30)
        clock.skew = 3_600.0
        await asyncio.sleep(31)
        assert len(timers) == 0
        timers.set("b", clock.now() + 10.0)
        clock.skew = 0.0
        await asyncio.sleep(20)
        assert len(timers) == 1

    assert [name for _, name in run_timers(scenario)] == ["a"]
