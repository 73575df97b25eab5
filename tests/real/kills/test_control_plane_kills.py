"""kill -9 of the whole control plane, with real agents and every provider's own file.

Goal: whatever instant it dies at, once it is started again every operation that was acknowledged
ends, and the providers and the process table hold exactly the resources of the agents that are
listed. Method: `tests.real.support.kill_driver` asks for operations by HTTP and kills `tenure up`
inside each step of each plan, and at any instant; `tests.real.support.resource_checker`, which
imports nothing of Tenure, looks after every restart.  The counts that close the run say how many
kills were inside which step.  That the checker can fail is shown by planting each thing that it
must find.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from itertools import cycle
from pathlib import Path
from zlib import crc32

import pytest

from tests.real.support import resource_checker, runtimes
from tests.real.support.control_plane import UNDOS
from tests.real.support.kill_driver import PLANS, Driver, promise, ways

EACH = 10
"""Kills inside each step in the long run."""
TRIES_MAX = 30
RANDOM, RANDOM_LONG = 6, 40


@contextmanager
def running_driver(home: Path, *, seed: int = 0):
    """A driver whose plane, keepers and agents are gone afterwards, whatever happens."""
    with runtimes.end_all_after(home / "runtimes"):
        driver = Driver(home, seed=seed)
        try:
            driver.recover()
            yield driver
        finally:
            driver.plane.kill()


def steps_of(plan: str) -> list[str]:
    return [*PLANS[plan], *(UNDOS if plan == "create_agent" else ())]


def add_to_tally(driver: Driver, tally) -> None:
    """Add to the counts that close the run, and print them for whoever reads this test's output."""
    tally.add("kills", driver.kills)
    for step, count in sorted(driver.inside.items()):
        tally.add(f"inside_{step.replace('/-', '/undo_').replace('/', '_')}", count)
        print(f"{count:4} {step}")
    print(f"{driver.kills} kills, {len(driver.promises)} acknowledged operations")
    print(f"in order at the latest {driver.slowest_seconds:.1f} s after a start")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plan", PLANS)
def test_a_plane_killed_inside_any_step_comes_back_with_nothing_lost_or_left(plan, tally, tmp_path):
    with running_driver(tmp_path / "home") as driver:
        for step in steps_of(plan):
            for how in ways(step)[:2]:
                driver.kill_inside(plan, step, how)
        add_to_tally(driver, tally)
    assert all(driver.inside[f"{plan}/{step}"] >= 2 for step in steps_of(plan)), driver.inside


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_plane_killed_at_any_instant_comes_back_with_nothing_lost_or_left(tally, tmp_path):
    with running_driver(tmp_path / "home") as driver:
        for _ in range(RANDOM):
            driver.kill_at_random(0.4)
        while not driver.promises:  # each was killed before it could answer
            driver.kill_at_random(4.0)
        add_to_tally(driver, tally)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("plan", PLANS)
def test_many_kills_inside_each_step_lose_and_leave_nothing(plan, tally, tmp_path):
    with running_driver(tmp_path / "home", seed=1) as driver:
        for step in steps_of(plan):
            for how, _ in zip(cycle(ways(step)), range(TRIES_MAX), strict=False):
                if driver.inside[f"{plan}/{step}"] >= EACH:
                    break
                driver.kill_inside(plan, step, how)
        add_to_tally(driver, tally)
    assert all(driver.inside[f"{plan}/{step}"] >= EACH for step in steps_of(plan)), driver.inside


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_kills_at_any_instant_lose_and_leave_nothing(tally, tmp_path):
    with running_driver(tmp_path / "home", seed=1) as driver:
        for _ in range(RANDOM_LONG):
            driver.kill_at_random(0.6)
        add_to_tally(driver, tally)


# ---------------------------------------------------------------------------- the checker can fail


@contextmanager
def stopped_plane(home: Path):
    """A home whose plane is stopped: one agent READY, one SUSPENDED, one whose create failed."""
    with running_driver(home) as driver:
        for name, mode in (("alpha", "healthy"), ("beta", "healthy"), ("gamma", "exits")):
            spec = {
                **driver.spec(mode),
                "name": name,
                "roles": ["reader"],
                "credentials": [{"audience": "https://a.example", "scopes": ["a:read"]}],
            }
            made = driver.plane.request_and_wait("POST", "/v1/agents", spec)
            driver.promises.append(promise(made))
        shut = driver.plane.request_and_wait("POST", "/v1/agents/beta:suspend")
        assert shut["state"] == "SUCCEEDED", shut
        driver.plane.stop()
        assert resource_checker.check(home, driver.promises) == []
        yield driver


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    """Such a home, and what was promised there; it is left as it was found."""
    with stopped_plane(tmp_path_factory.mktemp("still") / "home") as driver:
        yield driver.plane.home, driver.promises


@pytest.fixture
def bases(still, tmp_path):
    """The same home, whose database files are afterwards what they were."""
    home, _ = still
    for file in home.glob("*.db"):
        shutil.copy(file, tmp_path)
    yield home
    for file in tmp_path.glob("*.db"):
        shutil.copy(file, home)
    assert resource_checker.check(home) == []


def change(base: Path, sql: str) -> None:
    with closing(sqlite3.connect(base)) as opened:
        opened.executescript(sql)
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")


ALPHA = "(SELECT uid FROM agent WHERE name = 'alpha')"
ORPHAN = """
INSERT INTO resource SELECT 'identity0', plane, tenant, 'nobody', 1, slot, name, 'PRESENT', 1,
    spec, reference, since FROM resource LIMIT 1;
INSERT INTO client SELECT 'identity0', tenant, 'nobody', name, scopes, audiences, grants, jwks,
    jwks_from, asked, edition, made_at FROM client LIMIT 1;
"""
UNCHAINED = "DROP TRIGGER audit_is_never_changed; UPDATE audit SET principal = 'x' WHERE position=2"
CUT = "DROP TRIGGER audit_is_never_shortened; DELETE FROM audit WHERE position = 2"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("file", "sql", "expected"),
    [
        ("identity", ORPHAN, "of agent nobody, which does not exist"),
        ("identity", ORPHAN, "holds identity0, which nobody has asked for"),
        ("identity", "DELETE FROM client", "is missing"),
        ("identity", "UPDATE epoch SET closed = 1 - closed", "identity is open for agent beta"),
        ("access", "DELETE FROM grant", "'role', 'reader') is missing"),
        ("access", "UPDATE grant SET name = 'admin'", "'role', 'admin') is extra"),
        ("access", "UPDATE resource SET state = 'BURNED'", "access holds 0 resources of agent"),
        ("credentials", "DELETE FROM registration", "is missing"),
        ("credentials", "UPDATE registration SET ttl_seconds = 900", "900) is extra"),
        ("credentials", "UPDATE closing SET closed = 0", "credentials is open for agent beta"),
        ("tenure", "UPDATE operation SET state = 'STUCK'", "is STUCK"),
        ("tenure", "DELETE FROM operation", "was accepted and is lost"),
        ("tenure", f"UPDATE agent SET state = 'CREATING' WHERE uid = {ALPHA}", "stays CREATING"),
        ("tenure", "UPDATE agent SET operation = 'o'", "is held by operation o"),
        ("tenure", f"DELETE FROM reservation WHERE agent = {ALPHA}", "no place is reserved"),
        ("tenure", "UPDATE agent SET state = 'DELETED', serving = NULL", "a place is reserved"),
        ("tenure", "UPDATE agent SET state = 'DELETED', serving = NULL", "belong to no agent that"),
        ("tenure", "UPDATE agent SET state = 'SUSPENDED'", "its runtime was not to be kept"),
        ("tenure", "DELETE FROM agent_name", "its name belongs to None"),
        ("tenure", "UPDATE agent_name SET agent = 'nobody'", "belongs to nobody, which is gone"),
        ("tenure", "UPDATE agent SET serving = NULL", "is READY and nothing serves it"),
        ("tenure", UNCHAINED, "the audit log is broken at entry 2"),
        ("tenure", CUT, "the audit log is broken at entry 2"),
        ("tenure", "UPDATE agent SET name = name || 'x'", "and listed are"),
    ],
)
def test_the_checker_sees_what_is_wrong_in_a_file(bases, still, file, sql, expected):
    _, promises = still
    listed = {"alpha": "READY", "beta": "SUSPENDED", "gamma": "CREATE_FAILED"}
    assert resource_checker.check(bases, promises, listed_agents=listed) == []
    change(bases / f"{file}.db", sql)
    wrong = resource_checker.check(bases, promises, listed_agents=listed)
    assert any(expected in sentence for sentence in wrong), wrong


@contextmanager
def foreign_process(**env: str):
    """A process that nobody asked for."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def running_key(home: Path) -> str:
    (key,) = resource_checker.read_world(home).homes
    return key


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_checker_sees_processes_that_belong_to_nobody(still):
    home, _ = still
    place = str(home / "runtimes" / "local-a" / "runtime0")
    with foreign_process(TENURE_KEY="runtime0", TENURE_DIRECTORY=place) as pid:
        expected = f"runtime: processes {pid} of 'runtime0' belong to no agent that is served"
        assert resource_checker.check(home) == [expected]
    with foreign_process(
        TENURE_KEY=running_key(home)
    ) as pid:  # of an agent, and not below its keeper
        (sentence,) = resource_checker.check(home)
        assert f"process {pid} of agent alpha" in sentence
        assert "is not below its keeper" in sentence
    assert resource_checker.check(home) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_checker_sees_what_lies_about(still, tmp_path, monkeypatch):
    home, _ = still
    stray = home / "runtimes" / "local-b" / "runtime0"
    stray.mkdir()
    assert resource_checker.check(home) == ["runtime: directory of runtime0 is left behind"]
    stray.rmdir()
    port = home / "runtimes" / "ports" / "1"
    port.write_text("runtime0")
    complaint = "runtime: port 1 is kept for 'runtime0', which serves nobody"
    assert resource_checker.check(home) == [complaint]
    port.unlink()
    with closing(sqlite3.connect(home / "tenure.db")) as base:
        asked = "SELECT key FROM intent WHERE slot = 'runtime' AND key <> ?"
        (key,), *_ = base.execute(asked, (running_key(home),)).fetchall()
    path = home / "runtimes" / "local-a" / key
    group = tmp_path / "unified" / f"tenure-{key}-{crc32(os.fsencode(path)):08x}"
    group.mkdir(parents=True)
    monkeypatch.setattr(resource_checker, "GROUPS", tmp_path)
    assert resource_checker.check(home) == [f"runtime: group of {key} is left behind"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_checker_sees_a_runtime_that_is_gone(tmp_path):
    with stopped_plane(tmp_path / "home") as driver:
        home, plane = driver.plane.home, driver.plane
        world = resource_checker.read_world(home)
        (there,) = world.homes.values()
        agents = [process.pid for process in world.processes if not process.keeper]
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        (sentence,) = resource_checker.check(home)
        for pid in agents:
            os.kill(pid, signal.SIGCONT)
        assert "does not answer /ping" in sentence
        owner = there.path / "owner.json"
        expected = owner.read_text()
        owner.write_text(json.dumps(there.owner | {"agent": "nobody"}))
        (sentence,) = resource_checker.check(home)
        owner.write_text(expected)
        assert "belongs to nobody, not to agent alpha" in sentence
        moved = there.path.with_name("elsewhere")
        there.path.rename(moved)
        wrong = resource_checker.check(home)
        moved.rename(there.path)
        assert any("which has no directory" in sentence for sentence in wrong), wrong
        os.kill(there.state["keeper"], signal.SIGKILL)
        assert runtimes.until(lambda: not any(map(runtimes.is_alive, agents)))
        wrong = resource_checker.check(home)
        assert any("keepers [] of agent alpha" in sentence for sentence in wrong), wrong
        assert any("the process of agent alpha" in sentence for sentence in wrong), wrong
        plane.start()
        gone = plane.request_and_wait("DELETE", "/v1/agents/alpha")
        assert gone["state"] == "SUCCEEDED", gone
        assert resource_checker.check(home) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_store_that_forgets_what_it_acknowledged_is_found_out(tmp_path):
    with running_driver(tmp_path / "home") as driver:
        home, plane = driver.plane.home, driver.plane
        made = plane.request_and_wait("POST", "/v1/agents", driver.spec("healthy"))
        plane.kill()
        tables = "operation", "agent", "agent_name", "reservation", "intent", "journal", "outbox"
        change(home / "tenure.db", ";".join(f"DELETE FROM {table}" for table in tables))
        plane.start()
        wrong = resource_checker.check(home, [promise(made)])
        for expected in ("was accepted and is lost", "holds identity", "belong to no agent"):
            assert any(expected in sentence for sentence in wrong), wrong


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_checker_needs_nothing_but_python(tmp_path):
    with running_driver(tmp_path / "home") as driver:
        made = driver.plane.request_and_wait("POST", "/v1/agents", driver.spec("healthy"))
        promises = tmp_path / "promises"
        command = [sys.executable, "-I", "-S", resource_checker.__file__, str(driver.plane.home)]
        for kind, code in (("create_agent", 0), ("delete_agent", 1)):
            promises.write_text(json.dumps([promise(made)._replace(kind=kind)]))
            ran = subprocess.run([*command, str(promises)], check=False, capture_output=True)
            assert (ran.returncode, bool(ran.stdout)) == (code, bool(code)), ran
