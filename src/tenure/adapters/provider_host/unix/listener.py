"""The socket in the home: bound by who serves, met by guests, for one user of the machine only.

A socket's address has room for 107 bytes, and a home may lie deeper: it is named by a descriptor of
its directory, which is short wherever that is.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

NAME = "providers.sock"
NEW = f"{NAME}.new"
BACKLOG = 128
CREDENTIALS = struct.Struct("=iII")
"""Process, user and group of the other side."""


class Peered(Protocol):
    """What of a socket is needed to learn who is at its other end."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """As the socket's own."""
        ...


def peer_uid(one: Peered) -> int:
    """The user at the other end, by the kernel's word."""
    return _peer(one)[1]


def peer_pid(one: Peered) -> int:
    """The process at the other end; 0 if it cannot be seen from here."""
    return _peer(one)[0]


def _peer(one: Peered) -> tuple[int, int]:
    said = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(said)
    return int(pid), int(uid)


@contextmanager
def _inside(home: Path) -> Iterator[str]:
    """A short name for the directory."""
    directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}"
    finally:
        os.close(directory)


def open_door(home: Path) -> socket.socket:
    """Listen, in the place of whatever socket was left there; only for who holds the house."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(listener.fileno(), 0o600)  # so that it is never there with another mode
        with _inside(home) as here:
            with suppress(FileNotFoundError):
                os.unlink(f"{here}/{NEW}")  # noqa: PTH108 (by a descriptor)
            listener.bind(f"{here}/{NEW}")
            listener.listen(BACKLOG)
            os.replace(f"{here}/{NEW}", f"{here}/{NAME}")  # noqa: PTH105
    except BaseException:
        listener.close()
        raise
    return listener


def close_door(home: Path) -> None:
    """Take the socket away; only for who holds the house."""
    with suppress(OSError):
        (home / NAME).unlink()


def knock(home: Path) -> socket.socket:
    """Meet who serves; OSError if nobody does, or somebody who may not."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _inside(home) as here:
            one.connect(f"{here}/{NAME}")
        uid = peer_uid(one)
        if uid != os.geteuid():
            raise PermissionError(f"{home / NAME} is served by user {uid}, who is another")
    except BaseException:
        one.close()
        raise
    return one
