"""Agents, files and an admin's commands, typed against a real server over providers in memory."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
import yaml

from tenure.core import audit
from tenure.core.agent import AgentState
from tenure.core.records import TokenRecord
from tenure.faces.cli import logs
from tenure.faces.cli.exits import Exit
from tenure.faces.http.server import Listen, serving
from tenure.ports.runtime import LogPart
from tenure.ports.store import Change, Set
from tests.unit.support.api_client import api_test
from tests.unit.support.fixed_answer_server import answers

RUN = ("--command", "true")
AGENT = {"name": "a", "runtime": {"command": ["true"]}}
WAIT = {"prefer": "wait=30"}


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@asynccontextmanager
async def serve_face(face):
    async with serving(face.http_state, Listen(port=0)) as address:
        yield address


@api_test
async def test_the_verbs_of_an_agent(face, typing):
    async with serve_face(face) as address:
        tenure = typing(face, address)
        code, out, err = await tenure(
            "agent",
            "create",
            "a",
            *RUN,
            "--label",
            "x=1",
            "--env",
            "A=b",
            "--role",
            "r",
            "--owner",
            "me",
            "--drain-seconds",
            "0",
        )
        assert (code, out, "agent a is READY" in err) == (0, "", True)
        code, out, _ = await tenure("agent", "show", "a", "-o", "yaml")
        assert yaml.safe_load(out)["spec"] == {
            "name": "a",
            "owner": "me",
            "labels": {"x": "1"},
            "roles": ["r"],
            "runtime": {"command": ["true"], "env": {"A": "b"}, "drain_seconds": 0.0},
        }
        assert "labels:  x=1" in (await tenure("agent", "show", "a"))[1]
        assert (await tenure("agent", "logs", "a", "-n", "2"))[1] == "one line\n" * 2
        for verb, state in (("suspend", "SUSPENDED"), ("resume", "READY"), ("stop", "SUSPENDED")):
            code, out, _ = await tenure("agent", verb, "a", "-o", "json")
            assert (code, json.loads(out)["state"]) == (0, "SUCCEEDED")
            _, out, _ = await tenure("agent", "list", "--state", state, "-o", "name")
            assert out == "a\n"
        code, out, err = await tenure("agent", "delete", "a", "--no-wait", "-o", "yaml")
        assert (code, yaml.safe_load(out)["kind"]) == (0, "delete_agent")


@api_test
async def test_a_delete_of_several_names_those_it_did_not_attempt(face, typing):
    async with serve_face(face) as address:
        tenure = typing(face, address)
        for name in ("a", "c"):
            await tenure("agent", "create", name, *RUN)
        code, _, err = await tenure("agent", "delete", "a", "b", "c", "d")
        assert (code, "agent a is deleted" in err) == (1, True)
        assert "not attempted: c, d\nerror: there is no agent" in err
        assert (await tenure("agent", "list", "-o", "name"))[1] == "c\n"


@api_test
async def test_a_malformed_option_is_not_called_a_file(face, typing):
    async with serve_face(face) as address:
        code, _, err = await typing(face, address)("agent", "create", "Bad_Name", *RUN)
        assert (code, "nothing was sent: correct the command, then run" in err) == (2, True)


@api_test
async def test_agents_are_listed_by_every_state_but_the_last(face, typing):
    async with serve_face(face) as address:
        tenure = typing(face, address)
        for state in AgentState:
            code, _, err = await tenure("agent", "list", "--state", state)
            assert code == (2 if state is AgentState.DELETED else 0), err


@api_test
async def test_an_invitation_is_printed_once(face, typing):
    async with serve_face(face) as address:
        tenure = typing(face, address)
        await tenure("agent", "create", "a", *RUN)
        code, out, err = await tenure("agent", "invite", "a")
        assert (code, out.startswith("invitation-"), err[-4:]) == (0, True, "UTC\n")


@api_test
async def test_a_refused_creation_prints_no_name_and_ends_with_one(face, typing):
    async with serve_face(face) as address:
        tenure = typing(face, address)
        code, out, err = await tenure(
            "agent", "create", "a", *RUN, "--role", "refuse-access", "-o", "name"
        )
        assert (code, out) == (1, "")
        assert "✗ access was refused" in err
        assert "↺ identity undone" in err
        (made,) = (await face.ask("GET", "/v1/operations?agent=a")).json["items"]
        assert (
            f"access refuses this spec (operation {made['id']})"
            in (await tenure("agent", "show", "a"))[1]
        )
        _, out, _ = await tenure("operation", "list", "--agent", "a")
        assert out.splitlines()[1].split()[:4] == [made["id"], "create_agent", "COMPENSATED", "a"]
        assert f"a {made['agent']}" in (await tenure("operation", "show", made["id"]))[1]
        assert (await tenure("operation", "list", "--agent", "nobody"))[0] == 1
        code, out, _ = await tenure("agent", "create", "b", *RUN, "--dry-run", "-o", "name")
        assert (code, out.split()[0]) == (0, "identity")


@api_test
async def test_an_agent_comes_from_a_file_or_from_options_not_from_both(face, typing, folder):
    one = folder / "one.yaml"
    one.write_text("name: a\nruntime: {command: ['true']}\n")
    two = folder / "two.yaml"
    two.write_text(f"{one.read_text()}---\nname: b\nruntime: {{command: ['true']}}\n")
    async with serve_face(face) as address:
        tenure = typing(face, address)
        assert (await tenure("agent", "create", "-f", str(one), "-o", "name"))[1] == "a\n"
        assert (await tenure("agent", "create", "c", "-f", str(one), "-o", "name"))[1] == "c\n"
        code, _, err = await tenure("agent", "create", "-f", str(one), "--label", "a=b")
        assert (code, "--label cannot be used with --file" in err) == (2, True)
        code, _, err = await tenure("agent", "create", "-f", str(two))
        assert (code, "tenure apply creates them all" in err) == (2, True)


@api_test
async def test_files_are_applied_planned_exported_and_pruned(face, typing, folder):
    where = folder / "files"
    where.mkdir()
    body = "runtime: {command: ['true']}\nlabels: {set: f}\n"
    (where / "a.yaml").write_text(f"name: below\nparent: above\n{body}---\nname: above\n{body}")
    (where / "b.yaml").write_text(f"name: bad\nroles: [refuse-access]\n{body}")
    async with serve_face(face) as address:
        tenure = typing(face, address)
        code, out, _ = await tenure("plan", "-f", str(where), "--detailed-exitcode", "-o", "name")
        assert (code, out.split()) == (3, ["above", "below", "bad"])
        code, out, err = await tenure("apply", "-f", str(where), "-o", "yaml")
        assert (code, [one["name"] for one in yaml.safe_load(out)]) == (1, ["above", "below"])
        assert "agent bad is not created: access was refused" in err
        assert "2 created, 0 unchanged, 0 deleted, 0 differ, 1 failed" in err
        (where / "b.yaml").unlink()
        assert (await tenure("plan", "-f", str(where), "--detailed-exitcode"))[0] == 0
        code, out, _ = await tenure("export", "above", "below")
        assert [one["name"] for one in yaml.safe_load_all(out)] == ["above", "below"]
        (folder / "all.json").write_text((await tenure("export", "-o", "json"))[1])
        assert json.loads((folder / "all.json").read_text())[0]["name"] == "above"
        words = ("plan", "-f", str(folder / "all.json"), "--detailed-exitcode")
        assert (await tenure(*words))[0] == 0, "applies back to no change"
        assert (await tenure("export", "-l", "set=g", "-o", "name"))[1] == ""
        code, _, err = await tenure("export", "above", "-l", "set=g")
        assert (code, "not both" in err) == (2, True)
        (where / "a.yaml").write_text(f"name: above\nowner: eve\n{body}")
        code, out, _ = await tenure("apply", "-f", str(where), "--prune", "--yes")
        assert (code, "~ above differs" in out) == (1, True)
        assert (await tenure("agent", "list", "-o", "name"))[1] == "above\n"
        code, _, err = await tenure("apply", "-f", str(where), "--dry-run", "-o", "json")
        assert code == 0
        code, _, err = await tenure("apply", "-f", str(where), "-l", "set=g", "--no-wait")
        assert (code, "0 created" in err) == (0, True)


@api_test
async def test_a_plan_says_what_would_not_be_created_and_why(face, typing, folder):
    file = folder / "a.yaml"
    odd = "name: odd\nruntime: {command: [x], network: {egress: [a]}}"
    file.write_text(f"name: gone\nruntime: {{command: [no-such-program]}}\n---\n{odd}")
    async with serve_face(face) as address:
        for words in (("plan",), ("apply", "--dry-run")):
            code, out, _ = await typing(face, address)(*words, "-f", str(file))
            assert (code, out.splitlines()) == (
                0,
                [
                    "+ gone create: command: there is no such thing",
                    "+ odd create: runtime.network: this runtime cannot enforce it (invalid)",
                ],
            )
        code, out, _ = await typing(face, address, "viewer")("plan", "-f", str(file), "-o", "name")
        assert (code, out) == (0, "gone\nodd\n")
        create = ("agent", "create", "gone", "--command", "no-such-program")
        code, _, err = await typing(face, address)(*create, "--dry-run")
        warning = "error: the create would be undone: command: there is no such thing\n"
        assert (code, err) == (1, warning)
        create = ("agent", "create", "gone", "--command", "python3 nosuch.py")
        code, _, err = await typing(face, address)(*create, "--dry-run")
        assert (
            code,
            "warning: command: nosuch.py is not a file here; the agent would search" in err,
        ) == (0, True)
        file.write_text("name: gone\nruntime: {command: [python3, ./nosuch.py]}")
        assert (
            f"{folder}/nosuch.py is not a file"
            in (await typing(face, address)("plan", "-f", str(file)))[1]
        )
        create = ("agent", "create", "gone", "--command", "no-such-program")
        code, _, err = await typing(face, address)(*create)
        assert (code, "command: there is no such thing" in err) == (1, True)


@api_test
async def test_an_apply_without_a_token_for_it_stops_at_once(face, typing, folder):
    file = folder / "a.yaml"
    file.write_text("name: a\nruntime: {command: ['true']}\n---\nname: b\nruntime: {command: [x]}")
    async with serve_face(face) as address:
        code, _, err = await typing(face, address, "viewer")("apply", "-f", str(file))
        assert (code, err.count("forbidden")) == (4, 1)
        code, _, err = await typing(face, address)("apply", "-f", str(file), "--no-wait")
        assert (code, err.count("accepted, operation")) == (0, 2)
        assert (await typing(face, address, "admin")("quota", "set", "2"))[0] == 0
        file.write_text("name: c\nruntime: {command: [x]}")
        code, _, err = await typing(face, address)("apply", "-f", str(file))
        assert (code, "(quota_exceeded)\n  tenure quota show\n" in err) == (1, True)


@api_test
async def test_what_an_admin_asks(face, typing, monkeypatch):
    async with serve_face(face) as address:
        tenure = typing(face, address, "admin")
        code, out, err = await tenure("token", "create", "eve", "--role", "viewer")
        assert (code, out.startswith("tenure_")) == (0, True)
        name = err.split()[1]
        assert name in (await tenure("token", "list", "-o", "name"))[1]
        assert "since a restore" not in (await tenure("token", "list"))[1]
        (kept,) = await face.plane.store.list_rows(TokenRecord, {"id": name}, limit=2)
        other = Set("token", (kept.hash,), {"epoch": face.plane.pause.epoch + 1})
        assert await face.plane.store.commit(Change("", (), (other,))) is None
        (row,) = (line for line in (await tenure("token", "list"))[1].splitlines() if name in line)
        assert row.endswith("since a restore")
        assert (await tenure("token", "revoke", name))[0] == 0
        assert (await tenure("token", "revoke", name, "-o", "name"))[1] == f"{name}\n"
        assert (await tenure("quota", "show"))[1] == "0 agents, no limit\n"
        assert (await tenure("quota", "set", "3"))[1] == "0 agents of 3\n"
        code, out, _ = await tenure("audit", "list", "--after", "1", "--limit", "1", "-o", "name")
        assert (code, out) == (0, "2\n")
        await tenure("agent", "create", "named", *RUN)
        lines = (await tenure("audit", "list"))[1].splitlines()
        assert lines[-1].split()[-3:-1] == ["agent.create", "named"]
        code, out, err = await tenure("audit", "verify")
        assert (code, "and has the last line that the server remembers" in err) == (0, True)
        head = out.split()[-1]
        code, out, err = await tenure("audit", "verify", "--head", head.upper(), "-o", "json")
        assert (code, err) == (0, "")
        code, out, err = await tenure("audit", "verify", "--head", head)
        assert (code, "unbroken, and that head is in it" in err) == (0, True)
        seen = face.plane.pause.memo
        await face.plane.pause.update_memo(position=99, head="f" * 64)
        code, out, err = await tenure("audit", "verify")
        assert (code, "the head that this plane saw last is missing in the log" in out) == (1, True)
        assert "rewritten since\n" in err
        await face.plane.pause.update_memo(position=seen.position, head=seen.head)
        code, out, err = await tenure("audit", "verify", "--head", "0" * 64)
        assert (code, "broken:" in out, "line " in out) == (1, True, False)
        assert "lines has that head: the audit log was truncated or rewritten since, or" in err
        code, out, err = await tenure("audit", "verify", "--head", "deadbeef")
        assert (code, "64 digits" in err) == (Exit.USAGE, True)
        changed = audit.BrokenChain(2, "entry 2 was changed, or the one before it was")
        monkeypatch.setattr("tenure.app.tenancy.audit.first_broken", lambda *_, **__: changed)
        code, out, err = await tenure("audit", "verify")
        assert (code, "line 2: " in out, "was changed" in err) == (1, True, True)
        found = json.loads((await tenure("doctor", "-o", "json"))[1])
        assert {one["result"] for one in found if one["check"] in {"server", "token"}} == {"ok"}


@api_test
async def test_an_invocation_ends_as_the_agent_answers(face, typing, folder):
    good = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"
    bad = b"HTTP/1.1 418 No\r\nContent-Length: 3\r\n\r\nno!"
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
    async with serve_face(face) as address:
        tenure = typing(face, address)
        for name, text, code, out in (
            ("good", good, 0, "hi"),
            ("bad", bad, 1, "no!"),
            ("cut", cut, 1, "half"),
        ):
            listening = await asyncio.start_server(answers(text), "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            face.providers["runtime"].address = f"127.0.0.1:{port}"
            await tenure("agent", "create", name, *RUN)
            said = await tenure("agent", "invoke", name, "{}", "--session", "s" * 33)
            assert said[:2] == (code, out), said
            listening.close()
        code, _, err = await tenure("agent", "invoke", "good", "text")
        assert (code, "(runtime_broken)\n  tenure agent logs good" in err) == (1, True)
        code, _, err = await tenure("agent", "invoke", "good", "@/nowhere")
        assert (code, "cannot be read" in err) == (2, True)
        (folder / "body").write_bytes(b"\xff")
        assert (await tenure("agent", "invoke", "good", f"@{folder / 'body'}"))[0] == 1
        assert (await tenure("agent", "invoke", "nobody", "{}"))[0] == 1


@api_test
async def test_a_followed_log_ends_with_its_agent(face, typing, monkeypatch):
    parts = iter(["a\nb\nc\n", "", "d\n"])

    async def follow(key, *, since):
        text = next(parts, "")
        return LogPart(text, since + len(text))

    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    face.providers["runtime"].follow = follow
    async with serve_face(face) as address:
        tenure = typing(face, address)
        await tenure("agent", "create", "a", *RUN)
        following = asyncio.ensure_future(tenure("agent", "logs", "a", "-n", "2", "--follow"))
        await asyncio.sleep(0.3)
        told = await face.ask("DELETE", "/v1/agents/a", headers={"prefer": "wait=30"})
        assert told.status == 202
        assert await following == (0, "b\nc\nd\n", "")


@pytest.fixture
def log_files(monkeypatch):
    """What agents have printed, by the key of their runtime; looks at it follow each other fast."""
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(logs, "AGENT_EVERY", 1)
    return {}


class Printing:
    """Agents that have printed this, by the key of their runtime; and how far somebody has read."""

    def __init__(self, face, log_files) -> None:
        self._printed = log_files
        self._read: dict[str, int] = {}
        face.providers["runtime"].follow = self.follow

    async def follow(self, key, *, since):
        self._read[key.text] = since
        text = self._printed.get(key.text, "")[since:][:6]
        return LogPart(text, since + len(text))

    async def wait_streamed(self, key: str) -> None:
        """Return when all of it was read."""
        async with asyncio.timeout(30):
            while self._read.get(key) != len(self._printed.get(key, "")):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@api_test
async def test_a_followed_log_goes_on_with_a_new_runtime(face, typing, log_files):
    printing = Printing(face, log_files)
    async with serve_face(face) as address:
        tenure = typing(face, address)
        await tenure("agent", "create", "a", *RUN)
        (first,) = face.providers["runtime"].things
        log_files[first] = "one\ntwo\nthree\n"
        following = asyncio.ensure_future(tenure("agent", "logs", "a", "-n", "1", "--follow"))
        await printing.wait_streamed(first)
        for verb in (":suspend", ":resume"):
            await face.ask("POST", f"/v1/agents/a{verb}", headers=WAIT)
        (second,) = face.providers["runtime"].things
        assert second != first
        log_files[second] = "fresh\n"
        await printing.wait_streamed(second)
        await face.ask("POST", "/v1/agents/a:suspend", {"keep_runtime": True}, headers=WAIT)
        await face.ask("POST", "/v1/agents/a:resume", headers=WAIT)
        log_files[second] += "more\n"
        await printing.wait_streamed(second)
        await face.ask("DELETE", "/v1/agents/a", headers=WAIT)
        assert await following == (0, "three\nfresh\nmore\n", "")


@api_test
async def test_a_log_that_is_followed_while_nothing_comes_says_why(face, typing, log_files):
    printing = Printing(face, log_files)
    async with serve_face(face) as address:
        tenure = typing(face, address)
        await tenure("agent", "create", "failed", *RUN, "--role", "refuse-access")
        assert (await tenure("agent", "logs", "failed", "--follow"))[0] == 0
        await tenure("agent", "create", "a", *RUN)
        await tenure("agent", "suspend", "a", "--keep-runtime")
        (key,) = face.providers["runtime"].things
        following = asyncio.ensure_future(tenure("agent", "logs", "a", "--follow"))
        await printing.wait_streamed(key)
        await face.ask("DELETE", "/v1/agents/a", headers=WAIT)
        code, _, err = await following
        assert (code, "agent a is suspended: its log continues" in err) == (0, True)


@api_test
async def test_a_followed_log_ends_with_its_token(face, typing, log_files):
    printing = Printing(face, log_files)
    async with serve_face(face) as address:
        tenure = typing(face, address, "viewer")
        await face.ask("POST", "/v1/agents", AGENT, headers=WAIT)
        (key,) = face.providers["runtime"].things
        following = asyncio.ensure_future(tenure("agent", "logs", "a", "--follow"))
        await printing.wait_streamed(key)
        for one in (await face.ask("GET", "/v1/tokens", token="admin")).json["items"]:
            if one["role"] == "viewer":
                await face.ask("DELETE", f"/v1/tokens/{one['id']}", token="admin")
        code, out, err = await following
        assert (code, out) == (Exit.AUTHENTICATION, "")
        assert "token" in err
