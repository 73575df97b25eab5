"""The address of the server, and the token for it.

A home is the directory of one plane: `tenure up` writes `address` and `token` there.  A home's
token is sent only to that home's address.  A token that the user gave is sent to the address that
the user gave, or to this machine.  No token is sent unencrypted to another machine.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tenure.faces.cli.exits import CommandExit, Exit, Unreachable

NAME = ".tenure"
CONNECT_SECONDS = 1.0
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerAddress(NamedTuple):
    """A server and the token for it."""

    scheme: str
    host: str
    port: int
    token: str

    @property
    def address(self) -> str:
        """The URL, such as `http://127.0.0.1:7450`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class ServerLocation(NamedTuple):
    """The location of the server, from the command line or the environment."""

    home: str = ""
    address: str = ""
    token_file: str = ""
    token: str = ""

    def directory(self) -> Path:
        """The home: the given one, else `.tenure` here, else in the user's home directory."""
        if self.home:
            return Path(self.home)
        here, own = Path(NAME), Path(os.path.expanduser("~")) / NAME  # noqa: PTH111 (no HOME: `~`)
        return own if not here.is_dir() and own.is_dir() else here

    def server(self) -> ServerAddress:
        """The server and its token; CommandExit with advice if either is missing."""
        home = self.directory()
        known_addresses = addresses(home)
        address = self.address or first_listening(known_addresses)
        if not address:
            looked = "" if self.home else f", nor in ~/{NAME}"
            raise Unreachable(
                f"no server runs in {home.absolute()}{looked}",
                advice=f"start one: {_up(self, home)}",
            )
        scheme, host, port = parts(address)
        token = self._given_token()
        if token and not self.address and host not in LOOPBACK:
            raise CommandExit(
                Exit.USAGE,
                f"{home / 'address'} names another machine, {host}, and the token does not come"
                " from this home",
                advice=f"if the token is for that machine: --address {address}",
            )
        if not token and (not self.address or address.rstrip("/") in known_addresses):
            token = read(home / "token")
        if not token:
            raise CommandExit(
                Exit.AUTHENTICATION,
                f"there is no token for {address}",
                advice="give one: --token-file FILE, or TENURE_TOKEN=…"
                + (f"; this home's token is in {home / 'token'}" if read(home / "token") else ""),
            )
        if scheme == "http" and host not in LOOPBACK:
            raise CommandExit(
                Exit.USAGE,
                f"the token would be sent to {host} unencrypted",
                advice="use https://, or a tunnel that ends on this machine",
            )
        if not token.isascii() or not token.isprintable():
            raise CommandExit(
                Exit.AUTHENTICATION,
                "the token is not one line of ASCII",
                advice="use the output of tenure token create, or a file with it: --token-file",
            )
        return ServerAddress(scheme, host, port, token)

    def _given_token(self) -> str:
        if not self.token_file:
            return self.token
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise CommandExit(
                Exit.AUTHENTICATION, f"{self.token_file} cannot be read: {why}"
            ) from None
        if not token:  # falling back to the home's token would use another one than intended
            raise CommandExit(
                Exit.AUTHENTICATION, f"there is no token in {self.token_file}: it is empty"
            )
        return token


def location_of(
    options: Mapping[str, str | None], environment: Mapping[str, str]
) -> ServerLocation:
    """The location from the command line and, for missing options, from the environment."""

    def value_of(option: str, variable: str) -> str:
        return options.get(option) or environment.get(variable, "")

    token_file = options.get("token_file") or ""
    if not token_file and not environment.get("TENURE_TOKEN", "x").strip():
        raise CommandExit(
            Exit.USAGE,
            "TENURE_TOKEN is set and empty",
            advice="unset it to use the token of the home, or give a token",
        )
    return ServerLocation(
        home=value_of("home", "TENURE_HOME"),
        address=value_of("address", "TENURE_ADDRESS"),
        token_file=token_file,
        token="" if token_file else environment.get("TENURE_TOKEN", "").strip(),
    )


def parts(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address; CommandExit if it is invalid."""
    from urllib.parse import urlsplit

    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        url, port = urlsplit(""), None
    rest = url.path.strip("/") or url.query or url.fragment or url.username or url.password
    if url.scheme not in {"http", "https"} or not url.hostname or rest:
        raise CommandExit(
            Exit.USAGE,
            f"{address!r} is not the address of a server",
            advice="use a URL such as http://127.0.0.1:7450",
        )
    return url.scheme, url.hostname, port or (443 if url.scheme == "https" else 80)


def read(file: Path) -> str:
    """The text of a file of a home, stripped; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""


def addresses(home: Path) -> list[str]:
    """The addresses of a home's servers, newest first; on a shared store there are several."""
    return read(home / "address").split()


def first_listening(known_addresses: list[str]) -> str:
    """The newest address at which a server listens; a killed server's address is still listed.

    It is the newest address if no server listens, or if there is only one address.
    """
    if len(known_addresses) > 1:
        for address in known_addresses:
            if listens(address):
                return address
    return known_addresses[0] if known_addresses else ""


def listens(address: str) -> bool:
    """Whether a server listens at this address."""
    from socket import create_connection

    try:
        _, host, port = parts(address)
        create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except (OSError, CommandExit):
        return False
    return True


def runtime_listens(process: str, address: str) -> bool:
    """Whether this process listens at the address, according to /proc."""
    sockets: set[str] = set()
    try:
        _, _, port = parts(address)
        for table in Path(f"/proc/{int(process)}/net").glob("tcp*"):
            for line in table.read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == LISTEN and int(local.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{inode}]")
        files = list(Path(f"/proc/{process}/fd").iterdir())
    except (OSError, ValueError, CommandExit):
        return False
    for file in files:
        with suppress(OSError):  # it was closed since
            if str(file.readlink()) in sockets:
                return True
    return False


def _up(where: ServerLocation, home: Path) -> str:
    return f"tenure up --home {home}" if where.home else "tenure up"
