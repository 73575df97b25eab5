"""The contract of an authorization server: each promise of `tenure.ports.identity` is a test.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new server; the
scenario sets the clock of that server. Test ensure, inspect, remove and list_owned with a second
class, derived from `tenure.testing.contracts.provider.ProviderContract`.
"""

import asyncio
from collections.abc import Mapping

import pytest

from tenure.core.errors import Rejected
from tenure.ports.identity import TOKEN_PATH, OAuthError, OAuthRefusal, TokenRequester
from tenure.testing.contracts.identity_client import (
    ADMIN,
    RESOURCE,
    TENANT,
    IdentityCase,
    IdentityClient,
    RunScenario,
    client,
    is_active,
    key,
    published_keys,
    word,
)
from tenure.testing.contracts.identity_registration import RegistrationContract


class IdentityContract(RegistrationContract):
    """Derive a class and give it the fixture `run_scenario`."""

    # ------------------------------------------------------------------------------------- tokens

    def test_a_client_that_proves_itself_gets_a_token_that_says_who_it_is(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            answer = await one.ask(scope="a:read", resource=RESOURCE)
            assert not isinstance(answer, OAuthRefusal)
            assert (answer["token_type"], answer["scope"]) == ("Bearer", "a:read")
            said = await case.identity.introspect(str(answer["access_token"]), requester=ADMIN)
            assert said["active"] is True
            assert (said["iss"], said["aud"]) == (case.identity.issuer, RESOURCE)
            assert (said["client_id"], said["tenant"], said["agent"]) == (one.id, TENANT, "a")
            assert said["exp"] == int(case.clock.now()) + int(str(answer["expires_in"]))

        run_scenario(scenario)

    def test_without_a_scope_a_client_gets_all_it_may_have(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            answer = await (await client(case)).ask()
            assert not isinstance(answer, OAuthRefusal)
            assert answer["scope"] == "a:read a:write"

        run_scenario(scenario)

    def test_nothing_beyond_the_clients_scopes_and_audiences_is_minted(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            assert word(await one.ask(scope="a:read b:read")) is OAuthError.INVALID_SCOPE
            elsewhere = await one.ask(resource="https://other.example")
            assert word(elsewhere) is OAuthError.INVALID_TARGET
            both = await one.ask(resource=RESOURCE, audience=case.identity.issuer)
            assert word(both) is OAuthError.INVALID_TARGET

        run_scenario(scenario)

    def test_another_grant_is_refused(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            asked = await one.ask(grant_type="password")
            assert word(asked) is OAuthError.UNSUPPORTED_GRANT_TYPE
            form = {n: v for n, v in one.form().items() if n != "grant_type"}
            assert word(await case.identity.token(form)) is OAuthError.INVALID_REQUEST

        run_scenario(scenario)

    def test_an_assertion_is_good_once(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            sent = one.assertion()
            assert not isinstance(await one.ask(sent), OAuthRefusal)
            assert word(await one.ask(sent)) is OAuthError.INVALID_CLIENT
            again = await asyncio.gather(*(one.ask(one.assertion(jti="x")) for _ in range(5)))
            assert sum(isinstance(answer, OAuthRefusal) for answer in again) == 4

        run_scenario(scenario)

    @pytest.mark.parametrize(
        ("header", "claims"),
        [
            ({}, {"aud": "https://other.example"}),
            ({}, {"aud": None}),
            ({}, {"aud": ["https://other.example"]}),
            ({}, {"exp": None}),
            ({}, {"exp": True}),
            ({}, {"exp": 1}),
            ({}, {"exp": 9_999_999_999}),
            ({}, {"nbf": 9_999_999_999}),
            ({}, {"iat": 9_999_999_999}),
            ({}, {"jti": None}),
            ({}, {"jti": ""}),
            ({}, {"jti": "x" * 256}),
            ({}, {"iss": "somebody"}),
            ({}, {"sub": "somebody"}),
            ({}, {"iss": "nobody", "sub": "nobody"}),
            ({}, {"iss": None}),
            ({"kid": "two"}, {}),
            ({"kid": None}, {}),
            ({"typ": "at+jwt"}, {}),
        ],
        ids=str,
    )
    def test_an_assertion_that_is_not_for_here_and_now_is_refused(
        self, run_scenario: RunScenario, header: Mapping[str, object], claims: Mapping[str, object]
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            assert word(await one.ask(one.assertion(header, **claims))) is OAuthError.INVALID_CLIENT
            assert not isinstance(await one.ask(), OAuthRefusal)

        run_scenario(scenario)

    def test_a_proof_by_another_key_is_refused(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            thief = IdentityClient(case, one.id)
            assert word(await thief.ask()) is OAuthError.INVALID_CLIENT
            other = await client(case, key("b"))
            stolen = other.assertion(iss=one.id, sub=one.id)
            assert word(await one.ask(stolen)) is OAuthError.INVALID_CLIENT

        run_scenario(scenario)

    def test_a_token_ends_by_itself(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            token = await (await client(case)).token()
            case.clock.at += 299
            assert await is_active(case, token)
            case.clock.at += 1
            assert not await is_active(case, token)

        run_scenario(scenario)

    # ------------------------------------------------------------------------------------- ending

    def test_a_revoked_token_is_inactive_and_others_are_not(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            first, second = await one.token(), await one.token()
            await case.identity.revoke(first, requester=TokenRequester(TENANT, one.id))
            await case.identity.revoke(first, requester=TokenRequester(TENANT, one.id))
            assert not await is_active(case, first)
            assert await is_active(case, second)
            await case.identity.revoke(second, requester=ADMIN)
            assert not await is_active(case, second)

        run_scenario(scenario)

    def test_what_is_not_the_askers_is_neither_shown_nor_revoked(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, other = await client(case), await client(case, key("b"))
            token = await one.token()
            assert not await is_active(case, token, TokenRequester("another"))
            for requester in (
                TokenRequester(TENANT, other.id),
                TokenRequester("another"),
                TokenRequester("another", one.id),
            ):
                await case.identity.revoke(token, requester=requester)
            assert await is_active(case, token)
            await case.identity.revoke("no token", requester=ADMIN)

        run_scenario(scenario)

    def test_a_removed_clients_tokens_are_inactive_at_once(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            token = await one.token()
            await case.identity.remove(key())
            assert not await is_active(case, token)
            assert word(await one.ask()) is OAuthError.INVALID_CLIENT
            with pytest.raises(Rejected):
                await client(case)
            assert not await is_active(case, token)

        run_scenario(scenario)

    def test_a_raised_epoch_ends_every_earlier_token_of_the_agent(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, other = await client(case), await client(case, key("b"))
            mine, theirs = await one.token(), await other.token()
            await case.identity.raise_epoch(TENANT, "a", epoch=3)
            assert not await is_active(case, mine)
            assert await is_active(case, theirs)
            later = await one.token()
            assert await is_active(case, later)
            await case.identity.raise_epoch(TENANT, "a", epoch=2)
            await case.identity.raise_epoch("another", "a", epoch=9)
            assert await is_active(case, later)

        run_scenario(scenario)

    def test_while_an_agent_is_closed_nothing_is_minted(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            await case.identity.raise_epoch(TENANT, "a", epoch=3, closed=True)
            assert word(await one.ask()) is OAuthError.UNAUTHORIZED_CLIENT
            await case.identity.raise_epoch(TENANT, "a", epoch=3)
            assert word(await one.ask()) is OAuthError.UNAUTHORIZED_CLIENT
            await case.identity.raise_epoch(TENANT, "a", epoch=4)
            assert not isinstance(await one.ask(), OAuthRefusal)

        run_scenario(scenario)

    def test_a_token_shrinks_with_its_client(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            token, abroad = await one.token(), await one.token(resource=RESOURCE)
            spec = {"name": "n", "jwks": one.jwks, "scopes": ["a:read"]}
            await case.identity.ensure(key(), spec)
            said = await case.identity.introspect(token, requester=ADMIN)
            assert said["scope"] == "a:read"
            assert not await is_active(case, abroad)

        run_scenario(scenario)

    # --------------------------------------------------------------------------------------- keys

    def test_the_key_of_every_token_that_may_be_valid_is_published(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = await client(case)
            before = {item["kid"] for item in await published_keys(case)}
            old = await one.token()
            chosen = await case.identity.rotate()
            assert chosen in before  # it was known to others before it signs
            after = {item["kid"] for item in await published_keys(case)}
            assert before < after
            assert await is_active(case, old)
            assert await is_active(case, await one.token())
            await case.identity.rotate()
            assert await is_active(case, old)
            case.clock.at += 1_000
            assert not await is_active(case, old)
            assert not before & {item["kid"] for item in await published_keys(case)}
            assert await is_active(case, await one.token())

        run_scenario(scenario)

    def test_a_rotation_away_from_a_key_happens_once(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            before = await case.identity.signing_key()
            chosen = {await case.identity.rotate(away_from=before) for _ in range(3)}
            assert chosen == {await case.identity.signing_key()} != {before}
            assert await case.identity.rotate() not in {before, *chosen}

        run_scenario(scenario)

    def test_what_is_published_is_public(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            for item in await published_keys(case):
                assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & set(item)

        run_scenario(scenario)

    # ----------------------------------------------------------------------------------- metadata

    def test_the_metadata_name_the_issuer_and_its_endpoints(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            said = case.identity.metadata()
            assert said["issuer"] == case.identity.issuer
            assert said["token_endpoint"] == case.identity.issuer + TOKEN_PATH
            assert said["token_endpoint_auth_methods_supported"] == ["private_key_jwt"]

        run_scenario(scenario)
