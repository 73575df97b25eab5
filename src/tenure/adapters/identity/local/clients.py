"""Clients: reads specs and registrations, and turns them into rows of table `client`.

The plane's spec sets the maximum of scopes, audiences and grants.  The client's own registration
sets its keys and may narrow the scopes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from tenure.core.errors import Invalid
from tenure.core.records.table import TableShape
from tenure.ports.identity import Document
from tenure.ports.provider import Spec
from tenure.ports.store import Row, Value

CLIENT = TableShape(
    ("id",),
    ("tenant", "agent", "name", "scopes", "audiences", "grants", "jwks", "jwks_from", "asked",
     "edition", "made_at"),
)  # fmt: skip
GRANT = "client_credentials"
METHOD = "private_key_jwt"
BY_SPEC, BY_REGISTRATION, BY_NOBODY = "spec", "registration", ""

NAME_CHARACTERS_MAX = 255
SCOPES_MAX = 4_096
"""64 credentials with 64 scopes each; a token is bounded by its own limit."""
SCOPE_CHARACTERS_MAX = 128
AUDIENCES_MAX = 32
AUDIENCE_CHARACTERS_MAX = 512
METADATA_MEMBERS_MAX = 64

_FIELDS = ("name", "owner", "jwks", "grant_types", "scopes", "audiences")
_ID = re.compile(r"[a-z][a-z0-9]{0,39}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_NOT_SENT = (
    "registration_access_token",
    "registration_client_uri",
    "client_secret_expires_at",
    "client_id_issued_at",
)
"""Fields that an update may not contain (RFC 7592, section 2.2)."""


class DesiredClient(NamedTuple):
    """A valid spec: the columns that it sets, and its key set (None without one)."""

    columns: Mapping[str, Value]
    jwks: object


def read_spec(spec: Spec, client_id: str) -> DesiredClient:
    """Read a spec; Invalid names the field."""
    unknown = sorted(set(spec) - set(_FIELDS))
    if unknown:
        raise Invalid(f"identity has no field {unknown[0][:64]!r}; it has {', '.join(_FIELDS)}")
    name = _text(spec.get("name", client_id), "identity.name")
    if spec.get("owner", "") != "":  # stored in the spec only, and optional
        _text(spec["owner"], "identity.owner")
    scopes = _scopes(spec.get("scopes", ()), "identity.scopes")
    grants = _list(spec.get("grant_types", (GRANT,)), "identity.grant_types", most=1)
    if grants not in ((), (GRANT,)):
        raise Invalid(f"identity.grant_types may hold {GRANT!r} alone")
    audiences = _list(spec.get("audiences", ()), "identity.audiences", most=AUDIENCES_MAX)
    for audience in audiences:
        if not is_resource(audience):
            raise Invalid("identity.audiences must be absolute URIs without a fragment")
    columns: dict[str, Value] = {
        "name": name,
        "scopes": " ".join(scopes),
        "audiences": json.dumps(audiences),
        "grants": " ".join(grants),
    }
    return DesiredClient(columns, spec.get("jwks"))


class ClientRegistration(NamedTuple):
    """A valid registration: the key set, and the scopes (None: all that the spec allows)."""

    jwks: object
    requested_scopes: str | None


def read_registration(metadata: Document, client: Row, *, update: bool) -> ClientRegistration:
    """Read a client's own metadata (RFC 7591); Invalid names the field.

    Unknown fields are ignored, as the RFC requires; their number is bounded.
    """
    if len(metadata) > METADATA_MEMBERS_MAX:
        raise Invalid(f"the metadata have more than {METADATA_MEMBERS_MAX} members")
    if update:
        if metadata.get("client_id") != client["id"]:
            raise Invalid("client_id must be the client's own")
        for name in _NOT_SENT:
            if name in metadata:
                raise Invalid(f"{name} may not be sent")
    if metadata.get("token_endpoint_auth_method", METHOD) != METHOD:
        raise Invalid(f"token_endpoint_auth_method must be {METHOD}")
    if metadata.get("grant_types", [GRANT]) != [GRANT]:
        raise Invalid(f"grant_types may hold {GRANT!r} alone")
    for name in ("response_types", "redirect_uris"):
        if metadata.get(name, []) != []:
            raise Invalid(f"{name} must be empty: this client has no user agent")
    if "jwks_uri" in metadata:
        raise Invalid("jwks_uri is not fetched: send jwks")
    if "jwks" not in metadata:
        raise Invalid("jwks is missing: a client proves itself by a key")
    requested_scopes = metadata.get("scope")
    if requested_scopes is None:
        return ClientRegistration(metadata["jwks"], None)
    if not isinstance(requested_scopes, str):
        raise Invalid("scope must be text")
    scopes = _scopes(requested_scopes.split(" ") if requested_scopes else (), "scope")
    if not set(scopes) <= set(str(client["scopes"]).split()):
        raise Invalid("scope goes beyond what this client may have")
    return ClientRegistration(metadata["jwks"], " ".join(scopes))


def scopes_of(client: Row) -> tuple[str, ...]:
    """The scopes that tokens of this client may have: its spec's, narrowed by its registration."""
    ceiling = str(client["scopes"]).split()
    if client["asked"] is None:
        return tuple(ceiling)
    requested_scopes = str(client["asked"]).split()
    return tuple(scope for scope in ceiling if scope in requested_scopes)


def audiences_of(client: Row, issuer: str) -> tuple[str, ...]:
    """The audiences of this client's tokens: this server, and those of its spec."""
    return (issuer, *json.loads(str(client["audiences"])))


def document_of(client: Row) -> dict[str, object]:
    """The client's current metadata (RFC 7591)."""
    made_at = client["made_at"]
    return {
        "client_id": client["id"],
        "client_id_issued_at": int(made_at) if isinstance(made_at, float) else 0,
        "client_name": client["name"],
        "token_endpoint_auth_method": METHOD,
        "grant_types": str(client["grants"]).split(),
        "response_types": [],
        "scope": " ".join(scopes_of(client)),
        "jwks": {"keys": list(keys_of(client).values())},
    }


def keys_of(client: Row) -> dict[str, dict[str, str]]:
    """The client's public keys by id; none before its first registration."""
    found: dict[str, dict[str, str]] = json.loads(str(client["jwks"])) if client["jwks"] else {}
    return found


def is_client_id(value: object) -> bool:
    """Whether this can be a client's id, which is the text of a resource key."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_resource(value: str) -> bool:
    """Whether this can be a token's audience: an absolute URI without a fragment (RFC 8707)."""
    if len(value) > AUDIENCE_CHARACTERS_MAX or not value.isascii() or not value.isprintable():
        return False
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    if " " in value or "#" in value or "@" in parts.netloc:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path))


def _scopes(value: object, what: str) -> tuple[str, ...]:
    scopes = _list(value, what, most=SCOPES_MAX)
    for scope in scopes:
        if not _SCOPE.fullmatch(scope) or len(scope) > SCOPE_CHARACTERS_MAX:
            raise Invalid(
                f"{what} must be words of 1 to {SCOPE_CHARACTERS_MAX} printable characters"
            )
    return scopes


def _list(value: object, what: str, *, most: int) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise Invalid(f"{what} must be a list")
    if len(value) > most:
        raise Invalid(f"{what} has {len(value)} entries; {most} is the most")
    texts = tuple(one for one in value if isinstance(one, str))
    if len(texts) != len(value):
        raise Invalid(f"{what} must hold text alone")
    if len(set(texts)) != len(texts):
        raise Invalid(f"{what} has an entry twice")
    return texts


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise Invalid(f"{what} must be text of 1 to {NAME_CHARACTERS_MAX} characters")
    if not value.isprintable():  # a lone surrogate is not
        raise Invalid(f"{what} has a character that is not printable")
    return value
