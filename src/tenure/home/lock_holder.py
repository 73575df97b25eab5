"""Finds the process that holds a lock, and whether it is stopped, as the kernel reports it.

Pids are reused. To signal a process, a caller opens a pidfd first and then checks that the pid
still belongs to the holder.
"""

import fcntl
import os
from pathlib import Path

STOPPED = "T"
"""State of a process after SIGSTOP or SIGTSTP; one that a debugger has stopped is `t`."""
COUNTS = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")


def recorded_holder(path: Path) -> int:
    """The pid in `<path>.lock`, which its last holder wrote; 0 if there is none."""
    try:
        return int(Path(f"{path}.lock").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def current_holder(path: Path) -> int:
    """The pid of the process that holds `<path>.lock` now; 0 if none does."""
    try:
        lock = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return recorded_holder(path)
    finally:
        os.close(lock)
    return 0


def stopped_mark(pid: int) -> int | None:
    """A number that stays the same while the process is stopped; None if it is not stopped."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    if not lines.get("State", "").startswith(STOPPED):
        return None
    return sum(int(lines.get(count, 0)) for count in COUNTS)
