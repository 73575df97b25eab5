"""How a client notices that the server is stopped (SIGSTOP), and kills it after a while.

A stopped process keeps the lock, answers no call, and may continue at any time.  Once it is killed
the kernel releases its locks, another process serves, and it never writes again.  No other process
can be hit: its pidfd was opened while the connection to it was open, which ends with the process,
and the lock's own file must name it.
"""

import os
import signal
from pathlib import Path

from tenure.home.lock_holder import recorded_holder, stopped_mark

POLL_SECONDS = 1.0
"""Between two polls."""


class ServerWatch:
    """Watches the process at the other end of one open connection."""

    def __init__(self, home: Path, process: int) -> None:
        self.process = process
        self._lock = home / "providers"
        self._file = _open_pidfd(process)
        self._mark: int | None = None
        self._polls = 0

    def stopped_for(self) -> float:
        """Poll; return for how many seconds the process has surely not run at all."""
        mark = stopped_mark(self.process)
        self._polls = self._polls + 1 if mark is not None and mark == self._mark else 0
        self._mark = mark
        return self._polls * POLL_SECONDS

    def can_kill(self) -> bool:
        """Whether it surely holds the lock and can be killed from here."""
        return self._file >= 0 and recorded_holder(self._lock) == self.process

    def kill(self) -> bool:
        """Kill the process if that is possible; return whether it was killed."""
        if not self.can_kill():
            return False
        try:
            signal.pidfd_send_signal(self._file, signal.SIGKILL)
        except OSError:  # it has ended by itself, or may not be killed
            return False
        return True

    def close(self) -> None:
        """Stop watching."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _open_pidfd(process: int) -> int:
    try:
        return os.pidfd_open(process)
    except OSError:  # another pid namespace, or a kernel without pidfds
        return -1
