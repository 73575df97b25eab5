"""A control plane in a process of its own, its clients, and the hand that kills it.

The plane is killed at a chosen step without a hook in it: it is let run for a fraction of a
millisecond at a time (SIGCONT, SIGSTOP) and between two of these its store is read.  Only the plane
is killed, never a keeper.  Requests are sent while it stands still and their answers are read
when it is dead: what had left it by then was promised.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import StrEnum
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tenure.plans import lifecycle
from tests.real import checker

AGENT = Path(__file__).parent / "agents" / "quick.py"
SLICE_SECONDS, SHORT_SECONDS = 0.0002, 0.00003
"""For which the plane runs before it is looked at again; shorter when the step is the next."""
FLEET = 8
"""Agents that there should be."""
SETTLE_SECONDS = 90.0
"""Within which everything must be in order after a restart."""
START_SECONDS = 30.0
RUN_SECONDS = 20.0
NUDGE_SECONDS = 0.02
ATTEMPTS = 10
OPEN = ("PENDING", "RUNNING", "WAITING", "COMPENSATING", "STUCK")
PLANS = {plan.name: tuple(plan.steps) for plan in lifecycle.PLANS}
"""The steps of each plan, in order."""
UNDOS = ("-runtime", "-access", "-identity")
"""Steps of a create that are undone when its runtime breaks."""
HELD = {"identity": "identity", "access": "access", "credentials": "credentials",
        "closed": "credentials", "opened": "credentials"}  # fmt: skip
"""Steps that a lock on a provider's file keeps from ending."""


class How(StrEnum):
    """What happens between the moment a step is seen to be intended and the kill."""

    AT_ONCE = "at once"
    A_LITTLE_LATER = "a little later"
    UNRECORDED = "its call is applied, its record cannot be"
    REFUSED = "its provider is busy"


class Answer(NamedTuple):
    """What came back; status 0: nothing did."""

    status: int
    body: Any


class Line:
    """A connection on which requests are sent at once and answers read later, maybe too late."""

    def __init__(self, plane: "ControlPlane") -> None:
        host, _, port = plane.address.removeprefix("http://").rpartition(":")
        self._plane = plane
        self._socket = socket.create_connection((host, int(port)), timeout=SETTLE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        with suppress(OSError, HTTPException):
            for _ in range(self._sent):
                answer = HTTPResponse(self._socket)
                answer.begin()
                found.append(Answer(answer.status, json.loads(answer.read())))
        self._sent = 0
        return found

    def close(self) -> None:
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
            os.kill(self._process.pid, number)
            if number is signal.SIGSTOP:
                _, status = os.waitpid(self._process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status), "the plane ended by itself"

    def kill(self) -> None:
        """End it by SIGKILL, also if it stands still."""
        if self._process is not None:
            self.tell(signal.SIGKILL)
            self._process.wait()

    def ask(self, method: str, path: str, body: object = None, *, wait: int = 0) -> Answer:
        """Ask and wait for the answer."""
        with closing(Line(self)) as line:
            line.send(method, path, body, wait=wait)
            found = line.answers()
        return found[0] if found else Answer(0, None)


@contextmanager
def locked(base: Path) -> Iterator[None]:
    """Keep everybody else from writing to this file of a plane that stands still."""
    writer = _opened(base)
    try:
        writer.execute("BEGIN IMMEDIATE")
        yield
    finally:
        writer.close()


def _opened(base: Path) -> apsw.Connection:
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
        self._base = _opened(plane.home / "tenure.db")
        self._asked_at = 0.0
        self._nudged = False
        self._closed = threading.Event()
        self._helper = threading.Thread(target=self._nudge, daemon=True)
        self._helper.start()

    def _nudge(self) -> None:
        """Let the plane go on when it was stopped where no reader gets past it."""
        while not self._closed.wait(NUDGE_SECONDS):
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
            self._asked_at = 0.0
            if self._nudged:
                self._nudged = False
                self._plane.tell(signal.SIGSTOP)

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


class Driver:
    """Asks for operations, kills the plane inside their steps, and has the checker look."""

    def __init__(self, home: Path, *, seed: int) -> None:
        self.plane = ControlPlane(home)
        self.chance = random.Random(seed)
        self.promises: list[tuple[str, str]] = []
        self.inside: Counter[str] = Counter()
        """Kills by the steps that were under way."""
        self.kills = 0
        self.slowest_seconds = 0.0
        self.litter: set[str] = set()
        self._made = 0
        self._fleet: list[dict[str, Any]] = []

    # ------------------------------------------------------------------------------------- kills

    def kill_inside(self, plan: str, step: str, how: How) -> None:
        """Ask for this plan and others, kill the plane in the step, start it and see to it all.

        A step that was over too soon to be caught is tried for again, with other agents.
        """
        for _ in range(ATTEMPTS):
            lines = self._ask_for(plan, step)
            if self._caught(plan, step, how):
                self._note(lines, is_locked=how is How.UNRECORDED)
                break
            self.plane.tell(signal.SIGCONT)
            self._note(lines)
            self._await_quiet()
            self._fleet = self._listed()
        else:
            raise AssertionError(f"{plan}/{step} was never caught")
        self._died()
        self.recover()

    def _caught(self, plan: str, step: str, how: How) -> bool:
        """Whether the plane was caught in this step, and killed."""
        with ExitStack() as stack:
            if how is How.REFUSED and step in HELD:
                stack.enter_context(locked(self.plane.home / f"{HELD[step]}.db"))
            watch = stack.enter_context(closing(Watch(self.plane)))
            caught = self._run_until(watch, plan, step)
            if caught:
                self._linger(watch, step, how)
                self.plane.kill()
        return caught

    def kill_at_random(self, seconds: float) -> None:
        """Ask for a few operations and kill the plane a little later."""
        lines = self._ask_for(self.chance.choice([*PLANS]), "")
        self.plane.tell(signal.SIGCONT)
        time.sleep(self.chance.uniform(0.0, seconds))
        self.plane.kill()
        self._note(lines)
        self._died()
        if self.chance.random() < 0.5:  # and once more while it comes up again
            self.plane.begin()
            time.sleep(self.chance.uniform(0.0, 1.2))
            self.plane.kill()
            self._died()
        self.recover()

    def _run_until(self, watch: Watch, plan: str, step: str) -> bool:
        """Let the plane run, a little at a time, until this step is intended and has no end.

        It then stands still, and the end cannot be recorded: its store is held.
        """
        until = time.monotonic() + RUN_SECONDS
        target, before = f"{plan}/{step}", _before(plan, step)
        busy, near = False, not before
        while time.monotonic() < until:
            self.plane.tell(signal.SIGCONT)
            _spin(SHORT_SECONDS) if near else time.sleep(SLICE_SECONDS)
            self.plane.tell(signal.SIGSTOP)
            seen = watch.steps()
            if target in seen and watch.hold():
                if target in watch.steps():
                    return True
                watch.let_go()
            near = not before or before in seen or target in seen
            if busy and not seen and watch.is_quiet():
                return False
            busy = busy or bool(seen)
        return False

    def _linger(self, watch: Watch, step: str, how: How) -> None:
        """What is let happen before the kill."""
        match how:
            case How.AT_ONCE:
                return
            case How.A_LITTLE_LATER:
                watch.let_go()
                seconds = 0.003
            case How.UNRECORDED:
                seconds = 0.15 if "runtime" in step or step == "killed" else 0.03
            case _:
                watch.let_go()
                seconds = 0.3
        self.plane.tell(signal.SIGCONT)
        time.sleep(self.chance.uniform(0.0, seconds))

    def _note(self, lines: Sequence[Line], *, is_locked: bool = False) -> None:
        """Write down what was promised."""
        refusals = {404, 409} | ({503} if is_locked else set())
        for line in lines:
            for answer in line.answers():
                if answer.status == 202:
                    self.promises.append((answer.body["id"], answer.body["kind"]))
                else:
                    assert answer.status in refusals, answer
            line.close()

    def _died(self) -> None:
        """Write down where the dead plane stood."""
        self.kills += 1
        self.inside.update(checker.under_way(self.plane.home))

    def recover(self) -> None:
        """Start the plane; within a bounded time everything has ended and is as it should be."""
        self.plane.start()
        while True:
            self._await_quiet()
            items = self._listed()
            listed = {item["name"]: item["state"] for item in items}
            wrong = checker.check(self.plane.home, self.promises, listed)
            took = time.monotonic() - self.plane.started_at
            self.slowest_seconds = max(self.slowest_seconds, took)
            if not wrong:
                self._fleet = items
                self.litter |= checker.litter(self.plane.home)
                return
            assert took < SETTLE_SECONDS, "\n".join(wrong)

    def _listed(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.plane.ask("GET", "/v1/agents?limit=1000").body["items"]
        return items

    def _await_quiet(self) -> None:
        asked = "/v1/operations?limit=10&" + "&".join(f"state={state}" for state in OPEN)
        while left := self.plane.ask("GET", asked).body["items"]:
            took = time.monotonic() - self.plane.started_at
            assert took < SETTLE_SECONDS, left
            time.sleep(0.02)

    # ---------------------------------------------------------------------------------- requests

    def _ask_for(self, plan: str, step: str) -> list[Line]:
        """Have requests for this plan, and for some others, lie before a plane that stands still.

        Afterwards the fleet is what it was or smaller by those that are taken.
        """
        wanted = [self._request(plan, step)]
        for _ in range(self.chance.randint(1, 3)):
            wanted.append(self._request(self._usual(), ""))
        self.plane.tell(signal.SIGSTOP)
        lines = []
        for requests in wanted:
            line = Line(self.plane)
            for method, path, body in requests:
                line.send(method, path, body)
            lines.append(line)
        return lines

    def _usual(self) -> str:
        """What keeps a fleet of a few agents in all states."""
        if len(self._fleet) < FLEET // 2:
            return "create_agent"
        if len(self._fleet) > FLEET:
            return "delete_agent"
        return self.chance.choice([*PLANS])

    def _request(self, plan: str, step: str) -> list[tuple[str, str, object]]:
        if plan == "create_agent":
            return self._create(step)
        states = {"resume_agent": {"SUSPENDED"}, "suspend_agent": {"READY"}}
        wide = {"READY", "SUSPENDED"} | ({"CREATE_FAILED"} if plan == "delete_agent" else set())
        path = f"/v1/agents/{self._take(states.get(plan, wide), needed=bool(step))}"
        if path.endswith("/"):
            return self._create("")
        body = {"drain_seconds": 0.3, "keep_runtime": self.chance.random() < 0.2}
        if step == "runtime":
            body["keep_runtime"] = False
        verbs: dict[str, list[tuple[str, str, object]]] = {
            "suspend_agent": [("POST", f"{path}:suspend", body)],
            "resume_agent": [("POST", f"{path}:resume", None)],
            "stop_agent": [("POST", f"{path}:stop", None)],
            "delete_agent": [("DELETE", f"{path}?drain_seconds=0.3", None)],
        }
        return verbs[plan]

    def _create(self, step: str) -> list[tuple[str, str, object]]:
        """Mostly good ones; some that break, never answer, or are deleted while they are made."""
        mode = self.chance.choice(["healthy", "healthy", "healthy", "busy", "exits", "silent"])
        if step in {"credentials", "exposed"}:
            mode = "healthy"
        if step in UNDOS:
            mode = "exits"
        spec = self._spec(mode)
        requests: list[tuple[str, str, object]] = [("POST", "/v1/agents", spec)]
        if not step and self.chance.random() < 0.3:
            requests.append(("DELETE", f"/v1/agents/{spec['name']}", None))
        return requests

    def _spec(self, mode: str) -> dict[str, Any]:
        self._made += 1
        owners = [one["name"] for one in self._fleet if one["state"] == "READY"]
        parent = {"parent": owners[0]} if owners and self.chance.random() < 0.2 else {}
        return {
            "name": f"agent-{self._made}",
            "runtime": {
                "command": [sys.executable, "-I", "-S", str(AGENT)],
                "env": {"MODE": mode},
                "zone": self.chance.choice(checker.ZONES),
                "ready_seconds": 0.5 if mode == "silent" else 30.0,
                "drain_seconds": 0.3,
            },
            "roles": ["reader", "writer"][: self.chance.randint(0, 2)],
            "teams": ["blue"][: self.chance.randint(0, 1)],
            "credentials": [
                {"audience": f"https://{n}.example", "scopes": ["a:read"], "ttl_seconds": 60 + n}
                for n in range(self.chance.randint(0, 2))
            ],
            **parent,
        }

    def _take(self, states: set[str], *, needed: bool) -> str:
        """The name of an agent in one of these states, which is then nobody else's this time."""
        found = [one for one in self._fleet if one["state"] in states]
        if found:
            one = self.chance.choice(found)
            self._fleet.remove(one)
            return str(one["name"])
        if not needed:
            return ""
        spec = self._spec("healthy")
        made = self.plane.ask("POST", "/v1/agents", spec, wait=30)
        assert made.body["state"] == "SUCCEEDED", made
        if "READY" not in states:
            shut = self.plane.ask("POST", f"/v1/agents/{spec['name']}:suspend", wait=30)
            assert shut.body["state"] == "SUCCEEDED", shut
        return str(spec["name"])


def _before(plan: str, step: str) -> str:
    """The step that comes before this one, if any."""
    order = [f"-{name}" for name in reversed(PLANS[plan])] if step[0] == "-" else PLANS[plan]
    at = order.index(step)
    return f"{plan}/{order[at - 1]}" if at else ""


def _spin(seconds: float) -> None:
    """Wait for less time than a sleep takes."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
