"""The contract of an access provider, beyond the contract of every provider.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new provider:

    class TestMyAccess(AccessContract):
        @pytest.fixture
        def run_scenario(self):
            def run_scenario(scenario):
                asyncio.run(scenario(MyAccess(...)))
            return run_scenario

Test ensure, inspect, remove and list_owned with a second class, derived from
`tenure.testing.contracts.provider.ProviderContract`; `sized_access` translates its specs.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tenure.core.errors import ProviderError, Rejected
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.limits import PAGE_MAX
from tenure.ports.access import Access, Grant, GrantKind
from tenure.ports.provider import Presence, Spec
from tenure.testing.contracts.provider import PLANE
from tenure.testing.contracts.sized_provider import SizedProvider

Scenario = Callable[[Access], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]

ODD_SPECS: list[tuple[str, Spec]] = [
    ("role", {"role": ["reader"], "granted_by": "ann"}),
    ("roles", {"roles": "reader", "granted_by": "ann"}),
    ("roles", {"roles": {"reader": 1}, "granted_by": "ann"}),
    ("roles", {"roles": None, "granted_by": "ann"}),
    ("roles", {"roles": [1], "granted_by": "ann"}),
    ("roles", {"roles": [["reader"]], "granted_by": "ann"}),
    ("roles", {"roles": [""], "granted_by": "ann"}),
    ("roles", {"roles": ["Reader"], "granted_by": "ann"}),
    ("roles", {"roles": ["reader\n"], "granted_by": "ann"}),
    ("roles", {"roles": ["r\ud800"], "granted_by": "ann"}),
    ("roles", {"roles": ["r" * 64], "granted_by": "ann"}),
    ("roles", {"roles": ["reader", "reader"], "granted_by": "ann"}),
    ("roles", {"roles": [f"r{n}" for n in range(65)], "granted_by": "ann"}),
    ("teams", {"teams": ["o p s"], "granted_by": "ann"}),
    ("teams", {"teams": ["../ops"], "granted_by": "ann"}),
    ("granted_by", {"roles": ["reader"]}),
    ("granted_by", {"roles": ["reader"], "granted_by": ""}),
    ("granted_by", {"roles": ["reader"], "granted_by": " "}),
    ("granted_by", {"roles": ["reader"], "granted_by": 7}),
    ("granted_by", {"granted_by": None}),
    ("granted_by", {"roles": ["reader"], "granted_by": "a\x00b"}),
    ("granted_by", {"roles": ["reader"], "granted_by": "\ud800"}),
    ("granted_by", {"roles": ["reader"], "granted_by": "a" * 256}),
]
"""Specs that must be rejected, each with the field that the rejection must name."""


def sized_access(provider: Access) -> SizedProvider:
    """Adapts the provider to the specs of `ProviderContract`."""
    return SizedProvider(
        provider, lambda size: {"roles": [f"r{n}" for n in range(size)], "granted_by": "ann"}
    )


def access_key(
    agent: str = "a", *, tenant: str = "t", name: str = "one", generation: int = 1
) -> ResourceKey:
    """The key of an agent's grants."""
    return resource_key(
        PLANE, tenant=tenant, agent=agent, generation=generation, slot="access", name=name
    )


def access_spec(*roles: str, teams: tuple[str, ...] = (), by: str = "ann") -> Spec:
    """A spec with these roles and teams."""
    return {"roles": list(roles), "teams": list(teams), "granted_by": by}


async def grants_of(
    access: Access, agent: str = "a", *, tenant: str = "t"
) -> list[tuple[str, str]]:
    """Kind and name of everything the subject was granted."""
    return [(grant.kind, grant.name) for grant in await access.list_by_subject(tenant, agent)]


class AccessContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new provider."""
        raise NotImplementedError

    def test_a_role_that_was_granted_is_had_and_no_other(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            assert not await access.check("t", "a", role="reader")
            await access.ensure(access_key(), access_spec("reader"))
            assert await access.check("t", "a", role="reader")
            assert not await access.check("t", "a", role="writer")
            assert not await access.check("t", "b", role="reader")

        run_scenario(scenario)

    def test_a_member_of_a_team_has_its_roles_while_the_team_does(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec(teams=("ops",)))
            assert not await access.check("t", "a", role="pager")
            for _ in range(2):
                await access.grant_team_role("t", "ops", role="pager")
            await access.grant_team_role("t", "ops", role="admin")
            await access.grant_team_role("t", "others", role="writer")
            assert await access.check("t", "a", role="pager")
            assert not await access.check("t", "a", role="writer")
            assert list(await access.list_team_roles("t", "ops")) == ["admin", "pager"]
            for _ in range(2):
                await access.revoke_team_role("t", "ops", role="pager")
            assert not await access.check("t", "a", role="pager")
            assert list(await access.list_team_roles("t", "ops")) == ["admin"]

        run_scenario(scenario)

    def test_a_teams_name_is_no_role_and_a_roles_name_no_team(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(access: Access) -> None:
            await access.grant_team_role("t", "ops", role="pager")
            await access.ensure(access_key(), access_spec("ops"))
            await access.ensure(access_key("b"), access_spec(teams=("ops",)))
            assert not await access.check("t", "a", role="pager")
            assert not await access.check("t", "b", role="ops")

        run_scenario(scenario)

    def test_grants_are_listed_by_subject_and_by_granter(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader", teams=("ops",), by="ann"))
            await access.ensure(access_key("b"), access_spec("writer", by="a"))
            first, second = await access.list_by_subject("t", "a")
            key = access_key().text
            assert first == Grant("a", key, GrantKind.ROLE, "reader", "ann", first.at)
            assert second == Grant("a", key, GrantKind.TEAM, "ops", "ann", second.at)
            assert list(await access.list_by_granter("t", "ann")) == [first, second]
            (third,) = await access.list_by_granter("t", "a")
            assert (third.agent, third.name) == ("b", "writer")
            assert list(await access.list_by_granter("t", "nobody")) == []

        run_scenario(scenario)

    def test_pages_follow_each_other_without_gap_or_double(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            for name in ("one", "two"):
                await access.ensure(
                    access_key(name=name), access_spec("x", "y", "z", teams=("x", "y"))
                )
            await access.ensure(access_key("b"), access_spec("x", "y"))
            for verb, who, count in (
                (access.list_by_subject, "a", 10),
                (access.list_by_granter, "ann", 12),
            ):
                whole = list(await verb("t", who))
                assert len(whole) == count
                paged: list[Grant] = []
                while page := await verb("t", who, after=paged[-1] if paged else None, limit=3):
                    assert len(page) <= 3
                    paged += page
                assert paged == whole

        run_scenario(scenario)

    def test_a_page_is_bounded_whatever_is_asked(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            roles = access_spec(*(f"r{n}" for n in range(64)))
            count = PAGE_MAX // 64 + 1
            await asyncio.gather(*(access.ensure(access_key(f"{n}"), roles) for n in range(count)))
            assert len(await access.list_by_granter("t", "ann", limit=10**9)) == PAGE_MAX
            assert list(await access.list_by_granter("t", "ann", limit=-1)) == []

        run_scenario(scenario)

    def test_another_spec_takes_away_what_it_does_not_name(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader", "writer", teams=("ops",)))
            later = access_key()._replace(generation=2)
            await access.ensure(later, access_spec("writer", "admin", by="bob"))
            assert await grants_of(access) == [("role", "admin"), ("role", "writer")]
            assert list(await access.list_by_granter("t", "ann")) == []
            assert len(await access.list_by_granter("t", "bob")) == 2
            await access.ensure(later._replace(generation=3), {})
            assert await grants_of(access) == []
            assert (await access.inspect(access_key())).presence is Presence.READY

        run_scenario(scenario)

    def test_what_is_removed_grants_nothing(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader", teams=("ops",)))
            await access.ensure(access_key(name="two"), access_spec("reader"))
            await access.remove(access_key())
            assert await access.check("t", "a", role="reader")
            await access.remove(access_key(name="two"))
            assert not await access.check("t", "a", role="reader")
            assert await grants_of(access) == []

        run_scenario(scenario)

    def test_revoking_a_subject_takes_everything_and_nothing_of_others(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(access: Access) -> None:
            await access.grant_team_role("t", "ops", role="pager")
            await access.ensure(access_key(), access_spec("reader", teams=("ops",)))
            await access.ensure(access_key(name="two"), access_spec("writer"))
            await access.ensure(access_key("b"), access_spec("reader", by="a"))
            assert await access.revoke_subject("t", "a") == 3
            assert await access.revoke_subject("t", "a") == 0
            for role in ("reader", "writer", "pager"):
                assert not await access.check("t", "a", role=role)
            assert await grants_of(access) == []
            assert await access.check("t", "b", role="reader")
            assert await access.revoke_subject("t", "nobody") == 0

        run_scenario(scenario)

    def test_revoking_a_granter_takes_what_it_gave_and_nothing_that_others_gave_too(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader", by="g"))
            await access.ensure(access_key(name="two"), access_spec("reader", "writer", by="h"))
            await access.ensure(access_key("b"), access_spec("pager", by="g"))
            assert await access.revoke_granter("u", "g") == 0
            assert await access.revoke_granter("t", "g") == 2
            assert await access.revoke_granter("t", "g") == 0
            assert await grants_of(access) == [("role", "reader"), ("role", "writer")]
            assert await access.check("t", "a", role="reader")
            assert not await access.check("t", "b", role="pager")
            await access.ensure(access_key(), access_spec("reader", by="g"))
            assert await access.revoke_granter("t", "g") == 0
            assert await access.revoke_granter("t", "nobody") == 0

        run_scenario(scenario)

    def test_what_was_revoked_is_not_brought_back_by_a_late_call(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader"))
            await access.revoke_subject("t", "a")
            for late in (access_spec("reader"), access_spec("reader", "writer")):
                await access.ensure(access_key(), late)
                assert await grants_of(access) == []
            later = access_key()._replace(generation=2)
            await access.ensure(later, access_spec("reader", "writer"))
            assert await grants_of(access) == [("role", "reader"), ("role", "writer")]
            assert await access.revoke_subject("t", "a") == 2
            await access.ensure(later, access_spec("reader"))
            assert await grants_of(access) == []

        run_scenario(scenario)

    def test_a_revoked_resource_is_removed_as_any_other(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader"))
            await access.revoke_subject("t", "a")
            assert (await access.inspect(access_key())).presence is Presence.READY
            await access.remove(access_key())
            assert (await access.inspect(access_key())).presence is Presence.ABSENT
            with pytest.raises(Rejected):
                await access.ensure(access_key(), access_spec("reader"))

        run_scenario(scenario)

    def test_a_revocation_at_the_same_time_leaves_all_or_nothing(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(access: Access) -> None:
            for turn in range(20):
                key = access_key(f"agent{turn}")
                await access.ensure(key, access_spec("reader"))
                later = key._replace(generation=2)
                pair = [
                    access.ensure(later, access_spec("reader", "writer")),
                    access.revoke_subject("t", key.agent),
                ]
                await asyncio.gather(*(pair if turn % 2 else pair[::-1]))
                left = await grants_of(access, key.agent)
                assert left in ([], [("role", "reader"), ("role", "writer")])

        run_scenario(scenario)

    def test_another_tenants_grants_are_as_if_not_there(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            await access.ensure(access_key(), access_spec("reader", teams=("ops",)))
            await access.grant_team_role("t", "ops", role="pager")
            await access.grant_team_role("u", "ops", role="admin")
            for role in ("reader", "pager", "admin"):
                assert not await access.check("u", "a", role=role)
            assert not await access.check("t", "a", role="admin")
            assert await grants_of(access, tenant="u") == []
            assert list(await access.list_by_granter("u", "ann")) == []
            assert await access.revoke_subject("u", "a") == 0
            await access.revoke_team_role("u", "ops", role="pager")
            assert list(await access.list_team_roles("u", "ops")) == ["admin"]
            assert await access.check("t", "a", role="pager")

        run_scenario(scenario)

    @pytest.mark.parametrize(("field", "odd"), ODD_SPECS)
    def test_an_odd_spec_is_refused_for_good_by_a_sentence_on_its_field(
        self, run_scenario: RunScenario, field: str, odd: Spec
    ) -> None:
        async def scenario(access: Access) -> None:
            with pytest.raises(Rejected, match=field):
                await access.ensure(access_key(), odd)
            with pytest.raises(Rejected):
                await access.ensure(access_key(), access_spec("reader"))
            assert (await access.inspect(access_key())).presence is Presence.ABSENT
            assert await grants_of(access) == []

        run_scenario(scenario)

    def test_odd_questions_are_answered_or_refused(self, run_scenario: RunScenario) -> None:
        async def scenario(access: Access) -> None:
            for odd in ("", "\ud800", "x" * 10_000, "' OR 1=1 --", "a\x00b"):
                for asked in (
                    access.check("t", odd, role=odd),
                    access.list_by_subject(odd, odd, limit=-1),
                    access.list_by_granter("t", odd),
                    access.revoke_subject("t", odd),
                    access.list_team_roles("t", odd),
                ):
                    with suppress(ProviderError):
                        assert not await asked
                for refused in (
                    access.grant_team_role("t", odd, role="reader"),
                    access.grant_team_role("t", "ops", role=odd),
                    access.revoke_team_role("t", "ops", role=odd),
                ):
                    with pytest.raises(Rejected):
                        await refused

        run_scenario(scenario)
