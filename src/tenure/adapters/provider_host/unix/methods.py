"""The calls that the host serves: exactly the methods of the ports, and nothing else.

The table is read from the ports, so that server, client and port cannot differ.  Arguments are sent
by name.  Those that are records are made records again; all others are left as they arrive, since
the provider itself refuses invalid ones, in its own words.
"""

import inspect
from collections.abc import AsyncIterator, Mapping
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from tenure.ports.access import Access
from tenure.ports.credentials import Credentials
from tenure.ports.identity import Authorization, OAuthRefusal
from tenure.ports.provider import Provider
from tenure.ports.runtime import RuntimeProvider

PORTS: Mapping[str, tuple[type, ...]] = {
    "identity": (Provider, Authorization),
    "access": (Access,),
    "credentials": (Credentials,),
    "runtime": (RuntimeProvider,),
}
READ_ONLY = frozenset({
    "inspect", "list_owned", "jwks", "introspect", "read_client", "check", "list_by_subject",
    "list_by_granter", "list_team_roles", "list_registrations", "is_open", "digest", "status",
    "wait_ready", "listens_at", "logs", "follow", "signing_key",
})  # fmt: skip
"""They change nothing: if the answer is lost the call can be repeated."""
DESCRIBED_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "identity": ("issuer", "metadata"),
    "runtime": ("zones",),
}
"""Attributes that are sent once to every client, because the ports return them without waiting."""


WIRE_NAMES: Mapping[str, str] = {
    "grant_team_role": "give_team",
    "revoke_team_role": "take_from_team",
    "requester": "asker",
}
"""Methods and arguments that messages call by an earlier name, which older builds send."""
PORT_NAMES: Mapping[str, str] = {wire: port for port, wire in WIRE_NAMES.items()}


class Method(NamedTuple):
    """One method of a port."""

    provider: str
    name: str
    signature: inspect.Signature
    records: Mapping[str, Any]
    """The arguments that are records, by name: their types."""
    answer: Any
    """The type of the answer, or of a page of a listing; a Refusal has its own message type."""
    is_listing: bool
    reads: bool

    def bind(self, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments by their names on the wire."""
        bound = self.signature.bind(*arguments, **keywords).arguments
        return {WIRE_NAMES.get(name, name): value for name, value in bound.items()}

    def decode(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as they were before they were sent, or raise ValidationError."""
        by_name = {PORT_NAMES.get(name, name): value for name, value in arguments.items()}
        return {
            name: msgspec.convert(value, self.records[name]) if name in self.records else value
            for name, value in by_name.items()
        }


def _read(provider: str, port: type, name: str) -> Method:
    function = getattr(port, name)
    hints = get_type_hints(function)
    whole = inspect.signature(function)
    parameters = [one for one in whole.parameters.values() if one.name != "self"]
    answer = hints.pop("return")
    is_listing = get_origin(answer) is AsyncIterator
    if is_listing:
        answer = list[get_args(answer)[0]]  # type: ignore[misc]
    elif get_origin(answer) is UnionType:
        answer = next(one for one in get_args(answer) if one is not OAuthRefusal)
    return Method(
        provider,
        name,
        whole.replace(parameters=parameters),
        {one: hint for one, hint in hints.items() if _is_record(hint)},
        answer,
        is_listing,
        name in READ_ONLY,
    )


def _is_record(hint: Any) -> bool:
    """A NamedTuple, or one that may be None."""
    kinds = [one for one in get_args(hint) or (hint,) if one is not NoneType]
    return all(hasattr(one, "_fields") for one in kinds)


def _names(port: type) -> list[str]:
    return [name for name, member in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"]


METHODS: Mapping[str, Mapping[str, Method]] = {
    provider: {
        name: _read(provider, port, name)
        for port in ports
        for name in _names(port)
        if name not in DESCRIBED_ATTRIBUTES.get(provider, ())
    }
    for provider, ports in PORTS.items()
}


def describe(providers: Mapping[str, Provider]) -> dict[str, dict[str, object]]:
    """Return the attributes of these providers that clients get at once."""
    descriptions: dict[str, dict[str, object]] = {}
    for provider, names in DESCRIBED_ATTRIBUTES.items():
        values = {name: getattr(providers[provider], name) for name in names}
        descriptions[provider] = {
            n: value() if callable(value) else value for n, value in values.items()
        }
    return descriptions
