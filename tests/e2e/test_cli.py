"""The command line against a real plane with real agents: what is typed, printed and returned."""

import json
import os
import pty
import shlex
import signal
import socket
import subprocess
import threading
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.support.plane_process import EXAMPLE, TENURE, environment, home_at, until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

AGENT = ("--command", f"python3 -S {EXAMPLE / 'agent.py'}")
SLOW = ("--command", "sleep 600", "--ready-seconds", "600")


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with home_at(tmp_path_factory.mktemp("cli") / "home") as one:
        one.start()
        yield one
        assert one.stop() == 0


def item(ran):
    return json.loads(ran.stdout)


def lines_of(text):
    return [line.strip() for line in text.splitlines()]


def test_an_agent_is_created_invoked_and_deleted(plane):
    made = plane.run("agent", "create", "hello", *AGENT, "--label", "team=x")
    assert made.stdout == ""
    *steps, summary = lines_of(made.stderr)
    assert steps == [
        f"✓ {name}"
        for name in ("identity", "access", "runtime", "runtime_ready", "credentials", "exposed")
    ]
    assert summary.startswith("agent hello is READY (")
    said = plane.run("agent", "invoke", "hello", '{"prompt": "hi"}')
    assert item(said) == {"answer": "you said: hi", "asked": 1}
    said = plane.run("agent", "invoke", "hello", stdin='{"prompt": "again"}')
    assert item(said)["asked"] == 2
    assert "asked: again" in plane.run("agent", "logs", "hello").stdout
    assert len(item(plane.run("agent", "show", "hello", "--resources", "-o", "json"))) == 4
    uid = item(plane.run("agent", "show", "hello", "-o", "json"))["uid"]
    gone = plane.run("agent", "delete", "hello", "-o", "name")
    assert (gone.stdout, "nothing of it is left" in gone.stderr) == ("hello\n", True)
    assert "not_found" in plane.run("agent", "show", "hello", code=1).stderr
    assert item(plane.run("agent", "show", uid, "--resources", "-o", "json")) == []


def test_a_creation_that_fails_shows_its_way_back_and_leaves_nothing(plane):
    ran = plane.run("agent", "create", "fails", *AGENT, "--env", "MODE=broken", code=1)
    *steps, summary, last = lines_of(ran.stderr)
    assert steps[3].startswith("✗ runtime_ready was refused")
    assert steps[-3:] == ["↺ runtime undone", "↺ access undone", "↺ identity undone"]
    assert "was undone, and left nothing behind" in summary
    assert last == "this agent was told to break"
    shown = item(plane.run("agent", "show", "fails", "-o", "json"))
    assert shown["state"] == "CREATE_FAILED"
    assert item(plane.run("agent", "show", "fails", "--resources", "-o", "json")) == []
    operation = plane.run("operation", "list", "--agent", "fails", "-o", "name").stdout.strip()
    assert plane.run("operation", "watch", operation, code=1).stderr.count("↺") == 4
    plane.run("agent", "create", "fails", *AGENT, "-o", "name")
    plane.run("agent", "delete", "fails", "--drain", "0")


def test_a_suspended_agent_refuses_and_comes_back(plane):
    plane.run("agent", "create", "rests", *AGENT)
    assert item(plane.run("agent", "suspend", "rests", "-o", "json"))["state"] == "SUCCEEDED"
    refused = plane.run("agent", "invoke", "rests", "{}", code=1).stderr
    assert "(suspended)\n  tenure agent resume rests" in refused
    assert plane.run("agent", "resume", "rests", "-o", "name").stdout == "rests\n"
    plane.run("agent", "suspend", "rests", "--keep-runtime", "--drain", "1")
    plane.run("agent", "resume", "rests")
    plane.run("agent", "stop", "rests")
    assert plane.run("agent", "list", "--state", "suspended", "-o", "name").stdout == "rests\n"
    assert "wrong_state" in plane.run("agent", "suspend", "rests", code=1).stderr
    plane.run("agent", "delete", "rests")


def test_waiting_can_be_cut_short_resumed_and_turned_back(plane):
    ran = plane.run("agent", "create", "slow", *SLOW, "--timeout", "0.5", code=5)
    assert "goes on" in ran.stderr
    (operation,) = plane.run("operation", "list", "--open", "-o", "name").stdout.split()
    assert plane.run("operation", "watch", operation, "--timeout", "0.2", code=5).stdout == ""
    with plane.begin("operation", "watch", operation) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline().strip() == "✓ identity"
        watching.send_signal(signal.SIGINT)
        assert "the operation goes on" in watching.communicate(timeout=120)[1]
        assert watching.returncode == 130
    assert "operation_in_progress" in plane.run("agent", "resume", "slow", code=1).stderr
    assert "create_agent was undone" in plane.run("operation", "cancel", operation).stderr
    shown = item(plane.run("operation", "show", operation, "-o", "json"))
    assert shown["state"] == "COMPENSATED"
    assert plane.run("operation", "retry", operation, code=1).stderr
    plane.run("agent", "delete", "slow")


def test_who_does_not_wait_gets_the_operation(plane):
    ran = plane.run("agent", "create", "later", *AGENT, "--no-wait")
    operation = ran.stdout.strip()
    assert f"tenure operation watch {operation}" in ran.stderr
    plane.run("operation", "watch", operation)
    made = item(plane.run("agent", "delete", "later", "--no-wait", "-o", "json"))
    seen = item(plane.run("operation", "watch", made["id"], "-o", "json"))
    assert (seen["kind"], seen["state"]) == ("delete_agent", "SUCCEEDED")


def test_a_dry_run_shows_the_steps_and_does_nothing(plane):
    ran = plane.run("agent", "create", "dry", *AGENT, "--dry-run")
    assert [line.split()[0] for line in ran.stdout.splitlines()][1:3] == ["identity", "access"]
    plane.run("agent", "show", "dry", code=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*AGENT, "--zone", "moon"), "zone"),
        ((*AGENT, "--parent", "nobody"), "nobody"),
    ],
)
def test_what_the_plane_cannot_do_is_refused_before_anything_is_made(plane, words, message):
    ran = plane.run("agent", "create", "never", *words, code=None)
    assert ran.returncode in {1, 2}
    assert message in ran.stderr
    plane.run("agent", "show", "never", code=1)


def test_a_command_that_is_not_there_is_foretold_and_its_creation_undone(plane):
    words = ("agent", "create", "never", "--command", "no-such-program")
    message = plane.run(*words, "--dry-run", code=1).stderr
    assert "the create would be undone: command: no-such-program was not found on" in message
    assert "no-such-program was not found on" in plane.run(*words, code=1).stderr
    plane.run("agent", "delete", "never")


def test_a_token_may_do_what_its_role_allows(plane):
    made = plane.run("token", "create", "eve", "--role", "viewer")
    token = made.stdout.strip()
    plane.run("agent", "list", TENURE_TOKEN=token)
    for words in (("agent", "create", "x", *AGENT), ("token", "list"), ("audit", "list")):
        assert "forbidden" in plane.run(*words, code=4, TENURE_TOKEN=token).stderr
    name = made.stderr.split()[1]
    plane.run("token", "revoke", name)
    assert "unauthenticated" in plane.run("agent", "list", code=4, TENURE_TOKEN=token).stderr
    listed = item(plane.run("token", "list", "-o", "json"))
    assert [one["revoked_at"] is None for one in listed] == [True, False]
    assert plane.run("agent", "list", "--token-file", "/nowhere", code=4).stdout == ""


def test_quota_and_audit_can_be_asked(plane):
    assert plane.run("quota", "show").stdout.endswith(", no limit\n")
    assert plane.run("quota", "set", "0", "-o", "json").stdout
    ran = plane.run("agent", "create", "more", *AGENT, code=1)
    assert "(quota_exceeded)\n  tenure quota show" in ran.stderr
    plane.run("quota", "set", "1000")
    head = item(plane.run("audit", "verify", "-o", "json"))["head"]
    plane.run("quota", "set", "999")
    plane.run("audit", "verify", "--head", head)
    assert "has that head" in plane.run("audit", "verify", "--head", "0" * 64, code=1).stderr
    entries = item(plane.run("audit", "list", "--limit", "2", "-o", "json"))
    assert [entry["position"] for entry in entries] == [1, 2]


def test_an_answer_is_passed_on_byte_by_byte_in_both_directions(plane, tmp_path):
    plane.run("agent", "create", "bytes", *AGENT)
    prompt = "x" * 300_000
    (tmp_path / "big.json").write_text(json.dumps({"prompt": prompt}))
    said = plane.run("agent", "invoke", "bytes", f"@{tmp_path / 'big.json'}")
    assert item(said)["answer"] == f"you said: {prompt}"
    wrong = plane.run("agent", "invoke", "bytes", "not json", code=1)
    assert item(wrong)["error"].startswith("send JSON")
    assert "status 400" in wrong.stderr
    plane.run("agent", "delete", "bytes")


def test_logs_are_followed_until_the_agent_is_gone(plane):
    plane.run("agent", "create", "talks", *AGENT)
    with plane.begin("agent", "logs", "talks", "--follow") as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith("listening on port")
        plane.run("agent", "invoke", "talks", '{"prompt": "one"}')
        assert following.stdout.readline() == "asked: one\n"
        plane.run("agent", "suspend", "talks")
        plane.run("agent", "resume", "talks")
        assert following.stdout.readline().startswith("listening on port")
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=120)
        assert following.returncode == 130
    plane.run("agent", "delete", "talks")


def test_files_are_applied_planned_exported_and_pruned(plane, tmp_path):
    (tmp_path / "agent.py").write_text((EXAMPLE / "agent.py").read_text())
    body = "runtime: {command: [python3, -S, agent.py]}\nlabels: {set: files}\n"
    (tmp_path / "a.yaml").write_text(f"name: child\nparent: owner\n{body}---\nname: owner\n{body}")
    (tmp_path / "b.yaml").write_text(f"name: other\n{body}")
    where, only = ("-f", str(tmp_path)), ("--selector", "set=files")
    planned = plane.run("plan", *where, "--detailed-exitcode", code=3)
    assert planned.stdout.splitlines() == ["+ owner create", "+ child create", "+ other create"]
    assert item(plane.run("apply", *where, "--dry-run", "-o", "json"))[0]["action"] == "create"
    assert "3 created, 0 unchanged" in plane.run("apply", *where).stderr
    assert "0 created, 3 unchanged" in plane.run("apply", *where).stderr
    plane.run("plan", *where, "--detailed-exitcode")
    exported = plane.run("export", "-l", "set=files").stdout
    assert [one["name"] for one in yaml.safe_load_all(exported)] == ["child", "other", "owner"]
    plane.run("plan", "-f", "-", "--detailed-exitcode", stdin=exported)

    (tmp_path / "b.yaml").write_text(f"name: other\nowner: eve\n{body}")
    differs = plane.run("apply", *where, code=1)
    assert "~ other differs: update is not supported yet" in differs.stdout
    assert "owner: nothing → 'eve'" in differs.stdout

    (tmp_path / "b.yaml").unlink()
    assert "--yes" in plane.run("apply", *where, "--prune", *only, code=2).stderr
    pruned = plane.run("apply", *where, "--prune", *only, "--yes").stderr
    assert "0 created, 2 unchanged, 1 deleted" in pruned
    (tmp_path / "a.yaml").write_text("name: nothing\nruntime: {command: [x]}\n")
    plane.run("apply", *where, "--prune", *only, "--yes")
    assert plane.run("agent", "list", "-l", "set=files", "-o", "name").stdout == ""


def test_an_apply_that_fails_in_part_says_which_and_goes_on_with_the_rest(plane, tmp_path):
    good = f"runtime: {{command: [python3, -S, {EXAMPLE / 'agent.py'}]}}\n"
    bad = f"runtime: {{command: [python3, {EXAMPLE / 'agent.py'}], env: {{MODE: broken}}}}\n"
    (tmp_path / "a.yaml").write_text(
        f"name: bad\n{bad}---\nname: below\nparent: bad\n{good}---\nname: good\n{good}"
    )
    ran = plane.run("apply", "-f", str(tmp_path), code=1)
    assert "agent bad is not created" in ran.stderr
    assert "agent below: not created, because its parent was not created" in ran.stderr
    assert "1 created, 0 unchanged, 0 deleted, 0 differ, 2 failed" in ran.stderr
    plane.run("agent", "delete", "good", "bad")


def test_a_terminal_gets_a_drawing(plane):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*TENURE, "agent", "create", "drawn", *AGENT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TENURE_HOME=str(plane.home), TERM="xterm"),
        start_new_session=True,
    ) as drawing:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 65_536)
            except OSError:
                break
    os.close(ours)
    text = seen.decode()
    assert drawing.returncode == 0
    assert "\x1b[" in text
    assert "✓" in text
    assert "agent drawn is READY" in text
    plane.run("agent", "delete", "drawn")


@pytest.mark.parametrize("words", ["operation list", "export -o json"])
def test_a_reader_that_goes_away_is_no_defect(plane, words):
    line = f"{' '.join(TENURE)} {words} | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        check=True,
        env=environment(TENURE_HOME=str(plane.home), PYTHONUNBUFFERED=""),
    )
    assert ran.stdout.strip() in {"0", "1"}
    assert "Traceback" not in ran.stderr
    assert "Broken" not in ran.stderr


def test_the_doctor_is_content_with_a_plane_that_runs(plane):
    found = {one["check"]: one["result"] for one in item(plane.run("doctor", "-o", "json"))}
    assert (found["server"], found["token"], found["token file"]) == ("ok", "ok", "ok")


class Loses:
    """A wire to the server that loses the first answer after its request has arrived."""

    def __init__(self, address: str) -> None:
        self._to = (urlsplit(address).hostname, urlsplit(address).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection(self._to)) as server:
            back = threading.Thread(target=self._back, args=(server, client), daemon=True)
            back.start()
            with suppress(ConnectionError):  # the one that loses its answer may be reset
                while data := client.recv(65_536):
                    server.sendall(data)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65_536):
                if b" 202 " in data[:64] and not self.lost:
                    self.lost += 1
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()


def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_is_made_twice(plane):
    wire = Loses((plane.home / "address").read_text().strip())
    token = (plane.home / "token").read_text().strip()
    with closing(wire):
        plane.run("agent", "create", "once", *AGENT, "--address", wire.address, TENURE_TOKEN=token)
    assert wire.lost == 1
    listed = plane.run("operation", "list", "--agent", "once", "-o", "name").stdout.split()
    assert len(listed) == 1
    plane.run("agent", "delete", "once")


# ---------------------------------------------------------------------- a plane of its own for each


def test_whoever_waits_survives_a_kill_of_the_plane(tmp_path):
    with home_at(tmp_path / "home") as plane:
        plane.start()
        text = f"import time, runpy; time.sleep(3); runpy.run_path('{EXAMPLE}/agent.py')"
        slow = shlex.join(["python3", "-S", "-c", text])
        with plane.begin("agent", "create", "lives", "--command", slow) as waiting:
            assert waiting.stderr is not None
            until(lambda: waiting.stderr.readline().strip() == "✓ runtime")
            plane.stop(signal.SIGKILL)
            plane.start()
            said = waiting.communicate(timeout=120)[1]
            assert waiting.returncode == 0, said
        assert "✓ runtime\n" not in said, "nothing is told twice"
        assert "agent lives is READY" in said
        assert item(plane.run("agent", "invoke", "lives", '{"prompt": "x"}'))["asked"] == 1
        assert plane.stop() == 0
        assert not (plane.home / "address").exists()
        assert "tenure up" in plane.run("agent", "list", code=1).stderr
        plane.start()
        assert item(plane.run("agent", "invoke", "lives", '{"prompt": "x"}'))["asked"] == 2
        plane.run("agent", "delete", "lives")


def start_refused(*args: str) -> tuple[int, str]:
    ran = subprocess.run(
        [*TENURE, "up", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(),
    )
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stderr


def test_a_plane_that_cannot_start_says_why(tmp_path):
    home = str(tmp_path / "home")
    with home_at(tmp_path / "home") as plane:
        plane.start()
        address = (plane.home / "address").read_text().strip()
        code, said = start_refused("--home", home, "--port", "0")
        assert (code, f"already runs in {home}, at {address}: " in said) == (1, True)
        other, port = str(tmp_path / "other"), address.rpartition(":")[2]
        code, said = start_refused("--home", other, "--port", port)
        assert (code, "Address already in use" in said, "--port N" in said) == (1, True, True)
        plane.stop(signal.SIGINT)
    code, said = start_refused("--home", other, "--host", "0.0.0.0", "--port", "0")
    assert (code, "can be reached from other machines" in said) == (2, True)
    code, said = start_refused("--home", other, "--tls-cert", "x.pem")
    assert (code, "both a certificate and its key" in said) == (2, True)
    (tmp_path / "file").write_text("")
    code, said = start_refused("--home", str(tmp_path / "file"), "--port", "0")
    assert (code, "file" in said) == (1, True)
