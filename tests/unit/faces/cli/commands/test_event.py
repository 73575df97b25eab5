"""`tenure event`, `subscription` and `tenant`, as they are typed."""

import asyncio
import json
import subprocess
import sys
from typing import NamedTuple

import click
import pytest

from tenure.adapters.seal.local import LocalSeal
from tenure.app.agents import commands as agents
from tenure.app.agents.spec import read_spec
from tenure.app.events import acknowledgements, subscriptions
from tenure.app.events.cloudevents import TRIMMED
from tenure.app.events.delivery_rows import put_cursor, put_letter
from tenure.app.operations import reads
from tenure.app.tenancy import tokens
from tenure.core.records import IdempotencyRecord
from tenure.core.roles import Caller, Role
from tenure.faces.cli.client import ConnectionBroken
from tenure.faces.cli.commands import event
from tenure.faces.cli.exits import Exit, Unreachable
from tenure.faces.http.server import Listen, serving
from tenure.ports.store import Change, Drop, Put
from tenure.testing.patches import patched
from tests.unit.support.api_client import api_test
from tests.unit.support.cli_runner import CliRunner

CALLER = Caller("default", "admin", Role.ADMIN)


async def create_ready(face, name="alpha"):
    spec = read_spec({"name": name, "runtime": {"command": ["agent"]}})
    asked = await agents.create_agent(face.plane, CALLER, spec)
    return (await reads.wait(face.plane, "default", asked.id, seconds=30)).agent


@api_test
async def test_events_are_listed_by_what_they_are_about(face, typing):
    uid = await create_ready(face)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address, "viewer")
        code, out, _ = await tenure("event", "list", "--type", "agent.*", "--agent", "alpha")
        assert code == 0
        assert [line.split()[2] for line in out.splitlines()[1:]] == [
            "agent.creating", "agent.ready",
        ]  # fmt: skip
        code, out, _ = await tenure("event", "list", "--limit", "3", "-o", "json")
        assert [one["subject"] for one in json.loads(out)] == [uid] * 3
        assert (await tenure("event", "list", "--type", "nonsense"))[0] == 2


@api_test
async def test_events_are_watched_as_they_are_committed(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        watching = subprocess.Popen(  # noqa: ASYNC220 (it begins at once)
            [sys.executable, "-m", "tenure", "event", "watch", "--type", "agent.*", "--after", "0",
             "-o", "json"],
            stdout=subprocess.PIPE, text=True,
            env={"TENURE_ADDRESS": address, "TENURE_TOKEN": face.tokens["viewer"]},
        )  # fmt: skip
        try:
            uid = await create_ready(face)
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


@api_test
async def test_a_subscription_and_whom_is_waited_for(face, typing):
    await create_ready(face)
    async with serving(face.http_state, Listen(port=0)) as address:
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
        assert "the destination of its events is missing" in told
        with patched(subscriptions, SUBSCRIPTIONS_MAX=1):
            code, _, told = await tenure("subscription", "create", "b5", "--kind", "pull")
        assert (code, "(quota_exceeded)\n  tenure subscription list\n" in told) == (1, True), told
        assert "strict" in (await tenure("tenant", "set", "--strict"))[1]
        asked = await agents.suspend_agent(face.plane, CALLER, "alpha")
        await face.until(asked.id, "WAITING")
        code, _, told = await tenure("agent", "create", "beta", "--command", "x")
        assert (code, "lists the possible commands" in told) == (1, True)
        code, _, told = await tenure("operation", "watch", asked.id, "--timeout", "0.1")
        assert code == 5
        assert "waits for the acknowledgement of billing since 20" in told
        assert (
            f"tenure subscription acknowledge SUBSCRIBER {asked.id}   once"
            in (await tenure("operation", "show", asked.id))[2]
        )
        assert asked.id in (await tenure("tenant", "show"))[1]
        assert asked.id in (await tenure("subscription", "waits", name))[1]
        acknowledge = ("subscription", "acknowledge", name, asked.id)
        code, _, told = await tenure(*acknowledge, "--override", "")
        assert (code, "the reason is empty" in told) == (2, True), told
        code, out, _ = await tenure(*acknowledge, "--override", "it is off")
        assert (code, "no longer waits for" in out) == (0, True)
        await face.until(asked.id, "SUCCEEDED")
        assert (await acknowledgements.get_strictness(face.plane, CALLER)).missing == []
        assert (await tenure("subscription", "letters", name))[0] == 0
        told = (await tenure("subscription", "replay", name))[1]
        assert told.startswith("there are no dead letters; if deliveries fail, the next attempt")
        assert (await tenure("subscription", "discard", name))[1] == "there are no dead letters\n"
        (row, *_) = await face.plane.store.list_events(limit=1)
        parked = {"attempts": 3, "due_at": None, "why": "it said no", "since": 1.0}
        writes = (
            put_letter(name, row),
            Put("parked", (name, row.agent), parked),
        )
        assert await face.plane.store.commit(Change("", (), writes)) is None
        assert " agent.creating " in (await tenure("subscription", "letters", name))[1]
        told = (await tenure("subscription", "replay", name))[1]
        assert told == "the dead letters of 1 agent are sent again\n"
        code, _, told = await tenure("subscription", "discard", name)
        assert (code, "the dead letters of 1 agent will never be sent to billing" in told) == (
            2, True,
        )  # fmt: skip
        assert "add --yes" in told
        assert " agent.creating " in (await tenure("subscription", "letters", name))[1]
        told = (await tenure("subscription", "discard", "billing", "--yes"))[1]
        assert told == "the dead letters of 1 agent are discarded\n"
        assert (await tenure("subscription", "rotate", name))[0] == 2
        assert (await tenure("subscription", "delete", name))[0] == 0
        assert (await tenure("subscription", "show", name))[0] == 1


@api_test
async def test_a_secret_shown_once_is_shown_in_every_form(face, typing, tmp_path_factory):
    object.__setattr__(face.plane, "seal", LocalSeal(tmp_path_factory.mktemp("s") / "key"))
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address, "admin")
        _, out, told = await tenure(
            "subscription", "create", "hook", "--url", "https://a.example/", "-o", "name"
        )
        assert "whsec_" in told
        _, again, told = await tenure("subscription", "rotate", out.strip(), "-o", "name")
        assert again == out
        assert "whsec_" in told
        assert "changed" in (await tenure("subscription", "show", "hook"))[1]
        keys = await face.plane.store.list_rows(IdempotencyRecord, {}, limit=9)
        assert {row.route for row in keys} == {"subscriptions", "rotate"}  # so it may ask again
        _, _, told = await tenure("token", "create", "ci", "--role", "viewer", "-o", "name")
        assert "tenure_" in told


@api_test
async def test_a_watch_ends_with_its_token(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address, "viewer")
        watching = asyncio.ensure_future(tenure("event", "watch", "--after", "0", "-o", "name"))
        while face.http_state.streams["default"] == 0:  # noqa: ASYNC110 (it is a thread's)
            await asyncio.sleep(0.01)
        await create_ready(face)
        (mine,) = [
            one for one in await tokens.list_tokens(face.plane, CALLER) if one.role is Role.VIEWER
        ]
        await asyncio.sleep(0.2)
        await tokens.revoke_token(face.plane, CALLER, mine.id)
        code, out, _ = await watching
        assert code == Exit.AUTHENTICATION
        assert len(out.split()) > 2


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOLD = {
    "id": "e1", "type": "tenure.agent.ready", "subject": "u1", "sequence": "1", "operation": "o1",
    "time": "2026-01-01T00:00:00Z",
}  # fmt: skip
WORDS = f"id: 7\nevent: agent.ready\ndata: {json.dumps(TOLD)}\n\n".encode()
MISSED = b"event: missed\ndata: {}\n\n"
NO_TOKEN = b'{"code": "unauthenticated", "status": 401}'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("form", ["name", "json", "yaml", "table"])
def test_a_watch_goes_on_after_the_last_event_seen(form, monkeypatch, capsys):
    """The stream is cut inside a line, then ended; then the token is no good any more."""
    monkeypatch.setattr(event, "AGAIN_SECONDS", 0.01)
    no = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%b" % (len(NO_TOKEN), NO_TOKEN)
    answers = iter([HEAD + chunk(WORDS) + b"40\r\nid: 8", HEAD + chunk(MISSED) + chunk(b""), no])
    asked: list[bytes] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(next(line for line in head.splitlines() if line.startswith(b"Last-Event-ID")))
        writer.write(next(answers))
        await writer.drain()
        writer.close()

    async def main() -> tuple[int, str, str]:
        async with await asyncio.start_server(on_connect, "127.0.0.1", 0) as listening:
            address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            tenure = CliRunner(address, "t", monkeypatch, capsys)
            return await tenure("event", "watch", "--after", "3", "-o", form)

    code, out, err = asyncio.run(main())
    assert code == Exit.AUTHENTICATION
    assert ("e1" if form == "name" else "tenure.agent.ready"[7:]) in out
    assert asked == [b"Last-Event-ID: 3", b"Last-Event-ID: 7", b"Last-Event-ID: 7"]
    for words in ("the connection broke", "were missed", "has ended the stream"):
        assert words in err


# --- what is watched, in this process -------------------------------------------------------------


class WatchResult(NamedTuple):
    code: int
    out: str
    err: str


async def watch(face, typing, *words, lines):
    """`tenure event watch`, until it has printed so much and its token is revoked."""
    async with serving(face.http_state, Listen(port=0)) as address:
        token, secret = await tokens.create_token(
            face.plane, CALLER, principal="watcher", role=Role.VIEWER
        )
        face.tokens["watcher"] = secret
        printed: list[str] = []
        show = click.echo

        def echo(message="", **more):
            printed.append(message)
            show(message, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(click, "echo", echo)
            tenure = typing(face, address, "watcher")
            watching = asyncio.ensure_future(tenure("event", "watch", *words))
            async with asyncio.timeout(50):
                while len(printed) < lines:  # noqa: ASYNC110 (another thread prints)
                    await asyncio.sleep(0.02)
                await tokens.revoke_token(face.plane, CALLER, token.id)
                return WatchResult(*await watching)


@api_test
async def test_a_watch_is_ended_by_ctrl_c_without_a_complaint(face, typing, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(event, "_stream", interrupt)
    async with serving(face.http_state, Listen(port=0)) as address:
        assert await typing(face, address)("event", "watch") == (Exit.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    ("form", "holds"),
    [("table", "agent.ready"), ("json", '"subject": "'), ("name", "-"), ("yaml", "---")],
)
@api_test
async def test_events_are_printed_in_any_form(face, typing, form, holds):
    await create_ready(face)
    seen = await watch(face, typing, "--type", "agent.*", "--after", "0", "-o", form, lines=2)
    assert (seen.code, holds in seen.out) == (Exit.AUTHENTICATION, True)


@api_test
async def test_from_now_on_is_after_all_that_is_there(face, typing, monkeypatch):
    await create_ready(face)
    began: list[int] = []
    stream = event._stream

    def told(client, query, last):
        if began:
            return stream(client, query, last)
        began.append(last)
        asyncio.run_coroutine_threadsafe(create_ready(face, "beta"), loop).result(10)
        return stream(client, query, last)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(event, "_stream", told)
    rows = await face.plane.store.list_events(limit=1_000)
    seen = await watch(face, typing, "--type", "agent.*", lines=2)
    assert began == [rows[-1].position]
    assert "agent.ready" in seen.out


@api_test
async def test_what_is_no_longer_kept_is_said_and_a_broken_connection_goes_on(
    face, typing, monkeypatch
):
    await create_ready(face)
    rows = await face.plane.store.list_events(limit=1_000)
    first = rows[0].position
    drops = (Drop("outbox", (first,)), put_cursor(TRIMMED, position=first))
    await face.plane.store.commit(Change("", (), drops))
    monkeypatch.setattr(event, "AGAIN_SECONDS", 0.01)
    broken: list[Exception] = [ConnectionBroken("cut"), Unreachable("nobody answers")]
    stream = event._stream

    def breaking(*args):
        if broken:
            raise broken.pop()
        return stream(*args)

    monkeypatch.setattr(event, "_stream", breaking)
    seen = await watch(face, typing, "--after", str(int(str(first)) - 1 or 10**6), lines=1)
    assert "the connection broke; continuing after the last event" in seen.err
    assert "nobody answers" in seen.err


@api_test
async def test_a_list_goes_on_after_an_event_that_is_named_by_its_id(face, typing):
    await create_ready(face)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address, "viewer")
        _, out, _ = await tenure("event", "list", "-o", "name")
        first, *rest = out.split()
        for named in (first, first.partition("-")[0]):
            _, out, _ = await tenure("event", "list", "-o", "name", "--after", named)
            assert out.split() == rest
        for odd in ("x", "-1", str(2**63), "\u00b2"):
            code, _, err = await tenure("event", "list", f"--after={odd}")
            assert (code, "is not the id of an event" in err) == (Exit.USAGE, True), odd


@api_test
async def test_who_may_not_watch_is_told(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        face.tokens["nobody"] = "tenure_nonsense"
        code, _, told = await typing(face, address, "nobody")("event", "watch", "--after", "0")
        assert (code, "unauthenticated" in told) == (4, True)
