"""The process that holds a lock, and whether it stands stopped: by the kernel's word.

A pid alone proves nothing, since pids are used again: who wants to signal a process opens a pidfd
while it is known to be that one.
"""

import fcntl
import os
from pathlib import Path

STOPPED = "T"
"""A process that was sent SIGSTOP, or SIGTSTP by a terminal; one that a debugger holds is `t`."""
COUNTS = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")


def named(path: Path) -> int:
    """The process that has written its name into `<path>.lock`, or did last; 0 if none has."""
    try:
        return int(Path(f"{path}.lock").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def holder(path: Path) -> int:
    """The process that holds `<path>.lock` now; 0 if nobody does."""
    try:
        lock = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return named(path)
    finally:
        os.close(lock)
    return 0


def stopped(pid: int) -> int | None:
    """A number that stays the same while this process stands stopped; None if it does not."""
    try:
        said = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    if not lines.get("State", "").startswith(STOPPED):
        return None
    return sum(int(lines.get(count, 0)) for count in COUNTS)
