"""The cryptography of the provider, with joserfc: signs, verifies and seals, and reads keys.

The import takes a fifth of a second, so it happens at first use.  A signature is verified only with
an algorithm of its key, never with one that the token names; `none` and symmetric keys are refused.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

from joserfc import jwe, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from tenure.core.errors import Invalid

SIGNED_WITH = "RS256"
"""The algorithm of access tokens; it verifies twice as fast as the others."""
SIGNER_BITS = 2_048
TOKEN_CHARACTERS_MAX = 16_384
KEYS_MAX = 8
KID_CHARACTERS_MAX = 128
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 4_096
RSA_EXPONENT_BYTES_MAX = 4
"""A large exponent would make every verification slow."""

Key = RSAKey | ECKey | OKPKey

_MEMBERS = {
    "RSA": ("n", "e"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}
_CURVES = {"EC": "P-256", "OKP": "Ed25519"}
_ALGORITHMS = {"RSA": ("RS256",), "EC": ("ES256",), "OKP": ("EdDSA", "Ed25519")}
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_SEAL_ALGORITHMS = ("dir", "A256GCM")

ALGORITHMS = tuple(name for names in _ALGORITHMS.values() for name in names)
"""The algorithms with which a client may sign its assertions."""


class Compact(NamedTuple):
    """The parts of a signed token, not verified yet."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signing_input: bytes
    signature: bytes


def parse_compact(token: str) -> Compact | None:
    """Parse a compact token; None if it is invalid or has a name twice."""
    match = _COMPACT.fullmatch(token) if len(token) <= TOKEN_CHARACTERS_MAX else None
    if match is None:
        return None
    try:
        header, claims = _object(_bytes(match[1])), _object(_bytes(match[2]))
        signature = _bytes(match[3])
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
    # Critical extensions are not supported, and a header may not change the payload.
    if "crit" in header or "b64" in header:
        return None
    return Compact(header, claims, f"{match[1]}.{match[2]}".encode(), signature)


def is_signed(compact: Compact, key: Key) -> bool:
    """Whether this key has signed the token, with an algorithm of the key's type."""
    name = compact.header.get("alg")
    if not isinstance(name, str) or name not in _ALGORITHMS[key.key_type]:
        return False
    algorithm = JWSRegistry.algorithms[name]
    try:
        algorithm.check_key(key)
        return bool(algorithm.verify(compact.signing_input, compact.signature, key))
    except (JoseError, ValueError):
        return False


def sign(key: Key, kid: str, claims: Mapping[str, object]) -> str:
    """Return a signed access token (RFC 9068)."""
    header = {"alg": SIGNED_WITH, "typ": "at+jwt", "kid": kid}
    return jwt.encode(header, dict(claims), key, algorithms=[SIGNED_WITH])


# ------------------------------------------------------------------------------------ clients' keys


def read_keys(jwks: object, what: str) -> dict[str, dict[str, str]]:
    """Read a client's public keys, by id; Invalid names the field.

    A private key is refused, and its value is not in the error text.
    """
    listed = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(listed, list | tuple) or not 1 <= len(listed) <= KEYS_MAX:
        raise Invalid(f"{what} must be a key set with 1 to {KEYS_MAX} keys")
    found: dict[str, dict[str, str]] = {}
    for number, one in enumerate(listed):
        key = _read_key(one, f"{what}.keys[{number}]")
        if key["kid"] in found:
            raise Invalid(f"{what}.keys[{number}].kid occurs twice")
        found[key["kid"]] = key
    return found


def load_key(public: Mapping[str, str]) -> Key:
    """Load a public key that verifies signatures."""
    value: dict[str, Any] = {**public}
    match public["kty"]:
        case "RSA":
            return RSAKey.import_key(value)
        case "EC":
            return ECKey.import_key(value)
        case _:
            return OKPKey.import_key(value)


def _read_key(one: object, where: str) -> dict[str, str]:
    if not isinstance(one, Mapping):
        raise Invalid(f"{where} must be a key")
    if any(member in one for member in _PRIVATE):
        raise Invalid(f"{where} has a private key: send the public one, and create a new pair")
    kty, kid = one.get("kty"), one.get("kid")
    if not isinstance(kty, str) or kty not in _MEMBERS:
        raise Invalid(f"{where}.kty must be RSA, EC or OKP")
    if not isinstance(kid, str) or not 0 < len(kid) <= KID_CHARACTERS_MAX:
        raise Invalid(f"{where}.kid must be text of 1 to {KID_CHARACTERS_MAX} characters")
    key = {"kty": kty, "kid": kid}
    for member in _MEMBERS[kty]:
        value = one.get(member)
        if not isinstance(value, str):
            raise Invalid(f"{where}.{member} must be text")
        key[member] = value
    if key.get("crv") != _CURVES.get(kty):
        raise Invalid(f"{where}.crv must be {_CURVES[kty]}")
    if one.get("use", "sig") != "sig":
        raise Invalid(f"{where}.use must be sig")
    if one.get("alg", _ALGORITHMS[kty][0]) not in _ALGORITHMS[kty]:
        raise Invalid(f"{where}.alg must be {' or '.join(_ALGORITHMS[kty])}")
    if kty == "RSA" and len(key["e"]) > (RSA_EXPONENT_BYTES_MAX * 8 + 5) // 6:
        raise Invalid(f"{where}.e is too large")
    try:
        if kty == "RSA":
            bits = int.from_bytes(_bytes(key["n"]), "big").bit_length()
            if not RSA_BITS_MIN <= bits <= RSA_BITS_MAX:
                sizes = f"{RSA_BITS_MIN} to {RSA_BITS_MAX}"
                raise Invalid(f"{where} has {bits} bits; {sizes} are accepted")
        load_key(key)
    except (JoseError, ValueError, TypeError):
        raise Invalid(f"{where} is not an {kty} key") from None
    return key


# ---------------------------------------------------------------------------------------- our keys


class NewSigner(NamedTuple):
    """A new signing key: its id, its public key, and its sealed private key."""

    kid: str
    public: str
    sealed: str


def make_signer(sealing: bytes) -> NewSigner:
    """Create a signing key; slow, so call it on a thread."""
    key = RSAKey.generate_key(SIGNER_BITS)
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": SIGNED_WITH}
    private = json.dumps(key.as_dict(private=True))
    # The header is authenticated, so a sealed key opens only under its own id.
    header = {"alg": _SEAL_ALGORITHMS[0], "enc": _SEAL_ALGORITHMS[1], "kid": kid}
    sealed = jwe.encrypt_compact(
        header, private, OctKey.import_key(sealing), algorithms=_SEAL_ALGORITHMS
    )
    return NewSigner(kid, json.dumps(public, sort_keys=True), sealed)


def unseal_signer(sealing: bytes, kid: str, ciphertext: str) -> Key:
    """Open a sealed private key; Invalid if it was sealed under another id or with another key."""
    try:
        decrypted = jwe.decrypt_compact(
            ciphertext, OctKey.import_key(sealing), algorithms=_SEAL_ALGORITHMS
        )
        content = decrypted.plaintext if decrypted.protected.get("kid") == kid else None
        if content is None:
            raise Invalid("A signing key was sealed under another id.")
        return RSAKey.import_key(_object(content))
    except (JoseError, ValueError):
        raise Invalid("A signing key does not open with the sealing key beside it.") from None


# ----------------------------------------------------------------------------------- strict parsing


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _object(content: bytes) -> dict[str, Any]:
    value = json.loads(
        content.decode(), object_pairs_hook=_unique_names, parse_constant=_no_constant
    )
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 (callers know one error)
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
