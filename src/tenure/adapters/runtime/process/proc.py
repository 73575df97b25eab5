"""What the kernel says of processes: who holds a lock, who listens, who carries our tag.

A pid alone proves nothing, since pids are used again: a signal is sent by a pidfd that was opened
before the start time was compared.
"""

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure.adapters.runtime.process import keeper

SOCK_DIAG, BY_FAMILY, ERROR, DONE = 4, 20, 2, 3
DUMP = 0x301
"""A request for all that match."""
LISTENING = 1 << 10
REQUEST = struct.Struct("=IHHIIBBxxIH46x")
HEAD = struct.Struct("=IH10x")
ADDRESS_AT, INODE_AT = 16 + 8, 16 + 68
HEARS = frozenset(
    {
        socket.inet_pton(socket.AF_INET, "127.0.0.1").ljust(16, b"\0"),
        socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"),
        bytes(16),
    }
)
"""The addresses of a socket, as the kernel says them, that is reached at 127.0.0.1."""
LINK_SECONDS = 2.0
SWEEPS_MAX = 200
GROUP_TRIES = 20


def is_kept(directory: Path) -> bool:
    """Whether a keeper lives there: its lock dies with it."""
    try:
        lock = os.open(directory / keeper.LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def keeper_of(directory: Path) -> int:
    """The pid of the keeper that holds the lock, verified; 0 while none can be named."""
    with _held(directory) as file:
        return file[0] if file else 0


@contextmanager
def _held(directory: Path) -> Iterator[tuple[int, int] | None]:
    """The pid and a pidfd of the keeper that holds the lock, if it can be named."""
    try:
        words = (directory / keeper.LOCK).read_text().split()
        pid, ticks, boot = int(words[0]), int(words[1]), words[2]
        file = os.pidfd_open(pid)
    except (OSError, ValueError, IndexError):
        yield None
        return
    try:
        ours = boot == keeper.boot() and keeper.started_at(pid) == ticks
    except OSError:
        ours = False
    try:
        yield (pid, file) if ours and is_kept(directory) else None
    finally:
        os.close(file)


def end_keeper(directory: Path, *, at_once: bool, seconds: float) -> None:
    """Have the keeper remove its tree and wait for its end; one that takes too long is killed."""
    until = time.monotonic() + seconds
    told = False
    while is_kept(directory):
        late = time.monotonic() > until
        with _held(directory) as held:
            if held is None:  # it has the lock and has not said who it is
                time.sleep(0.002)
                if time.monotonic() > until + seconds:
                    raise TimeoutError(f"somebody unknown holds {directory}")
                continue
            gentle = signal.SIGQUIT if at_once else signal.SIGTERM
            if late or not told:
                _send(held[1], signal.SIGKILL if late else gentle)
            told = True
            poll = select.poll()
            poll.register(held[1], select.POLLIN)
            poll.poll(max((until - time.monotonic()) * 1000, 100.0))


def _send(pidfd: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def tagged(tags: tuple[bytes, ...]) -> list[int]:
    """Every process whose environment holds all these entries."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                environ = (place / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if all(tag in environ for tag in tags):
                found.append(int(place.name))
    return found


def sweep(tags: tuple[bytes, ...], groups: list[str]) -> int:
    """Kill all that carry these tags or sit in these groups, until none is left; how many."""
    killed: set[int] = set()
    for _ in range(SWEEPS_MAX):
        left = tagged(tags) + [pid for group in groups for pid in _members(group)]
        if not left:
            break
        for pid in left:
            _kill_tagged(pid, tags, groups)
        killed.update(left)
        time.sleep(0.002)
    remove_groups(groups)
    return len(killed)


def remove_groups(groups: list[str]) -> None:
    """Remove control groups that nobody is in any more; who has just died leaves in a moment."""
    for group in groups:
        for _ in range(GROUP_TRIES):
            try:
                Path(group).rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.002)
            else:
                break


def _kill_tagged(pid: int, tags: tuple[bytes, ...], groups: list[str]) -> None:
    """Kill it, if it is still the one that was found."""
    try:
        file = os.pidfd_open(pid)
    except OSError:
        return
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if all(tag in environ for tag in tags) or any(pid in _members(group) for group in groups):
            _send(file, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(file)


def _members(group: str) -> list[int]:
    try:
        return [int(pid) for pid in Path(group, "cgroup.procs").read_text().split()]
    except OSError:
        return []


def listeners(port: int) -> set[int]:
    """The inodes of all sockets that listen on this port and are reached at 127.0.0.1.

    Asked of the kernel's socket diagnosis: reading /proc/net/tcp walks every bucket of a table that
    is as large as the machine, which takes milliseconds.
    """
    found: set[int] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as link:
        link.settimeout(LINK_SECONDS)
        for family in (socket.AF_INET, socket.AF_INET6):
            request = REQUEST.pack(
                REQUEST.size,
                BY_FAMILY,
                DUMP,
                0,
                0,
                family,
                socket.IPPROTO_TCP,
                LISTENING,
                socket.htons(port),
            )
            link.send(request)
            while (answer := _inodes(link.recv(65_536))) is not None:
                found |= answer
    return found


def _inodes(data: bytes) -> set[int] | None:
    """The inodes in one part of an answer; None at its end."""
    found = set()
    while len(data) >= HEAD.size:
        length, kind = HEAD.unpack_from(data)
        if kind == ERROR:
            raise OSError("the kernel does not say who listens")
        if kind == DONE:
            return None
        if data[ADDRESS_AT : ADDRESS_AT + 16] in HEARS:
            found.add(int.from_bytes(data[INODE_AT : INODE_AT + 4], sys.byteorder))
        data = data[(length + 3) & ~3 :]
    return found


def owns_port(pid: int, port: int) -> bool:
    """Whether somebody listens on this port, and nobody but descendants of this process."""
    wanted = {f"socket:[{inode}]" for inode in listeners(port)}
    if not wanted:
        return False
    for one in keeper.descendants(pid):
        try:
            for file in Path(f"/proc/{one}/fd").iterdir():
                wanted.discard(str(file.readlink()))
        except OSError:
            continue
        if not wanted:
            return True
    return False
