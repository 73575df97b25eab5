"""Reads a credentials spec; an unknown field or value is refused with its name.

An audience is the service to which a credential is presented. It is a URL without secrets: no user,
no query, no fragment.
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
_QUOTED_CHARACTERS = 80


class DesiredCredential(NamedTuple):
    """One credential of a valid spec."""

    audience: str
    scopes: tuple[str, ...]
    ttl_seconds: int


def read(spec: Spec) -> tuple[DesiredCredential, ...]:
    """Read a spec; Invalid names the field."""
    _refuse_unknown(spec, ("credentials",), "a credentials spec")
    entries = _list(spec.get("credentials", ()), "credentials", CREDENTIALS_MAX)
    desired = tuple(
        _read_one(one, f"credentials[{position}]") for position, one in enumerate(entries)
    )
    _refuse_doubles([one.audience for one in desired], "credentials")
    return desired


def _read_one(one: object, field: str) -> DesiredCredential:
    if not isinstance(one, Mapping):
        raise Invalid(f"{field} must be a mapping, not {_quote(one)}")
    _refuse_unknown(one, ("audience", "scopes", "ttl_seconds"), field)
    scopes = _list(one.get("scopes", ()), f"{field}.scopes", SCOPES_MAX)
    names = [_scope(scope, f"{field}.scopes") for scope in scopes]
    _refuse_doubles(names, f"{field}.scopes")
    return DesiredCredential(
        _audience(one.get("audience"), f"{field}.audience"),
        tuple(sorted(names)),
        _ttl(one.get("ttl_seconds", TTL_SECONDS), f"{field}.ttl_seconds"),
    )


def _audience(value: object, field: str) -> str:
    if not isinstance(value, str) or len(value) > IDENTIFIER_CHARACTERS_MAX:
        raise Invalid(f"{field} must be an address of at most {IDENTIFIER_CHARACTERS_MAX} letters")
    try:
        address = urlsplit(value) if _AUDIENCE.fullmatch(value) else None
        host = None if address is None else address.hostname
        _ = (
            None if address is None else address.port
        )  # urlsplit checks the port only when it is read
    except ValueError:
        address, host = None, None
    if address is None or host is None:
        raise Invalid(f"{field} must be an absolute https:// address")
    if address.scheme == "http" and host not in _LOOPBACK:
        raise Invalid(f"{field} must begin with https:// unless it is on this machine")
    if any(mark in value for mark in "@?#"):
        raise Invalid(f"{field} must not have a user, query or fragment")
    return value


def _scope(value: object, field: str) -> str:
    if not isinstance(value, str) or _SCOPE.fullmatch(value) is None:
        raise Invalid(
            f"{field}: {_quote(value)} is no scope;"
            " 1 to 128 visible ASCII characters without quote and backslash"
        )
    return value


def _ttl(value: object, field: str) -> int:
    if type(value) is not int or not 1 <= value <= TTL_SECONDS_MAX:
        raise Invalid(f"{field} must be a whole number from 1 to {TTL_SECONDS_MAX}")
    return value


def _list(values: object, field: str, most: int) -> list[object] | tuple[object, ...]:
    if not isinstance(values, list | tuple):
        raise Invalid(f"{field} must be a list, not {_quote(values)}")
    if len(values) > most:
        raise Invalid(f"{field} has {len(values)} entries; {most} is the most")
    return values


def _refuse_unknown(fields: Mapping[str, object], allowed: tuple[str, ...], what: str) -> None:
    for field in fields:
        if field not in allowed:
            raise Invalid(f"{_quote(field)} is no field of {what}: {', '.join(allowed)}")


def _refuse_doubles(names: list[str], field: str) -> None:
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"{field} names {_quote(double)} twice")


def _quote(value: object) -> str:
    """The value, shortened for an error text."""
    text = ascii(value) if isinstance(value, str) else f"a {type(value).__name__}"
    if len(text) > _QUOTED_CHARACTERS:
        return f"{text[: _QUOTED_CHARACTERS - 3]}..."
    return text
