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
    directory_pipe: int
    answer_pipe: int


class KeeperPool:
    """At most one idle keeper; safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of all runtimes; the command line of each keeper names it."""
        self._root = root
        self._lock = threading.Lock()
        self._waiting: StartedKeeper | None = None
        self._is_closed = False

    def keep(self, directory: Path) -> tuple[int, int]:
        """Assign a keeper to this directory; return its pid and the pipe on which it answers."""
        with self._lock:
            started, self._waiting = self._waiting, None
        if started is not None and not _assign(started, directory):
            started = None
        if started is None:
            started = self._spawn()
            _assign(started, directory)
        return started.pid, started.answer_pipe

    def prepare(self) -> None:
        """Start an idle keeper if there is none."""
        with self._lock:
            if self._waiting is None and not self._is_closed:
                self._waiting = self._spawn()

    def close(self) -> None:
        """End the idle keeper and start no other."""
        with self._lock:
            idle, self._waiting, self._is_closed = self._waiting, None, True
        if idle is not None:
            _drop(idle)

    def _spawn(self) -> StartedKeeper:
        """A keeper detached from us in every way.

        Of our environment it gets nothing, of our files the ends of two pipes.
        """
        read_end, directory_pipe = os.pipe()
        answer_pipe, answer = os.pipe()
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", BOOT, KEEPER_DIRECTORY, str(self._root)],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read_end, 0),
                    (os.POSIX_SPAWN_DUP2, answer, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
                setsigmask=(),
            )
        except OSError:
            os.close(directory_pipe)
            os.close(answer_pipe)
            raise
        finally:
            os.close(read_end)
            os.close(answer)
        return StartedKeeper(pid, directory_pipe, answer_pipe)


def _assign(one: StartedKeeper, directory: Path) -> bool:
    """Send a keeper its directory; False if it had died while it was idle."""
    try:
        os.write(one.directory_pipe, os.fsencode(directory))
    except BrokenPipeError:
        os.close(one.directory_pipe)
        os.close(one.answer_pipe)
        os.waitpid(one.pid, 0)
        return False
    os.close(one.directory_pipe)
    return True


def _drop(one: StartedKeeper) -> None:
    os.close(one.directory_pipe)
    os.close(one.answer_pipe)
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
