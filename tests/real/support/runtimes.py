"""What tests of runtimes share: small agents, and that nothing of them is left at the end.

The process table is read here without a word of Tenure's.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.runtime.process import ProcessRuntime
from tenure.ports.provider import Presence
from tenure.testing.contracts.provider import key

AGENT = Path(__file__).parent / "agents" / "quick.py"


def agent(mode="healthy", **more):
    if mode == "missing":
        return {"command": ["no-such-program"], **more}
    env = {"MODE": mode, **more.pop("env", {})}
    return {"command": [sys.executable, "-I", "-S", str(AGENT)], "env": env, **more}


def program(text: str, **more):
    """A spec that runs this text."""
    return {"command": [sys.executable, "-I", "-S", "-c", text], **more}


@contextmanager
def open_runtime(root: Path, **more):
    more = {"sandbox": "off", "grace_seconds": 0.3, **more}
    runtime = ProcessRuntime(root, clock=SystemClock(), **more)
    try:
        yield runtime
    finally:
        runtime.close()


def run(work):
    return asyncio.run(work)


def start_and_wait(runtime, spec, one=None):
    """Start it and wait for it; where it is."""
    one = one or key()
    reference = run(runtime.ensure(one, spec))
    status = run(runtime.wait_ready(one, seconds=60))
    assert status.presence is Presence.READY, status
    return reference


def run_to_end(runtime, spec, one=None):
    """Start it and wait for its end; how it ended."""
    one = one or key()
    run(runtime.ensure(one, spec))
    status = run(runtime.wait_ready(one, seconds=60))
    assert status.presence is Presence.BROKEN, status
    return status


def agent_processes(directory: Path) -> list[int]:
    """Every process that an agent's environment ties to a place below this directory."""
    mark = f"TENURE_DIRECTORY={directory}/".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                environ = (place / "environ").read_bytes()
            except OSError:
                continue
            if any(entry.startswith(mark) for entry in environ.split(b"\0")):
                found.append(int(place.name))
    return found


def keepers(directory: Path) -> list[int]:
    """Every keeper of a place below this directory: it has the lock open."""
    return [pid for pid in _with_command(directory) if _has_lock(pid, directory)]


def spares(directory: Path) -> list[int]:
    """Every keeper that waits to be told what to keep, for a place at this directory."""
    return [pid for pid in _with_command(directory) if not _has_lock(pid, directory)]


def _with_command(directory: Path) -> list[int]:
    """Keepers by their command line, which ends with the root that they are for."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            named = Path(os.fsdecode(words[6])) if b"-S" in words and words[6:] else Path("/")
            if named.is_relative_to(directory):
                found.append(int(place.name))
    return found


def _has_lock(pid: int, directory: Path) -> bool:
    return any(one.startswith(f"{directory}/") and "/lock" in one for one in _open_files(pid))


def _open_files(pid: int) -> Iterator[str]:
    with suppress(OSError):  # it is gone
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # this one was closed meanwhile
                yield str(file.readlink())


def all_ended(directory: Path) -> bool:
    """Whether neither an agent nor a keeper of this directory is left."""
    return not agent_processes(directory) and not keepers(directory)


def is_alive(pid: int) -> bool:
    """Whether it runs; who is dead and not yet collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def until(condition, seconds: float = 60.0):
    """Wait until the condition is true, or the time is over; return its last result."""
    end = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    return result


def tell(pid: int, number: signal.Signals) -> None:
    """Send a signal to who may just have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def end_all_after(directory: Path):
    """End every keeper and agent of this directory, whatever happened."""
    try:
        yield
    finally:
        for pid in keepers(directory):
            tell(pid, signal.SIGQUIT)
        over = until(lambda: not keepers(directory))
        for pid in keepers(directory):
            tell(pid, signal.SIGKILL)
        left = agent_processes(directory)
        for pid in left:
            tell(pid, signal.SIGKILL)
        assert over
        assert not left, f"left when its keeper was gone: {left}"
