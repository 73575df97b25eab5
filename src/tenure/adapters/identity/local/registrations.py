"""Registration (RFC 7591 and 7592): a client registers its own keys with a short-lived token.

A client has at most one permit.  First it is an invitation, which the plane requests and the first
registration uses up; then it is a registration token, which each update replaces.  Both expire
after five minutes; to change keys later a client needs a new invitation.  Only hashes are stored.
"""

import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256

from tenure.adapters.identity.local import clients
from tenure.core.errors import Invalid, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.records.table import TableShape
from tenure.ports.identity import REGISTER_PATH, Document, Invitation, OAuthError, OAuthRefusal
from tenure.ports.store import Change, Is, Put, Row, Set, Value
from tenure.sqlite.resource_file import ATTEMPTS_MAX, PRESENT, ResourceFile, revision_guard

PERMIT = TableShape(("client",), ("kind", "hash", "until"))
INVITATION, REGISTRATION = "invitation", "registration"
PERMIT_SECONDS = 300.0

_BAD_TOKEN = OAuthRefusal(OAuthError.INVALID_TOKEN, "The token is unknown, used up or over.")
_NO_CLIENT = OAuthRefusal(OAuthError.INVALID_CLIENT, "There is no such client.")

_Writes = Sequence[Put | Set]


class Registrations:
    """Issues permits, and registers clients' keys with them."""

    def __init__(self, resources: ResourceFile, *, issuer: str) -> None:
        self._resources = resources
        self._issuer = issuer

    async def invite(self, key: ResourceKey, *, nonce: str = "") -> Invitation | OAuthRefusal:
        """Issue an invitation for the client of this key; an earlier permit ends."""
        token = f"{key.text}.{nonce}" if nonce else _new_token(key.text)
        until = self._resources.now() + PERMIT_SECONDS

        def decide(resource: Row, client: Row) -> _Writes | OAuthRefusal:
            owner = (key.plane, key.tenant, key.agent)
            if (resource["plane"], resource["tenant"], resource["agent"]) != owner:
                return _NO_CLIENT
            if client["jwks_from"] == clients.BY_SPEC:
                return OAuthRefusal(
                    OAuthError.UNAUTHORIZED_CLIENT, "The client's keys are set by its spec."
                )
            if self._is_permitted(key.text, bearer=token, kind=INVITATION):
                return ()  # it was issued before and is still valid
            return self._permit(key.text, kind=INVITATION, token=token, until=until)

        refusal = await self._amend(key.text, decide)
        if refusal is not None:
            return refusal
        permit = self._resources.find("permit", (key.text,)) or {}
        if permit.get("hash") == _hash(token):
            until = float(str(permit["until"]))
        return Invitation(key.text, token, until)

    async def register(self, bearer: str, metadata: Document) -> Document | OAuthRefusal:
        """Set the client's keys and use up the invitation."""
        return await self._write(
            bearer.partition(".")[0], bearer=bearer, metadata=metadata, kind=INVITATION
        )

    async def read_client(self, client_id: str, *, bearer: str) -> Document | OAuthRefusal:
        """The client's metadata; the registration token stays valid."""
        if not self._is_permitted(client_id, bearer=bearer, kind=REGISTRATION):
            return _BAD_TOKEN
        return self._document(client_id, bearer)

    async def update_client(
        self, client_id: str, *, bearer: str, metadata: Document
    ) -> Document | OAuthRefusal:
        """Replace the client's keys; the bearer gets a new token."""
        return await self._write(client_id, bearer=bearer, metadata=metadata, kind=REGISTRATION)

    async def withdraw_client(self, client_id: str, *, bearer: str) -> OAuthRefusal | None:
        """Drop the client's keys, its tokens and the permit."""

        def decide(_: Row, client: Row) -> _Writes | OAuthRefusal:
            if not self._is_permitted(client_id, bearer=bearer, kind=REGISTRATION):
                return _BAD_TOKEN
            edition = int(str(client["edition"])) + 1
            no_keys: dict[str, Value] = {"jwks": None, "jwks_from": "", "asked": None}
            return (
                Set("client", (client_id,), {**no_keys, "edition": edition}),
                Set("permit", (client_id,), {"hash": "", "until": 0.0}),
            )

        refusal = await self._amend(client_id, decide)
        return _BAD_TOKEN if refusal is _NO_CLIENT else refusal

    async def _write(
        self, client_id: str, *, bearer: str, metadata: Document, kind: str
    ) -> Document | OAuthRefusal:
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        token = _new_token(client_id)

        def decide(_: Row, client: Row) -> _Writes | OAuthRefusal:
            if not self._is_permitted(client_id, bearer=bearer, kind=kind):
                return _BAD_TOKEN
            try:
                update = kind == REGISTRATION
                registration = clients.read_registration(metadata, client, update=update)
                keys = jose.read_keys(registration.jwks, "jwks")
            except Invalid as error:
                return OAuthRefusal(OAuthError.INVALID_CLIENT_METADATA, f"{error}.")
            row = {
                "jwks": json.dumps(keys),
                "jwks_from": clients.BY_REGISTRATION,
                "asked": registration.requested_scopes,
            }
            until = self._resources.now() + PERMIT_SECONDS
            permit = self._permit(client_id, kind=REGISTRATION, token=token, until=until)
            return (Set("client", (client_id,), row), *permit)

        refusal = await self._amend(client_id, decide)
        if refusal is not None:
            return _BAD_TOKEN if refusal is _NO_CLIENT else refusal
        return self._document(client_id, token)

    # ---------------------------------------------------------------------------------------- parts

    async def _amend(
        self, client_id: str, decide: Callable[[Row, Row], _Writes | OAuthRefusal]
    ) -> OAuthRefusal | None:
        """Change rows of an existing client; after a concurrent change `decide` is called again."""
        if not clients.is_client_id(client_id):
            return _NO_CLIENT
        for _ in range(ATTEMPTS_MAX):
            resource = self._resources.find("resource", (client_id,))
            client = self._resources.find("client", (client_id,))
            if resource is None or resource["state"] != PRESENT or client is None:
                return _NO_CLIENT
            decision = decide(resource, client)
            if isinstance(decision, OAuthRefusal):
                return decision
            unchanged, increment = revision_guard(resource)
            guards: tuple[Is, ...] = (unchanged,)
            if await self._resources.commit(Change("", guards, (increment, *decision))) is None:
                return None
        raise Unavailable("Too many concurrent changes of one client: nothing was written.")

    def _permit(self, client_id: str, *, kind: str, token: str, until: float) -> _Writes:
        row: dict[str, Value] = {"kind": kind, "hash": _hash(token), "until": until}
        if self._resources.find("permit", (client_id,)) is None:
            return (Put("permit", (client_id,), row),)
        return (Set("permit", (client_id,), row),)

    def _is_permitted(self, client_id: str, *, bearer: str, kind: str) -> bool:
        is_valid = clients.is_client_id(client_id)
        row = self._resources.find("permit", (client_id,)) if is_valid else None
        if row is None or row["kind"] != kind or float(str(row["until"])) <= self._resources.now():
            return False
        return hmac.compare_digest(str(row["hash"]), _hash(bearer))

    def _document(self, client_id: str, token: str) -> Document | OAuthRefusal:
        client = self._resources.find("client", (client_id,))
        if client is None:
            return _BAD_TOKEN
        return {
            **clients.document_of(client),
            "registration_client_uri": f"{self._issuer}{REGISTER_PATH}/{client_id}",
            "registration_access_token": token,
        }


def _new_token(client_id: str) -> str:
    return f"{client_id}.{secrets.token_urlsafe(32)}"


def _hash(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
