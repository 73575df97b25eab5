"""What a credentials spec may say; whatever else it says is refused with a sentence on the field.

An audience is where a credential will be shown, so it names a place and holds nothing secret: no
user, no query, no fragment.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from tenure.core.errors import Invalid
from tenure.core.limits import CREDENTIALS_MAX, IDENTIFIER_CHARACTERS_MAX, SCOPES_MAX
from tenure.ports.credentials import TTL_SECONDS, TTL_SECONDS_MAX
from tenure.ports.provider import Spec

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
"""A scope token of OAuth 2.0, bounded."""
_AUDIENCE = re.compile(r"https?://[\x21-\x7e]+")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_CHARACTERS = 80


class DesiredCredential(NamedTuple):
    """One credential that was read."""

    audience: str
    scopes: tuple[str, ...]
    ttl_seconds: int


def read(spec: Spec) -> tuple[DesiredCredential, ...]:
    """Read it, or Invalid."""
    _refuse_unknown(spec, ("credentials",), "a credentials spec")
    listed = _list(spec.get("credentials", ()), "credentials", CREDENTIALS_MAX)
    wanted = tuple(_read_one(one, f"credentials[{place}]") for place, one in enumerate(listed))
    _refuse_doubles([one.audience for one in wanted], "credentials")
    return wanted


def _read_one(one: object, field: str) -> DesiredCredential:
    if not isinstance(one, Mapping):
        raise Invalid(f"{field} must be a mapping, not {_shown(one)}")
    _refuse_unknown(one, ("audience", "scopes", "ttl_seconds"), field)
    scopes = _list(one.get("scopes", ()), f"{field}.scopes", SCOPES_MAX)
    named = [_scope(scope, f"{field}.scopes") for scope in scopes]
    _refuse_doubles(named, f"{field}.scopes")
    return DesiredCredential(
        _audience(one.get("audience"), f"{field}.audience"),
        tuple(sorted(named)),
        _ttl(one.get("ttl_seconds", TTL_SECONDS), f"{field}.ttl_seconds"),
    )


def _audience(value: object, field: str) -> str:
    if not isinstance(value, str) or len(value) > IDENTIFIER_CHARACTERS_MAX:
        raise Invalid(f"{field} must be an address of at most {IDENTIFIER_CHARACTERS_MAX} letters")
    try:
        place = urlsplit(value) if _AUDIENCE.fullmatch(value) else None
        host = None if place is None else place.hostname
        _ = None if place is None else place.port  # asked for: it is read only then
    except ValueError:
        place, host = None, None
    if place is None or host is None:
        raise Invalid(f"{field} must be an absolute https:// address")
    if place.scheme == "http" and host not in _LOOPBACK:
        raise Invalid(f"{field} must begin with https:// unless it is on this machine")
    if any(mark in value for mark in "@?#"):
        raise Invalid(f"{field} must name a place alone: no user, query or fragment")
    return value


def _scope(value: object, field: str) -> str:
    if not isinstance(value, str) or _SCOPE.fullmatch(value) is None:
        raise Invalid(
            f"{field}: {_shown(value)} is no scope;"
            " 1 to 128 visible ASCII characters without quote and backslash"
        )
    return value


def _ttl(value: object, field: str) -> int:
    if type(value) is not int or not 1 <= value <= TTL_SECONDS_MAX:
        raise Invalid(f"{field} must be a whole number from 1 to {TTL_SECONDS_MAX}")
    return value


def _list(values: object, field: str, most: int) -> list[object] | tuple[object, ...]:
    if not isinstance(values, list | tuple):
        raise Invalid(f"{field} must be a list, not {_shown(values)}")
    if len(values) > most:
        raise Invalid(f"{field} has {len(values)} entries; {most} is the most")
    return values


def _refuse_unknown(said: Mapping[str, object], known: tuple[str, ...], what: str) -> None:
    for field in said:
        if field not in known:
            raise Invalid(f"{_shown(field)} is no field of {what}: {', '.join(known)}")


def _refuse_doubles(names: list[str], field: str) -> None:
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"{field} names {_shown(double)} twice")


def _shown(value: object) -> str:
    """What was said, as far as a sentence has room for it."""
    text = ascii(value) if isinstance(value, str) else f"a {type(value).__name__}"
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[: _SHOWN_CHARACTERS - 3]}..."
    return text
