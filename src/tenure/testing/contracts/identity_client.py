"""The client side of an authorization server, used by the contract tests."""

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from joserfc import jws
from joserfc.jwk import ECKey

from tenure.core.ids import ResourceKey, resource_key
from tenure.ports.identity import (
    ASSERTION_TYPE,
    Authorization,
    Document,
    Invitation,
    OAuthError,
    OAuthRefusal,
    TokenRequester,
)
from tenure.ports.provider import Provider
from tenure.testing.contracts.store_rows import StoppedClock

START = 1_700_000_000.5
"""The time at which a scenario starts."""


class Identity(Provider, Authorization, Protocol):
    """An adapter that implements both ports."""


class IdentityCase(NamedTuple):
    """A server under test and its clock."""

    identity: Identity
    clock: StoppedClock


Scenario = Callable[[IdentityCase], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]

RESOURCE = "https://tool.example/api"
TENANT = "t"
ADMIN = TokenRequester(TENANT)


def key(agent: str = "a", *, generation: int = 1, tenant: str = TENANT) -> ResourceKey:
    """The key of an agent's client."""
    return resource_key(
        "contract", tenant=tenant, agent=agent, generation=generation, slot="identity", name=""
    )


class IdentityClient:
    """The client of an agent: a key pair, and assertions signed with it."""

    def __init__(self, case: IdentityCase, client_id: str, *, kid: str = "one") -> None:
        self._case = case
        self._numbers = iter(range(1_000_000))
        self.id = client_id
        self.kid = kid
        self.pair = ECKey.generate_key("P-256", parameters={"kid": kid})
        self.jwks = {"keys": [self.pair.as_dict(private=False)]}

    def assertion(self, header: Mapping[str, object] | None = None, **claims: object) -> str:
        """A signed assertion; a claim or header that is None is left out."""
        now = int(self._case.clock.now())
        said: dict[str, object] = {
            "iss": self.id,
            "sub": self.id,
            "aud": self._case.identity.issuer,
            "iat": now,
            "exp": now + 60,
            "jti": f"{self.kid}-{next(self._numbers)}",
        }
        said |= claims
        top: dict[str, Any] = {"alg": "ES256", "kid": self.kid, **(header or {})}
        return jws.serialize_compact(
            {name: value for name, value in top.items() if value is not None},
            json.dumps({name: value for name, value in said.items() if value is not None}),
            self.pair,
            algorithms=["ES256"],
        )

    def form(self, assertion: str | None = None, **fields: str) -> dict[str, str]:
        """The form of a token request."""
        return {
            "grant_type": "client_credentials",
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": self.assertion() if assertion is None else assertion,
            **fields,
        }

    async def ask(self, assertion: str | None = None, **fields: str) -> Document | OAuthRefusal:
        """Request a token."""
        return await self._case.identity.token(self.form(assertion, **fields))

    async def token(self, **fields: str) -> str:
        """Request a token and expect to get one."""
        answer = await self.ask(**fields)
        assert not isinstance(answer, OAuthRefusal), answer
        return str(answer["access_token"])


async def client(case: IdentityCase, at: ResourceKey | None = None) -> IdentityClient:
    """A client whose keys are in its spec."""
    at = key() if at is None else at
    made = IdentityClient(case, at.text)
    may = {"scopes": ["a:read", "a:write"], "audiences": [RESOURCE]}
    spec = {"name": "n", "jwks": made.jwks, **may}
    assert (await case.identity.ensure(at, spec))["client_id"] == made.id
    return made


async def is_active(case: IdentityCase, token: str, requester: TokenRequester = ADMIN) -> bool:
    """Whether the token is valid now."""
    return bool((await case.identity.introspect(token, requester=requester))["active"])


def word(answer: object) -> OAuthError:
    """The error code of a refusal."""
    assert isinstance(answer, OAuthRefusal), answer
    return answer.word


async def published_keys(case: IdentityCase) -> list[dict[str, str]]:
    """The key set."""
    keys = (await case.identity.jwks())["keys"]
    assert isinstance(keys, list)
    return keys


async def invite_client(
    case: IdentityCase, at: ResourceKey | None = None
) -> tuple[IdentityClient, Invitation]:
    """A client without keys, and its invitation."""
    at = key() if at is None else at
    await case.identity.ensure(at, {"scopes": ["a:read", "a:write"]})
    invitation = await case.identity.invite(at)
    assert not isinstance(invitation, OAuthRefusal)
    return IdentityClient(case, at.text), invitation


async def register_client(
    case: IdentityCase, one: IdentityClient | None = None, *, at: ResourceKey | None = None
) -> tuple[IdentityClient, str]:
    """A client that registered its keys, and its registration token."""
    fresh, invitation = await invite_client(case, at)
    one = one or fresh
    answer = await case.identity.register(invitation.token, {"jwks": one.jwks})
    assert not isinstance(answer, OAuthRefusal)
    return one, str(answer["registration_access_token"])
