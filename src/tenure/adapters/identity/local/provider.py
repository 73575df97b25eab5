"""`LocalIdentity`: an OAuth client for each agent, and the authorization server for them.

A client's id is the text of its resource key.  There is no client secret: a client authenticates
with a key pair, and its private key never reaches this server.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tenure.adapters.identity.local import clients
from tenure.adapters.identity.local.registrations import Registrations
from tenure.adapters.identity.local.signers import Signers
from tenure.adapters.identity.local.tokens import Tokens
from tenure.core.errors import Invalid, Rejected
from tenure.core.ids import ResourceKey
from tenure.ports.identity import (
    INTROSPECT_PATH,
    JWKS_PATH,
    REGISTER_PATH,
    REVOKE_PATH,
    TOKEN_PATH,
    Document,
)
from tenure.ports.provider import Observation, Presence, Spec
from tenure.ports.store import Drop, Put, Row, Set, Value
from tenure.sqlite.resource_file import GuardOrWrite, ResourceFile

ALGORITHMS = ("RS256", "ES256", "EdDSA", "Ed25519")
"""Algorithms of assertions; repeated here, so that the metadata load no cryptography."""


class LocalIdentity:
    """See `tenure.ports.provider.Provider` and `tenure.ports.identity.Authorization`."""

    def __init__(
        self,
        resources: ResourceFile,
        queries: Mapping[str, str],
        *,
        issuer: str,
        sealing: Path,
        token_seconds: float,
        epoch: Callable[[], int],
    ) -> None:
        self.issuer = issuer
        self._resources = resources
        self._signers = Signers(resources, queries, sealing=sealing)
        tokens = Tokens(
            resources,
            queries,
            signers=self._signers,
            issuer=issuer,
            token_seconds=token_seconds,
            epoch=epoch,
        )
        registrations = Registrations(resources, issuer=issuer)
        self.list_owned = resources.list_owned
        self.close = resources.close
        self.token = tokens.token
        self.authenticate = tokens.authenticate
        self.introspect = tokens.introspect
        self.revoke = tokens.revoke
        self.raise_epoch = tokens.raise_epoch
        self.invite = registrations.invite
        self.register = registrations.register
        self.read_client = registrations.read_client
        self.update_client = registrations.update_client
        self.withdraw_client = registrations.withdraw_client
        self.rotate = self._signers.rotate
        self.signing_key = self._signers.signing_key

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Create or converge the agent's client; keys that it has registered itself stay."""
        try:
            desired = clients.read_spec(spec, key.text)
            jwks = None if desired.jwks is None else await _keys(desired.jwks)
        except Invalid as error:
            await self._resources.refuse(key, f"{error}.")

        def extra_changes(before: Row | None) -> Sequence[GuardOrWrite]:
            client = self._resources.find("client", (key.text,))
            if before is not None and client is None:  # its keys and its edition cannot be restored
                raise Rejected(f"The client of {key.text} was deleted and cannot be made again.")
            row: dict[str, Value] = {**desired.columns}
            if jwks is not None:
                row |= {"jwks": jwks, "jwks_from": clients.BY_SPEC}
            elif client is None or client["jwks_from"] == clients.BY_SPEC:
                row |= {"jwks": None, "jwks_from": clients.BY_NOBODY}
            if client is not None:
                return (Set("client", (key.text,), row),)
            row |= {"tenant": key.tenant, "agent": key.agent, "made_at": self._resources.now()}
            return (Put("client", (key.text,), {**row, "asked": None, "edition": 0}),)

        return await self._resources.ensure(
            key,
            spec,
            reference=lambda: {"client_id": key.text, "issuer": self.issuer},
            extra_changes=extra_changes,
        )

    async def inspect(self, key: ResourceKey) -> Observation:
        """The state of this key; a resource without its client is broken."""
        observation = await self._resources.inspect(key)
        if observation.presence is Presence.READY and not self._resources.find(
            "client", (key.text,)
        ):
            return observation._replace(presence=Presence.BROKEN)
        return observation

    async def remove(self, key: ResourceKey) -> None:
        """Remove the client and its permit; its tokens become inactive."""
        drops = (Drop("client", (key.text,)), Drop("permit", (key.text,)))
        await self._resources.remove(key, extra_changes=lambda _: drops)

    def metadata(self) -> Document:
        """The metadata of this authorization server (RFC 8414)."""
        return {
            "issuer": self.issuer,
            "token_endpoint": self.issuer + TOKEN_PATH,
            "registration_endpoint": self.issuer + REGISTER_PATH,
            "introspection_endpoint": self.issuer + INTROSPECT_PATH,
            "revocation_endpoint": self.issuer + REVOKE_PATH,
            "jwks_uri": self.issuer + JWKS_PATH,
            "grant_types_supported": [clients.GRANT],
            "response_types_supported": [],
            **{
                f"{endpoint}_endpoint_auth_{property_name}_supported": list(values)
                for endpoint in ("token", "introspection", "revocation")
                for property_name, values in (
                    ("methods", (clients.METHOD,)),
                    ("signing_alg_values", ALGORITHMS),
                )
            },
        }

    async def jwks(self) -> Document:
        """The public keys that tokens are checked with."""
        return {"keys": [dict(one) for one in await self._signers.list_public_keys()]}


async def _keys(jwks: object) -> str:
    """A spec's key set in its stored form; Invalid names the problem."""

    def read() -> str:
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        return json.dumps(jose.read_keys(jwks, "identity.jwks"))

    return await asyncio.to_thread(read)
