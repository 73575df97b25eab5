"""The feed: whoever reads it, from wherever, reads what the store would have told."""

import asyncio
import random
from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.app.events import cloudevents
from tenure.app.events import feed as app_feed
from tenure.app.events.cloudevents import EventFilter
from tenure.app.events.fair_lock import FairLock
from tenure.app.events.feed import Feed
from tenure.app.operations.outbox_rows import NEW_EVENT, POSITION
from tenure.app.wakeups import Wakeup
from tenure.ports.store import Change
from tenure.testing import memory_store
from tests.unit.support.agent_planes import STRANGER, agent_test


class Clock:
    """A clock that stands."""

    def now(self) -> float:
        return 1.0

    def monotonic(self) -> float:
        return 1.0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def event(n):
    return NEW_EVENT.expand((POSITION, "north", f"a{n % 3}", "o", "agent.ready", 1.0, "{}", n))


@pytest.mark.parametrize("seed", range(30))
def test_readers_behind_ahead_and_far_behind_skip_nothing(seed, monkeypatch):
    monkeypatch.setattr(app_feed, "MEMORY_EVENTS", 20)
    monkeypatch.setattr(app_feed, "PAGE", 7)
    chance = random.Random(seed)

    async def main():
        store, news = memory_store.build(clock=Clock()), Wakeup()
        feed = Feed(store, news)
        readers: dict[int, list[Any]] = {name: [0] for name in range(4)}
        made = told = 0
        for _ in range(300):
            if chance.random() < 0.4 and made < 200:
                count = chance.randrange(1, 9)
                puts = tuple(event(made + n) for n in range(count))
                await store.commit(Change("", (), puts))
                made += count
                if chance.random() < 0.7:
                    news.notify()
            name = chance.choice([0, 0, 1, 1, 2, 3] if chance.random() < 0.9 else [3])
            limit = chance.randrange(1, 12)
            rows = await feed.after(readers[name][-1], limit=limit)
            readers[name] += [row.position for row in rows]
            if len(rows) < limit:
                assert readers[name][-1] >= told, "another one was told of more"
            told = max(told, readers[name][-1])
            if chance.random() < 0.1:
                told = max(told, await feed.head())
        news.notify()
        for read in readers.values():
            while rows := await feed.after(read[-1], limit=5):
                read += [row.position for row in rows]
            assert read == list(range(made + 1))

    asyncio.run(main())


def test_a_position_that_somebody_names_is_never_taken_for_that_of_the_newest_event():
    async def main():
        store, news = memory_store.build(clock=Clock()), Wakeup()
        feed = Feed(store, news)
        assert await feed.after(2**63 - 1, limit=5) == []
        assert await feed.head() == 0
        await store.commit(Change("", (), (event(1), event(2))))
        for far in (2**63 - 1, 3):
            assert await feed.after(far, limit=5) == []
            assert await feed.head() == 2
        await store.commit(Change("", (), (event(3), event(4))))
        assert [row.position for row in await feed.after(2, limit=5)] == [3, 4]

    asyncio.run(main())


@agent_test
async def test_who_passes_over_the_events_of_others_lets_all_else_go_on(harness, monkeypatch):
    """However many do: between two looks at the store the loop is free."""
    monkeypatch.setattr(cloudevents, "SCAN_ROWS", 10)
    monkeypatch.setattr(cloudevents, "SCAN_MAX", 60)
    await harness.plane.store.commit(Change("", (), tuple(event(n) for n in range(100))))
    beats, looks = 0, []
    look = harness.plane.store.list_events

    async def list_events(**kwargs):
        looks.append(beats)
        return await look(**kwargs)

    async def beat():
        nonlocal beats
        while True:
            await asyncio.sleep(app_feed.PAUSE_SECONDS / 4)
            beats += 1

    monkeypatch.setattr(harness.plane.store, "list_events", list_events)
    beating = asyncio.create_task(beat())
    asked = [
        cloudevents.list_events(harness.plane, STRANGER, EventFilter(), limit=5) for _ in range(3)
    ]
    pages = await asyncio.gather(*asked)
    beating.cancel()
    assert pages == [cloudevents.EventPage([], 60, more=True)] * 3
    assert len(looks) == 3 * 6
    assert len(set(looks[3:])) == len(looks[3:]), "after its first look each waits for its turn"


async def looks_of_a_page(harness, monkeypatch, waiting):
    """How often the store is looked at from when one tenant asks for a page until it has it.

    So many scans of another tenant wait for their turn by then.
    """
    monkeypatch.setattr(cloudevents, "SCAN_ROWS", 10)
    monkeypatch.setattr(cloudevents, "SCAN_MAX", 60)
    plane, looks = harness.plane, 0
    await plane.store.commit(Change("", (), tuple(event(n) for n in range(100))))
    look = plane.store.list_events

    async def list_events(**kwargs):
        nonlocal looks
        looks += 1
        return await look(**kwargs)

    monkeypatch.setattr(plane.store, "list_events", list_events)
    asked = (
        cloudevents.list_events(plane, STRANGER, EventFilter(), limit=5) for _ in range(waiting)
    )
    scans = [asyncio.create_task(one) for one in asked]
    await asyncio.sleep(app_feed.PAUSE_SECONDS * 5)
    before = looks
    page = await cloudevents.list_events(plane, CALLER, EventFilter(), limit=5)
    took = looks - before
    assert page == cloudevents.EventPage([], 60, more=True)
    assert await asyncio.gather(*scans) == [page] * waiting
    assert plane.feed._store_reads._waiting == {}, "tenants are forgotten"
    return took


@pytest.mark.parametrize("waiting", [1, 10, 200])
def test_however_much_one_tenant_passes_over_another_one_has_every_second_turn(
    waiting, monkeypatch
):
    @agent_test
    async def scenario(harness):
        assert await looks_of_a_page(harness, monkeypatch, waiting) <= 2 * 6

    scenario()


@agent_test
async def test_with_one_queue_for_all_tenants_it_would_wait_for_all_of_them(harness, monkeypatch):
    acquire = FairLock.acquire
    monkeypatch.setattr(FairLock, "acquire", lambda lock, _: acquire(lock, ""))
    assert await looks_of_a_page(harness, monkeypatch, 200) > 200


def test_a_turn_that_nobody_waits_for_any_more_is_passed_on():
    async def main():
        turns, had = FairLock(), []

        async def take(name):
            async with turns.acquire(name):
                had.append(name)

        async with turns.acquire("first"):
            gone, given, last = (asyncio.create_task(take(name)) for name in ("a", "b", "c"))
            await asyncio.sleep(0)
            gone.cancel()  # while it waits
            await asyncio.sleep(0)
        given.cancel()  # its turn has come, and it does not know yet
        await asyncio.gather(gone, given, last, return_exceptions=True)
        assert had == ["c"]
        await take("again")
        assert had == ["c", "again"]

    asyncio.run(main())


@agent_test
async def test_what_is_held_is_passed_over_without_a_pause(harness, monkeypatch):
    monkeypatch.setattr(cloudevents, "SCAN_ROWS", 10)
    assert await harness.plane.feed.after(0, limit=1) == []
    await harness.plane.store.commit(Change("", (), tuple(event(n) for n in range(100))))
    loop = asyncio.get_running_loop()
    began = loop.time()
    page = await cloudevents.list_events(harness.plane, STRANGER, EventFilter(), limit=5)
    assert (page.position, page.more, loop.time()) == (100, False, began)


def test_who_waits_for_news_is_woken_by_them_and_not_before():
    async def main():
        news = Wakeup()
        waiting = asyncio.ensure_future(news.wait_for_newer(news.number, seconds=60))
        await asyncio.sleep(0)
        assert not waiting.done()
        news.notify()
        await waiting
        await news.wait_for_newer(0, seconds=60)  # it was told before: no wait
        await news.wait_for_newer(news.number, seconds=0.001)
        assert news._waiting == []

    asyncio.run(main())
