"""The socket in the home: bound by the server, for clients of the same user only.

A socket's address has room for 107 bytes, and the path of a home may be longer.  So the socket is
addressed by a descriptor of its directory, which is short for every path.
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


class PeerSocket(Protocol):
    """The part of a socket that tells which process is at its other end."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """As `socket.getsockopt`."""
        ...


def peer_uid(one: PeerSocket) -> int:
    """Return the user at the other end, as the kernel reports it."""
    return _peer(one)[1]


def peer_pid(one: PeerSocket) -> int:
    """Return the process at the other end; 0 if it is in another pid namespace."""
    return _peer(one)[0]


def _peer(one: PeerSocket) -> tuple[int, int]:
    credentials = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(credentials)
    return int(pid), int(uid)


@contextmanager
def _inside(home: Path) -> Iterator[str]:
    """Yield a short path of the directory."""
    directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}"
    finally:
        os.close(directory)


def listen(home: Path) -> socket.socket:
    """Listen, and replace a socket that was left there; only for the holder of the lock."""
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


def remove_socket(home: Path) -> None:
    """Remove the socket; only for the holder of the lock."""
    with suppress(OSError):
        (home / NAME).unlink()


def connect(home: Path) -> socket.socket:
    """Connect to the server; OSError if there is none, or it belongs to another user."""
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
