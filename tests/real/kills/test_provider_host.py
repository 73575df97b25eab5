"""The host in real processes.

Goal: whoever serves the providers may be killed at any instant; another serves, and what the
providers hold is what was asked for, once.  Method: several processes share a home and work; the
one that serves, as the lock's own file names it, gets -9; then the providers' files are read by
plain SQLite, and the process table.
"""

import os
import queue
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tenure.core.errors import StoreLocked
from tenure.sqlite.location import Lock
from tests.real.support import runtimes

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[3]
SECONDS = 120.0


class Lodger:
    """One process that shares the home, and what it has said."""

    def __init__(self, home: Path, name: str, work: str, count: int = 0, *more: str) -> None:
        module = "tests.real.support.shared_home_process"
        words = [sys.executable, "-m", module, str(home), name, work, str(count)]
        self.words = [*words, *more]
        self.start()

    def start(self) -> None:
        self.heard: Counter[str] = Counter()
        self._lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            self.words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._hear, args=(self._lines,), daemon=True).start()

    def _hear(self, lines: queue.Queue[str]) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # closed under our hands
            for line in self.process.stdout:
                lines.put(line.strip())
        lines.put("")

    def until(self, line: str, times: int = 1) -> None:
        """Wait until it has said so, so often."""
        while self.heard[line] < times:
            said = self._lines.get(timeout=SECONDS)
            assert said, f"it ended, after {self.heard}"
            self.heard[said.split()[0]] += 1
            if said.startswith("ended"):
                self.heard[said] += 1

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SECONDS) == 0


@contextmanager
def lodging(home: Path, *works: tuple[object, ...]) -> Iterator[list[Lodger]]:
    """These processes, the first of which serves; they leave at the end."""
    lodgers: list[Lodger] = []
    try:
        for work in works:
            lodgers.append(Lodger(home, *work))  # type: ignore[arg-type]
            lodgers[0].until("ready")
        for one in lodgers:
            one.until("ready")
            one.begin()
        yield lodgers
        for one in lodgers:
            if one.process.poll() is None:
                one.leave()
    finally:
        for one in lodgers:
            one.kill()


def serving(home: Path, lodgers: list[Lodger]) -> Lodger:
    """Who serves, by the lock's own file; as soon as somebody who lives does."""

    def lodgers_named() -> list[Lodger]:
        pid = (home / "providers.lock").read_text().strip()
        living = (one for one in lodgers if one.process.poll() is None)
        return [one for one in living if str(one.process.pid) == pid]

    found: list[Lodger] = runtimes.until(lodgers_named, SECONDS)
    return found[0]


def rows(home: Path, provider: str, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(home / f"{provider}.db")) as file:
        return file.execute(sql).fetchall()


PRESENT = "SELECT key FROM resource WHERE state = 'PRESENT'"


@pytest.mark.slow
def test_kill_9_of_who_serves_amid_a_thousand_ensures_loses_and_doubles_nothing(tmp_path, tally):
    for each in (500, 2_000, 8_000):  # on a busy machine a kill may come when all is made
        home = tmp_path / str(each)
        home.mkdir()
        tally.add("kills")
        if killed_amid_ensures(home, each):
            return
    pytest.fail("nothing was under way: each kill came too late")


def killed_amid_ensures(home: Path, each: int) -> bool:
    """Whether calls were under way when who served was killed; nothing is lost or doubled."""
    works = [("keep", "stay"), ("b", "ensures", each), ("c", "ensures", each)]
    with lodging(home, *works) as lodgers:
        first, *rest = lodgers
        assert serving(home, lodgers) is first
        for one in rest:
            one.until("made")
        os.kill(first.process.pid, signal.SIGSTOP)  # wherever that is, both have calls under way
        first.kill()
        for one in rest:
            one.until("finished")
        assert [one.heard["made"] for one in rest] == [each, each]
        ended = {line for one in rest for line in one.heard if line.startswith("ended ")}
        assert ended <= {"ended Unavailable", "ended OutcomeUnknown"}
        if ended:
            heir = serving(home, lodgers)
            heir.until("opened")  # which it may have said after its own work was finished
            assert [one for one in lodgers if one.heard["opened"]] == [first, heir]
    names = {f"{name}{number}" for name in "bc" for number in range(each)}
    assert len(rows(home, "access", PRESENT)) == len(names)
    grants = rows(home, "access", 'SELECT subject FROM "grant"')
    assert sorted(str(subject) for (subject,) in grants) == sorted(names)
    return bool(ended)


@pytest.mark.slow
def test_kill_9_of_whoever_serves_amid_creates_makes_every_agent_once(tmp_path, tally):
    for each in (6, 12, 24):  # on a busy machine the first kill may come when all is made
        home = tmp_path / str(each)
        home.mkdir()
        if killed_amid_creates(home, each, tally):
            return
    pytest.fail("nothing was under way: each first kill came too late")


def killed_amid_creates(home: Path, each: int, tally) -> bool:
    """Whether agents were still to be made at the first kill; each is made once."""
    works = [("keep", "stay"), ("b", "creates", each), ("c", "creates", each)]
    with runtimes.end_all_after(home / "runtimes"), lodging(home, *works) as lodgers:
        makers = lodgers[1:]
        for one in makers:
            one.until("accepted")
        first = serving(home, lodgers)
        os.kill(first.process.pid, signal.SIGSTOP)  # it makes no more of them
        amid = len(runtimes.agent_processes(home / "runtimes")) < 2 * each
        for _ in range(3):
            killed = serving(home, lodgers)
            killed.kill()
            tally.add("kills")
            if killed in makers:  # its plane recovers, and it is asked for the same ones again
                killed.start()
                killed.begin()
                killed.until("accepted")
            else:
                for one in makers:
                    one.until("accepted", 2)
        for one in makers:
            one.until("finished")
            assert one.heard["made"] >= each
            assert not {"COMPENSATED", "STUCK", "ABANDONED"} & {*one.heard}
        for provider in ("identity", "access", "credentials"):
            assert len(rows(home, provider, PRESENT)) == 2 * each
        assert len(rows(home, "identity", "SELECT * FROM client")) == 2 * each
        assert len(rows(home, "access", 'SELECT * FROM "grant"')) == 2 * each
        assert len(rows(home, "credentials", "SELECT * FROM registration")) == 2 * each
        assert len(runtimes.agent_processes(home / "runtimes")) == 2 * each
        assert len(runtimes.keepers(home / "runtimes")) == 2 * each
    return amid


@pytest.mark.slow
def test_one_that_stands_still_keeps_the_host_and_goes_on(tmp_path):
    with lodging(tmp_path, ("keep", "stay"), ("b", "ensures", 200)) as lodgers:
        first, other = lodgers
        other.until("made", 20)
        os.kill(first.process.pid, signal.SIGSTOP)
        with pytest.raises(StoreLocked):
            Lock.take(tmp_path / "providers")
        os.kill(first.process.pid, signal.SIGCONT)
        other.until("finished")
        assert serving(tmp_path, lodgers) is first
        assert not other.heard["ended"]
        assert len(rows(tmp_path, "access", PRESENT)) == 200


@pytest.mark.slow
def test_without_any_lock_two_would_serve_one_home(tmp_path):
    works = [("a", "stay", 0, "--no-locks"), ("b", "stay", 0, "--no-locks")]
    with lodging(tmp_path, *works) as lodgers:
        for one in lodgers:
            one.until("finished")
        assert [one.heard["opened"] for one in lodgers] == [1, 1]


@pytest.mark.slow
def test_with_the_lock_one_serves(tmp_path):
    with lodging(tmp_path, ("a", "stay"), ("b", "stay"), ("c", "stay")) as lodgers:
        for one in lodgers:
            one.until("finished")
        assert [one.heard["opened"] for one in lodgers] == [1, 0, 0]


FOREIGN = """
import os, socket, sys
os.setresgid(65_534, 65_534, 65_534)
os.setresuid(65_534, 65_534, 65_534)
one = socket.socket(socket.AF_UNIX)
try:
    one.connect(sys.argv[1])
except PermissionError:
    print("no entry")
else:
    print(len(one.recv(100)))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_kept_out_by_the_file_and_by_the_kernels_word(tmp_path):
    base = Path(f"/tmp/tenure-host-{os.getpid()}")
    base.mkdir(mode=0o755)
    try:
        with lodging(base, ("a", "stay")):
            path = base / "providers.sock"
            words = [sys.executable, "-I", "-S", "-c", FOREIGN, str(path)]

            def try_runtime() -> str:
                asked = subprocess.run(words, capture_output=True, text=True, check=True)
                return asked.stdout.strip()

            assert try_runtime() == "no entry"
            path.chmod(0o666)
            assert try_runtime() == "0"
            with socket.socket(socket.AF_UNIX) as ours:
                ours.connect(str(path))
                assert ours.recv(100)
    finally:
        subprocess.run(["rm", "-rf", str(base)], check=True)
