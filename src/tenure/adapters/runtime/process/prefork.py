"""Starts keepers, and pre-forks the next one before it is needed.

Most of a keeper's start is the start of its interpreter.  So one idle keeper waits at the end of a
pipe for its directory.  It holds no lock and no file of ours, and ends when the pipe is closed,
which happens however the plane ends.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tenure.adapters.runtime.process import keeper

KEEPER_DIRECTORY = str(Path(keeper.__file__).parent)
BOOT = "import sys; sys.path.append(sys.argv[1]); import keeper; sys.exit(keeper.main())"


class StartedKeeper(NamedTuple):
    """A keeper's process, the pipe that takes its directory, and the one on which it answers."""

    pid: int
    tell: int
    heard: int


class KeeperPool:
    """At most one idle keeper; safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of all runtimes; the command line of each keeper names it."""
        self._root = root
        self._lock = threading.Lock()
        self._waiting: StartedKeeper | None = None
        self._closed = False

    def keep(self, directory: Path) -> tuple[int, int]:
        """Assign a keeper to this directory; return its pid and the pipe on which it answers."""
        with self._lock:
            taken, self._waiting = self._waiting, None
        if taken is not None and not _tell(taken, directory):
            taken = None
        if taken is None:
            taken = self._spawn()
            _tell(taken, directory)
        return taken.pid, taken.heard

    def prepare(self) -> None:
        """Start an idle keeper if there is none."""
        with self._lock:
            if self._waiting is None and not self._closed:
                self._waiting = self._spawn()

    def close(self) -> None:
        """End the idle keeper and start no other."""
        with self._lock:
            left, self._waiting, self._closed = self._waiting, None, True
        if left is not None:
            _drop(left)

    def _spawn(self) -> StartedKeeper:
        """A keeper detached from us in every way.

        Of our environment it gets nothing, of our files the ends of two pipes.
        """
        orders, tell = os.pipe()
        heard, answer = os.pipe()
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", BOOT, KEEPER_DIRECTORY, str(self._root)],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, orders, 0),
                    (os.POSIX_SPAWN_DUP2, answer, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
                setsigmask=(),
            )
        except OSError:
            os.close(tell)
            os.close(heard)
            raise
        finally:
            os.close(orders)
            os.close(answer)
        return StartedKeeper(pid, tell, heard)


def _tell(one: StartedKeeper, directory: Path) -> bool:
    """Send a keeper its directory; False if it had died while it was idle."""
    try:
        os.write(one.tell, os.fsencode(directory))
    except BrokenPipeError:
        os.close(one.tell)
        os.close(one.heard)
        os.waitpid(one.pid, 0)
        return False
    os.close(one.tell)
    return True


def _drop(one: StartedKeeper) -> None:
    os.close(one.tell)
    os.close(one.heard)
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
