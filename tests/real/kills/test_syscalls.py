"""A create that is killed, or whose disk fails, at every single storage call it makes.

Goal: whatever call is the last one, an acknowledged operation is there and ends, one that was not
acknowledged is whole or not there, and no resource is without an owner.  A disk that fails at
COMMIT ends the process with a sentence, and nothing is acknowledged after the failure.
Method: strace attaches to a child that is about to create one operation and counts its calls;
then, in a run of its own for each, it kills the child at that call, or makes the call fail (EIO,
ENOSPC).  Then recover from what is on disk, finish, and audit.  strace counts by thread, so there
are two kinds of runs: those on no file at all watch the main thread, which opens, migrates, calls
providers and closes; those on an empty store watch the log, which is written by the thread that
commits and, before the end, by nobody else.  The same is done to a process that recovers what
another has left half-way.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proofs.kills import audit, kill9
from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store import sqlite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHUNKS = range(4)
CHANGES = (
    "fallocate", "fdatasync", "fsync", "ftruncate", "mkdir", "openat", "pwrite64", "pwritev",
    "pwritev2", "rename", "renameat", "renameat2", "sync_file_range", "unlink", "unlinkat", "write",
    "writev",
)  # fmt: skip
SENTENCE = re.compile(r"(?:CommitUnknown|Store\w*): [^\n]+\.\n")


class Case(NamedTuple):
    """On what a child begins, and which of its calls count."""

    start: str
    """The folder that is copied."""
    commits: bool
    """The calls of the thread that commits, or of the main one."""
    endings: tuple[str, ...] = ()
    """Of the names of the store's files; none: on every file, shelves and standard output too."""
    calls: tuple[str, ...] = CHANGES


STORE = ("", "-wal", "-shm", "-journal", ".lock")
MAIN = Case("nothing", commits=False)
MAIN_ON_STORE = Case("nothing", commits=False, endings=STORE, calls=(*CHANGES, "pread64"))
COMMIT = Case("empty", commits=True, endings=("-wal",))
RECOVERY = Case("interrupted", commits=False)
RECOVERY_ON_STORE = Case("interrupted", commits=False, endings=STORE, calls=(*CHANGES, "pread64"))
RECOVERY_COMMIT = Case("interrupted", commits=True, endings=("-wal",))
ENDS = {
    "nothing": ["accepted", "ended"],
    "empty": ["accepted", "ended"],
    "interrupted": ["accepted"],
}
"""What was said when all went well; `finished` is no line with an id."""


def name_of(case: Case) -> str:
    return f"{'commit' if case.commits else 'main'}-on-{case.start}"


class Run(NamedTuple):
    """One child under strace: what it said, how it ended, what strace saw."""

    folder: Path
    status: int
    said: list[audit.ChildLine]
    errors: str
    calls: Counter[str]
    injected: int


class Bench:
    """Where children are watched."""

    def __init__(self, nurses: kill9.Nursery, place: Path) -> None:
        self._nurses = nurses
        self._place = place
        self._points: dict[Case, list[tuple[str, int]]] = {}
        for start in ENDS:
            (place / start).mkdir()
        self._open_and_close(place / "empty")
        # Two steps of four are recorded, and the third is under way.
        half_way = self.run(MAIN, "rename:signal=SIGKILL:when=3")
        assert [said.word for said in half_way.said] == ["accepted"]
        self._open_and_close(half_way.folder)  # so that no lease is left to be dropped
        shutil.rmtree(place / "interrupted")
        half_way.folder.rename(place / "interrupted")

    @staticmethod
    def _open_and_close(folder: Path) -> None:
        asyncio.run(sqlite.build(folder / audit.STORE, clock=SystemClock()).close())

    def points(self, case: Case) -> list[tuple[str, int]]:
        """Every call of a child that nothing happens to, by its name and number."""
        if case not in self._points:
            run = self.run(case)
            said = [said.word for said in run.said]
            assert (run.status, said) == (0, ENDS[case.start]), run.errors
            self.check(run)
            self._points[case] = [
                (name, n) for name in sorted(run.calls) for n in range(1, run.calls[name] + 1)
            ]
        return self._points[case]

    def run(self, case: Case, inject: str = "") -> Run:
        """Let a child create one operation."""
        folder = self._place / "run"
        shutil.copytree(self._place / case.start, folder)
        pid = self._nurses.fork(folder, None, folder / "said")
        command = ["strace", "-p", str(pid), "-o", str(folder / "trace"), "-e", "signal=none"]
        command += ["-e", f"trace={','.join(case.calls)}", *(["-f"] if case.commits else [])]
        command += [part for end in case.endings for part in ("-P", f"{folder / audit.STORE}{end}")]
        command += ["-e", f"inject={inject}"] if inject else []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            while "attached" not in (line := strace.stderr.readline()):
                if not line or "not permitted" in line:
                    pytest.skip(f"strace may not attach to a process here: {line.strip()}")
            os.kill(pid, signal.SIGCONT)
            status = self._nurses.status()
        errors = (folder / "said.errors").read_text()
        seen = (folder / "trace").read_text()
        calls = Counter(
            name
            for thread, name in re.findall(r"^(?:(\d+) +)?(\w+)\(", seen, re.MULTILINE)
            if thread != str(pid)
        )
        said = audit.lines_of([folder / "said"])
        return Run(folder, status, said, errors, calls, seen.count("(INJECTED)"))

    def check(self, run: Run) -> None:
        """Recover from what is on disk, and compare it with what was said and what there is."""
        late = [said for said in run.said if said.word == "late"]
        assert not late, "acknowledged after the store had failed"
        assert asyncio.run(kill9.finish(run.folder, seconds=100)), "not everything has ended"
        report = audit.audit(run.folder, run.said)
        assert report.sound, report.notes
        assert report.operations <= 1
        shutil.rmtree(run.folder)

    def clear(self) -> None:
        """Leave nothing of a test that broke off."""
        self._nurses.clear()
        shutil.rmtree(self._place / "run", ignore_errors=True)


@pytest.fixture(scope="module")
def shared_bench() -> Iterator[Bench]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not here, so no call can be made to fail (Debian package strace)")
    # Memory, if there is some: what a failing call leads to does not depend on the disk.
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name,
        kill9.nursery() as nurses,
    ):
        yield Bench(nurses, Path(name))


@pytest.fixture
def bench(shared_bench: Bench) -> Iterator[Bench]:
    """One for all tests of this process: to import everything takes longer than many a test."""
    yield shared_bench
    shared_bench.clear()


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("case", [MAIN, COMMIT, RECOVERY, RECOVERY_COMMIT], ids=name_of)
def test_a_kill_at_any_call_loses_nothing_acknowledged_and_leaves_nothing_behind(
    bench, tally, case, chunk
):
    points = bench.points(case)
    assert len(points) > 40
    for name, number in points[chunk :: len(CHUNKS)]:
        run = bench.run(case, f"{name}:signal=SIGKILL:when={number}")
        assert kill9.was_killed(run.status), f"{name} {number} was not reached"
        bench.check(run)
        tally.add("syscall_points")


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("case", [COMMIT, RECOVERY_COMMIT], ids=name_of)
def test_a_commit_that_fails_ends_the_process_with_a_sentence_and_no_further_acknowledgement(
    bench, tally, case, error, chunk
):
    for name, number in bench.points(case)[chunk :: len(CHUNKS)]:
        run = bench.run(case, f"{name}:error={error}:when={number}")
        where = f"{name} {number}: {run.errors}"
        assert run.injected == 1, where
        assert os.waitstatus_to_exitcode(run.status) == kill9.STOPPED, where
        assert SENTENCE.fullmatch(run.errors), where
        assert run.errors.startswith("CommitUnknown: "), where
        bench.check(run)
        tally.add("syscall_points")


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("case", [MAIN_ON_STORE, RECOVERY_ON_STORE], ids=name_of)
def test_any_other_call_that_fails_is_survived_or_ends_the_process_with_a_sentence(
    bench, tally, case, error, chunk
):
    points = [p for p in bench.points(case) if (error, p[0]) != ("ENOSPC", "pread64")]
    for name, number in points[chunk :: len(CHUNKS)]:
        run = bench.run(case, f"{name}:error={error}:when={number}")
        where = f"{name} {number}: {run.errors}"
        assert run.injected == 1, where
        code = os.waitstatus_to_exitcode(run.status)
        if code == 0:
            assert [said.word for said in run.said] == ENDS[case.start], where
        else:
            assert code == kill9.STOPPED, where
            assert SENTENCE.fullmatch(run.errors), where
        bench.check(run)
        tally.add("syscall_points")
