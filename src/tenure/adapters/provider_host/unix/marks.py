"""Marks agents with running invocations, visible to all processes of a home.

A mark is a shared lock on one byte of a file, at one of 2^62 offsets: the hash of the agent's uid.
A second offset for each agent marks that its invocations have to end.  The kernel releases a lock
when its process ends, so nothing has to be written, served or cleaned up.
"""

import fcntl
import os
import struct
from hashlib import blake2b
from pathlib import Path

from tenure.core.errors import Unavailable

NAME = "in-flight.lock"
ABORT_PREFIX = "cut "
FLOCK = struct.Struct("@hhqqi4x")
"""The kernel's `struct flock`: type, whence, start, length, process."""


class FileMarks:
    """See `tenure.ports.marks.InFlightMarks`."""

    def __init__(self, home: Path) -> None:
        self._file = os.open(home / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def mark_in_flight(self, agent: str) -> None:
        """Take a shared lock at the agent's offset; it never conflicts, because all are shared."""
        self._ask(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, agent)

    def clear_in_flight(self, agent: str) -> None:
        """Release the lock."""
        if self._file >= 0:
            self._ask(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, agent)

    def request_abort(self, agent: str) -> None:
        """Take a shared lock at the agent's second offset."""
        self.mark_in_flight(ABORT_PREFIX + agent)

    def withdraw_abort(self, agent: str) -> None:
        """Release the lock at the second offset."""
        self.clear_in_flight(ABORT_PREFIX + agent)

    def is_abort_requested(self, agent: str) -> bool:
        """Whether another process has a lock at the second offset."""
        return self.is_in_flight_elsewhere(ABORT_PREFIX + agent)

    def is_in_flight_elsewhere(self, agent: str) -> bool:
        """Whether another process has a lock at the agent's offset; our own does not count."""
        found: int = FLOCK.unpack(self._ask(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, agent))[0]
        return found != fcntl.F_UNLCK

    def close(self) -> None:
        """Release all locks."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _ask(self, command: int, kind: int, agent: str) -> bytes:
        offset = int.from_bytes(blake2b(agent.encode(), digest_size=8).digest(), "big") >> 2
        try:
            return fcntl.fcntl(self._file, command, FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))
        except (OSError, ValueError) as error:  # ValueError if the file is closed
            raise Unavailable(f"{NAME} in the home cannot be locked ({error})") from None
