"""Which agents have invocations under way, as all processes of a home see it.

A mark is a shared lock on one byte of a file, at one of 2^62 places: where the agent's uid is
hashed to, and beside it another for the wish that they end.  The kernel keeps it for as long as the
process lives and no longer, so there is nothing to hand over and nothing to clean up: no writing,
no server, no trace of a process that was killed.
"""

import fcntl
import os
import struct
from hashlib import blake2b
from pathlib import Path

from tenure.core.errors import Unavailable

NAME = "in-flight.lock"
CUT = "cut "
FLOCK = struct.Struct("@hhqqi4x")
"""The kernel's `struct flock`: type, whence, start, length, process."""


class FileMarks:
    """See `tenure.ports.marks.Marks`."""

    def __init__(self, home: Path) -> None:
        self._file = os.open(home / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def put(self, agent: str) -> None:
        """Take the lock; only who asks whether it is there wants it for itself, and never does."""
        self._ask(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, agent)

    def lift(self, agent: str) -> None:
        """Let go of the lock."""
        if self._file >= 0:
            self._ask(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, agent)

    def cut(self, agent: str) -> None:
        """The same, at the agent's other place."""
        self.put(CUT + agent)

    def spare(self, agent: str) -> None:
        """Let go of that lock."""
        self.lift(CUT + agent)

    def is_cut(self, agent: str) -> bool:
        """Whether another has a lock at the other place."""
        return self.is_elsewhere(CUT + agent)

    def is_elsewhere(self, agent: str) -> bool:
        """Whether another has a lock there; our own does not stand in our way."""
        found: int = FLOCK.unpack(self._ask(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, agent))[0]
        return found != fcntl.F_UNLCK

    def close(self) -> None:
        """Lift every mark."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _ask(self, command: int, kind: int, agent: str) -> bytes:
        place = int.from_bytes(blake2b(agent.encode(), digest_size=8).digest(), "big") >> 2
        try:
            return fcntl.fcntl(self._file, command, FLOCK.pack(kind, os.SEEK_SET, place, 1, 0))
        except (OSError, ValueError) as error:  # the latter of one that is closed
            raise Unavailable(f"{NAME} in the home cannot be locked ({error})") from None
