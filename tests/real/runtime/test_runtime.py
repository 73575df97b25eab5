"""Real agents: what ready means, what goes wrong, what an agent gets, which bytes it runs.

Goal: whatever an agent does, the runtime says what is so, and the machine goes on.
Method: small programs that misbehave in one way each, under real keepers.
"""

import os
import shutil
import signal
import socket
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from tenure.adapters.runtime.process import keeper
from tenure.adapters.runtime.process import runtime_root as place
from tenure.adapters.runtime.process.groups import Groups
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir, group_of
from tenure.core.errors import Invalid, Rejected
from tenure.ports.provider import Presence
from tenure.testing.contracts.provider import key
from tenure.testing.servers import lasting_port
from tests.real.support import runtimes
from tests.real.support.runtimes import (
    AGENT,
    agent,
    all_ended,
    open_runtime,
    program,
    run,
    run_to_end,
    start_and_wait,
)

pytestmark = pytest.mark.timeout(300)


# --------------------------------------------------------------------------------- what ready means


def unready(runtime, *words):
    """It is never ready, and once it has got so far these words are said of it."""

    def message():
        status = run(runtime.wait_ready(key(), seconds=0.5))
        assert status.presence is Presence.STARTING
        return all(word in status.message for word in words)

    assert runtimes.until(message), words


def test_an_agent_on_another_port_is_never_ready(root, runtime):
    run(runtime.ensure(key(), agent("wrong-port")))
    unready(runtime, "no process listens", "started")  # the last words of one that does not come up


def test_an_agent_that_answers_nonsense_is_not_ready(root, runtime):
    run(runtime.ensure(key(), agent("odd")))
    unready(runtime, "/ping")


def test_somebody_else_on_its_port_does_not_make_it_ready(root, runtime):
    address = run(runtime.ensure(key(), agent("silent")))["address"]
    body = b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"status": "Healthy"}'
    with socket.create_server(("127.0.0.1", int(str(address).split(":")[1]))) as impostor:

        def answer():
            try:
                while True:
                    client, _ = impostor.accept()
                    client.recv(1000)
                    client.sendall(body)
                    client.close()
            except OSError:
                return

        threading.Thread(target=answer, daemon=True).start()
        unready(runtime, "another process")
        impostor.shutdown(socket.SHUT_RDWR)


def test_a_port_that_is_taken_is_not_given(root, runtime):
    start_and_wait(runtime, agent())
    start_and_wait(runtime, agent(), key("two"))
    ports = [path.name for path in (root / "ports").iterdir()]
    assert len(set(ports)) == 2
    assert all(keeper.PORT_FIRST <= int(port) < 32_768 for port in ports)


def test_a_port_that_another_key_has_reserved_is_passed_over(root, runtime):
    place = root / "local-a" / key().text
    first = keeper.PORT_FIRST + zlib.crc32(str(place).encode()) % keeper.PORT_COUNT
    (root / "ports" / str(first)).write_text("another")
    assert start_and_wait(runtime, agent())["address"] != f"127.0.0.1:{first}"
    run(runtime.remove(key()))
    assert [path.name for path in (root / "ports").iterdir()] == [str(first)]


def test_an_agent_that_cannot_be_told_its_port_gets_the_one_it_has(root, runtime):
    port = lasting_port()
    assert start_and_wait(runtime, agent(port=port))["address"] == f"127.0.0.1:{port}"


def test_a_port_can_stand_in_the_command(root, runtime):
    spec = {"command": ["/bin/echo", "--port=$PORT"]}
    run_to_end(runtime, spec)
    port = str(run(runtime.inspect(key())).reference["address"]).split(":")[1]
    assert run(runtime.logs(key())) == f"--port={port}\n"


# ---------------------------------------------------------------------------------- what goes wrong


def test_a_program_that_is_not_there_is_refused_by_name(root, runtime):
    with pytest.raises(Rejected, match="no-such-program"):
        run(runtime.ensure(key(), {"command": ["no-such-program"]}))
    assert run(runtime.inspect(key())).presence is Presence.ABSENT
    assert not (root / "local-a" / key().text).exists()
    with pytest.raises(Rejected, match="never used again"):
        run(runtime.ensure(key(), agent()))


def test_what_is_foreign_survives_a_refusal(root, runtime):
    place = root / "local-a" / key().text
    place.mkdir()
    (place / "theirs").write_text("kept")
    assert run(runtime.inspect(key())).presence is Presence.FOREIGN
    for spec in (agent(), agent(colour="green"), agent(zone="local-b")):
        with pytest.raises(Rejected, match="another owner"):
            run(runtime.ensure(key(), spec))
    assert [path.name for path in place.iterdir()] == ["theirs"]


def test_an_agent_stays_in_its_zone(root, runtime):
    reference = start_and_wait(runtime, agent())
    newer = key()._replace(generation=2)
    with pytest.raises(Rejected, match="is in zone local-a"):
        run(runtime.ensure(newer, agent(zone="local-b")))
    assert run(runtime.inspect(key())).reference == reference
    assert not (root / "local-b" / key().text).exists()


@pytest.mark.parametrize(("name", "why"), [("plain", "Permission denied"), ("none", "No such")])
def test_a_program_that_cannot_be_started_says_why(root, runtime, tmp_path, name, why):
    (tmp_path / "plain").write_text("hello")
    status = run_to_end(runtime, {"command": [str(tmp_path / name)]})
    assert status.exit_code == 127
    assert f"cannot start {tmp_path / name}: {why}" in status.message


def test_what_is_said_is_bounded_and_fit_for_a_terminal(root, runtime):
    text = "print('x' * 5000 + '\\x1b[31m'); raise SystemExit(1)"
    message = run_to_end(runtime, program(text)).message
    assert message.startswith("it exited with code 1")
    assert "\x1b" not in message
    assert len(message.encode()) <= 2048


@pytest.mark.parametrize("has_group", [True, False])
def test_an_agent_that_ignores_sigterm_is_killed_after_the_grace(root, has_group):
    with open_runtime(root, grace_seconds=0.3, end_seconds=300) as runtime:
        if not has_group:
            runtime._root.launcher = runtime._root.launcher._replace(groups=Groups())
        start_and_wait(runtime, agent("stubborn"))
        began = time.monotonic()
        run(runtime.remove(key()))
        assert 0.3 <= time.monotonic() - began < 150, "by its keeper, which is not killed itself"
        assert all_ended(root)


def test_a_stop_knows_no_grace(root):
    with open_runtime(root, grace_seconds=300) as runtime:
        start_and_wait(runtime, agent("stubborn"))
        began = time.monotonic()
        run(runtime.stop(key()))
        assert time.monotonic() - began < 150
        assert all_ended(root)
        assert (root / "local-a" / key().text).exists()


@pytest.mark.slow
def test_a_gigabyte_of_output_is_bounded_and_its_end_kept(root, runtime):
    start_and_wait(runtime, agent("floods", env={"CHUNKS": "16384"}, log_bytes=1_000_000))
    (pid,) = runtimes.keepers(root)
    home = root / "local-a" / key().text

    def size(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:  # turned away
            return 0

    def over():
        assert run(runtime.status(key())).presence is Presence.READY
        assert sum(map(size, home.glob("log.*"))) <= 1_100_000
        return "the last line" in run(runtime.logs(key(), lines=1))

    assert runtimes.until(over, seconds=200)
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 24_000
    assert run(runtime.follow(key(), since=0))[1] > 1_000_000_000


def test_a_log_can_be_followed_over_its_turns(root, runtime):
    lines = "".join(f"line {number:05}\n" for number in range(2_000))
    text = "import sys\nfor n in range(2000): sys.stdout.write(f'line {n:05}\\n')"
    run_to_end(runtime, program(text, log_bytes=8_192))
    heard, offset = "", 0
    while (part := run(runtime.follow(key(), since=offset))).text:
        heard, offset = heard + part.text, part.next_offset
    assert offset == len(lines)
    assert lines.endswith(heard)
    assert 4_096 <= len(heard) <= 8_192
    assert run(runtime.logs(key(), lines=2)) == "line 01998\nline 01999\n"


def test_the_logs_of_the_last_removed_are_kept(root):
    with open_runtime(root, logs_kept=2) as runtime:
        for number in range(3):
            run_to_end(runtime, program(f"print({number})"), key(str(number)))
            run(runtime.remove(key(str(number))))
            time.sleep(0.01)
        assert [run(runtime.logs(key(str(number)))) for number in range(3)] == ["", "1\n", "2\n"]


# ------------------------------------------------------------------------------------- what it gets


def test_nothing_of_the_plane_is_in_the_environment(root, runtime, monkeypatch):
    monkeypatch.setenv("TENURE_SECRET", "of the plane")
    run_to_end(runtime, {"command": ["/usr/bin/env"], "env": {"OWN": "yes"}})
    lines = run(runtime.logs(key())).splitlines()
    env = dict(line.split("=", 1) for line in lines)
    assert set(env) == {
        "PATH",
        "LANG",
        "HOME",
        "PORT",
        "UVICORN_PORT",
        "TENURE_KEY",
        "TENURE_DIRECTORY",
        "OWN",
    }
    assert env["HOME"] == str(root / "local-a" / key().text / "work")
    assert env["TENURE_KEY"] == key().text


def test_no_file_of_the_plane_is_open_in_the_agent(root, runtime, tmp_path):
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        run_to_end(runtime, program("import os; print(sorted(os.listdir('/proc/self/fd')))"))
    assert run(runtime.logs(key())) == "['0', '1', '2', '3']\n"  # 3 reads the listing


def test_limits_are_in_force(root, runtime):
    resources = {"open_files": 64, "cpu_seconds": 7, "file_mib": 3}
    run_to_end(runtime, {"command": ["/bin/cat", "/proc/self/limits"], "resources": resources})
    rows = {line[:26].strip(): line[26:].split() for line in run(runtime.logs(key())).splitlines()}
    assert rows["Max open files"][:2] == ["64", "64"]
    assert rows["Max cpu time"][:2] == ["7", "7"]
    assert rows["Max file size"][:2] == ["3145728", "3145728"]
    assert rows["Max core file size"][:2] == ["0", "0"]


def test_no_privileges_can_be_gained(root, runtime):
    run_to_end(runtime, {"command": ["/bin/grep", "NoNewPrivs", "/proc/self/status"]})
    assert run(runtime.logs(key())).split() == ["NoNewPrivs:", "1"]


def test_memory_is_bounded(root, runtime):
    text = "held = bytearray(300_000_000); print('has it all')"
    status = run_to_end(runtime, program(text, resources={"memory_mib": 64}))
    assert status.exit_code in (-signal.SIGKILL, 1)
    assert "has it all" not in run(runtime.logs(key()))


def test_a_fork_bomb_is_bounded_and_removed(root, runtime):
    if not runtime._root.launcher.groups.pids:
        pytest.skip("no pids group can be made here")
    text = (
        "import os, time\nmade = 0\n"
        "try:\n"
        " while True:\n"
        "  if os.fork() == 0: time.sleep(60)\n"
        "  made += 1\n"
        "except OSError: print('made', made, flush=True)\n"
        "while True:\n"
        " try:\n  if os.fork() == 0: time.sleep(60)\n"
        " except OSError: pass"
    )
    run(runtime.ensure(key(), program(text, resources={"processes": 20})))
    assert runtimes.until(lambda: "made 19" in run(runtime.logs(key())))
    run(runtime.remove(key()))
    assert all_ended(root)


# ---------------------------------------------------------------------------------------- its bytes


def test_changed_bytes_refuse_to_start(root, runtime, tmp_path):
    copy = tmp_path / "agent.py"
    shutil.copy(AGENT, copy)
    spec = run(runtime.digest({"command": [sys.executable, "-I", "-S", str(copy)]}))
    start_and_wait(runtime, spec)
    copy.write_text(copy.read_text() + "\n")
    assert run(runtime.ensure(key(), spec))  # what runs is what was accepted
    with pytest.raises(Rejected, match=r"agent\.py has changed since"):
        run(runtime.ensure(key("two"), spec))
    assert run(runtime.inspect(key("two"))).presence is Presence.ABSENT


def test_a_bundle_is_copied_and_a_changed_one_refused(root, runtime, tmp_path):
    bundle = tmp_path / "bundle"
    (bundle / "inner").mkdir(parents=True)
    shutil.copy(AGENT, bundle / "inner" / "agent.py")
    (bundle / "data").symlink_to("inner")
    command = [sys.executable, "-I", "-S", "data/agent.py"]
    spec = run(runtime.digest({"command": command, "bundle": str(bundle)}))
    start_and_wait(runtime, spec)
    (bundle / "inner" / "agent.py").chmod(0o777)
    with pytest.raises(Rejected, match=r"bundle has changed since.*delete the agent and create"):
        run(runtime.ensure(key("two"), spec))
    assert run(runtime.status(key())).presence is Presence.READY
    shutil.rmtree(bundle)
    with pytest.raises(Rejected, match="bundle"):
        run(runtime.ensure(key("three"), spec))


# ------------------------------------------------------------------------------ whatever runs there


@pytest.mark.slow
def test_a_plain_bedrock_agentcore_app_starts_unchanged(root, runtime, tmp_path):
    pytest.importorskip("bedrock_agentcore", exc_type=ImportError)
    bundle = tmp_path / "app"
    bundle.mkdir()
    (bundle / "agent.py").write_text(BEDROCK)
    command = [sys.executable, "-m", "uvicorn", "agent:app"]
    reference = run(runtime.ensure(key(), {"command": command, "bundle": str(bundle)}))
    status = run(runtime.wait_ready(key(), seconds=120))
    assert status.presence is Presence.READY, run(runtime.logs(key()))
    assert reference == run(runtime.inspect(key())).reference


BEDROCK = """
from bedrock_agentcore.runtime import BedrockAgentCoreApp
app = BedrockAgentCoreApp()

@app.entrypoint
def invoke(payload):
    return {"echo": payload}

if __name__ == "__main__":
    app.run()
"""


def test_marks_of_burned_keys_are_forgotten_when_nothing_of_them_can_arrive(
    root, runtime, monkeypatch
):
    monkeypatch.setattr(place, "BURNS_PER_CLEANUP", 2)
    old, young = key("old"), key("young")
    for one in (old, young):
        run(runtime.remove(one))
    week = 8 * 86_400
    past = (root / "burned" / old.text).stat().st_mtime - week
    os.utime(root / "burned" / old.text, (past, past))
    run(runtime.remove(key("third")))
    run(runtime.remove(key("fourth")))
    marks = {path.name for path in (root / "burned").iterdir()}
    assert marks == {one.text for one in (young, key("third"), key("fourth"))}


def test_no_control_group_is_left_of_what_was_removed(root, runtime):
    start_and_wait(runtime, agent())
    there = RuntimeDir(root / "local-a" / key().text)
    groups = runtime._root.launcher.groups.paths(group_of(there))
    assert [group for group in groups if not Path(group).is_dir()] == []
    run(runtime.stop(key()))
    for group in groups:
        Path(group).mkdir(exist_ok=True)  # as a keeper leaves it that found somebody still dying
    run(runtime.remove(key()))
    assert [group for group in groups if Path(group).is_dir()] == []


# ----------------------------------------------------------------------- the state of one that died


def heir_of(one):
    return one._replace(text=f"{one.text}2", generation=2)


def left_by(root, runtime, *, mode="exits"):
    """A file in the directory of a runtime, which has ended unless its mode is another."""
    (run_to_end if mode == "exits" else start_and_wait)(runtime, agent(mode))
    note = root / "local-a" / key().text / "work" / "note"
    note.write_text("what it had learned")
    return note


def test_a_runtime_goes_on_with_the_state_of_the_one_that_died_before_it(root, runtime):
    note = left_by(root, runtime)
    second = heir_of(key())
    spec = agent(state_of=["runtimeunknown", key().text])
    start_and_wait(runtime, spec, second)
    mine = root / "local-a" / second.text / "work" / "note"
    assert mine.read_text() == "what it had learned"
    assert not note.exists()
    run(runtime.ensure(second, spec))
    assert mine.exists()
    run(runtime.remove(key()))
    assert mine.exists()
    assert run(runtime.inspect(second)).presence is Presence.READY


def test_the_state_is_back_where_it_was_when_the_one_that_had_it_is_removed(root, runtime):
    note = left_by(root, runtime)
    run_to_end(runtime, agent("exits", state_of=[key().text]), heir_of(key()))
    assert not note.exists()
    run(runtime.remove(heir_of(key())))
    assert note.read_text() == "what it had learned"


def test_nothing_is_taken_from_a_runtime_that_still_runs(root, runtime):
    note = left_by(root, runtime, mode="healthy")
    with pytest.raises(Rejected, match="still runs"):
        run(runtime.ensure(heir_of(key()), agent(state_of=[key().text])))
    assert run(runtime.status(key())).presence is Presence.READY
    run(runtime.remove(heir_of(key())))
    assert note.exists()


def test_the_state_of_somebody_elses_runtime_is_nobodys(root, runtime):
    note = left_by(root, runtime)
    thief = heir_of(key())._replace(agent="another")
    start_and_wait(runtime, agent(state_of=[key().text]), thief)
    assert note.exists()
    run(runtime.remove(thief))
    assert note.exists()
    with pytest.raises(Invalid, match="state_of"):
        run(runtime.digest(agent(state_of=[key().text])))
    with pytest.raises(Invalid, match="state_of"):
        run(runtime.digest(agent(state_of=["../elsewhere"])))
