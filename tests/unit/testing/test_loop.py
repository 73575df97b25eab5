"""The seeded loop: the same seed gives the same run, time is virtual, and the dead stay dead."""

import asyncio

import pytest

from tenure.testing.loop import (
    Dead,
    Deadlock,
    Node,
    SeededEntropy,
    Trace,
    VirtualClock,
    forever,
    run,
)


async def race(loop):
    order = []

    async def runner(name):
        await asyncio.sleep(1)
        order.append(name)

    await asyncio.gather(*(runner(name) for name in range(6)))
    return order


def test_a_seed_gives_the_same_order_again_and_another_seed_another():
    assert run(3, race) == run(3, race)
    assert len({tuple(run(seed, race)) for seed in range(20)}) > 10


def test_waiting_takes_no_time():
    async def main(loop):
        await asyncio.sleep(86_400 * 365)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await forever()
        return loop.time()

    assert run(0, main) == pytest.approx(86_400 * 365 + 60)


def test_a_deadlock_is_said():
    async def main(loop):
        await forever()

    with pytest.raises(Deadlock, match="nothing is ready and no timer is set, at 0 s"):
        run(0, main)


def test_turning_without_end_is_said(monkeypatch):
    monkeypatch.setattr("tenure.testing.loop.TURNS_MAX", 1_000)

    async def main(loop):
        while True:  # noqa: ASYNC110 (it is to turn without end)
            await asyncio.sleep(0)

    with pytest.raises(Deadlock, match="no end after 1000 turns"):
        run(0, main)


def test_threads_are_refused():
    async def main(loop):
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="thread"):
        run(0, main)


def test_nothing_of_a_crashed_node_runs_not_even_finally():
    seen = []

    async def main(loop):
        node = Node(loop, "one")

        async def child():
            try:
                await asyncio.sleep(5)
                seen.append("awake")
            finally:
                if not node.dead:
                    seen.append("cleaned up")

        async def parent():
            asyncio.get_running_loop().call_later(4, seen.append, "timer")
            await asyncio.gather(child(), child())

        started = node.spawn(parent())
        await asyncio.sleep(1)
        node.crash()
        node.crash()
        await asyncio.sleep(10)
        seen.append("outside")
        assert not started.done()
        with pytest.raises(Dead):
            node.check()
        with pytest.raises(Dead):
            await node.run(parent())

    run(0, main)
    assert seen == ["outside"]


def test_a_paused_node_goes_on_where_it_was():
    seen = []

    async def main(loop):
        node = Node(loop, "one")

        async def ticks():
            for tick in range(4):
                await asyncio.sleep(1)
                seen.append((tick, loop.time()))

        loop.call_later(1.5, node.pause, 10)
        loop.call_later(2.5, node.pause, 1)
        await node.run(ticks())

    run(0, main)
    assert seen == [(0, 1), (1, 11.5), (2, 12.5), (3, 13.5)]


def test_whoever_asks_a_node_is_told_that_it_died():
    async def main(loop):
        node = Node(loop, "one")
        loop.call_later(3, node.crash)
        assert await node.run(asyncio.sleep(1, "answer")) == "answer"
        with pytest.raises(Dead):
            await node.run(asyncio.sleep(10))
        return loop.time()

    assert run(0, main) == 3


def test_what_others_send_to_a_dead_node_wakes_nobody():
    seen = []

    async def main(loop):
        node, letter = Node(loop, "one"), loop.create_future()

        async def reader():
            seen.append(await letter)

        started = node.spawn(reader())
        await asyncio.sleep(1)
        node.crash()
        letter.set_result("too late")
        await asyncio.sleep(1)
        assert not started.done()

    run(0, main)
    assert seen == []


def test_many_cancelled_timers_are_forgotten():
    async def main(loop):
        for _ in range(500):
            async with asyncio.timeout(1_000):
                await asyncio.sleep(0.001)
        return len(loop._scheduled)

    assert run(0, main) < 150


def test_a_clock_can_be_set_wrong_and_run_wrong():
    async def main(loop):
        true, wrong = VirtualClock(loop), VirtualClock(loop, skew=3600, rate=2)
        before = wrong.now() - true.now()
        await wrong.sleep(10)
        return before, loop.time(), wrong.now() - true.now()

    assert run(0, main) == pytest.approx((3600, 5, 3605))


def test_a_trace_is_a_hash_of_what_happened():
    one, other = Trace(), Trace()
    for trace in (one, other):
        trace.add("a", 1)
    assert one.hexdigest() == other.hexdigest()
    other.add("b")
    assert one.hexdigest() != other.hexdigest()


def test_entropy_comes_from_the_seed():
    assert SeededEntropy(1).fraction() == SeededEntropy(1).fraction()
