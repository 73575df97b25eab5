"""Runs an agent in bubblewrap, where bubblewrap is installed and works.

The file system is read-only except the agent's own directories and /tmp.  Directories of other
runtimes and of the plane are empty.  The agent's processes are in a pid namespace of their own that
ends with the keeper.  The network is the machine's own.  This is not a security boundary.
"""

import shutil
import subprocess
from collections.abc import Sequence

PROBE_SECONDS = 5.0


def find(path: str) -> str:
    """The path of a bubblewrap that runs here; "" if there is none."""
    found = shutil.which("bwrap", path=path)
    if found is None:
        return ""
    command = [*wrap(found, hidden=(), writable=("/tmp",)), "/bin/sh", "-c", "exit 7"]  # noqa: S108
    try:
        result = subprocess.run(  # noqa: S603 (the operator chooses the program)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_SECONDS,
            env={"PATH": path},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found if result.returncode == 7 else ""  # noqa: PLR2004 (the probe's own number)


def wrap(
    bwrap: str, *, hidden: Sequence[str], readable: Sequence[str] = (), writable: Sequence[str]
) -> list[str]:
    """The bubblewrap command line: all read-only, `hidden` directories empty."""
    command = [bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    command += ["--cap-drop", "ALL"]  # root could unmount the hiding mounts
    command += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    command += ["--bind", "/tmp", "/tmp"]  # noqa: S108 (programs and their imports may be there)
    for path in hidden:
        command += ["--tmpfs", path]
    for path in readable:
        if any(path.startswith(f"{above}/") for above in hidden):
            command += ["--ro-bind", path, path]
    for path in writable:
        command += ["--bind", path, path]
    return [*command, "--"]
