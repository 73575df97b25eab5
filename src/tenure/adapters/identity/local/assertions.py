"""Client assertions (RFC 7523): what a client signs to prove that it is itself.

Until the signature is known to be good the answer is one and the same sentence, so that nobody
learns from it which clients or keys there are.
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
"""What an assertion may call itself; an access token (`at+jwt`) is none."""

UNPROVEN = OAuthRefusal(OAuthError.INVALID_CLIENT, "The client is not known by this proof.")


class Proof(NamedTuple):
    """What a good assertion leaves: who it was, and what may not be used again until when."""

    client_id: str
    jti: str
    until: float


def claimed_client(compact: "jose.Compact") -> str | None:
    """Who the assertion says it is from: to find the keys, not to be believed."""
    claimed = compact.claims.get("sub")
    if compact.header.get("typ") not in TYPES:
        return None
    if not isinstance(claimed, str) or claimed != compact.claims.get("iss"):
        return None
    return claimed if is_client_id(claimed) else None


def read(
    compact: "jose.Compact", *, audiences: Collection[str], now: float
) -> Proof | OAuthRefusal:
    """What a signed assertion proves now; the signature has been checked."""
    claims = compact.claims
    aud = claims.get("aud")
    named = [aud] if isinstance(aud, str) else aud
    # Every one must be ours: who else it names could send it here in the client's place.
    if (
        not isinstance(named, list)
        or not named
        or not all(isinstance(one, str) and one in audiences for one in named)
    ):
        return _no("The assertion is for another audience.")
    until = _instant(claims, "exp")
    if until is None:
        return _no("The assertion does not say when it ends.")
    if until <= now:
        return _no("The assertion has expired.")
    if until > now + ASSERTION_SECONDS_MAX + SKEW_SECONDS:
        return _no(f"The assertion lasts longer than {ASSERTION_SECONDS_MAX:.0f} seconds.")
    for name in ("nbf", "iat"):
        if name in claims:
            since = _instant(claims, name)
            if since is None or since > now + SKEW_SECONDS:
                return _no("The assertion is not good yet.")
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
