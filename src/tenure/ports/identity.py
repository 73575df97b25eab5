"""The identity of agents: an OAuth 2.0 authorization server, as callers ask it.

Every agent's client is a resource of an ordinary `tenure.ports.provider.Provider`; what is here is
asked beside the four verbs.  A refusal is a value in OAuth's own words, since a caller that is told
no is no failure of ours; `Unavailable` and `OutcomeUnknown` are raised as by every provider.
No text of a refusal repeats what the caller sent.
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
"""A form as it was sent: each name once."""
Document = Mapping[str, object]
"""A JSON object."""


class OAuthError(StrEnum):
    """OAuth's words for no (RFC 6749, 7591, 6750, 8707)."""

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
    """A no: the word for machines, and a sentence that repeats nothing of the request."""

    word: OAuthError
    sentence: str


class Invitation(NamedTuple):
    """A one-time right to register keys for a client; `token` is shown here and nowhere else."""

    client_id: str
    token: str
    expires_at: float


class Asker(NamedTuple):
    """Who introspects or revokes: a client of the tenant, or one who administers it (no client)."""

    tenant: str
    client_id: str = ""


class Authorization(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.identity`."""

    @property
    def issuer(self) -> str:
        """The server's name: an origin, which every token carries."""
        ...

    def metadata(self) -> Document:
        """What this server offers (RFC 8414)."""
        ...

    async def jwks(self) -> Document:
        """The public keys of every token that may still be valid, and of those signed next."""
        ...

    async def token(self, fields: Fields) -> Document | OAuthRefusal:
        """An access token for a client that proves itself by a signed assertion (RFC 7523).

        An assertion is good once, also after a crash.
        """
        ...

    async def authenticate(self, fields: Fields, *, endpoint: str) -> Asker | OAuthRefusal:
        """Who sent this form, by its client assertion; `endpoint` is the path it came to."""
        ...

    async def introspect(self, token: str, *, asker: Asker) -> Document:
        """What the token says if it is good now (RFC 7662); to another tenant it never is."""
        ...

    async def revoke(self, token: str, *, asker: Asker) -> None:
        """The token is inactive from now on; one that is not the asker's is left as it is."""
        ...

    async def invite(self, key: ResourceKey, *, nonce: str = "") -> Invitation | OAuthRefusal:
        """A one-time token for this key's client to register its keys; it ends an earlier one.

        The token holds the nonce, a secret of the caller's.  The same nonce gives the same
        invitation again, until that is used or ended by another.  Without one it is random.
        """
        ...

    async def register(self, bearer: str, metadata: Document) -> Document | OAuthRefusal:
        """Register keys with an invitation (RFC 7591), which is used up by it."""
        ...

    async def read_client(self, client_id: str, *, bearer: str) -> Document | OAuthRefusal:
        """What is registered (RFC 7592)."""
        ...

    async def update_client(
        self, client_id: str, *, bearer: str, metadata: Document
    ) -> Document | OAuthRefusal:
        """Replace what is registered (RFC 7592); the bearer's token is replaced too."""
        ...

    async def withdraw_client(self, client_id: str, *, bearer: str) -> OAuthRefusal | None:
        """Take the registration back: its keys are gone and its tokens inactive.

        The client stays as its spec made it: only `remove` of its key removes it.
        """
        ...

    async def signing_key(self) -> str:
        """The id of the key that signs now."""
        ...

    async def rotate(self, *, away_from: str = "") -> str:
        """Sign with the next key from now on; the id of that key.  Older tokens stay valid.

        Nothing is rotated if `away_from` is named and that key does not sign any more.
        """
        ...

    async def raise_epoch(
        self, tenant: str, agent: str, *, epoch: int, closed: bool = False
    ) -> None:
        """Every token of the agent with a smaller epoch is inactive from now on.

        While `closed`, none is minted either.  A smaller epoch than the last changes nothing; the
        same one may close and never opens: only a greater one does.
        """
        ...
