"""Access tokens: issued to authenticated clients, valid until they expire or are invalidated.

A token is valid while its client exists, its epoch is the agent's, its edition is the client's, it
is not revoked, and the plane was not restored since.  All but the last are rows, read at each
check.  Between the last read and the signature no other code runs, so no token is issued after a
change that would invalidate it was acknowledged.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenure.adapters.identity.local import assertions, clients
from tenure.adapters.identity.local.signers import Signers
from tenure.core.errors import Unavailable
from tenure.core.records.table import TableShape
from tenure.ports.identity import (
    ASSERTION_TYPE,
    TOKEN_PATH,
    Document,
    Fields,
    OAuthError,
    OAuthRefusal,
    TokenRequester,
)
from tenure.ports.store import Change, Drop, Is, Put, Row, Set
from tenure.sqlite.resource_file import ATTEMPTS_MAX, ResourceFile

if TYPE_CHECKING:
    from tenure.adapters.identity.local import jose

USED = TableShape(("client", "jti"), ("until",))
REVOKED = TableShape(("jti",), ("tenant", "until"))
EPOCH = TableShape(("tenant", "agent"), ("epoch", "closed"))

TOKEN_SECONDS = 300.0
SWEEP_EVERY = 16
"""Assertions between two deletions of expired rows; each deletes more rows than were added."""
SWEEP_ROWS = 64
SCOPE_CHARACTERS_MAX = 4_096
"""Length of a token's scope; a longer token would not fit into headers everywhere."""
CACHED_CLIENTS_MAX = 10_000
"""Clients whose parsed keys are cached."""

_INACTIVE: Document = {"active": False}
_ASSERTION_REPLAYED = OAuthRefusal(OAuthError.INVALID_CLIENT, "The assertion was used before.")


class Tokens:
    """The token, introspection and revocation endpoints."""

    def __init__(
        self,
        resources: ResourceFile,
        queries: Mapping[str, str],
        *,
        signers: Signers,
        issuer: str,
        token_seconds: float,
        epoch: Callable[[], int],
    ) -> None:
        self._resources = resources
        self._queries = queries
        self._signers = signers
        self._issuer = issuer
        self._token_seconds = int(token_seconds)
        self._plane_epoch = epoch
        self._keys: dict[tuple[str, str], dict[str, jose.Key]] = {}
        self._proofs = 0

    # ------------------------------------------------------------------------------ authentication

    async def authenticate(self, fields: Fields, *, endpoint: str) -> TokenRequester | OAuthRefusal:
        """Verify the client's assertion and record it as used."""
        if "client_secret" in fields:
            return OAuthRefusal(
                OAuthError.INVALID_CLIENT, f"Clients prove themselves by {clients.METHOD}."
            )
        if fields.get("client_assertion_type") != ASSERTION_TYPE:
            return OAuthRefusal(
                OAuthError.INVALID_CLIENT, f"client_assertion_type must be {ASSERTION_TYPE}."
            )
        proof = self._prove(fields, endpoint)
        if isinstance(proof, OAuthRefusal):
            return proof
        self._proofs += 1
        expired_drops = self._expired_assertions() if self._proofs % SWEEP_EVERY == 0 else ()
        used = Put("used", (proof.client_id, proof.jti), {"until": proof.until})
        if (
            await self._resources.commit(Change("", (), (used, *expired_drops), is_new_work=True))
            is not None
        ):
            return _ASSERTION_REPLAYED
        client = self._resources.find("client", (proof.client_id,))
        if client is None:
            return assertions.UNPROVEN
        return TokenRequester(str(client["tenant"]), proof.client_id)

    def _prove(self, fields: Fields, endpoint: str) -> assertions.Proof | OAuthRefusal:
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        compact = jose.parse_compact(fields.get("client_assertion", ""))
        claimed = assertions.claimed_client(compact) if compact is not None else None
        if compact is None or claimed is None:
            return assertions.UNPROVEN
        if fields.get("client_id", claimed) != claimed:
            return assertions.UNPROVEN
        client = self._resources.find("client", (claimed,))
        kid = compact.header.get("kid")
        key = self._client_keys(client).get(kid) if client and isinstance(kid, str) else None
        if key is None or not jose.is_signed(compact, key):
            return assertions.UNPROVEN
        audiences = (self._issuer, self._issuer + endpoint, self._issuer + TOKEN_PATH)
        return assertions.read(compact, audiences=audiences, now=self._resources.now())

    def _client_keys(self, client: Row) -> "dict[str, jose.Key]":
        """The client's parsed keys, cached."""
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        known = (str(client["id"]), str(client["jwks"]))
        keys = self._keys.get(known)
        if keys is None:
            if len(self._keys) >= CACHED_CLIENTS_MAX:
                self._keys.clear()
            keys = {kid: jose.load_key(one) for kid, one in clients.keys_of(client).items()}
            self._keys[known] = keys
        return keys

    def _expired_assertions(self) -> tuple[Drop, ...]:
        requested = {"now": self._resources.now(), "limit": SWEEP_ROWS}
        rows = self._resources.read(self._queries["list_used_up"], requested)
        return tuple(Drop("used", (client, jti)) for client, jti in rows)

    # -------------------------------------------------------------------------------------- minting

    async def token(self, fields: Fields) -> Document | OAuthRefusal:
        """An access token by client_credentials, the only grant there is."""
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        grant = fields.get("grant_type")
        if grant is None:
            return OAuthRefusal(OAuthError.INVALID_REQUEST, "grant_type is missing.")
        if grant != clients.GRANT:
            return OAuthRefusal(
                OAuthError.UNSUPPORTED_GRANT_TYPE, f"grant_type must be {clients.GRANT}."
            )
        requester = await self.authenticate(fields, endpoint=TOKEN_PATH)
        if isinstance(requester, OAuthRefusal):
            return requester
        keys = await self._signers.ready()
        # From here to the signature no other code runs.
        client = self._resources.find("client", (requester.client_id,))
        if client is None:
            return assertions.UNPROVEN
        claims = self._claims(client, fields)
        if isinstance(claims, OAuthRefusal):
            return claims
        return {
            "access_token": jose.sign(keys.private, keys.kid, claims),
            "token_type": "Bearer",
            "expires_in": self._token_seconds,
            "scope": claims["scope"],
        }

    def _claims(self, client: Row, fields: Fields) -> dict[str, object] | OAuthRefusal:
        """The claims of a new token for this client."""
        tenant, agent = str(client["tenant"]), str(client["agent"])
        epoch, closed = self._epoch(tenant, agent)
        if closed:
            return OAuthRefusal(
                OAuthError.UNAUTHORIZED_CLIENT, "The agent is closed: no token is issued."
            )
        if clients.GRANT not in str(client["grants"]).split():
            return OAuthRefusal(
                OAuthError.UNAUTHORIZED_CLIENT, "The client may not use this grant."
            )
        allowed = clients.scopes_of(client)
        requested = fields.get("scope")
        scopes = allowed if requested is None else tuple(dict.fromkeys(requested.split(" ")))
        if not set(scopes) <= set(allowed):
            return OAuthRefusal(
                OAuthError.INVALID_SCOPE, "The scope goes beyond what this client may have."
            )
        if len(" ".join(scopes)) > SCOPE_CHARACTERS_MAX:
            return OAuthRefusal(
                OAuthError.INVALID_SCOPE, "The scope is too long for one token: request less."
            )
        audience = fields.get("resource", fields.get("audience", self._issuer))
        if fields.get("audience", audience) != audience:
            return OAuthRefusal(OAuthError.INVALID_TARGET, "resource and audience differ.")
        if audience not in clients.audiences_of(client, self._issuer):
            return OAuthRefusal(
                OAuthError.INVALID_TARGET, "The client may not ask for this resource."
            )
        now = int(self._resources.now())
        return {
            "iss": self._issuer,
            "sub": client["id"],
            "client_id": client["id"],
            "aud": audience,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + self._token_seconds,
            "jti": secrets.token_urlsafe(16),
            "tenant": tenant,
            "agent": agent,
            "epoch": epoch,
            "edition": client["edition"],
            "plane_epoch": self._plane_epoch(),
        }

    # ------------------------------------------------------------------------------ good or ended

    async def introspect(self, token: str, *, requester: TokenRequester) -> Document:
        """The claims of a token, if it is valid and of the caller's tenant."""
        claims = await self._examine(token)
        if claims is None or claims["tenant"] != requester.tenant:
            return _INACTIVE
        names = ("iss", "sub", "client_id", "aud", "scope", "iat", "exp", "jti", "tenant", "agent",
                 "epoch")  # fmt: skip
        return {"active": True, "token_type": "Bearer", **{name: claims[name] for name in names}}

    async def revoke(self, token: str, *, requester: TokenRequester) -> None:
        """Record the token as revoked until its expiry."""
        claims = await self._examine(token)
        if claims is None or claims["tenant"] != requester.tenant:
            return
        if requester.client_id and requester.client_id != claims["client_id"]:
            return
        expired = self._resources.read(
            self._queries["list_expired"], {"now": self._resources.now(), "limit": SWEEP_ROWS}
        )
        jti, until = str(claims["jti"]), float(str(claims["exp"]))
        row = Put("revoked", (jti,), {"tenant": requester.tenant, "until": until})
        # If the row exists already, the token is revoked already.
        expired_drops = tuple(Drop("revoked", (one,)) for (one,) in expired)
        await self._resources.commit(Change("", (), (row, *expired_drops)))

    async def _examine(self, token: str) -> dict[str, object] | None:
        """The claims of a valid token; its scope is narrowed to the client's current scopes."""
        keys = await self._signers.ready()
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        compact = jose.parse_compact(token)
        if compact is None or compact.header.get("typ") != "at+jwt":
            return None
        key = self._signers.verifier(keys, compact.header.get("kid"))
        if key is None or not jose.is_signed(compact, key):
            return None
        claims = dict(compact.claims)  # signed by us, so of our shape
        if claims["iss"] != self._issuer or claims["exp"] <= self._resources.now():
            return None
        if claims.get("plane_epoch", 1) != self._plane_epoch():
            return None
        client = self._resources.find("client", (claims["client_id"],))
        if client is None or client["edition"] != claims["edition"]:
            return None
        epoch, _ = self._epoch(claims["tenant"], claims["agent"])
        if claims["epoch"] < epoch or self._resources.find("revoked", (claims["jti"],)) is not None:
            return None
        if claims["aud"] not in clients.audiences_of(client, self._issuer):
            return None
        allowed = clients.scopes_of(client)
        claims["scope"] = " ".join(one for one in claims["scope"].split() if one in allowed)
        return claims

    # ---------------------------------------------------------------------------------------- epoch

    async def raise_epoch(
        self, tenant: str, agent: str, *, epoch: int, closed: bool = False
    ) -> None:
        """Store the agent's epoch, unless a later one is stored."""
        key = (tenant, agent)
        for _ in range(ATTEMPTS_MAX):
            row = self._resources.find("epoch", key)
            row_now = {"epoch": epoch, "closed": int(closed)}
            if row is None:
                change = Change("", (), (Put("epoch", key, row_now),))
            else:
                last = (int(str(row["epoch"])), int(str(row["closed"])))
                if (epoch, int(closed)) <= last:
                    return
                before = {"epoch": row["epoch"], "closed": row["closed"]}
                change = Change("", (Is("epoch", key, before),), (Set("epoch", key, row_now),))
            if await self._resources.commit(change) is None:
                return
        raise Unavailable("Too many concurrent changes of one epoch: it was not raised.")

    def _epoch(self, tenant: str, agent: str) -> tuple[int, bool]:
        row = self._resources.find("epoch", (tenant, agent))
        return (int(str(row["epoch"])), bool(row["closed"])) if row is not None else (0, False)
