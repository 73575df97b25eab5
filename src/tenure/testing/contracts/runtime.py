"""The contract of a runtime, beyond the contract of every provider.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new runtime:

    class TestMyRuntime(RuntimeContract):
        @pytest.fixture
        def run_scenario(self):
            def run_scenario(scenario):
                asyncio.run(scenario(RuntimeCase(MyRuntime(...), spec_of)))
            return run_scenario

`spec_of(manner)` returns the spec of an agent. An agent that is `healthy` or `busy` answers
Healthy or HealthyBusy. One that is `silent` runs and never answers. One that `exits` prints "cannot
go on" and exits with code 3. All of these print "started" first. Nothing can be started for
`missing`. Test ensure, inspect, remove and list_owned with a second class, derived from
`tenure.testing.contracts.provider.ProviderContract`.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, cast

import pytest

from tenure.core.errors import Invalid, Rejected
from tenure.ports.provider import Presence, Spec
from tenure.ports.runtime import MISSING, RuntimeProvider
from tenure.testing.contracts.provider import key

SECONDS = 60.0
"""Within this time an agent of a test starts or ends."""


class RuntimeCase(NamedTuple):
    """A runtime under test, and the specs of agents that behave in a given manner."""

    provider: RuntimeProvider
    spec_of: Callable[[str], Spec]


RuntimeScenario = Callable[[RuntimeCase], Coroutine[Any, Any, None]]
RunScenario = Callable[[RuntimeScenario], None]


class RuntimeContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new runtime."""
        raise NotImplementedError

    def test_of_an_unknown_key_there_is_neither_status_nor_log(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            assert (await case.provider.status(key())).presence is Presence.ABSENT
            assert await case.provider.logs(key()) == ""
            assert await case.provider.follow(key(), since=0) == ("", 0)

        run_scenario(scenario)

    def test_an_agent_that_answers_is_ready_under_a_stable_reference(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            reference = await case.provider.ensure(key(), case.spec_of("healthy"))
            status = await case.provider.wait_ready(key(), seconds=SECONDS)
            assert (status.presence, status.busy) == (Presence.READY, False)
            assert status.exit_code is None
            observed = await case.provider.inspect(key())
            assert observed.presence is Presence.READY
            assert dict(observed.reference) == dict(reference)
            assert str(reference["address"]).rpartition(":")[2].isdigit()
            assert reference["zone"] == case.provider.zones[0]

        run_scenario(scenario)

    def test_an_agent_at_work_says_so(self, run_scenario: RunScenario) -> None:
        async def scenario(case: RuntimeCase) -> None:
            await case.provider.ensure(key(), case.spec_of("busy"))
            status = await case.provider.wait_ready(key(), seconds=SECONDS)
            assert (status.presence, status.busy) == (Presence.READY, True)

        run_scenario(scenario)

    def test_an_agent_that_does_not_answer_is_starting_and_says_why(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            await case.provider.ensure(key(), case.spec_of("silent"))
            status = await case.provider.wait_ready(key(), seconds=0.3)
            assert status.presence is Presence.STARTING
            assert status.message

        run_scenario(scenario)

    def test_an_agent_that_exits_is_broken_with_its_code_and_its_last_words(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            await case.provider.ensure(key(), case.spec_of("exits"))
            status = await case.provider.wait_ready(key(), seconds=SECONDS)
            assert (status.presence, status.exit_code) == (Presence.BROKEN, 3)
            assert "cannot go on" in status.message
            assert len(status.message.encode()) < 4096
            assert (await case.provider.inspect(key())).presence is Presence.BROKEN

        run_scenario(scenario)

    def test_what_is_broken_starts_again_when_ensured_under_its_old_reference(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            first = await case.provider.ensure(key(), case.spec_of("exits"))
            await case.provider.wait_ready(key(), seconds=SECONDS)
            newer = key()._replace(generation=2)
            again = await case.provider.ensure(newer, case.spec_of("healthy"))
            assert dict(first) == dict(again)
            status = await case.provider.wait_ready(newer, seconds=SECONDS)
            assert status.presence is Presence.READY

        run_scenario(scenario)

    def test_the_log_has_the_last_lines_and_can_be_followed(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            await case.provider.ensure(key(), case.spec_of("exits"))
            await case.provider.wait_ready(key(), seconds=SECONDS)
            assert "started" in await case.provider.logs(key())
            assert await case.provider.logs(key(), lines=1) == "cannot go on\n"
            text, offset = await case.provider.follow(key(), since=0)
            assert "started" in text
            assert await case.provider.follow(key(), since=offset) == ("", offset)
            back = len(b"cannot go on\n")
            assert (await case.provider.follow(key(), since=offset - back))[0] == "cannot go on\n"

        run_scenario(scenario)

    def test_it_listens_at_its_own_address_and_nowhere_else(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            reference = await case.provider.ensure(key(), case.spec_of("healthy"))
            await case.provider.wait_ready(key(), seconds=SECONDS)
            address = str(reference["address"])
            assert await case.provider.listens_at(key(), address)
            assert not await case.provider.listens_at(key(), f"{address}0")
            assert not await case.provider.listens_at(key("another"), address)
            await case.provider.stop(key())
            assert not await case.provider.listens_at(key(), address)

        run_scenario(scenario)

    def test_who_does_not_listen_yet_is_not_there(self, run_scenario: RunScenario) -> None:
        async def scenario(case: RuntimeCase) -> None:
            reference = await case.provider.ensure(key(), case.spec_of("silent"))
            await case.provider.wait_ready(key(), seconds=0.3)
            assert not await case.provider.listens_at(key(), str(reference["address"]))

        run_scenario(scenario)

    def test_what_was_stopped_is_dead_for_good_and_its_log_is_kept(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            await case.provider.ensure(key(), case.spec_of("healthy"))
            await case.provider.wait_ready(key(), seconds=SECONDS)
            await case.provider.stop(key())
            await case.provider.stop(key())
            assert (await case.provider.status(key())).presence is Presence.BROKEN
            assert "started" in await case.provider.logs(key())
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), case.spec_of("healthy"))
            await case.provider.remove(key())
            assert (await case.provider.status(key())).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_a_key_that_was_stopped_before_it_was_made_is_burned(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            await case.provider.stop(key())
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), case.spec_of("healthy"))
            assert (await case.provider.status(key())).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_every_zone_can_be_named_and_no_other(self, run_scenario: RunScenario) -> None:
        async def scenario(case: RuntimeCase) -> None:
            for zone in case.provider.zones:
                spec = {**case.spec_of("healthy"), "zone": zone}
                assert (await case.provider.ensure(key(zone), spec))["zone"] == zone
            elsewhere = {**case.spec_of("healthy"), "zone": "nowhere"}
            with pytest.raises(Invalid, match="nowhere"):
                await case.provider.digest(elsewhere)
            with pytest.raises(Rejected, match="nowhere"):
                await case.provider.ensure(key("lost"), elsewhere)
            assert (await case.provider.inspect(key("lost"))).presence is Presence.ABSENT

        run_scenario(scenario)

    def test_a_field_it_does_not_know_is_refused_by_name_and_for_good(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            odd = {**case.spec_of("healthy"), "colour": "green"}
            with pytest.raises(Invalid, match="colour"):
                await case.provider.digest(odd)
            with pytest.raises(Rejected, match="colour"):
                await case.provider.ensure(key(), odd)
            with pytest.raises(Rejected):  # not even a call that was sent before
                await case.provider.ensure(key(), case.spec_of("healthy"))

        run_scenario(scenario)

    def test_what_runs_goes_on_when_a_newer_spec_is_refused(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            good = case.spec_of("healthy")
            reference = await case.provider.ensure(key(), good)
            newer = key()._replace(generation=2)
            with pytest.raises(Rejected):
                await case.provider.ensure(newer, {**good, "colour": "green"})
            with pytest.raises(Rejected):
                await case.provider.ensure(newer, case.spec_of("busy"))
            assert dict(await case.provider.ensure(key(), good)) == dict(reference)
            status = await case.provider.wait_ready(key(), seconds=SECONDS)
            assert (status.presence, status.busy) == (Presence.READY, False)

        run_scenario(scenario)

    def test_what_is_not_there_is_said_by_its_digest_and_refused_for_good(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: RuntimeCase) -> None:
            pinned = await case.provider.digest(case.spec_of("missing"))
            (said,) = cast("Mapping[str, str]", pinned["digests"]).values()
            assert said.startswith(MISSING)
            with pytest.raises(Rejected) as refused:
                await case.provider.ensure(key(), pinned)
            assert str(refused.value).startswith(said.removeprefix(MISSING))
            assert (await case.provider.inspect(key())).presence is Presence.ABSENT
            with pytest.raises(Rejected):
                await case.provider.ensure(key(), case.spec_of("healthy"))

        run_scenario(scenario)

    def test_a_spec_with_its_digests_starts(self, run_scenario: RunScenario) -> None:
        async def scenario(case: RuntimeCase) -> None:
            pinned = await case.provider.digest(case.spec_of("healthy"))
            assert pinned["digests"]
            assert await case.provider.digest(pinned) == pinned
            await case.provider.ensure(key(), pinned)
            status = await case.provider.wait_ready(key(), seconds=SECONDS)
            assert status.presence is Presence.READY

        run_scenario(scenario)
