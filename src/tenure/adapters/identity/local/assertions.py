"""Client assertions (RFC 7523): signed statements by which clients authenticate.

Before the signature is verified every refusal has the same sentence, so that callers cannot find
out which clients or keys exist.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tenure.adapters.identity.local.clients import is_client_id
from tenure.adapters.identity.local.signers import SKEW_SECONDS
from tenure.ports.identity import OAuthError, OAuthRefusal

if TYPE_CHECKING:
    from tenure.adapters.identity.local import jose

ASSERTION_SECONDS_MAX = 300.0
JTI_CHARACTERS_MAX = 255
TYPES = (None, "JWT", "jwt", "client-authentication+jwt")
"""Accepted `typ` headers of an assertion; an access token has `at+jwt`."""

UNPROVEN = OAuthRefusal(OAuthError.INVALID_CLIENT, "The client is not known by this proof.")


class Proof(NamedTuple):
    """A verified assertion: its client, and the id that may not be used again until it expires."""

    client_id: str
    jti: str
    until: float


def claimed_client(compact: "jose.Compact") -> str | None:
    """The client id in the assertion, which is not verified yet; for finding its keys."""
    client_id = compact.claims.get("sub")
    if compact.header.get("typ") not in TYPES:
        return None
    if not isinstance(client_id, str) or client_id != compact.claims.get("iss"):
        return None
    return client_id if is_client_id(client_id) else None


def read(
    compact: "jose.Compact", *, audiences: Collection[str], now: float
) -> Proof | OAuthRefusal:
    """Check the claims of an assertion whose signature was verified."""
    claims = compact.claims
    aud = claims.get("aud")
    listed_audiences = [aud] if isinstance(aud, str) else aud
    # Every audience must be ours: another audience could replay the assertion here.
    if (
        not isinstance(listed_audiences, list)
        or not listed_audiences
        or not all(isinstance(one, str) and one in audiences for one in listed_audiences)
    ):
        return _no("The assertion is for another audience.")
    until = _instant(claims, "exp")
    if until is None:
        return _no("The assertion has no expiry.")
    if until <= now:
        return _no("The assertion has expired.")
    if until > now + ASSERTION_SECONDS_MAX + SKEW_SECONDS:
        return _no(f"The assertion lasts longer than {ASSERTION_SECONDS_MAX:.0f} seconds.")
    for name in ("nbf", "iat"):
        if name in claims:
            since = _instant(claims, name)
            if since is None or since > now + SKEW_SECONDS:
                return _no("The assertion is not valid yet.")
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 0 < len(jti) <= JTI_CHARACTERS_MAX or not jti.isprintable():
        return _no("The assertion has no usable jti.")
    return Proof(str(claims["sub"]), jti, until)


def _instant(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _no(sentence: str) -> OAuthRefusal:
    return OAuthRefusal(OAuthError.INVALID_CLIENT, sentence)
