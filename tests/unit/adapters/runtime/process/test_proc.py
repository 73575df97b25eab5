"""What the kernel is asked about processes: locks, tags, listeners; on real ones of our own."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tenure.adapters.runtime.process import keeper, proc

LISTENS = (
    "import socket, sys\n"
    "one = socket.create_server(('127.0.0.1', 0))\n"
    "print(one.getsockname()[1], flush=True)\n"
    "sys.stdin.read()\n"
)


@contextmanager
def lock_holder(directory, text):
    """A lock that is held, with these words in it."""
    with (directory / keeper.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text)
        file.flush()
        yield


@contextmanager
def child_process(*words, **env):
    """A process, which is gone afterwards."""
    child = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def words_of(pid: int) -> str:
    return f"{pid} {keeper.started_at(pid)} {keeper.boot()}"


def test_a_keeper_is_named_only_if_it_holds_the_lock_and_is_the_one_that_wrote_its_name(tmp_path):
    assert not proc.has_keeper(tmp_path)
    assert proc.keeper_of(tmp_path) == 0
    mine = words_of(os.getpid())
    with lock_holder(tmp_path, mine):
        assert proc.has_keeper(tmp_path)
        assert proc.keeper_of(tmp_path) == os.getpid()
    assert not proc.has_keeper(tmp_path)
    assert proc.keeper_of(tmp_path) == 0, "the lock is free: whoever wrote that is gone"
    pid, ticks, boot = mine.split()
    for other in (f"{pid} {int(ticks) + 1} {boot}", f"{pid} {ticks} another", "nonsense", ""):
        with lock_holder(tmp_path, other):
            assert proc.keeper_of(tmp_path) == 0, other


def test_who_cannot_be_named_is_not_killed(tmp_path):
    with lock_holder(tmp_path, "nonsense"), pytest.raises(TimeoutError, match="an unknown process"):
        proc.end_keeper(tmp_path, at_once=True, seconds=0.02)


def test_a_keeper_that_takes_too_long_is_killed(tmp_path):
    """It has the lock by inheritance and is deaf to what it is told."""
    lock = os.open(tmp_path / keeper.LOCK, os.O_RDWR | os.O_CREAT)
    deaf = "import signal, sys, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1, flush=True)\n"
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", f"{deaf}time.sleep(600)"],
        pass_fds=[lock],
        stdout=subprocess.PIPE,
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert child.stdout is not None
        child.stdout.readline()
        os.write(lock, words_of(child.pid).encode())
        os.close(lock)
        proc.end_keeper(tmp_path, at_once=False, seconds=0.1)
        assert not proc.has_keeper(tmp_path)
        assert child.wait() == -signal.SIGKILL
    finally:
        child.kill()
        child.communicate()


def test_a_sweep_ends_those_that_carry_every_tag_and_nobody_else(tmp_path):
    key = str(tmp_path)  # a sweep sees the whole machine, other runs of this test included
    tags = (f"TENURE_KEY={key}".encode(), b"TENURE_DIRECTORY=/d")
    both = {"TENURE_KEY": key, "TENURE_DIRECTORY": "/d"}
    sleep = ("/bin/sleep", "600")
    with child_process(*sleep, **both) as ours, child_process(*sleep, TENURE_KEY=key) as other:
        assert proc.find_tagged(tags) == [ours.pid]
        assert proc.sweep(tags, [str(tmp_path / "no-group")]) == 1
        assert ours.wait() == -signal.SIGKILL
        assert other.poll() is None


def test_who_is_in_a_group_is_ended_too(tmp_path):
    """A directory stands for a control group: what it lists is what the kernel would list."""
    group = tmp_path / "group"
    group.mkdir()
    with child_process("/bin/sleep", "600") as ours:
        (group / "cgroup.procs").write_text(f"{ours.pid}\n")
        proc._kill_tagged(ours.pid, (b"NO=tag",), [str(group)])
        assert ours.wait() == -signal.SIGKILL
        proc._kill_tagged(ours.pid, (b"NO=tag",), [str(group)])  # it is gone: nothing happens
    proc.remove_groups([str(group), str(tmp_path / "none")])
    assert group.exists(), "somebody is in it still"
    (group / "cgroup.procs").unlink()
    proc.remove_groups([str(group)])
    assert not group.exists()


def test_a_port_is_owned_by_who_listens_below_and_by_nobody_else():
    with child_process(sys.executable, "-I", "-S", "-c", LISTENS) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        assert proc.owns_port(os.getpid(), port)
        assert not proc.owns_port(child.pid, port), "it is not below itself"
    assert not proc.owns_port(os.getpid(), port), "nobody listens"
    with socket.create_server(("127.0.0.1", 0)) as mine:
        assert not proc.owns_port(os.getpid(), mine.getsockname()[1])


def test_a_kernel_that_does_not_say_who_listens_is_no_answer():
    with pytest.raises(OSError, match="does not list"):
        proc._inodes(proc.HEAD.pack(proc.HEAD.size, proc.ERROR))
    assert proc._inodes(b"") == set()
