"""The part of the identity contract that is about registrations of clients."""

import pytest

from tenure.core.errors import Rejected
from tenure.ports.identity import OAuthError, OAuthRefusal
from tenure.testing.contracts.identity_client import (
    IdentityCase,
    IdentityClient,
    RunScenario,
    client,
    invite_client,
    is_active,
    key,
    register_client,
    word,
)


class RegistrationContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new server."""
        raise NotImplementedError

    def test_an_invited_client_registers_its_keys_once(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, invitation = await invite_client(case)
            assert word(await one.ask()) is OAuthError.INVALID_CLIENT
            answer = await case.identity.register(invitation.token, {"jwks": one.jwks})
            assert not isinstance(answer, OAuthRefusal)
            assert answer["client_id"] == one.id
            assert await is_active(case, await one.token())
            again = await case.identity.register(invitation.token, {"jwks": one.jwks})
            assert word(again) is OAuthError.INVALID_TOKEN

        run_scenario(scenario)

    def test_an_invitation_is_soon_over_and_ends_the_one_before(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, first = await invite_client(case)
            _, second = await invite_client(case)
            assert second.expires_at - case.clock.now() <= 300
            asked = await case.identity.register(first.token, {"jwks": one.jwks})
            assert word(asked) is OAuthError.INVALID_TOKEN
            case.clock.at = second.expires_at
            asked = await case.identity.register(second.token, {"jwks": one.jwks})
            assert word(asked) is OAuthError.INVALID_TOKEN

        run_scenario(scenario)

    def test_an_invitation_only_registers_and_a_registration_token_never_does(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, invitation = await invite_client(case)
            asked = await case.identity.read_client(one.id, bearer=invitation.token)
            assert word(asked) is OAuthError.INVALID_TOKEN
            one, bearer = await register_client(case)
            again = await case.identity.register(bearer, {"jwks": one.jwks})
            assert word(again) is OAuthError.INVALID_TOKEN

        run_scenario(scenario)

    def test_an_update_replaces_keys_and_token(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, bearer = await register_client(case)
            other = IdentityClient(case, one.id, kid="two")
            metadata = {"client_id": one.id, "jwks": other.jwks, "scope": "a:read"}
            answer = await case.identity.update_client(one.id, bearer=bearer, metadata=metadata)
            assert not isinstance(answer, OAuthRefusal)
            assert word(await one.ask()) is OAuthError.INVALID_CLIENT
            said = await other.ask()
            assert not isinstance(said, OAuthRefusal)
            assert said["scope"] == "a:read"
            old = await case.identity.read_client(one.id, bearer=bearer)
            assert word(old) is OAuthError.INVALID_TOKEN
            new = str(answer["registration_access_token"])
            assert not isinstance(await case.identity.read_client(one.id, bearer=new), OAuthRefusal)

        run_scenario(scenario)

    def test_a_withdrawn_registration_ends_keys_and_tokens_and_leaves_the_client(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, bearer = await register_client(case)
            token = await one.token()
            assert await case.identity.withdraw_client(one.id, bearer=bearer) is None
            assert not await is_active(case, token)
            assert word(await one.ask()) is OAuthError.INVALID_CLIENT
            again = await case.identity.withdraw_client(one.id, bearer=bearer)
            assert word(again) is OAuthError.INVALID_TOKEN
            await register_client(case, one)
            assert await is_active(case, await one.token())
            assert not await is_active(case, token)

        run_scenario(scenario)

    def test_the_same_nonce_gives_the_same_invitation(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, _ = await invite_client(case)
            first = await case.identity.invite(key(), nonce="n" * 43)
            assert not isinstance(first, OAuthRefusal)
            case.clock.at += 10
            assert await case.identity.invite(key(), nonce="n" * 43) == first
            other = await case.identity.invite(key(), nonce="o" * 43)
            assert not isinstance(other, OAuthRefusal)
            assert other.token != first.token
            ended = await case.identity.register(first.token, {"jwks": one.jwks})
            assert word(ended) is OAuthError.INVALID_TOKEN
            answer = await case.identity.register(other.token, {"jwks": one.jwks})
            assert not isinstance(answer, OAuthRefusal)

        run_scenario(scenario)

    def test_another_clients_token_registers_nothing(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, bearer = await register_client(case)
            other, theirs = await register_client(case, at=key("b"))
            metadata = {"client_id": one.id, "jwks": other.jwks}
            asked: list[object] = [
                await case.identity.read_client(one.id, bearer=theirs),
                await case.identity.update_client(one.id, bearer=theirs, metadata=metadata),
                await case.identity.withdraw_client(one.id, bearer=theirs),
                await case.identity.read_client("nobody", bearer=bearer),
            ]
            assert {word(one) for one in asked} == {OAuthError.INVALID_TOKEN}

        run_scenario(scenario)

    def test_registered_keys_outlive_another_ensure_and_not_a_remove(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            one, bearer = await register_client(case)
            await case.identity.ensure(key(), {"scopes": ["a:other"]})
            assert not isinstance(await one.ask(), OAuthRefusal)
            await case.identity.remove(key())
            asked = await case.identity.read_client(one.id, bearer=bearer)
            assert word(asked) is OAuthError.INVALID_TOKEN
            assert isinstance(await case.identity.invite(key()), OAuthRefusal)

        run_scenario(scenario)

    def test_keys_in_the_spec_are_the_planes_and_nobody_is_invited(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(case: IdentityCase) -> None:
            await client(case)
            assert word(await case.identity.invite(key())) is OAuthError.UNAUTHORIZED_CLIENT

        run_scenario(scenario)

    def test_a_private_key_is_refused_and_not_repeated(self, run_scenario: RunScenario) -> None:
        async def scenario(case: IdentityCase) -> None:
            one = IdentityClient(case, key().text)
            private = one.pair.as_dict(private=True)
            with pytest.raises(Rejected) as refused:
                await case.identity.ensure(key(), {"jwks": {"keys": [private]}})
            assert str(private["d"]) not in str(refused.value)
            other, invitation = await invite_client(case, key("b"))
            secret = other.pair.as_dict(private=True)
            answer = await case.identity.register(invitation.token, {"jwks": {"keys": [secret]}})
            assert word(answer) is OAuthError.INVALID_CLIENT_METADATA
            assert str(secret["d"]) not in str(answer)

        run_scenario(scenario)
