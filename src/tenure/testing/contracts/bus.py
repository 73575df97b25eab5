"""The contract of a bus: each promise of `tenure.ports.bus.Bus` is a test.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new `BusCase`:

    class TestMyBus(BusContract):
        @pytest.fixture
        def run_scenario(self):
            def run_scenario(scenario):
                asyncio.run(on_my_server(scenario))
            return run_scenario

Events are counted at the receiver, never at the sender.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import pytest

from tenure.ports.bus import DELIVERED, Bus, DeliveryVerdict, Destination, Outgoing


class BusCase(NamedTuple):
    """A bus, a destination, and control over the receiver at that destination."""

    bus: Bus
    destination: Destination
    list_received: Callable[[], Awaitable[Sequence[tuple[str, bytes]]]]
    """Lists what the receiver got, as (event id, body), with copies, in the order of arrival."""
    stop: Callable[[], Awaitable[None]]
    """Stops the receiver."""
    start: Callable[[], Awaitable[None]]
    """Starts the receiver again, with the events that it had."""
    poison: Callable[[str], None] | None
    """Makes the receiver reject this agent's events; None: this receiver cannot reject."""


FOUND_SECONDS = 60.0
"""Within this time the bus finds a receiver that was started again."""
Scenario = Callable[[BusCase], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]


def event_of(agent: str, sequence: int = 1, body: bytes = b"{}") -> Outgoing:
    """An event of an agent."""
    return Outgoing(
        f"{agent}-{sequence}", "north", agent, "operation", "agent.ready", sequence, body
    )


class BusContract:
    """Every promise of `tenure.ports.bus.Bus`, as a test."""

    def test_what_is_delivered_has_arrived_as_it_was(self, run_scenario: RunScenario) -> None:
        async def scenario(world: BusCase) -> None:
            events = [event_of(f"a{n}", body=b'{"n": %d}' % n) for n in range(40)]
            receipts = await world.bus.publish(world.destination, events)
            assert [one.verdict for one in receipts] == [DeliveryVerdict.DELIVERED] * 40
            assert sorted(await world.list_received()) == sorted((e.id, e.body) for e in events)

        run_scenario(scenario)

    def test_nothing_is_nothing(self, run_scenario: RunScenario) -> None:
        async def scenario(world: BusCase) -> None:
            assert list(await world.bus.publish(world.destination, [])) == []

        run_scenario(scenario)

    def test_an_agents_events_arrive_in_the_order_they_are_handed_in(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(world: BusCase) -> None:
            for sequence in range(1, 11):
                events = [event_of("a", sequence), event_of("b", sequence)]
                await world.bus.publish(world.destination, events)
            arrived = [name for name, _ in await world.list_received()]
            for agent in "ab":
                mine = [name for name in arrived if name.startswith(agent)]
                assert mine == [f"{agent}-{n}" for n in range(1, 11)]

        run_scenario(scenario)

    def test_a_receiver_that_is_away_takes_nothing_and_gets_it_later(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(world: BusCase) -> None:
            first, second = event_of("a"), event_of("b")
            await world.bus.publish(world.destination, [first])
            await world.stop()
            receipts = await world.bus.publish(world.destination, [second])
            assert [one.verdict for one in receipts] == [DeliveryVerdict.UNAVAILABLE]
            assert receipts[0].why
            await world.start()
            async with asyncio.timeout(FOUND_SECONDS):
                told = receipts[0]
                while told != DELIVERED:
                    await asyncio.sleep(0.02)  # it may have to be found again
                    (told,) = await world.bus.publish(world.destination, [second])
            assert {name for name, _ in await world.list_received()} == {first.id, second.id}

        run_scenario(scenario)

    def test_a_no_to_one_event_is_no_no_to_others(self, run_scenario: RunScenario) -> None:
        async def scenario(world: BusCase) -> None:
            if world.poison is None:
                pytest.skip("this receiver says no to nobody")
            world.poison("bad")
            events = [event_of("a"), event_of("bad"), event_of("b")]
            receipts = await world.bus.publish(world.destination, events)
            assert [one.verdict for one in receipts] == [
                DeliveryVerdict.DELIVERED,
                DeliveryVerdict.REFUSED,
                DeliveryVerdict.DELIVERED,
            ]
            assert receipts[1].why
            assert {name for name, _ in await world.list_received()} == {"a-1", "b-1"}

        run_scenario(scenario)

    def test_a_closed_bus_can_be_closed_again(self, run_scenario: RunScenario) -> None:
        async def scenario(world: BusCase) -> None:
            await world.bus.publish(world.destination, [event_of("a")])
            await world.bus.close()
            await world.bus.close()

        run_scenario(scenario)
