"""A guest's look at who serves: whether it stands stopped, and its end if it does for too long.

A process that is stopped keeps the house, answers nobody, and may go on at any time.  Killed, it is
like any that was killed: the kernel lets go of its locks, another serves, and it never comes back
to write.  Nobody else can be hit: its pidfd was opened while the line to it was open, which ends
with it, and the lock's own file must name it.
"""

import os
import signal
from pathlib import Path

from tenure.home.lock_holder import named, stopped

LOOK_SECONDS = 1.0
"""Between two looks."""


class Watch:
    """Of who is at the other end of one line, for as long as that is open."""

    def __init__(self, home: Path, process: int) -> None:
        self.process = process
        self._lock = home / "providers"
        self._file = _opened(process)
        self._mark: int | None = None
        self._looks = 0

    def stood(self) -> float:
        """Look; for how many seconds it has surely not run at all, by the looks until now."""
        mark = stopped(self.process)
        self._looks = self._looks + 1 if mark is not None and mark == self._mark else 0
        self._mark = mark
        return self._looks * LOOK_SECONDS

    def can_end(self) -> bool:
        """Whether it is surely the one that has the house, and can be killed from here."""
        return self._file >= 0 and named(self._lock) == self.process

    def end(self) -> bool:
        """Kill it, if that can be; whether it was."""
        if not self.can_end():
            return False
        try:
            signal.pidfd_send_signal(self._file, signal.SIGKILL)
        except OSError:  # it has gone by itself, or may not be killed
            return False
        return True

    def close(self) -> None:
        """Look no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _opened(process: int) -> int:
    try:
        return os.pidfd_open(process)
    except OSError:  # it cannot be seen from here, or the kernel has none
        return -1
