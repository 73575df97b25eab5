"""Reads processes from the kernel: the holder of a lock, the listeners of a port, our tags.

Pids are reused, so a signal is sent through a pidfd that was opened before the start time was
compared.
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
"""Request flags: dump all matching sockets."""
LISTENING = 1 << 10
REQUEST = struct.Struct("=IHHIIBBxxIH46x")
HEAD = struct.Struct("=IH10x")
ADDRESS_AT, INODE_AT = 16 + 8, 16 + 68
LOCAL_ADDRESSES = frozenset(
    {
        socket.inet_pton(socket.AF_INET, "127.0.0.1").ljust(16, b"\0"),
        socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"),
        bytes(16),
    }
)
"""Local addresses, in the kernel's form, of sockets that accept connections to 127.0.0.1."""
LINK_SECONDS = 2.0
SWEEPS_MAX = 200
GROUP_TRIES = 20


def has_keeper(directory: Path) -> bool:
    """Whether a keeper runs for this directory: the kernel releases its lock when it ends."""
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
    """The verified pid of the keeper that holds the lock; 0 if it is not known."""
    with _open_keeper(directory) as file:
        return file[0] if file else 0


@contextmanager
def _open_keeper(directory: Path) -> Iterator[tuple[int, int] | None]:
    """The verified pid and a pidfd of the keeper that holds the lock; None if not known."""
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
        yield (pid, file) if ours and has_keeper(directory) else None
    finally:
        os.close(file)


def end_keeper(directory: Path, *, at_once: bool, seconds: float) -> None:
    """Signal the keeper to end its process tree and wait; after `seconds` it is killed."""
    until = time.monotonic() + seconds
    is_signalled = False
    while has_keeper(directory):
        late = time.monotonic() > until
        with _open_keeper(directory) as process:
            if process is None:  # it has the lock and has not written its pid
                time.sleep(0.002)
                if time.monotonic() > until + seconds:
                    raise TimeoutError(f"an unknown process holds {directory}")
                continue
            gentle = signal.SIGQUIT if at_once else signal.SIGTERM
            if late or not is_signalled:
                _send(process[1], signal.SIGKILL if late else gentle)
            is_signalled = True
            poll = select.poll()
            poll.register(process[1], select.POLLIN)
            poll.poll(max((until - time.monotonic()) * 1000, 100.0))


def _send(pidfd: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def find_tagged(tags: tuple[bytes, ...]) -> list[int]:
    """Every process whose environment has all these entries."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                environ = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if all(tag in environ for tag in tags):
                found.append(int(process.name))
    return found


def sweep(tags: tuple[bytes, ...], groups: list[str]) -> int:
    """Kill all processes with these tags or in these groups; returns how many."""
    killed_pids: set[int] = set()
    for _ in range(SWEEPS_MAX):
        remaining = find_tagged(tags) + [pid for group in groups for pid in _members(group)]
        if not remaining:
            break
        for pid in remaining:
            _kill_tagged(pid, tags, groups)
        killed_pids.update(remaining)
        time.sleep(0.002)
    remove_groups(groups)
    return len(killed_pids)


def remove_groups(groups: list[str]) -> None:
    """Remove empty control groups; a killed process may take a moment to leave its group."""
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
    """Kill the process if it still has the tags or is in a group."""
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
    """The inodes of all sockets that listen on this port at 127.0.0.1.

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
    """The inodes in one part of an answer; None if it is the last part."""
    found = set()
    while len(data) >= HEAD.size:
        length, kind = HEAD.unpack_from(data)
        if kind == ERROR:
            raise OSError("the kernel does not list the sockets that listen")
        if kind == DONE:
            return None
        if data[ADDRESS_AT : ADDRESS_AT + 16] in LOCAL_ADDRESSES:
            found.add(int.from_bytes(data[INODE_AT : INODE_AT + 4], sys.byteorder))
        data = data[(length + 3) & ~3 :]
    return found


def owns_port(pid: int, port: int) -> bool:
    """Whether descendants of this process, and no others, listen on this port."""
    missing = {f"socket:[{inode}]" for inode in listeners(port)}
    if not missing:
        return False
    for one in keeper.descendants(pid):
        try:
            for file in Path(f"/proc/{one}/fd").iterdir():
                missing.discard(str(file.readlink()))
        except OSError:
            continue
        if not missing:
            return True
    return False
