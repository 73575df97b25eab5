"""Kills a real process with -9, again and again, and counts in the world what is left.

A *child* runs a whole plane on a real file.  Its clients ask for operations of every shape, and one line is written
for each acknowledgement and one for each end.  The parent kills it at a random instant and starts it on the same
directory; at the end it lets one finish.  Then an *audit* compares three witnesses that know nothing of each other:
what was acknowledged (the lines), what is kept (the store's file), what there is (the files on the shelves).

What an operation must come to follows from its label alone, so the audit believes nobody.  The processes that are
killed are forked by a *nursery* that has imported everything, since importing costs ten times as much as living.

usage: python -m tenure.testing.kill9 --kills 200 [--directory DIR] [--ablate ack_before_commit]
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tenure.app import operations
from tenure.app.operations import Accept
from tenure.app.plane import Plane
from tenure.core.errors import CommitUnknown, StoreError, TenureError
from tenure.core.operation import OPERATION, State
from tenure.core.plan import Kind, Plan
from tenure.plans.steps import provided
from tenure.ports.store import Change, Put, Refused
from tenure.settings import Settings
from tenure.testing.shelf import Shelf
from tenure.wiring import running

TENANT = "default"
SHELVES = ("identity", "access", "runtime", "endpoint")
STORE = "tenure.db"
CLIENTS = 24
AGAIN = 2
"""Requests with a key that the next life sends again, whatever became of them."""
SLOW_SECONDS = 0.002
"""Between a runtime's being there and its provider's answer."""
FINISH_SECONDS = 60.0
LIFE_SECONDS_MAX = 120
"""Nobody outlives a parent that was killed itself for longer."""
MARKS = (b"", b"open", b"accepted", b"ended")
"""A kill falls soon after one of these was said first, so that short lives get on too; "" is the fork."""
SOON_SECONDS = 0.06
ACK_BEFORE_COMMIT = "ack_before_commit"
STOPPED = 3
"""The exit code of a child that says why it cannot go on."""

LINEAR = Plan("linear", stages=tuple(provided(name, name) for name in SHELVES))
PARALLEL = Plan(
    "parallel",
    stages=(
        provided("identity", "identity"),
        (provided("access", "access"), provided("runtime", "runtime")),
        provided("endpoint", "endpoint"),
    ),
)
PIVOT = Plan(
    "pivot",
    stages=(
        provided("identity", "identity"),
        provided("runtime", "runtime"),
        provided("endpoint", "endpoint", kind=Kind.PIVOT),
        provided("access", "access", kind=Kind.RETRIABLE),
    ),
)
PLANS = (LINEAR, PARALLEL, PIVOT)


class Wanted(NamedTuple):
    """What a label asks for: a life, a number, and all that follows from the number."""

    life: int
    number: int

    @property
    def label(self) -> str:
        """Its name, in the operation's input and in every file it makes."""
        return f"{self.life}-{self.number}"

    @property
    def keyed(self) -> bool:
        """Whether it has an idempotency key, its label."""
        return self.number < AGAIN or self.number % 5 == 0

    @property
    def refusing(self) -> str:
        """The shelf that refuses it; "" if none does.  A pivot refuses like any other step."""
        return ("", "", "runtime", "", "endpoint", "", "")[self.number % 7]

    @property
    def end(self) -> State:
        """How it must end."""
        return State.COMPENSATED if self.refusing else State.SUCCEEDED

    def command(self) -> Accept:
        """The request."""
        wanted = {"label": self.label, "refuse": self.refusing}
        key = self.label if self.keyed else ""
        return Accept(PLANS[self.number % len(PLANS)].name, input=wanted, idempotency_key=key)

    @staticmethod
    def read(label: str) -> "Wanted":
        """What this label asks for."""
        life, number = label.split("-")
        return Wanted(int(life), int(number))


# ------------------------------------------------------------------------------------------------ the child


def say(*words: str) -> None:
    """One line with one write: it is there whole as soon as this returns, whoever dies then."""
    os.write(1, (" ".join(words) + "\n").encode())


class Hasty:
    """A store whose acknowledgement does not wait for the commit: what the audit must be able to see."""

    def __init__(self, store: Any) -> None:
        """In front of this store."""
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, change: Change) -> Refused | None:
        """Say that the operation is accepted, then accept it."""
        rows = {write.table: write.row for write in change.writes if isinstance(write, Put)}
        if change.admits and "idempotency" not in rows:  # which may be refused for a reason of its own
            say("accepted", change.id, json.loads(str(rows["operation"]["input"]))["label"])
        refused: Refused | None = await self._store.commit(change)
        return refused


def settings_of(directory: Path) -> Settings:
    """The plane of this directory."""
    return Settings(store=str(directory / STORE))


def shelves_of(directory: Path, *, slow: float = 0.0) -> dict[str, Shelf]:
    """The providers of this directory."""
    return {
        name: Shelf(directory, name, now=time.time, slow=slow if name == "runtime" else 0.0)
        for name in SHELVES
    }


async def ask(plane: Plane, wanted: Wanted) -> str:
    """Ask, say that it was accepted, wait, say how it ended."""
    accepted = await operations.accept(plane, wanted.command())
    say("accepted", accepted.id, wanted.label)
    ended = await operations.wait(plane, TENANT, accepted.id, seconds=FINISH_SECONDS)
    say("ended", accepted.id, ended.state)
    return accepted.id


async def live(directory: Path, life: int, *, ablate: str = "") -> None:
    """Open the plane and let clients ask for one operation after the other, until somebody ends it."""
    providers = shelves_of(directory, slow=SLOW_SECONDS)
    async with running(settings_of(directory), plans=PLANS, providers=providers) as plane:
        say("open")
        if ablate == ACK_BEFORE_COMMIT:
            plane = replace(plane, store=Hasty(plane.store))
        again = [Wanted(life - 1, number) for number in range(AGAIN if life else 0)]
        asked = itertools.chain(again, (Wanted(life, number) for number in itertools.count()))

        async def client() -> None:
            for wanted in asked:
                await ask(plane, wanted)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def finish(directory: Path, *, seconds: float = FINISH_SECONDS) -> bool:
    """Recover what is there; whether every operation has ended in time."""
    is_open = tuple(state for state in State if state not in OPERATION.final)
    providers = shelves_of(directory)
    async with running(settings_of(directory), plans=PLANS, providers=providers) as plane:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            left = await operations.list_operations(plane, TENANT, states=is_open, limit=1)
            if not left:
                return True
            await operations.wait(plane, TENANT, str(left[0]["id"]), seconds=0.1)
    return False


async def create_one(directory: Path) -> None:
    """One operation from asking to its end; once the store has failed, ask again: nobody may answer."""
    async with running(settings_of(directory), plans=PLANS, providers=shelves_of(directory)) as plane:
        try:
            await ask(plane, Wanted(0, 0))
        except (CommitUnknown, asyncio.CancelledError):
            for number in range(7, 10):
                try:
                    late = await operations.accept(plane, Wanted(0, number).command())
                except CommitUnknown:
                    continue
                say("late", late.id, f"0-{number}")
            raise


def child(directory: Path, life: int | None, *, ablate: str = "") -> int:
    """Live, or create one operation if no life is named; a store that fails is a sentence and an exit code."""
    work = create_one(directory) if life is None else live(directory, life, ablate=ablate)
    try:
        asyncio.run(work)
    except (StoreError, CommitUnknown) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return STOPPED
    return 0


def nurse() -> None:
    """Fork a child for each line, say its pid, and its exit status when it is over.

    A line is a JSON list: a directory, a life or null, the file of what is said, and an ablation.  A child that is
    to create one operation stops at once and waits for SIGCONT, so that somebody can attach to it.
    """
    for line in sys.stdin:
        directory, life, file, ablate = json.loads(line)
        pid = os.fork()
        if not pid:
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
            if life is None:
                os.dup2(os.open(f"{file}.errors", os.O_WRONLY | os.O_CREAT, 0o600), 2)
                os.kill(os.getpid(), signal.SIGSTOP)
            signal.alarm(LIFE_SECONDS_MAX)
            os._exit(child(Path(directory), life, ablate=ablate))
        say(str(pid))
        _, status = os.waitpid(pid, 0)
        say(str(status))


# ----------------------------------------------------------------------------------------------- the parent


@dataclass(slots=True)
class Report:
    """What was done, what was acknowledged, and everything that must be nought."""

    kills: int = 0
    acknowledged: int = 0
    said_ended: int = 0
    operations: int = 0
    succeeded: int = 0
    compensated: int = 0
    files: int = 0
    seconds: float = 0.0
    lost: int = 0
    """Acknowledged and not in the store."""
    unended: int = 0
    """In the store, and neither SUCCEEDED nor COMPENSATED as its label demands."""
    changed: int = 0
    """Said to have ended, and ended otherwise now."""
    split: int = 0
    """One idempotency key with two operations."""
    missing: int = 0
    """A resource of a SUCCEEDED operation that is not there."""
    doubled: int = 0
    """A resource that is there twice."""
    orphans: int = 0
    """A resource without an operation that should have it."""
    holes: int = 0
    """Gaps in a journal or in the outbox."""
    broken: int = 0
    """Complaints of the database's own check, and agents held by operations that have ended."""
    notes: list[str] = field(default_factory=list)
    """The first few of each, in words."""

    @property
    def sound(self) -> bool:
        """Whether every promise was kept."""
        return not any(getattr(self, name) for name in FAULTS) and not self.notes

    def fault(self, name: str, sentence: str) -> None:
        """One more of what must be nought."""
        setattr(self, name, getattr(self, name) + 1)
        if getattr(self, name) <= 3:
            self.notes.append(f"{name}: {sentence}")


FAULTS = (
    "lost", "unended", "changed", "split", "missing", "doubled", "orphans", "holes", "broken",
)  # fmt: skip


class Said(NamedTuple):
    """One line of a child: `accepted ID LABEL`, `ended ID STATE`."""

    word: str
    id: str
    rest: str


def said_in(file: Path, mark: bytes) -> bool:
    """Whether a child has said this yet."""
    return file.exists() and mark in file.read_bytes()


def lines_of(files: Iterable[Path]) -> list[Said]:
    """What children have said; a line that was cut off was not said."""
    said: list[Said] = []
    for file in sorted(files):
        whole, _, _ = file.read_text().rpartition("\n")
        said += [Said(*words) for line in whole.split("\n") if len(words := line.split()) == 3]
    return said


def run(
    *, kills: int, directory: Path, ablate: str = "", chance: random.Random | None = None
) -> Report:
    """Kill a child so many times, let one finish, and audit."""
    began = time.monotonic()
    chance = chance or random.Random()
    lives = directory / "lives"
    lives.mkdir(parents=True, exist_ok=True)
    report = Report()
    with nursery() as nurses:
        for life in range(kills):
            file = lives / f"{life:06}"
            pid = nurses.fork(directory, life, file, ablate=ablate)
            if not one_life(nurses, pid, file, chance):
                report.notes.append(f"life {life} ended by itself")
                break
            report.kills += 1
    if not asyncio.run(finish(directory)):
        report.notes.append(f"not everything has ended {FINISH_SECONDS:g} s after the last start")
    audit(directory, lines_of(lives.iterdir()), report)
    report.seconds = round(time.monotonic() - began, 2)
    return report


class Nursery:
    """A process that forks children on demand, one at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """This process."""
        self._process = process
        self._alive = 0

    def fork(self, directory: Path, life: int | None, file: Path, *, ablate: str = "") -> int:
        """A new child; its pid, which stays its own until `status` was asked."""
        assert self._process.stdin is not None
        line = json.dumps([str(directory), life, str(file), ablate])
        self._process.stdin.write(f"{line}\n")
        self._alive = self._answer()
        return self._alive

    def status(self) -> int:
        """Wait for the end of the child; its exit status."""
        status = self._answer()
        self._alive = 0
        return status

    def clear(self) -> None:
        """Kill the child whose end nobody has asked for."""
        if self._alive:
            os.kill(self._alive, signal.SIGKILL)

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery while the block lasts."""
    command = [sys.executable, "-m", "tenure.testing.kill9", "--nurse"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        nurses = Nursery(process)
        try:
            yield nurses
        finally:
            nurses.clear()


def one_life(nurses: Nursery, pid: int, file: Path, chance: random.Random) -> bool:
    """Kill this life at a random instant; whether it was the kill that ended it."""
    mark = chance.choice(MARKS)
    give_up_at = time.monotonic() + FINISH_SECONDS
    while mark and not said_in(file, mark) and time.monotonic() < give_up_at:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, SOON_SECONDS))
    os.kill(pid, signal.SIGKILL)
    return killed(nurses.status())


def killed(status: int) -> bool:
    """Whether a process with this exit status was killed with -9."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


# ------------------------------------------------------------------------------------------------ the audit


def audit(directory: Path, said: list[Said], report: Report | None = None) -> Report:
    """Compare what was said, what is kept and what there is, after everything has ended."""
    report = report or Report()
    with ExitStack() as stack:
        base = apsw.Connection(str(directory / STORE), flags=apsw.SQLITE_OPEN_READONLY)
        stack.callback(base.close)
        kept = dict(base.execute("SELECT id, state FROM operation"))
        labels = {
            id: str(json.loads(text)["label"])
            for id, text in base.execute("SELECT id, input FROM operation")
        }
        _audit_base(base, report)
    _audit_said(said, kept, report)
    _audit_kept(kept, labels, report)
    _audit_world(directory, kept, labels, report)
    return report


def _audit_base(base: apsw.Connection, report: Report) -> None:
    """The file itself: sound, no gaps, and nobody held by what has ended."""
    for (verdict,) in base.execute("PRAGMA integrity_check"):
        if verdict != "ok":
            report.fault("broken", verdict)
    gaps = "SELECT operation FROM journal GROUP BY operation HAVING min(seq) <> 1 OR count(*) <> max(seq)"
    for (id,) in base.execute(gaps):
        report.fault("holes", f"the journal of operation {id}")
    first, count, last = next(base.execute("SELECT min(position), count(*), max(position) FROM outbox"))
    if count and (first, count) != (1, last):
        report.fault("holes", f"the outbox has {count} of {last} positions")
    for agent, id in base.execute("SELECT agent, operation FROM active"):
        report.fault("broken", f"agent {agent} is still held by operation {id}")


def _audit_said(said: list[Said], kept: dict[str, str], report: Report) -> None:
    """Every acknowledged operation is kept, every end that was told is the end."""
    acknowledged: dict[str, str] = {}
    by_label: dict[str, str] = {}
    for word, id, rest in said:
        if word == "accepted":
            acknowledged[id] = rest
            if by_label.setdefault(rest, id) != id:
                report.fault("split", f"{rest} was acknowledged as {by_label[rest]} and as {id}")
        elif word == "ended":
            report.said_ended += 1
            if kept.get(id) != rest:
                report.fault("changed", f"operation {id} was {rest} and is {kept.get(id)}")
        else:
            report.notes.append(f"{word}: {id} {rest}")
    report.acknowledged = len(acknowledged)
    for id, label in acknowledged.items():
        if id not in kept:
            report.fault("lost", f"operation {id} ({label}) was acknowledged")


def _audit_kept(kept: dict[str, str], labels: dict[str, str], report: Report) -> None:
    """Every operation, acknowledged or not, has come to what its label demands; a key has one operation."""
    report.operations = len(kept)
    seen: dict[str, str] = {}
    for id, state in kept.items():
        label = labels[id]
        wanted = Wanted.read(label)
        report.succeeded += state == State.SUCCEEDED
        report.compensated += state == State.COMPENSATED
        if state != wanted.end:
            report.fault("unended", f"operation {id} ({label}) is {state}, not {wanted.end}")
        if wanted.keyed and seen.setdefault(label, id) != id:
            report.fault("split", f"{label} is kept as {seen[label]} and as {id}")


def _audit_world(
    directory: Path, kept: dict[str, str], labels: dict[str, str], report: Report
) -> None:
    """On every shelf exactly one file for each operation that has succeeded, and no other."""
    due = Counter(labels[id] for id, state in kept.items() if state == State.SUCCEEDED)
    for name, shelf in shelves_of(directory).items():
        there: Counter[str] = Counter()
        for held in shelf.held():
            row = json.loads((directory / name / held).read_text())
            there[str(row["spec"]["label"])] += 1
        report.files += there.total()
        for label, count in there.items():
            if not due[label]:
                report.fault("orphans", f"{name} holds {label}, which nobody has")
            elif count > due[label]:
                report.fault("doubled", f"{name} holds {label} {count} times")
        for label, count in due.items():
            if there[label] < count:
                report.fault("missing", f"{name} does not hold {label}")


def main() -> int:
    """Kill and report, or be one of the processes that this takes."""
    parser = argparse.ArgumentParser(description="Kill a plane with -9 and count what is left.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--directory", type=Path, help="where; a temporary directory by default")
    parser.add_argument("--ablate", default="", choices=("", ACK_BEFORE_COMMIT))
    parser.add_argument("--child", type=Path, help="be a child that creates one operation there")
    parser.add_argument("--nurse", action="store_true", help="be the process that forks children")
    asked = parser.parse_args()
    if asked.child:
        return child(asked.child, None)
    if asked.nurse:
        nurse()
        return 0
    with tempfile.TemporaryDirectory(prefix="tenure-kill9-") as name:
        try:
            report = run(kills=asked.kills, directory=asked.directory or Path(name), ablate=asked.ablate)
        except TenureError as error:
            print(f"{type(error).__name__}: {error}")
            return 1
    print(json.dumps(asdict(report), indent=2))
    return 0 if report.sound else 1


if __name__ == "__main__":
    sys.exit(main())
