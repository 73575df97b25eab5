"""Kills a real process with -9, again and again, and counts in the world what is left.

A *child* runs a whole plane on a real file.  Its clients ask for operations of every shape, and
one line is written for each acknowledgement and one for each end.  The parent kills it at a
random instant and starts it on the same directory; at the end it lets one finish, and
`proofs.kills.audit` compares what was said, what is kept and what there is.

The processes that are killed are forked by a *nursery* that has imported everything, since
importing costs ten times as much as living.

usage: python -m proofs.kills.kill9 --kills 200 [--directory DIR] [--ablate ack_before_commit]
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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from proofs.kills.audit import (
    AGAIN,
    PLANS,
    STORE,
    LabelledRequest,
    Report,
    audit,
    lines_of,
    shelves_of,
)
from tenure.app.operations import admission, reads
from tenure.app.plane import Plane
from tenure.core import saga
from tenure.core.errors import CommitUnknown, StoreError, TenureError
from tenure.core.operation import ENDED_OR_STUCK, OPERATION, OperationState
from tenure.ports.store import Change, CommitRefusal, Put
from tenure.settings import Settings
from tenure.testing.patches import patched
from tenure.wiring import run_plane

TENANT = "default"
CLIENTS = 24
SLOW_SECONDS = 0.002
"""Between a runtime's being there and its provider's answer."""
FINISH_SECONDS = 120.0
ARRIVING_SECONDS = 0.5
"""How late a call may arrive here: a shelf is a directory, so no call outlives its process.

For as long a pivot that was lost and then refused is called again; a real one needs a minute.
"""
LIFE_SECONDS_MAX = 240
"""Nobody outlives a parent that was killed itself for longer."""
MARKS = (b"", b"open", b"accepted", b"ended")
"""A kill falls soon after a child first says one of these ("": is forked), so that some get on."""
SOON_SECONDS = 0.06
ACK_BEFORE_COMMIT = "ack_before_commit"
STOPPED = 3
"""The exit code of a child that says why it cannot go on."""


# --------------------------------------------------------------------------------------- the child


def say(*words: str) -> None:
    """One line with one write: it is there whole as soon as this returns, whoever dies then."""
    os.write(1, (" ".join(words) + "\n").encode())


class Hasty:
    """A store that is acknowledged before it has committed: what the audit must be able to see."""

    def __init__(self, store: Any) -> None:
        """In front of this store."""
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, change: Change) -> CommitRefusal | None:
        """Say that the operation is accepted, then accept it."""
        puts = [write for write in change.expand_prepared().writes if isinstance(write, Put)]
        rows = {put.table: put.row for put in puts}
        keyed = "idempotency" in rows
        if change.is_new_work and not keyed:  # a key may be refused for its own reasons
            say("accepted", change.id, json.loads(str(rows["operation"]["input"]))["label"])
        refused: CommitRefusal | None = await self._store.commit(change)
        return refused


def settings_of(directory: Path) -> Settings:
    """The plane of this directory; no life is so long that it has to renew its lease."""
    return Settings(store=str(directory / STORE), lease_ttl_seconds=600.0)


@asynccontextmanager
async def open_plane(directory: Path, *, slow: float = 0.0) -> AsyncIterator[Plane]:
    """The plane of this directory, running."""
    providers = shelves_of(directory, slow=slow)
    with patched(saga, LATE_SECONDS=ARRIVING_SECONDS):
        async with run_plane(settings_of(directory), plans=PLANS, providers=providers) as plane:
            yield plane


async def ask(plane: Plane, request: LabelledRequest) -> None:
    """Ask, say that it was accepted, wait, say how it ended."""
    accepted = await admission.accept(plane, request.command())
    say("accepted", accepted.id, request.label)
    state = accepted.state
    while (
        state not in ENDED_OR_STUCK
    ):  # however long: whoever reads what is said has a bound of his own
        try:
            state = (await reads.wait(plane, TENANT, accepted.id)).state
        except StoreError:  # it could not be read, and nothing was changed: ask again
            state = (await reads.wait(plane, TENANT, accepted.id)).state
    say("ended", accepted.id, state)


async def live(directory: Path, life: int, *, ablate: str = "") -> None:
    """Open the plane and let clients ask for one operation after the other, until it is killed."""
    async with open_plane(directory, slow=SLOW_SECONDS) as plane:
        say("open")
        if ablate == ACK_BEFORE_COMMIT:
            plane = replace(plane, store=Hasty(plane.store))  # noqa: PLW2901 (the same, hasty)
        again = [LabelledRequest(life - 1, number) for number in range(AGAIN if life else 0)]
        asked = itertools.chain(
            again, (LabelledRequest(life, number) for number in itertools.count())
        )

        async def client() -> None:
            for request in asked:
                await ask(plane, request)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def finish(directory: Path, *, seconds: float = FINISH_SECONDS) -> bool:
    """Recover what is there; whether every operation has ended in time."""
    async with open_plane(directory) as plane:
        return await all_ended(plane, seconds)


async def all_ended(plane: Plane, seconds: float) -> bool:
    """Wait for it; whether it came true in time."""
    is_open = tuple(state for state in OperationState if state not in OPERATION.final)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        left = await reads.list_operations(plane, TENANT, states=is_open, limit=1)
        if not left:
            return True
        await reads.wait(plane, TENANT, left[0].id, seconds=0.1)
    return False


async def create_one(directory: Path) -> None:
    """One operation from asking to its end, or the end of one that an earlier process has left.

    Once the store has failed, ask again: nobody may answer.
    """
    async with open_plane(directory) as plane:
        try:
            if not await reads.list_operations(plane, TENANT, limit=1):
                await ask(plane, LabelledRequest(0, 0))
            elif await all_ended(plane, FINISH_SECONDS):
                say("finished")
        except (CommitUnknown, asyncio.CancelledError):
            for number in range(7, 10):
                try:
                    late = await admission.accept(plane, LabelledRequest(0, number).command())
                except CommitUnknown:
                    continue
                say("late", late.id, f"0-{number}")
            raise


def child(directory: Path, life: int | None, *, ablate: str = "") -> int:
    """Live, or create one operation; a store that fails is a sentence and an exit code."""
    work = create_one(directory) if life is None else live(directory, life, ablate=ablate)
    try:
        asyncio.run(work)
    except (StoreError, CommitUnknown) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return STOPPED
    return 0


def nurse() -> None:
    """Fork a child for each line, say its pid, and its exit status when it is over.

    A line is a JSON list: a directory, a life or null, the file of what is said, and an ablation.
    A child that is to create one operation stops at once and waits for SIGCONT, so that somebody
    can attach to it.
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
        if life is None:
            os.waitpid(pid, os.WUNTRACED)
        say(str(pid))
        _, status = os.waitpid(pid, 0)
        say(str(status))


# -------------------------------------------------------------------------------------- the parent


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
        """Kill the child whose end nobody has asked for, and wait for that end."""
        if self._alive:
            os.kill(self._alive, signal.SIGKILL)
            self.status()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery while the block lasts."""
    command = [sys.executable, "-m", "proofs.kills.kill9", "--nurse"]
    with subprocess.Popen(  # noqa: S603 (ourselves)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        nurses = Nursery(process)
        try:
            yield nurses
        finally:
            nurses.clear()


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
            kill_soon(pid, file, chance)
            if not was_killed(nurses.status()):
                report.notes.append(f"life {life} ended by itself")
                break
            report.kills += 1
    if not asyncio.run(finish(directory)):
        report.notes.append(f"not everything has ended {FINISH_SECONDS:g} s after the last start")
    audit(directory, lines_of(lives.iterdir()), report)
    report.seconds = round(time.monotonic() - began, 2)
    return report


def kill_soon(pid: int, file: Path, chance: random.Random) -> None:
    """Kill this life at a random instant."""
    mark = chance.choice(MARKS)
    give_up_at = time.monotonic() + FINISH_SECONDS
    while mark and not said_in(file, mark) and time.monotonic() < give_up_at:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, SOON_SECONDS))
    os.kill(pid, signal.SIGKILL)


def said_in(file: Path, mark: bytes) -> bool:
    """Whether a child has said this yet."""
    return file.exists() and mark in file.read_bytes()


def was_killed(status: int) -> bool:
    """Whether a process with this exit status was killed with -9."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


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
            directory = asked.directory or Path(name)
            report = run(kills=asked.kills, directory=directory, ablate=asked.ablate)
        except TenureError as error:
            print(f"{type(error).__name__}: {error}")
            return 1
    print(json.dumps(asdict(report), indent=2))
    return 0 if report.sound else 1


if __name__ == "__main__":
    sys.exit(main())
