"""Bubblewrap around an agent, where it is there and works: less to see, and one kill for all.

The file system is read-only but for the agent's own directories and /tmp, other runtimes and what
the plane hides are empty, and its processes are in a namespace of their own that dies with the
keeper.  The network is the machine's own.  This is not a security boundary.
"""

import shutil
import subprocess
from collections.abc import Sequence

PROBE_SECONDS = 5.0


def find(path: str) -> str:
    """A bubblewrap on this search path that really runs here, or nothing."""
    found = shutil.which("bwrap", path=path)
    if found is None:
        return ""
    command = [*wrap(found, hidden=(), writable=("/tmp",)), "/bin/sh", "-c", "exit 7"]  # noqa: S108
    try:
        tried = subprocess.run(  # noqa: S603 (what is run is chosen by the operator)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_SECONDS,
            env={"PATH": path},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found if tried.returncode == 7 else ""  # noqa: PLR2004 (the probe's own number)


def wrap(
    bwrap: str, *, hidden: Sequence[str], readable: Sequence[str] = (), writable: Sequence[str]
) -> list[str]:
    """The words before a command: all read-only, `hidden` empty but for what is named."""
    words = [bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    words += ["--cap-drop", "ALL"]  # root could unmount what hides
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--bind", "/tmp", "/tmp"]  # noqa: S108 (programs and what they import may lie there)
    for path in hidden:
        words += ["--tmpfs", path]
    for path in readable:
        if any(path.startswith(f"{above}/") for above in hidden):
            words += ["--ro-bind", path, path]
    for path in writable:
        words += ["--bind", path, path]
    return [*words, "--"]
