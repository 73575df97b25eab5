"""Access tokens: minted for a client that proves itself, good until they end or are ended.

A token is good while its client is there, its epoch is the agent's, its edition the client's,
nobody has revoked it and the plane was not restored since; all but the last are rows, read at each
question.  Between the last look at them and the signature nothing else runs, so no token is minted
after what ended it was acknowledged.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenure.adapters.identity.local import assertions, clients
from tenure.adapters.identity.local.signers import Signers
from tenure.core.errors import Unavailable
from tenure.ports.identity import (
    ASSERTION_TYPE,
    TOKEN_PATH,
    Asker,
    Document,
    Fields,
    OAuthError,
    OAuthRefusal,
)
from tenure.ports.store import Change, Drop, Is, Put, Row, Set, Shape
from tenure.sqlite.holdings import ATTEMPTS_MAX, Holdings

if TYPE_CHECKING:
    from tenure.adapters.identity.local import jose

USED = Shape(("client", "jti"), ("until",))
REVOKED = Shape(("jti",), ("tenant", "until"))
EPOCH = Shape(("tenant", "agent"), ("epoch", "closed"))

TOKEN_SECONDS = 300.0
SWEEP_EVERY = 16
"""Assertions between two looks for expired rows; each look takes away more than came since."""
SWEEP_ROWS = 64
SCOPE_CHARACTERS_MAX = 4_096
"""What one token may say of its scope, so that it can be sent and read everywhere."""
KEYS_KEPT = 10_000
"""Clients whose keys are held ready."""

_INACTIVE: Document = {"active": False}
_REPLAYED = OAuthRefusal(OAuthError.INVALID_CLIENT, "The assertion was used before.")


class Tokens:
    """What clients ask of the server once they are registered."""

    def __init__(
        self,
        holdings: Holdings,
        queries: Mapping[str, str],
        *,
        signers: Signers,
        issuer: str,
        token_seconds: float,
        epoch: Callable[[], int],
    ) -> None:
        self._holdings = holdings
        self._queries = queries
        self._signers = signers
        self._issuer = issuer
        self._token_seconds = int(token_seconds)
        self._plane_epoch = epoch
        self._keys: dict[tuple[str, str], dict[str, jose.Key]] = {}
        self._proofs = 0

    # ------------------------------------------------------------------------------ authentication

    async def authenticate(self, fields: Fields, *, endpoint: str) -> Asker | OAuthRefusal:
        """Check the client's assertion and use it up."""
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
        swept = self._used_up() if self._proofs % SWEEP_EVERY == 0 else ()
        used = Put("used", (proof.client_id, proof.jti), {"until": proof.until})
        if await self._holdings.commit(Change("", (), (used, *swept), admits=True)) is not None:
            return _REPLAYED
        client = self._holdings.find("client", (proof.client_id,))
        if client is None:
            return assertions.UNPROVEN
        return Asker(str(client["tenant"]), proof.client_id)

    def _prove(self, fields: Fields, endpoint: str) -> assertions.Proof | OAuthRefusal:
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        compact = jose.take_apart(fields.get("client_assertion", ""))
        claimed = assertions.claimed_client(compact) if compact is not None else None
        if compact is None or claimed is None:
            return assertions.UNPROVEN
        if fields.get("client_id", claimed) != claimed:
            return assertions.UNPROVEN
        client = self._holdings.find("client", (claimed,))
        kid = compact.header.get("kid")
        key = self._client_keys(client).get(kid) if client and isinstance(kid, str) else None
        if key is None or not jose.is_signed(compact, key):
            return assertions.UNPROVEN
        ours = (self._issuer, self._issuer + endpoint, self._issuer + TOKEN_PATH)
        return assertions.read(compact, audiences=ours, now=self._holdings.now())

    def _client_keys(self, client: Row) -> "dict[str, jose.Key]":
        """The client's keys, ready to check with."""
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        known = (str(client["id"]), str(client["jwks"]))
        keys = self._keys.get(known)
        if keys is None:
            if len(self._keys) >= KEYS_KEPT:
                self._keys.clear()
            loaded = {kid: jose.load_key(one) for kid, one in clients.keys_of(client).items()}
            keys = self._keys[known] = loaded
        return keys

    def _used_up(self) -> tuple[Drop, ...]:
        asked = {"now": self._holdings.now(), "limit": SWEEP_ROWS}
        rows = self._holdings.read(self._queries["list_used_up"], asked)
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
        asker = await self.authenticate(fields, endpoint=TOKEN_PATH)
        if isinstance(asker, OAuthRefusal):
            return asker
        loaded = await self._signers.ready()
        # From here to the signature nothing else runs.
        client = self._holdings.find("client", (asker.client_id,))
        if client is None:
            return assertions.UNPROVEN
        claims = self._claims(client, fields)
        if isinstance(claims, OAuthRefusal):
            return claims
        return {
            "access_token": jose.sign(loaded.private, loaded.kid, claims),
            "token_type": "Bearer",
            "expires_in": self._token_seconds,
            "scope": claims["scope"],
        }

    def _claims(self, client: Row, fields: Fields) -> dict[str, object] | OAuthRefusal:
        """What a token for this client says now."""
        tenant, agent = str(client["tenant"]), str(client["agent"])
        epoch, closed = self._epoch(tenant, agent)
        if closed:
            return OAuthRefusal(
                OAuthError.UNAUTHORIZED_CLIENT, "The agent is closed: nothing is minted."
            )
        if clients.GRANT not in str(client["grants"]).split():
            return OAuthRefusal(
                OAuthError.UNAUTHORIZED_CLIENT, "The client may not use this grant."
            )
        allowed = clients.scopes_of(client)
        asked = fields.get("scope")
        scopes = allowed if asked is None else tuple(dict.fromkeys(asked.split(" ")))
        if not set(scopes) <= set(allowed):
            return OAuthRefusal(
                OAuthError.INVALID_SCOPE, "The scope goes beyond what this client may have."
            )
        if len(" ".join(scopes)) > SCOPE_CHARACTERS_MAX:
            return OAuthRefusal(
                OAuthError.INVALID_SCOPE, "That is too much for one token: ask for less."
            )
        audience = fields.get("resource", fields.get("audience", self._issuer))
        if fields.get("audience", audience) != audience:
            return OAuthRefusal(OAuthError.INVALID_TARGET, "resource and audience differ.")
        if audience not in clients.audiences_of(client, self._issuer):
            return OAuthRefusal(
                OAuthError.INVALID_TARGET, "The client may not ask for this resource."
            )
        now = int(self._holdings.now())
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

    async def introspect(self, token: str, *, asker: Asker) -> Document:
        """What the token says, if it is good now and of the asker's tenant."""
        claims = await self._examine(token)
        if claims is None or claims["tenant"] != asker.tenant:
            return _INACTIVE
        shown = ("iss", "sub", "client_id", "aud", "scope", "iat", "exp", "jti", "tenant", "agent",
                 "epoch")  # fmt: skip
        return {"active": True, "token_type": "Bearer", **{name: claims[name] for name in shown}}

    async def revoke(self, token: str, *, asker: Asker) -> None:
        """Write the token down as revoked until it would have ended."""
        claims = await self._examine(token)
        if claims is None or claims["tenant"] != asker.tenant:
            return
        if asker.client_id and asker.client_id != claims["client_id"]:
            return
        expired = self._holdings.read(
            self._queries["list_expired"], {"now": self._holdings.now(), "limit": SWEEP_ROWS}
        )
        jti, until = str(claims["jti"]), float(str(claims["exp"]))
        row = Put("revoked", (jti,), {"tenant": asker.tenant, "until": until})
        # That it is there already is as good.
        swept = tuple(Drop("revoked", (one,)) for (one,) in expired)
        await self._holdings.commit(Change("", (), (row, *swept)))

    async def _examine(self, token: str) -> dict[str, object] | None:
        """The claims of a token that is good now; its scope is what is left of it."""
        loaded = await self._signers.ready()
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        compact = jose.take_apart(token)
        if compact is None or compact.header.get("typ") != "at+jwt":
            return None
        key = self._signers.verifier(loaded, compact.header.get("kid"))
        if key is None or not jose.is_signed(compact, key):
            return None
        claims = dict(compact.claims)  # signed by us, so of our shape
        if claims["iss"] != self._issuer or claims["exp"] <= self._holdings.now():
            return None
        if claims.get("plane_epoch", 1) != self._plane_epoch():
            return None
        client = self._holdings.find("client", (claims["client_id"],))
        if client is None or client["edition"] != claims["edition"]:
            return None
        epoch, _ = self._epoch(claims["tenant"], claims["agent"])
        if claims["epoch"] < epoch or self._holdings.find("revoked", (claims["jti"],)) is not None:
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
        """Write the agent's epoch, if it is not older than the last."""
        key = (tenant, agent)
        for _ in range(ATTEMPTS_MAX):
            row = self._holdings.find("epoch", key)
            said = {"epoch": epoch, "closed": int(closed)}
            if row is None:
                change = Change("", (), (Put("epoch", key, said),))
            else:
                last = (int(str(row["epoch"])), int(str(row["closed"])))
                if (epoch, int(closed)) <= last:
                    return
                before = {"epoch": row["epoch"], "closed": row["closed"]}
                change = Change("", (Is("epoch", key, before),), (Set("epoch", key, said),))
            if await self._holdings.commit(change) is None:
                return
        raise Unavailable("Too many raise one epoch at the same time: it was not raised.")

    def _epoch(self, tenant: str, agent: str) -> tuple[int, bool]:
        row = self._holdings.find("epoch", (tenant, agent))
        return (int(str(row["epoch"])), bool(row["closed"])) if row is not None else (0, False)
