"""`tenure event`, `subscription` and `tenant`, as they are typed."""

import asyncio
import json
import subprocess
import sys

import pytest

from tenure.adapters.seal.local import LocalSeal
from tenure.app import acknowledgements, agents, operations, tokens
from tenure.app.spec import read_spec
from tenure.core.roles import Caller, Role
from tenure.faces.api.server import Listen, serving
from tests.unit.faces.asked import faced

pytestmark = pytest.mark.timeout(30)
CALLER = Caller("default", "admin", Role.ADMIN)


async def made(face, name="alpha"):
    spec = read_spec({"name": name, "runtime": {"command": ["agent"]}})
    asked = await agents.create_agent(face.plane, CALLER, spec)
    return (await operations.wait(face.plane, "default", asked.id, seconds=5)).agent


@faced
async def test_events_are_listed_by_what_they_are_about(face, typing):
    uid = await made(face)
    async with serving(face.api, Listen(port=0)) as address:
        tenure = typing(face, address, "viewer")
        code, out, _ = await tenure("event", "list", "--type", "agent.*", "--agent", "alpha")
        assert code == 0
        assert [line.split()[2] for line in out.splitlines()[1:]] == [
            "agent.creating", "agent.ready",
        ]  # fmt: skip
        code, out, _ = await tenure("event", "list", "--limit", "3", "-o", "json")
        assert [one["subject"] for one in json.loads(out)] == [uid] * 3
        assert (await tenure("event", "list", "--type", "nonsense"))[0] == 2


@faced
async def test_events_are_watched_as_they_are_committed(face, typing):
    async with serving(face.api, Listen(port=0)) as address:
        watching = subprocess.Popen(  # noqa: ASYNC220 (it begins at once)
            [sys.executable, "-m", "tenure", "event", "watch", "--type", "agent.*", "--after", "0",
             "-o", "json"],
            stdout=subprocess.PIPE, text=True,
            env={"TENURE_ADDRESS": address, "TENURE_TOKEN": face.tokens["viewer"]},
        )  # fmt: skip
        try:
            uid = await made(face)
            assert watching.stdout is not None
            lines = [await asyncio.to_thread(watching.stdout.readline) for _ in range(2)]
            told = [json.loads(line) for line in lines]
            assert [one["type"] for one in told] == [
                "tenure.agent.creating", "tenure.agent.ready",
            ]  # fmt: skip
            assert {one["subject"] for one in told} == {uid}
        finally:
            watching.kill()
            watching.wait()
            assert watching.stdout is not None
            watching.stdout.close()


@faced
async def test_a_subscription_and_whom_is_waited_for(face, typing):
    await made(face)
    async with serving(face.api, Listen(port=0)) as address:
        tenure = typing(face, address, "admin")
        code, out, _ = await tenure(
            "subscription", "create", "billing", "--kind", "pull", "--required", "-o", "name"
        )
        name = out.strip()
        assert code == 0
        assert "billing" in (await tenure("subscription", "list"))[1]
        assert "required" in (await tenure("subscription", "show", name))[1]
        assert name in (await tenure("subscription", "show", "billing"))[1]
        again = await tenure("subscription", "create", "billing", "--kind", "pull", "-o", "name")
        code, _, told = await tenure("subscription", "show", "billing")
        assert code == 2
        assert f"several subscriptions are called billing: {name}, {again[1].strip()}" in told
        assert (await tenure("subscription", "delete", again[1].strip()))[0] == 0
        code, _, told = await tenure("subscription", "show", "nobody")
        assert code == 1
        assert "there is no subscription nobody, by id or by name" in told
        code, _, told = await tenure("subscription", "create", "b4")
        assert code == 2
        assert "say how it is told" in told
        assert "strict" in (await tenure("tenant", "set", "--strict"))[1]
        asked = await agents.suspend_agent(face.plane, CALLER, "alpha")
        await face.until(asked.id, "WAITING")
        code, _, told = await tenure("operation", "watch", asked.id, "--timeout", "0.1")
        assert code == 5
        assert "waits for the acknowledgement of billing since 20" in told
        assert asked.id in (await tenure("tenant", "show"))[1]
        assert asked.id in (await tenure("subscription", "waits", name))[1]
        code, out, _ = await tenure(
            "subscription", "acknowledge", name, asked.id, "--override", "it is off"
        )
        assert (code, "has acknowledged" in out) == (0, True)
        await face.until(asked.id, "SUCCEEDED")
        assert (await acknowledgements.get_strictness(face.plane, CALLER)).missing == []
        assert (await tenure("subscription", "letters", name))[0] == 0
        assert (await tenure("subscription", "replay", name))[1] == "0 agents\n"
        assert (await tenure("subscription", "discard", name))[1] == "0 agents\n"
        assert (await tenure("subscription", "rotate", name))[0] == 2
        assert (await tenure("subscription", "delete", name))[0] == 0
        assert (await tenure("subscription", "show", name))[0] == 1


@faced
async def test_a_secret_shown_once_is_shown_in_every_form(face, typing, tmp_path_factory):
    object.__setattr__(face.plane, "seal", LocalSeal(tmp_path_factory.mktemp("s") / "key"))
    async with serving(face.api, Listen(port=0)) as address:
        tenure = typing(face, address, "admin")
        _, out, told = await tenure(
            "subscription", "create", "hook", "--url", "https://a.example/", "-o", "name"
        )
        assert "whsec_" in told
        _, again, told = await tenure("subscription", "rotate", out.strip(), "-o", "name")
        assert again == out
        assert "whsec_" in told
        _, _, told = await tenure("token", "create", "ci", "--role", "viewer", "-o", "name")
        assert "tenure_" in told


@faced
async def test_a_watch_ends_with_its_token(face, typing):
    async with serving(face.api, Listen(port=0)) as address:
        tenure = typing(face, address, "viewer")
        watching = asyncio.ensure_future(tenure("event", "watch", "--after", "0", "-o", "name"))
        while face.api.streams["default"] == 0:  # noqa: ASYNC110 (it is a thread's)
            await asyncio.sleep(0.01)
        await made(face)
        (mine,) = [
            one for one in await tokens.list_tokens(face.plane, CALLER) if one.role is Role.VIEWER
        ]
        await asyncio.sleep(0.2)
        await tokens.revoke_token(face.plane, CALLER, mine.id)
        code, out, _ = await watching
        assert code == 0
        assert len(out.split()) > 2
