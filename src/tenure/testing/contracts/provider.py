"""The contract of every provider: each promise of `tenure.ports.provider.Provider` is a test.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new provider:

    class TestMyProvider(ProviderContract):
        @pytest.fixture
        def run_scenario(self):
            def run_scenario(scenario):
                asyncio.run(scenario(ProviderCase(MyProvider(...))))
            return run_scenario
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from tenure.core.errors import Rejected
from tenure.core.ids import ResourceKey, resource_key
from tenure.ports.provider import OwnedResource, Presence, Provider

PLANE = "contract"


class ProviderCase(NamedTuple):
    """A provider under test; tests that need a control which is None are skipped."""

    provider: Provider
    plant: Callable[[ResourceKey], Awaitable[None]] | None = None
    """Creates a resource of another owner under this key."""
    settle: Callable[[], Awaitable[None]] | None = None
    """Waits until `list_owned` shows every resource."""


Scenario = Callable[[ProviderCase], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]


def key(name: str = "one", *, generation: int = 1, plane: str = PLANE) -> ResourceKey:
    """The key of a resource called `name`."""
    return resource_key(
        plane, tenant="t", agent="a", generation=generation, slot="thing", name=name
    )


async def list_resources(case: ProviderCase, plane: str = PLANE) -> list[OwnedResource]:
    """The resources that the provider lists, after `settle`."""
    if case.settle is not None:
        await case.settle()
    return [item async for item in case.provider.list_owned(plane)]


class ProviderContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new provider."""
        raise NotImplementedError

    def test_of_an_unknown_key_it_says_absent(self, run_scenario: RunScenario) -> None:
        async def scenario(case: ProviderCase) -> None:
            assert (await case.provider.inspect(key())).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_what_was_ensured_is_there_with_its_owner_and_generation(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            reference = await case.provider.ensure(key(generation=3), {"size": 1})
            observed = await case.provider.inspect(key(generation=3))
            assert observed.presence in {Presence.STARTING, Presence.READY}
            assert observed.owner == PLANE
            assert observed.generation == 3
            assert dict(observed.reference) == dict(reference)

        run_scenario(scenario)

    def test_the_same_key_twice_is_one_resource_and_one_reference(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            first = await case.provider.ensure(key(), {"size": 1})
            second = await case.provider.ensure(key(), {"size": 1})
            assert dict(first) == dict(second)
            assert [item.key for item in await list_resources(case)] == [key().text]

        run_scenario(scenario)

    def test_many_at_once_under_one_key_are_one_resource(self, run_scenario: RunScenario) -> None:
        async def scenario(case: ProviderCase) -> None:
            many = await asyncio.gather(*(case.provider.ensure(key(), {}) for _ in range(5)))
            assert all(dict(one) == dict(many[0]) for one in many)
            assert len(await list_resources(case)) == 1

        run_scenario(scenario)

    def test_another_spec_converges_under_the_same_reference(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            first = await case.provider.ensure(key(), {"size": 1})
            newer = key()._replace(generation=2)
            assert dict(await case.provider.ensure(newer, {"size": 2})) == dict(first)
            assert (await case.provider.inspect(newer)).generation == 2
            assert len(await list_resources(case)) == 1

        run_scenario(scenario)

    def test_a_smaller_generation_than_the_last_seen_is_rejected(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.ensure(key()._replace(generation=2), {"size": 2})
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), {"size": 1})
            assert (await case.provider.inspect(key())).generation == 2

        run_scenario(scenario)

    def test_what_was_removed_is_gone(self, run_scenario: RunScenario) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.ensure(key(), {})
            await case.provider.remove(key())
            assert (await case.provider.inspect(key())).presence is Presence.ABSENT
            assert await list_resources(case) == []

        run_scenario(scenario)

    def test_removing_twice_or_the_unknown_succeeds(self, run_scenario: RunScenario) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.remove(key())
            await case.provider.remove(key())
            await case.provider.ensure(key("two"), {})
            await case.provider.remove(key("two"))
            await case.provider.remove(key("two"))

        run_scenario(scenario)

    def test_a_removed_key_is_burned(self, run_scenario: RunScenario) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.ensure(key(), {})
            await case.provider.remove(key())
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), {})
            assert (await case.provider.inspect(key())).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_a_key_that_was_removed_before_it_was_made_is_burned(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.remove(key())
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), {})
            assert (await case.provider.inspect(key())).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_a_remove_beats_an_ensure_that_comes_at_the_same_time(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            await asyncio.gather(
                case.provider.ensure(key(), {}), case.provider.remove(key()), return_exceptions=True
            )
            assert (await case.provider.inspect(key())).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_keys_do_not_touch_each_other(self, run_scenario: RunScenario) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.ensure(key("one"), {})
            await case.provider.ensure(key("two"), {})
            await case.provider.ensure(key("one", generation=2), {})
            await case.provider.remove(key("one"))
            assert (await case.provider.inspect(key("two"))).presence is not Presence.ABSENT
            newer = await case.provider.inspect(key("one", generation=2))
            assert newer.presence is not Presence.ABSENT

        run_scenario(scenario)

    def test_it_lists_what_carries_our_tag_with_agent_and_generation(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            await case.provider.ensure(key("mine", generation=4), {})
            await case.provider.ensure(key("theirs", plane="another"), {})
            (item,) = await list_resources(case)
            assert item.key == key("mine", generation=4).text
            assert (item.agent, item.generation) == ("a", 4)
            assert len(await list_resources(case, "another")) == 1
            assert await list_resources(case, "nobody") == []

        run_scenario(scenario)

    def test_what_is_foreign_is_neither_adopted_nor_removed(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: ProviderCase) -> None:
            if case.plant is None:
                pytest.skip("nothing foreign can be put under a key here")
            await case.plant(key())
            assert (await case.provider.inspect(key())).presence is Presence.FOREIGN
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), {})
            with pytest.raises(Rejected):
                await case.provider.remove(key())
            assert (await case.provider.inspect(key())).presence is Presence.FOREIGN
            assert await list_resources(case) == []

        run_scenario(scenario)
