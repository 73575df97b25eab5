"""A create that is killed, or whose disk fails, at every single storage call it makes.

Goal: whatever call is the last one, an acknowledged operation is there and ends, one that was not acknowledged is whole
or not there, and no resource is without an owner.  A disk that fails at COMMIT ends the process with a sentence, and
nothing is acknowledged after the failure.
Method: strace attaches to a child that is about to create one operation, counts its calls, and then, in a run of its
own for each, kills it at that call (SIGKILL), or makes the call fail (EIO, ENOSPC).  Then recover from what is on
disk, finish, and audit.  strace counts by thread, so there are two kinds of runs: on a new file, where the main thread
opens, migrates, calls providers and closes; and on a file that is there, where the log is written by the thread that
commits and by nobody else.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.testing import kill9

CHUNKS = 4
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WRITES = (
    "pwrite64", "pwritev", "pwritev2", "write", "writev", "fdatasync", "fsync", "sync_file_range", "ftruncate",
    "fallocate", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "openat",
)  # fmt: skip
SENTENCE = re.compile(r"(?:CommitUnknown|Store\w*): [^\n]+\.\n")
STORES = ("", "-wal", "-shm", "-journal", ".lock")


class Run(NamedTuple):
    """One child under strace: what it said, how it ended, what strace saw."""

    folder: Path
    status: int
    said: list[kill9.Said]
    errors: str
    trace: str


@pytest.fixture(scope="module")
def nurses() -> Iterator[kill9.Nursery]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not here: no call can be made to fail (Debian: apt-get install strace)")
    with kill9.nursery() as nurses:
        yield nurses


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Memory, if there is some: what a call comes to does not depend on the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def made(place: Path) -> Path:
    """A store that was opened and closed once."""
    folder = place / "made"
    folder.mkdir()
    assert asyncio.run(kill9.finish(folder))
    return folder


def trace(
    nurses: kill9.Nursery,
    folder: Path,
    calls: tuple[str, ...],
    *,
    inject: str = "",
    paths: tuple[str, ...] = (),
    threads: bool = False,
) -> Run:
    """Let a child create one operation under strace; `paths` are the store's files that count, by their endings."""
    file = folder / "said"
    pid = nurses.fork(folder, None, file)
    command = ["strace", "-p", str(pid), "-o", str(folder / "trace"), "-e", f"trace={','.join(calls)}"]
    command += ["-e", "signal=none", *(["-f"] if threads else [])]
    for path in paths:
        command += ["-P", f"{folder / kill9.STORE}{path}"]
    if inject:
        command += ["-e", f"inject={inject}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        while "attached" not in (line := strace.stderr.readline()):
            if not line or "Operation not permitted" in line:
                pytest.skip(f"strace may not attach to a process here: {line.strip()}")
        os.kill(pid, signal.SIGCONT)
        status = nurses.status()
    errors = Path(f"{file}.errors").read_text()
    return Run(folder, status, kill9.lines_of([file]), errors, (folder / "trace").read_text())
