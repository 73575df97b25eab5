"""Checks the URLs that callers give for webhooks: https, to a public internet address.

The functions are pure: the caller resolves the name and passes the addresses.  Every address of the
name must be public.  The client must connect to one of the checked addresses, because the name
can resolve to a private address at the next lookup.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tenure.core.errors import Invalid

URL_CHARACTERS_MAX: Final = 2_048
HTTPS_PORT: Final = 443
_PLAIN: Final = re.compile(r"[!-~]+\Z")
HOST_CHARACTERS_MAX: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_NUMERIC: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\Z")
"""If the last label of a host looks like this, a resolver may read the host as an IPv4 address."""
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_UNICAST: Final = IPv6Network("2000::/3")
"""The global unicast addresses; the others can embed IPv4 addresses or have other uses."""
_SPECIAL: Final = (
    IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("2002::/16"),
    IPv6Network("3fff::/20"),
)  # fmt: skip
"""Special-purpose networks of the IANA registries that some Python versions do not know."""

Address = IPv4Address | IPv6Address


class EgressTarget(NamedTuple):
    """A URL that may be called, and its parts."""

    url: str
    scheme: str
    host: str
    port: int


def is_loopback(host: str) -> bool:
    """Whether this host name or address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def target_of(url: str, *, loopback: bool = False) -> EgressTarget:
    """The parts of a caller's URL; Invalid if it is not an https URL of a public name.

    With `loopback`, which is for development, http to this machine is allowed too.
    """
    if not url:
        raise Invalid("url: it is missing")
    if len(url) > URL_CHARACTERS_MAX or not _PLAIN.match(url) or "\\" in url:
        raise Invalid(f"url: at most {URL_CHARACTERS_MAX} visible ASCII characters, no backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".") if parts.hostname != "." else ""
    except ValueError as error:
        raise Invalid(f"url: it cannot be read ({error})") from None
    if "@" in parts.netloc:
        raise Invalid("url: no user or password may stand in it")
    if parts.fragment or "#" in url:
        raise Invalid("url: no fragment may stand in it")
    if not host:
        raise Invalid("url: it names no host")
    here = loopback and host in _LOOPBACK_NAMES
    if host in _LOOPBACK_NAMES and not here:
        raise Invalid(
            f"url: {host} is this machine, and webhooks lead there only for development:"
            " tenure up --webhooks-here"
        )
    if parts.scheme != "https" and not (here and parts.scheme == "http"):
        raise Invalid("url: it must begin with https://")
    if port == 0:
        raise Invalid("url: there is no port 0")
    literal = _literal(host)
    if literal is None and not _is_name(host):
        raise Invalid("url: its host is neither a name nor a plainly written address")
    if not here:
        if host.endswith((".localhost", ".local", ".internal")):
            raise Invalid(f"url: {host} is not a public name")
        if literal is not None:
            refuse_private(host, [literal])
    return EgressTarget(
        url, parts.scheme, host, port or (80 if parts.scheme == "http" else HTTPS_PORT)
    )


def refuse_private(
    host: str, found: Iterable[Address | str], *, loopback: bool = False
) -> list[Address]:
    """The addresses of a name; Invalid if there is none, or if any of them is not public."""
    addresses = [ip_address(one) if isinstance(one, str) else one for one in found]
    if not addresses:
        raise Invalid(f"url: {host} has no address")
    for address in addresses:
        allowed = loopback and host in _LOOPBACK_NAMES and address.is_loopback
        if not allowed and not is_public(address):
            # The message does not name the address: it would reveal the internal network.
            raise Invalid(f"url: {host} is not a public address")
    return addresses


def is_public(address: Address) -> bool:
    """Whether this is a global unicast address, and not one that embeds a private address."""
    if isinstance(address, IPv6Address) and (
        address not in _UNICAST or address.scope_id is not None
    ):
        return False
    if any(address in net for net in _SPECIAL):
        return False
    return address.is_global and not (
        address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or address.is_loopback
        or address.is_link_local
        or address.is_private
    )


def _is_name(host: str) -> bool:
    """Whether a resolver reads it as a name; one pass over its labels, without backtracking."""
    labels = host.split(".")
    return (
        len(host) <= HOST_CHARACTERS_MAX
        and all(map(_LABEL.match, labels))
        and not _NUMERIC.match(labels[-1])
    )


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
