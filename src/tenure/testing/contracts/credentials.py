"""The contract of a credentials provider, beyond the contract of every provider.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new provider:

    class TestMyCredentials(CredentialsContract):
        @pytest.fixture
        def run_scenario(self):
            def run_scenario(scenario):
                asyncio.run(scenario(MyCredentials(...)))
            return run_scenario

Test ensure, inspect, remove and list_owned with a second class, derived from
`tenure.testing.contracts.provider.ProviderContract`; `sized_credentials` translates its specs.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tenure.core.errors import ProviderError, Rejected
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.limits import CREDENTIALS_MAX, PAGE_MAX
from tenure.ports.credentials import TTL_SECONDS, TTL_SECONDS_MAX, AudienceRegistration, Credentials
from tenure.ports.provider import Presence, Spec
from tenure.testing.contracts.provider import PLANE
from tenure.testing.contracts.sized_provider import SizedProvider

Scenario = Callable[[Credentials], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]

MAIL = "https://mail.example"


def _one(**fields: object) -> Spec:
    return {"credentials": [{"audience": MAIL, **fields}]}


ODD_SPECS: list[tuple[str, Spec]] = [
    ("credential", {"credential": []}),
    ("credentials", {"credentials": {"audience": MAIL}}),
    ("credentials", {"credentials": MAIL}),
    ("credentials", {"credentials": None}),
    ("credentials", {"credentials": [MAIL]}),
    ("credentials", {"credentials": [{"audience": MAIL}, {"audience": MAIL}]}),
    ("credentials", {"credentials": [{"audience": f"{MAIL}/{n}"} for n in range(65)]}),
    ("secret", _one(secret="hunter2")),  # noqa: S106 (it must not pass)
    ("audience", {"credentials": [{}]}),
    ("audience", _one(audience=None)),
    ("audience", _one(audience=7)),
    ("audience", _one(audience="")),
    ("audience", _one(audience="mail")),
    ("audience", _one(audience="https://")),
    ("audience", _one(audience="https:///path")),
    ("audience", _one(audience="https://[broken")),
    ("audience", _one(audience="https://mail.example:port")),
    ("audience", _one(audience="http://mail.example")),
    ("audience", _one(audience="ftp://mail.example")),
    ("audience", _one(audience="javascript://mail.example")),
    ("audience", _one(audience="https://ann:hunter2@mail.example")),
    ("audience", _one(audience="https://mail.example?key=hunter2")),
    ("audience", _one(audience="https://mail.example#there")),
    ("audience", _one(audience="https://mail .example")),
    ("audience", _one(audience="https://mail.example\n")),
    ("audience", _one(audience="https://m\ud800.example")),
    ("audience", _one(audience="https://" + "m" * 255)),
    ("scopes", _one(scopes="mail:read")),
    ("scopes", _one(scopes=[""])),
    ("scopes", _one(scopes=[7])),
    ("scopes", _one(scopes=["two words"])),
    ("scopes", _one(scopes=['quo"te'])),
    ("scopes", _one(scopes=["s" * 129])),
    ("scopes", _one(scopes=["mail:read", "mail:read"])),
    ("scopes", _one(scopes=[f"s{n}" for n in range(65)])),
    ("ttl_seconds", _one(ttl_seconds=0)),
    ("ttl_seconds", _one(ttl_seconds=-1)),
    ("ttl_seconds", _one(ttl_seconds=TTL_SECONDS_MAX + 1)),
    ("ttl_seconds", _one(ttl_seconds=10**30)),
    ("ttl_seconds", _one(ttl_seconds=300.0)),
    ("ttl_seconds", _one(ttl_seconds="300")),
    ("ttl_seconds", _one(ttl_seconds=True)),
    ("ttl_seconds", _one(ttl_seconds=None)),
]
"""Specs that must be rejected, each with the field that the rejection must name."""


def sized_credentials(provider: Credentials) -> SizedProvider:
    """Adapts the provider to the specs of `ProviderContract`."""
    return SizedProvider(
        provider, lambda size: credentials_spec(*(f"{MAIL}/{n}" for n in range(size)))
    )


def credentials_key(
    agent: str = "a", *, tenant: str = "t", name: str = "one", generation: int = 1
) -> ResourceKey:
    """The resource key of an agent's registrations."""
    return resource_key(
        PLANE, tenant=tenant, agent=agent, generation=generation, slot="credentials", name=name
    )


def credentials_spec(*audiences: str, scopes: tuple[str, ...] = (), ttl_seconds: int = 60) -> Spec:
    """A spec with these audiences, each with the same scopes and ceiling."""
    return {
        "credentials": [
            {"audience": audience, "scopes": list(scopes), "ttl_seconds": ttl_seconds}
            for audience in audiences
        ]
    }


async def asked_for(credentials: Credentials, agent: str = "a", *, tenant: str = "t") -> list[str]:
    """The audiences for which a credential may be issued now."""
    listed = await credentials.list_registrations(tenant, agent)
    return [registration.audience for registration in listed if registration.is_open]


class CredentialsContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new provider."""
        raise NotImplementedError

    def test_what_was_registered_is_listed_with_its_ceilings(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(credentials: Credentials) -> None:
            spec: Spec = {
                "credentials": [
                    {"audience": MAIL, "scopes": ["b:c", "a:b"], "ttl_seconds": TTL_SECONDS_MAX},
                    {"audience": "http://127.0.0.1:8080/local"},
                ]
            }
            await credentials.ensure(credentials_key(), spec)
            local, mail = await credentials.list_registrations("t", "a")
            key = credentials_key().text
            assert mail[:5] == ("a", key, MAIL, ("a:b", "b:c"), TTL_SECONDS_MAX)
            assert mail.is_open
            assert local.audience == "http://127.0.0.1:8080/local"
            assert (local.scopes, local.ttl_seconds) == ((), TTL_SECONDS)

        run_scenario(scenario)

    def test_pages_follow_each_other_and_are_bounded(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            some = credentials_spec(*(f"{MAIL}/{n}" for n in range(CREDENTIALS_MAX)))
            keys = [credentials_key(name=f"{n}") for n in range(PAGE_MAX // CREDENTIALS_MAX + 1)]
            await asyncio.gather(*(credentials.ensure(key, some) for key in keys))
            paged: list[AudienceRegistration] = []
            while page := await credentials.list_registrations(
                "t", "a", after=paged[-1] if paged else None, limit=300
            ):
                assert len(page) <= 300
                paged += page
            assert len(set(paged)) == len(paged) == CREDENTIALS_MAX * len(keys)
            whole = await credentials.list_registrations("t", "a", limit=10**9)
            assert list(whole) == paged[:PAGE_MAX]
            assert list(await credentials.list_registrations("t", "a", limit=-1)) == []

        run_scenario(scenario)

    def test_another_spec_takes_away_what_it_does_not_name(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            await credentials.ensure(credentials_key(), credentials_spec(f"{MAIL}/a", f"{MAIL}/b"))
            later = credentials_key()._replace(generation=2)
            wider = credentials_spec(f"{MAIL}/b", f"{MAIL}/c", scopes=("x",), ttl_seconds=7)
            await credentials.ensure(later, wider)
            listed = await credentials.list_registrations("t", "a")
            assert [(one.audience, one.scopes, one.ttl_seconds) for one in listed] == [
                (f"{MAIL}/b", ("x",), 7),
                (f"{MAIL}/c", ("x",), 7),
            ]
            await credentials.ensure(later._replace(generation=3), {})
            assert list(await credentials.list_registrations("t", "a")) == []
            observed = await credentials.inspect(credentials_key())
            assert observed.presence is Presence.READY

        run_scenario(scenario)

    def test_what_is_removed_cannot_be_asked_for(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            await credentials.ensure(credentials_key(), credentials_spec(MAIL))
            await credentials.ensure(credentials_key(name="two"), credentials_spec(f"{MAIL}/two"))
            await credentials.remove(credentials_key())
            assert await asked_for(credentials) == [f"{MAIL}/two"]
            await credentials.remove(credentials_key(name="two"))
            assert await asked_for(credentials) == []

        run_scenario(scenario)

    def test_closing_covers_everything_at_once_and_reopening_too(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(credentials: Credentials) -> None:
            await credentials.ensure(credentials_key(), credentials_spec(MAIL, f"{MAIL}/two"))
            await credentials.ensure(credentials_key("b"), credentials_spec(MAIL))
            assert await credentials.is_open("t", "a")
            for _ in range(2):
                assert await credentials.close_agent("t", "a", epoch=1)
                assert not await credentials.is_open("t", "a")
                assert await asked_for(credentials) == []
            assert len(await credentials.list_registrations("t", "a")) == 2
            assert await asked_for(credentials, "b") == [MAIL]
            for _ in range(2):
                assert await credentials.reopen_agent("t", "a", epoch=2)
                assert await asked_for(credentials) == [MAIL, f"{MAIL}/two"]

        run_scenario(scenario)

    def test_a_closing_covers_what_arrives_after_it(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            assert await credentials.close_agent("t", "a", epoch=1)
            await credentials.ensure(credentials_key(), credentials_spec(MAIL))
            later = credentials_key()._replace(generation=2)
            await credentials.ensure(later, credentials_spec(f"{MAIL}/two"))
            assert await asked_for(credentials) == []
            assert not await credentials.is_open("t", "a")

        run_scenario(scenario)

    def test_a_closing_outlives_what_it_closed(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            await credentials.ensure(credentials_key(), credentials_spec(MAIL))
            await credentials.close_agent("t", "a", epoch=1)
            await credentials.remove(credentials_key())
            await credentials.ensure(credentials_key(name="two"), credentials_spec(MAIL))
            assert await asked_for(credentials) == []

        run_scenario(scenario)

    def test_a_smaller_epoch_than_the_last_seen_changes_nothing(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(credentials: Credentials) -> None:
            await credentials.ensure(credentials_key(), credentials_spec(MAIL))
            await credentials.close_agent("t", "a", epoch=5)
            assert not await credentials.reopen_agent("t", "a", epoch=4)
            assert await asked_for(credentials) == []
            assert await credentials.reopen_agent("t", "a", epoch=5)
            assert not await credentials.close_agent("t", "a", epoch=4)
            assert await asked_for(credentials) == [MAIL]
            assert await credentials.close_agent("t", "a", epoch=6)
            assert not await credentials.reopen_agent("t", "a", epoch=5)
            assert await asked_for(credentials) == []

        run_scenario(scenario)

    def test_of_many_at_once_the_latest_epoch_decides(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            for turn in range(10):
                agent = f"agent{turn}"
                await credentials.ensure(credentials_key(agent), credentials_spec(MAIL))
                if turn % 2:
                    await credentials.close_agent("t", agent, epoch=0)
                await asyncio.gather(
                    credentials.close_agent("t", agent, epoch=3),
                    credentials.reopen_agent("t", agent, epoch=2),
                    credentials.close_agent("t", agent, epoch=1),
                )
                assert await asked_for(credentials, agent) == []
                await asyncio.gather(
                    credentials.reopen_agent("t", agent, epoch=6),
                    credentials.close_agent("t", agent, epoch=5),
                )
                assert await asked_for(credentials, agent) == [MAIL]

        run_scenario(scenario)

    def test_another_tenants_agents_are_as_if_not_there(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            await credentials.ensure(credentials_key(), credentials_spec(MAIL))
            assert list(await credentials.list_registrations("u", "a")) == []
            await credentials.close_agent("u", "a", epoch=9)
            assert await credentials.is_open("t", "a")
            assert await asked_for(credentials) == [MAIL]
            await credentials.close_agent("t", "a", epoch=1)
            await credentials.reopen_agent("u", "a", epoch=10)
            assert not await credentials.is_open("t", "a")
            assert await asked_for(credentials) == []

        run_scenario(scenario)

    @pytest.mark.parametrize(("field", "odd"), ODD_SPECS)
    def test_an_odd_spec_is_refused_for_good_by_a_sentence_on_its_field(
        self, run_scenario: RunScenario, field: str, odd: Spec
    ) -> None:
        async def scenario(credentials: Credentials) -> None:
            with pytest.raises(Rejected, match=field) as refused:
                await credentials.ensure(credentials_key(), odd)
            assert "hunter2" not in str(refused.value)
            with pytest.raises(Rejected):
                await credentials.ensure(credentials_key(), credentials_spec(MAIL))
            observed = await credentials.inspect(credentials_key())
            assert observed.presence is Presence.ABSENT
            assert list(await credentials.list_registrations("t", "a")) == []

        run_scenario(scenario)

    def test_odd_questions_are_answered_or_refused(self, run_scenario: RunScenario) -> None:
        async def scenario(credentials: Credentials) -> None:
            for odd in ("", "\ud800", "x" * 10_000, "' OR 1=1 --", "a\x00b"):
                with suppress(ProviderError):
                    assert not await credentials.list_registrations("t", odd)
                with suppress(ProviderError):
                    assert await credentials.is_open("t", odd)
            odd_epoch: Any
            for odd_epoch in (-1, 2**63, 1.5, "1", None, True):
                with pytest.raises(Rejected, match="epoch"):
                    await credentials.close_agent("t", "a", epoch=odd_epoch)
            assert await credentials.is_open("t", "a")

        run_scenario(scenario)
