"""Real agents under real keepers: who outlives whom, what is swept, what a tombstone stops.

Goal: a runtime lives as long as its key and no longer, whoever is killed meanwhile.
Method: real kills of planes, keepers and agents; the process table is read at the end of every test
by `tests/real/support/runtimes.py`.
"""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.adapters.runtime.process import keeper, prefork
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir, group_of
from tenure.core.errors import OutcomeUnknown, Rejected
from tenure.ports.provider import Presence
from tenure.testing.contracts.provider import key
from tests.real.support import runtimes
from tests.real.support.runtimes import (
    agent,
    all_ended,
    open_runtime,
    program,
    run,
    run_to_end,
    start_and_wait,
)

pytestmark = pytest.mark.timeout(300)

STARTER = Path(__file__).parents[1] / "support" / "agents" / "starter.py"


def keep(home):
    """One more keeper for this directory; how it ended."""
    command = [sys.executable, "-I", "-c", prefork.BOOT, prefork.KEEPER_DIRECTORY]
    return subprocess.run(command, input=os.fsencode(home), check=False)


# -------------------------------------------------------------------------------- who outlives whom


@contextmanager
def starters(root, spec, count):
    command = [sys.executable, str(STARTER), str(root), json.dumps(spec)]
    made = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for one in made:
            assert one.stdin is not None
            assert one.stdout is not None
            assert one.stdout.readline() == "loaded\n"
        for one in made:
            print("go", file=one.stdin, flush=True)
        yield made
    finally:
        for one in made:
            one.kill()
            one.communicate()


def test_an_agent_outlives_a_kill_of_its_plane_and_is_adopted(root, runtime):
    with starters(root, agent(), 1) as (plane,):
        address = plane.stdout.readline().strip()
        (before,) = runtimes.keepers(root)
        plane.send_signal(signal.SIGKILL)
        plane.wait()
    assert run(runtime.wait_ready(key(), seconds=60)).presence is Presence.READY
    assert run(runtime.ensure(key(), agent()))["address"] == address
    assert runtimes.keepers(root) == [before]
    run(runtime.remove(key()))
    assert all_ended(root)


def test_three_processes_that_ensure_at_once_make_one_keeper(root):
    with starters(root, agent(), 3) as planes:
        addresses = {plane.stdout.readline() for plane in planes}
        assert len(addresses) == 1
        # One that came second has the lock's file open for as long as it takes to see that.
        assert runtimes.until(lambda: len(runtimes.keepers(root)) == 1)
        assert len(runtimes.agent_processes(root)) == 1


@pytest.mark.parametrize("delay_ms", range(0, 40, 4))
def test_a_plane_killed_while_it_starts_an_agent_leaves_one_that_can_be_ensured(
    root, runtime, delay_ms
):
    with starters(root, agent(), 1) as (plane,):
        time.sleep(delay_ms / 1000)
        plane.send_signal(signal.SIGKILL)
        plane.wait()
        start_and_wait(runtime, agent())
    # One that came second has the lock's file open for as long as it takes to see that.
    assert runtimes.until(lambda: len(runtimes.keepers(root)) == 1)
    assert len(runtimes.agent_processes(root)) == 1
    run(runtime.remove(key()))
    assert all_ended(root)


@pytest.mark.parametrize("leftover", ["nothing", "a name half written", "orders"])
def test_an_ensure_finishes_what_a_crash_left(root, runtime, leftover):
    home = root / "local-a" / key().text
    if leftover == "orders":
        run(runtime.ensure(key(), agent()))
        os.kill(runtimes.keepers(root)[0], signal.SIGKILL)
        assert runtimes.until(lambda: all_ended(root))
        (home / keeper.STATE).unlink()
    else:
        home.mkdir()
        if leftover != "nothing":
            (home / "owner.json.new").write_text('{"pla')
    assert run(runtime.inspect(key())).presence is Presence.ABSENT
    start_and_wait(runtime, agent())
    assert len(runtimes.keepers(root)) == 1


def test_a_daemon_that_left_its_session_goes_with_its_agent(root, runtime):
    start_and_wait(runtime, agent("forks"))
    assert len(runtimes.agent_processes(root)) == 2
    run(runtime.remove(key()))
    assert all_ended(root)


def test_a_daemon_does_not_outlive_an_agent_that_ends_by_itself(root, runtime):
    text = (
        "import os, time\n"
        "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(60)\n os._exit(0)\n"
        "os.wait(); os._exit(5)"
    )
    assert run_to_end(runtime, program(text)).exit_code == 5
    assert all_ended(root)


@pytest.mark.parametrize("verb", ["inspect", "remove", "stop", "ensure"])
def test_what_a_killed_keeper_leaves_is_swept(root, runtime, verb):
    start_and_wait(runtime, agent("forks"))
    os.kill(runtimes.keepers(root)[0], signal.SIGKILL)
    assert runtimes.until(lambda: not runtimes.keepers(root))
    assert runtimes.until(
        lambda: len(runtimes.agent_processes(root)) == 1
    )  # it is tied to its keeper
    match verb:
        case "inspect":
            assert run(runtime.inspect(key())).presence is Presence.BROKEN
            assert "its keeper was killed" in run(runtime.status(key())).message
        case "remove":
            run(runtime.remove(key()))
        case "stop":
            run(runtime.stop(key()))
        case _:
            old = runtimes.agent_processes(root)
            start_and_wait(runtime, agent("forks"))
            assert not set(old) & set(runtimes.agent_processes(root))
            run(runtime.remove(key()))
    assert all_ended(root)


def test_an_escape_from_a_killed_keeper_without_the_tag_is_found_by_its_group(root, runtime):
    if not runtime._root.launcher.groups.kill:
        pytest.skip("no control group can be made here")
    escape = (
        "import os, time\n"
        "if os.fork() == 0:\n os.setsid()\n"
        " if os.fork() == 0: os.execve('/bin/sleep', ['sleep', '61'], {})\n os._exit(0)\n"
        "os.wait(); print('away', flush=True); time.sleep(60)"
    )
    run(runtime.ensure(key(), program(escape, resources={"memory_mib": 500})))
    assert runtimes.until(lambda: "away" in run(runtime.logs(key())))
    name = group_of(RuntimeDir(root / "local-a" / key().text))
    group = Path(runtime._root.launcher.groups.kill, name)
    members = Path(group, "cgroup.procs").read_text().split()
    assert len(members) == 2
    os.kill(runtimes.keepers(root)[0], signal.SIGKILL)
    runtimes.until(lambda: not runtimes.keepers(root))
    run(runtime.remove(key()))
    assert not any(runtimes.is_alive(int(pid)) for pid in members)
    assert not group.exists()


def test_a_keeper_that_hangs_is_killed_and_its_tree_swept(root):
    with open_runtime(root, end_seconds=0.3) as runtime:
        start_and_wait(runtime, agent("forks"))
        os.kill(runtimes.keepers(root)[0], signal.SIGSTOP)
        run(runtime.remove(key()))
        assert all_ended(root)
        assert run(runtime.inspect(key())).presence is Presence.ABSENT


def test_a_pid_that_was_used_again_is_not_signalled(root):
    with open_runtime(root, end_seconds=0.2) as runtime:
        start_and_wait(runtime, agent())
        os.kill(runtimes.keepers(root)[0], signal.SIGKILL)
        runtimes.until(lambda: not runtimes.keepers(root))
        lock = root / "local-a" / key().text / keeper.LOCK
        with subprocess.Popen(["/bin/sleep", "60"]) as innocent, lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(f"{innocent.pid} 12345 {keeper.boot()}\n")
                file.flush()
                with pytest.raises(OutcomeUnknown, match="an unknown process"):
                    run(runtime.remove(key()))
                assert innocent.poll() is None
            finally:
                innocent.kill()
        run(runtime.remove(key()))


def test_no_zombie_is_left_to_the_plane(root, runtime):
    start_and_wait(runtime, agent())
    (pid,) = runtimes.keepers(root)
    run(runtime.remove(key()))
    assert not Path(f"/proc/{pid}").exists()


# --------------------------------------------------------------------------------------- tombstones


def test_a_tombstone_beats_a_keeper_that_starts_late(root, runtime):
    run_to_end(runtime, agent("exits"))
    home = root / "local-a" / key().text
    (root / "burned" / key().text).touch()
    printed = run(runtime.logs(key()))
    late = keep(home)
    assert late.returncode == keeper.BURNED_KEY
    assert run(runtime.logs(key())) == printed
    run(runtime.remove(key()))
    late = keep(home)
    assert late.returncode == keeper.UNREADABLE


def test_a_second_keeper_leaves_the_first_alone(root, runtime):
    start_and_wait(runtime, agent())
    home = root / "local-a" / key().text
    second = keep(home)
    assert second.returncode == keeper.ALREADY_LOCKED
    assert run(runtime.status(key())).presence is Presence.READY


def test_a_burned_key_stays_burned_for_the_next_plane(root):
    with open_runtime(root) as runtime:
        start_and_wait(runtime, agent())
        run(runtime.remove(key()))
    with open_runtime(root) as runtime, pytest.raises(Rejected):
        run(runtime.ensure(key(), agent()))
    assert not (root / "local-a" / key().text).exists()
    assert list((root / "ports").iterdir()) == []


def test_many_removes_and_ensures_at_once_leave_nothing(root, runtime):
    async def storm(number):
        one = key(f"storm-{number}")
        calls = [runtime.ensure(one, agent()), runtime.remove(one), runtime.inspect(one)]
        await asyncio.gather(*calls, runtime.ensure(one, agent()), return_exceptions=True)
        assert (await runtime.inspect(one)).presence is Presence.ABSENT

    async def all_of_them():
        await asyncio.gather(*(storm(number) for number in range(8)))

    run(all_of_them())
    assert all_ended(root)
