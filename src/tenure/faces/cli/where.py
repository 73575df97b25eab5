"""Where the server is and which token it is asked with.

A home is the directory of one plane: `tenure up` writes `address` and `token` there.  A home's
token goes to that home's address and nowhere else; a token that was given by hand goes to the
address that was given, or to this machine; and no token travels in the clear to another machine.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tenure.faces.cli.exits import CommandExit, Exit, Unreachable

NAME = ".tenure"
LOOK_SECONDS = 1.0
LISTEN = "0A"
"""The state of a socket that listens, as /proc/net/tcp writes it."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerAddress(NamedTuple):
    """A server and the token for it."""

    scheme: str
    host: str
    port: int
    token: str

    @property
    def address(self) -> str:
        """As it is written: `http://127.0.0.1:7450`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class ServerLocation(NamedTuple):
    """What was said about the server, on the command line or by the environment."""

    home: str = ""
    address: str = ""
    token_file: str = ""
    token: str = ""

    def directory(self) -> Path:
        """The home: the one named, else `.tenure` here, else in the user's own directory."""
        if self.home:
            return Path(self.home)
        here, own = Path(NAME), Path(os.path.expanduser("~")) / NAME  # noqa: PTH111 (no HOME: `~`)
        return own if not here.is_dir() and own.is_dir() else here

    def server(self) -> ServerAddress:
        """The server with the token for it; Ended with what to type if either is missing."""
        home = self.directory()
        kept = addresses(home)
        address = self.address or first_listening(kept)
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
                f"{home / 'address'} names another machine, {host}, and the token was given by"
                " hand",
                advice=f"if it is meant for that machine: --address {address}",
            )
        if not token and (not self.address or address.rstrip("/") in kept):
            token = read(home / "token")
        if not token:
            raise CommandExit(
                Exit.AUTHENTICATION,
                f"there is no token for {address}",
                advice="give one: --token-file FILE, or TENURE_TOKEN=…"
                + (f"; this home's own is in {home / 'token'}" if read(home / "token") else ""),
            )
        if scheme == "http" and host not in LOOPBACK:
            raise CommandExit(
                Exit.USAGE,
                f"the token would travel to {host} in the clear",
                advice="use https://, or a tunnel that ends on this machine",
            )
        if not token.isascii() or not token.isprintable():
            raise CommandExit(
                Exit.AUTHENTICATION,
                "this is no token: it is not one line of ASCII",
                advice="give what tenure token create has printed, or a file with it: --token-file",
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
        if not token:  # the home's own would be another one than was meant
            raise CommandExit(
                Exit.AUTHENTICATION, f"there is no token in {self.token_file}: it is empty"
            )
        return token


def location_of(given: Mapping[str, str | None], environment: Mapping[str, str]) -> ServerLocation:
    """What the command line says, and where it is silent the environment."""

    def said(option: str, variable: str) -> str:
        return given.get(option) or environment.get(variable, "")

    token_file = given.get("token_file") or ""
    if not token_file and not environment.get("TENURE_TOKEN", "x").strip():
        raise CommandExit(
            Exit.USAGE,
            "TENURE_TOKEN is set and empty",
            advice="unset it to use the home's own token, or give a token",
        )
    return ServerLocation(
        home=said("home", "TENURE_HOME"),
        address=said("address", "TENURE_ADDRESS"),
        token_file=token_file,
        token="" if token_file else environment.get("TENURE_TOKEN", "").strip(),
    )


def parts(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address; Ended if it is none."""
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
            f"{address!r} is no address of a server",
            advice="such as http://127.0.0.1:7450",
        )
    return url.scheme, url.hostname, port or (443 if url.scheme == "https" else 80)


def read(file: Path) -> str:
    """The one line in a file of a home, or nothing if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""


def addresses(home: Path) -> list[str]:
    """Where the servers of a home listen, the newest first: on a shared store there are several."""
    return read(home / "address").split()


def first_listening(kept: list[str]) -> str:
    """The newest of several at which somebody listens, for one that was killed is still among them.

    If nobody listens, or there is only one, the newest.
    """
    if len(kept) > 1:
        for address in kept:
            if listens(address):
                return address
    return kept[0] if kept else ""


def listens(address: str) -> bool:
    """Whether somebody does there."""
    from socket import create_connection

    try:
        _, host, port = parts(address)
        create_connection((host, port), timeout=LOOK_SECONDS).close()
    except (OSError, CommandExit):
        return False
    return True


def is_listener(process: str, address: str) -> bool:
    """Whether this process listens there, as far as the kernel tells."""
    sockets: set[str] = set()
    try:
        _, _, port = parts(address)
        for table in Path(f"/proc/{int(process)}/net").glob("tcp*"):
            for line in table.read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == LISTEN and int(local.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{inode}]")
        held = list(Path(f"/proc/{process}/fd").iterdir())
    except (OSError, ValueError, CommandExit):
        return False
    for file in held:
        with suppress(OSError):  # it was closed since
            if str(file.readlink()) in sockets:
                return True
    return False


def _up(where: ServerLocation, home: Path) -> str:
    return f"tenure up --home {home}" if where.home else "tenure up"
