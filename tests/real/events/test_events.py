"""Goal: events get out of a plane that is killed, to receivers that are not always there.

Method: real processes: `tenure up` killed with -9, nats-server killed and started again, the
receiver of a webhook with an inbox of its own, a required subscriber.  What arrived is counted at
the receiver's end and compared with what the plane's file says was committed.
"""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.contract.support.nats_server import BINARY, NatsServer
from tests.contract.test_bus import read_stream
from tests.e2e.support import plane_process
from tests.e2e.support.plane_process import until
from tests.e2e.test_howto import program_of
from tests.real.support.runtimes import end_all_after

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
SUBSCRIBER = str(Path(__file__).parents[1] / "support" / "subscriber.py")
AGENT = Path(__file__).parents[3] / "examples" / "02_agent" / "agent.py"
SPEC = {"command": [sys.executable, str(AGENT)], "ready_seconds": 60}


class Up(plane_process.Plane):
    """A plane in a process of its own, and its HTTP face."""

    def up(self, **env):
        self.start(**env)
        self.address = (self.home / "address").read_text().strip()
        self.token = (self.home / "token").read_text().strip()

    def ask(self, path, body=None, method=None, **headers):
        given = {"authorization": f"Bearer {self.token}", **headers}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            given["content-type"] = "application/json"
        request = urllib.request.Request(self.address + path, data, given, method=method)
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())

    def create(self, name, wait=60):
        body = {"name": name, "runtime": SPEC}
        return self.ask("/v1/agents", body, prefer=f"wait={wait}")

    def succeeds(self, operation):
        """Whether the operation that this tells of does, once it has ended."""
        path = f"/v1/operations/{operation['id']}"
        return until(lambda: (seen := self.ask(path))["done"] and seen)["state"] == "SUCCEEDED"

    def committed_events(self):
        """(agent, sequence, type) of every event in the plane's own file, in order."""
        with contextlib.closing(sqlite3.connect(self.home / "tenure.db")) as file:
            return file.execute(
                "SELECT agent, sequence, type FROM outbox ORDER BY position"
            ).fetchall()

    def kill(self):
        assert self.process is not None
        assert self.process.stdout is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def plane(tmp_path):
    made = Up(tmp_path / "home")
    with end_all_after(tmp_path / "home" / "runtimes"):
        try:
            yield made
        finally:
            if made.process is not None and made.process.poll() is None:
                made.kill()


def told(name, body):
    event = json.loads(body)
    return event["subject"], int(event["sequence"]), event["type"].removeprefix("tenure.")


@pytest.mark.skipif(not BINARY, reason="nats-server is not installed")
def test_jetstream_has_every_event_once_in_order_whoever_is_killed(plane, tmp_path, tally):
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        for round_ in range(5):
            plane.up(TENURE_BUS=server.url)
            if round_ == 2:
                server.stop()  # it is away while agents are made, and back in the next round
            threads = [
                threading.Thread(target=_carelessly, args=(plane, f"a{round_}-{n}"))
                for n in range(3)
            ]
            for thread in threads:
                thread.start()
            # Somewhere among their commits.
            until(lambda n=3 * round_ + 3: len({one[0] for one in plane.committed_events()}) >= n)
            time.sleep(0.05 * round_)
            plane.kill()
            tally.add("kills")
            for thread in threads:
                thread.join()
            if round_ == 2:
                server.start()
        plane.up(TENURE_BUS=server.url)
        _at_rest(plane)
        committed = plane.committed_events()
        assert len(committed) > 50
        until(lambda: len(asyncio.run(read_stream(server.url))) >= len(plane.committed_events()))
        arrived = [told(*one) for one in asyncio.run(read_stream(server.url))]
        assert sorted(arrived) == sorted(plane.committed_events()), "all, once, and nothing else"
        for agent in {one[0] for one in arrived}:
            mine = [sequence for name, sequence, _ in arrived if name == agent]
            assert mine == list(range(1, len(mine) + 1))
    finally:
        server.stop()


def _carelessly(plane, name):
    with contextlib.suppress(OSError, http.client.HTTPException):
        plane.create(name, wait=0)


def _at_rest(plane):
    def is_settled():
        items = plane.ask("/v1/operations?limit=1000")["items"]
        return all(one["done"] for one in items)

    until(is_settled)


def test_a_webhooks_inbox_applies_each_event_once_whoever_is_killed(plane, tmp_path, tally):
    names = program_of("events.md")
    hook = names["Hook"]
    hook.database = str(tmp_path / "consumer.db")
    arrivals = []

    class Counting(hook):  # type: ignore[valid-type, misc]
        def do_POST(self):  # noqa: N802 (as its base is called)
            arrivals.append(self.headers["webhook-id"])
            super().do_POST()

        def log_message(self, *_):
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    serving = threading.Thread(target=receiver.serve_forever)
    serving.start()
    try:
        plane.up(TENURE_WEBHOOKS_HERE="1")
        body = {
            "name": "consumer",
            "kind": "webhook",
            "types": ["agent.*"],
            "target": f"http://127.0.0.1:{receiver.server_port}/",
        }
        hook.secret = plane.ask("/v1/subscriptions", body)["secret"]
        for round_ in range(4):
            threads = [
                threading.Thread(target=_carelessly, args=(plane, f"a{round_}-{n}"))
                for n in range(3)
            ]
            for thread in threads:
                thread.start()
            seen = len(arrivals)
            until(lambda n=seen: len(arrivals) > n)  # killed as one has just arrived
            plane.kill()
            tally.add("kills")
            for thread in threads:
                thread.join()
            plane.up(TENURE_WEBHOOKS_HERE="1")
        _at_rest(plane)
        wanted = [one for one in plane.committed_events() if one[2].startswith("agent.")]
        until(lambda: _count_applied(hook.database) >= len(wanted))
        assert _count_applied(hook.database) == len(wanted)
        assert len(set(arrivals)) == len(wanted), "stable ids: copies are copies"
        assert len(arrivals) >= len(wanted)
        states = {agent: kind for agent, _, kind in wanted}
        with contextlib.closing(sqlite3.connect(hook.database)) as file:
            kept = dict(file.execute("SELECT uid, state FROM agents"))
        assert {uid: f"agent.{state.lower()}" for uid, state in kept.items()} == states
    finally:
        receiver.shutdown()
        serving.join()
        receiver.server_close()


def _count_applied(database):
    with contextlib.closing(sqlite3.connect(database, timeout=120)) as file:
        return file.execute("SELECT count(*) FROM tenure_inbox").fetchone()[0]


def _over(process):
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_required_subscriber_that_is_dead_is_named_and_a_strict_tenant_waits(plane, tmp_path):
    plane.up()
    subscription = plane.ask(
        "/v1/subscriptions", {"name": "billing", "kind": "pull", "required": True}
    )["id"]
    plane.ask("/v1/tenant", {"strict": True}, method="PUT")
    program = [
        sys.executable,
        SUBSCRIBER,
        plane.address,
        plane.token,
        subscription,
        str(tmp_path / "position"),
    ]

    def start_subscriber():
        process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "follows\n"
        return process

    subscriber = start_subscriber()
    try:
        assert plane.succeeds(plane.create("alpha"))
        assert plane.succeeds(plane.create("beta"))
        shut = plane.ask("/v1/agents/alpha:suspend", {})
        assert plane.succeeds(shut), "a living subscriber holds nobody up"
        _over(subscriber)
        gone = plane.ask("/v1/agents/beta", method="DELETE")
        operation = gone["id"]
        one = f"/v1/operations/{operation}"
        waiting = until(lambda: (seen := plane.ask(one))["state"] == "WAITING" and seen)
        assert "billing since" in waiting["steps"][-1]["detail"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            plane.create("gamma")
        problem = json.loads(refused.value.read())
        assert (problem["status"], problem["code"]) == (409, "awaits_acknowledgement")
        assert "billing" in problem["detail"]
        assert problem["operation"] == operation
        plane.kill()  # and it is still waited for afterwards
        plane.up()
        program[2] = plane.address
        assert until(lambda: plane.ask(one)["state"] == "WAITING")
        _over(subscriber)
        subscriber = start_subscriber()
        assert plane.succeeds(gone)
        assert plane.succeeds(plane.create("gamma"))
    finally:
        _over(subscriber)
