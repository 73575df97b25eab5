"""A control plane in a process of its own, its clients, and what watches where it stands.

Only the plane is signalled, never a keeper.  Requests are sent while it stands still and their
answers are read when it is dead: what had left it by then was promised.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

COMMIT_SECONDS = 0.002
"""For which the beginning of a commit is waited for."""
PATIENT_SECONDS = 0.1
"""For which its end is."""
WRITE_LOCK_AT = 120
"""Where in the index of a log the lock of whoever writes is, by the file format of SQLite."""
SETTLE_SECONDS = 90.0
"""Within which everything must have ended and be in order after a restart."""
START_SECONDS = 120.0
NUDGE_SECONDS = 0.02
"""After which a reader whom a plane that stands still has shut out lets it go on."""
MOVING = ("PENDING", "RUNNING", "WAITING", "COMPENSATING")
UNDOS = ("-runtime", "-access", "-identity")
"""Steps of a create that are undone when its runtime breaks."""


class Answer(NamedTuple):
    """What came back; status 0: nothing did."""

    status: int
    body: Any


class PipelinedConnection:
    """A connection on which requests are sent at once and answers read later, maybe too late."""

    def __init__(self, plane: "ControlPlane") -> None:
        host, _, port = plane.address.removeprefix("http://").rpartition(":")
        self._plane = plane
        self._socket = socket.create_connection((host, int(port)), timeout=SETTLE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._sent = 0

    def send(self, method: str, path: str, body: object = None, *, wait: int = 0) -> None:
        """Hand it to the kernel."""
        text = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: plane\r\n"
            f"Authorization: Bearer {self._plane.token}\r\nContent-Length: {len(text)}\r\n"
            + ("Content-Type: application/json\r\n" if text else "")
            + (f"Prefer: wait={wait}\r\n" if wait else "")
        )
        self._socket.sendall(head.encode() + b"\r\n" + text)
        self._sent += 1

    def answers(self) -> list[Answer]:
        """What was answered; the rest was lost with the plane."""
        found = []
        with suppress(OSError, EOFError):
            while self._sent:
                found.append(self._answer())
                self._sent -= 1
        return found

    def _answer(self) -> Answer:
        status = self._line()
        size = 0
        while line := self._line():
            name, _, value = line.partition(":")
            size = int(value) if name.lower() == "content-length" else size
        body = self._file.read(size)
        if len(body) < size:
            raise EOFError
        return Answer(int(status.split()[1]), json.loads(body))

    def _line(self) -> str:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        return line.decode().strip()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class ControlPlane:
    """`tenure up` on one home, again and again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.address = self.token = ""
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it, and do not wait until it is ready."""
        self.home.mkdir(exist_ok=True)
        (self.home / "address").unlink(missing_ok=True)
        command = [sys.executable, "-m", "tenure", "up", "--home", str(self.home), "--port", "0"]
        with (self.home / "said").open("ab") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        self.started_at = time.monotonic()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.begin()
        while not (self.home / "address").exists():
            assert self._process is not None
            assert self._process.poll() is None, (self.home / "said").read_text()[-2000:]
            assert time.monotonic() < self.started_at + START_SECONDS, "it does not start"
            time.sleep(0.005)
        self.address = (self.home / "address").read_text().strip()
        self.token = (self.home / "token").read_text().strip()
        while self.ask("GET", "/readyz").status != 200:
            assert time.monotonic() < self.started_at + START_SECONDS, "it is never ready"
            time.sleep(0.005)

    def tell(self, number: signal.Signals) -> None:
        """Signal the plane, and nobody else; a stop is over when the whole process stands."""
        assert self._process is not None
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)
            if number is signal.SIGSTOP:
                _, status = os.waitpid(self._process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status), "the plane ended by itself"

    def kill(self) -> None:
        """End it by SIGKILL, also if it stands still."""
        if self._process is not None:
            self.tell(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """End it as one should."""
        self.tell(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(START_SECONDS)

    def ask(self, method: str, path: str, body: object = None, *, wait: int = 0) -> Answer:
        """Ask and wait for the answer."""
        with closing(PipelinedConnection(self)) as line:
            line.send(method, path, body, wait=wait)
            found = line.answers()
        return found[0] if found else Answer(0, None)

    def request_and_wait(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask for an operation and wait until it has ended or is stuck."""
        told: dict[str, Any] = self.ask(method, path, body, wait=60).body
        while told["state"] in MOVING:
            told = self.ask("GET", f"/v1/operations/{told['id']}/wait?seconds=60").body
        return told


@contextmanager
def lock_store(base: Path) -> Iterator[None]:
    """Keep everybody else from writing to this file of a plane that stands still."""
    writer = _open_writer(base)
    try:
        with suppress(apsw.BusyError):  # it stands in the middle of a commit: then so be it
            writer.execute("BEGIN IMMEDIATE")
        yield
    finally:
        writer.close()


def lapse_lead(base: Path) -> None:
    """Let the lead of the reconcilers, whoever has it, be over now."""
    writer = _open_writer(base)
    try:
        writer.set_busy_timeout(10_000)
        writer.execute("UPDATE lease SET until = 0 WHERE name = 'reconcilers'")
    finally:
        writer.close()


def _open_writer(base: Path) -> apsw.Connection:
    """A connection that leaves the log alone, also when it is the last to go."""
    opened = apsw.Connection(str(base), flags=apsw.SQLITE_OPEN_READWRITE)
    opened.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return opened


class Watch:
    """Reads in the store of a plane that stands still which steps are under way."""

    STEPS = """
        SELECT o.kind || '/' || i.step FROM operation o JOIN intent i ON i.operation = o.id
        WHERE o.ended_at IS NULL AND o.state NOT IN ('PENDING', 'COMPENSATING')
          AND i.state = 'INTENDED' AND NOT EXISTS (
            SELECT 1 FROM journal j WHERE j.operation = o.id AND j.step = i.step
        ) UNION ALL
        SELECT o.kind || '/-' || i.step FROM operation o JOIN intent i ON i.operation = o.id
        WHERE o.ended_at IS NULL AND o.state = 'COMPENSATING' AND i.state = 'REMOVING'
        """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._base = _open_writer(plane.home / "tenure.db")
        self._index = os.open(plane.home / "tenure.db-shm", os.O_RDWR)
        self._asked_at = 0.0
        self._nudged = False
        self._patient_until = 0.0
        self._base.set_busy_handler(lambda _: time.perf_counter() < self._patient_until)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._helper = threading.Thread(target=self._nudge, daemon=True)
        self._helper.start()

    def _nudge(self) -> None:
        """Let the plane go on when it was stopped where no reader gets past it."""
        while not self._closed.wait(NUDGE_SECONDS):
            with self._lock:
                if self._asked_at and time.monotonic() > self._asked_at + NUDGE_SECONDS:
                    self._nudged = True
                    self._plane.tell(signal.SIGCONT)

    def steps(self) -> set[str]:
        """What is under way; of undos the newest, since it comes first."""
        found = {str(step) for (step,) in self._read(self.STEPS)}
        undos = [f"create_agent/{step}" for step in UNDOS if f"create_agent/{step}" in found]
        return found - set(undos[1:])

    def is_quiet(self) -> bool:
        """Whether no operation is open."""
        return not self._read("SELECT 1 FROM operation WHERE ended_at IS NULL LIMIT 1")

    def _read(self, sql: str) -> list[Any]:
        self._asked_at = time.monotonic()
        try:
            return self._base.execute(sql).fetchall()
        finally:
            with self._lock:
                nudged, self._nudged, self._asked_at = self._nudged, False, 0.0
            if nudged:
                self._plane.tell(signal.SIGSTOP)

    def hold_after_commit(self) -> bool:
        """Let the plane, which runs, begin a commit, and hold its store the instant that is over.

        False if none begins soon, or another follows too closely.
        """
        until = time.perf_counter() + COMMIT_SECONDS
        while not self._is_written():
            if time.perf_counter() > until:
                return False
        self._patient_until = time.perf_counter() + PATIENT_SECONDS
        try:
            return self.hold()
        finally:
            self._patient_until = 0.0

    def _is_written(self) -> bool:
        """Whether somebody writes: asked of the lock itself, which is not touched."""
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, WRITE_LOCK_AT, 1, 0)
        told = fcntl.fcntl(self._index, fcntl.F_GETLK, asked)
        return bool(struct.unpack("hhqqi4x", told)[0] != fcntl.F_UNLCK)

    def hold(self) -> bool:
        """Keep the plane from recording anything; False if it is about to."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        return True

    def let_go(self) -> None:
        self._base.execute("ROLLBACK")

    def close(self) -> None:
        self._closed.set()
        self._helper.join()
        self._base.close()
        os.close(self._index)
