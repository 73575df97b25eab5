"""The identity provider: an OAuth 2.0 authorization server for agents.

A create makes the OAuth client of an agent as one resource (`tenure.ports.provider.Provider`).  The
methods here come in addition to the four of every provider.  A refused request returns an
`OAuthRefusal` with the error code of OAuth; it is not an exception.  `Unavailable` and
`OutcomeUnknown` are raised as by every provider.  The text of a refusal never repeats what the
caller sent.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from tenure.core.ids import ResourceKey

TOKEN_PATH = "/oauth/token"  # noqa: S105 (a path)
REGISTER_PATH = "/oauth/register"
INTROSPECT_PATH = "/oauth/introspect"
REVOKE_PATH = "/oauth/revoke"
JWKS_PATH = "/.well-known/jwks.json"
METADATA_PATH = "/.well-known/oauth-authorization-server"

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Fields = Mapping[str, str]
"""The fields of a form; each name occurs once."""
Document = Mapping[str, object]
"""A JSON object."""


class OAuthError(StrEnum):
    """The error codes of OAuth (RFC 6749, 7591, 6750, 8707)."""

    INVALID_REQUEST = "invalid_request"
    INVALID_CLIENT = "invalid_client"
    INVALID_SCOPE = "invalid_scope"
    INVALID_TARGET = "invalid_target"
    INVALID_TOKEN = "invalid_token"  # noqa: S105 (a word)
    INVALID_CLIENT_METADATA = "invalid_client_metadata"
    UNAUTHORIZED_CLIENT = "unauthorized_client"
    UNSUPPORTED_GRANT_TYPE = "unsupported_grant_type"
    TEMPORARILY_UNAVAILABLE = "temporarily_unavailable"


class OAuthRefusal(NamedTuple):
    """A refused request: the error code, and a sentence that repeats nothing of the request."""

    word: OAuthError
    sentence: str


class Invitation(NamedTuple):
    """A token that registers keys for a client once; it is shown only here."""

    client_id: str
    token: str
    expires_at: float


class TokenRequester(NamedTuple):
    """Who introspects or revokes a token: a client of the tenant; without client, its admin."""

    tenant: str
    client_id: str = ""


class Authorization(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.identity`."""

    @property
    def issuer(self) -> str:
        """The issuer in every token: the origin of this server."""
        ...

    def metadata(self) -> Document:
        """The metadata document of this server (RFC 8414)."""
        ...

    async def jwks(self) -> Document:
        """The public keys of all tokens that may be valid, and the next signing key."""
        ...

    async def token(self, fields: Fields) -> Document | OAuthRefusal:
        """Issue an access token to a client that sends a signed assertion (RFC 7523).

        An assertion can be used once, also across a crash.
        """
        ...

    async def authenticate(self, fields: Fields, *, endpoint: str) -> TokenRequester | OAuthRefusal:
        """The client that sent this form, by its assertion; `endpoint` is the request's path."""
        ...

    async def introspect(self, token: str, *, requester: TokenRequester) -> Document:
        """The claims of an active token (RFC 7662); a token of another tenant is never active."""
        ...

    async def revoke(self, token: str, *, requester: TokenRequester) -> None:
        """Revoke the token; a token that does not belong to the requester is not changed."""
        ...

    async def invite(self, key: ResourceKey, *, nonce: str = "") -> Invitation | OAuthRefusal:
        """Issue a one-time token that registers keys for the client; an earlier token becomes void.

        The token contains the nonce, a secret of the caller.  The same nonce returns the same
        invitation again, until it is used or replaced.  An empty nonce means a random one.
        """
        ...

    async def register(self, bearer: str, metadata: Document) -> Document | OAuthRefusal:
        """Register keys with an invitation (RFC 7591); the invitation cannot be used again."""
        ...

    async def read_client(self, client_id: str, *, bearer: str) -> Document | OAuthRefusal:
        """Read the registration (RFC 7592)."""
        ...

    async def update_client(
        self, client_id: str, *, bearer: str, metadata: Document
    ) -> Document | OAuthRefusal:
        """Replace the registration (RFC 7592), and the registration token too."""
        ...

    async def withdraw_client(self, client_id: str, *, bearer: str) -> OAuthRefusal | None:
        """Delete the registration: its keys are gone and its tokens inactive.

        The client itself stays; only `remove` of its key removes it.
        """
        ...

    async def signing_key(self) -> str:
        """The id of the current signing key."""
        ...

    async def rotate(self, *, away_from: str = "") -> str:
        """Sign with the next key from now on, and return its id; older tokens stay valid.

        If `away_from` is given and is not the current signing key, nothing changes.
        """
        ...

    async def raise_epoch(
        self, tenant: str, agent: str, *, epoch: int, closed: bool = False
    ) -> None:
        """Revoke every token of the agent with a smaller epoch.

        With `closed`, no token is issued either.  A call with a smaller epoch than the last one
        changes nothing.  A call with the same epoch can close the agent and never opens it.
        """
        ...
