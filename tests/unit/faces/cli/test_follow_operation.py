"""What a wait makes of a server that streams oddly, goes away, or takes too long.

The servers are real sockets with one answer for each path.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure.faces.cli import progress
from tenure.faces.cli.client import Client
from tenure.faces.cli.commands import apply
from tenure.faces.cli.exits import CommandExit, Exit, ServerRefusal
from tenure.faces.cli.options import WaitOptions
from tenure.faces.cli.progress import OperationProgress
from tenure.faces.cli.where import ServerLocation
from tenure.faces.http.server import Listen, serving
from tests.unit.support.api_client import api_test

STREAM = "text/event-stream"
NAME = "0" * 32
OPERATION: dict[str, Any] = {
    "id": NAME,
    "kind": "make",
    "state": "RUNNING",
    "error": "",
    "agent": "",
    "steps": [{"name": "identity", "state": "INTENDED", "stuck": False, "detail": ""}],
}
DONE = {**OPERATION, "state": "SUCCEEDED"}
RECORD = {"seq": 1, "kind": "done", "step": "identity", "at": 1.0, "state": "RUNNING", "body": None}


def answer(body: object, *, status: int = 200, media: str = "application/json") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {media}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@asynccontextmanager
async def answering(**answers: bytes):
    """A client of a server that answers by the last word of the path; nothing: it hangs up."""

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        word = target.partition("?")[0].rpartition("/")[2]
        writer.write(answers.get(word, answers.get("other", b"")))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(on_connect, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
        try:
            yield client
        finally:
            client.close()


async def stream(client: Client, *, until: float | None = None) -> tuple[bool, list[str]]:
    """Whether streaming works there, and what was told."""
    fates: list[str] = []
    progress_state = OperationProgress.of(OPERATION)

    def stream() -> bool:
        return progress._stream(
            client,
            NAME,
            progress_state,
            lambda lines: fates.extend(line.fate for line in lines),
            until,
        )

    return await asyncio.to_thread(stream), fates


def encode_events(*events: tuple[str, object]) -> bytes:
    text = "".join(
        f"event: {name}\ndata: {json.dumps(data)}\n\n" if name else ": heartbeat\n\n"
        for name, data in events
    )
    return answer(text.encode(), media=STREAM)


@pytest.mark.parametrize(
    ("events", "works", "fates"),
    [
        (encode_events(("step.done", RECORD), ("settled", DONE)), True, ["done"]),
        (encode_events(("step.done", RECORD)), True, ["done"]),
        (encode_events(("", None), ("settled", DONE)), True, []),
        (answer(b"<html>", media="text/html"), False, []),
        (answer({"code": "limit_exceeded"}, status=429), False, []),
        (b"", True, []),
        (encode_events(("step.done", "no record")).replace(b'"no record"', b"{"), True, []),
    ],
)
def test_a_stream_is_heard_as_far_as_it_goes(events, works, fates):
    async def main() -> None:
        async with answering(events=events, other=answer(OPERATION)) as client:
            assert await stream(client) == (works, fates)

    asyncio.run(main())


@pytest.mark.parametrize(("status", "code"), [(404, Exit.FAILED), (401, Exit.AUTHENTICATION)])
def test_a_stream_that_will_never_be_given_ends_the_wait(status, code):
    problem = {"code": {404: "not_found", 401: "unauthenticated"}[status], "status": status}

    async def main() -> None:
        async with answering(events=answer(problem, status=status)) as client:
            with pytest.raises(ServerRefusal) as refused:
                await stream(client)
            assert refused.value.code is code

    asyncio.run(main())


def test_a_stream_from_nobody_is_looked_after_by_whoever_waits():
    async def main() -> None:
        async with answering() as client:
            pass
        assert await stream(client) == (True, [])

    asyncio.run(main())


def test_time_can_be_up_while_records_come():
    async def main() -> None:
        events = encode_events(("step.done", RECORD), ("step.done", {**RECORD, "seq": 2}))
        async with answering(events=events) as client:
            works, fates = await stream(client, until=0.0)
            assert (works, fates) == (True, ["done"])

    asyncio.run(main())


AWAY = "Temporal cannot be reached (connection refused)"


@pytest.mark.parametrize(
    ("ready", "words"),
    [
        (answer({"status": "ready", "engine": AWAY}), f"{AWAY}; it goes on when that is back"),
        (answer({"status": "ready"}), "it waits for a worker"),
        (answer({"code": "stopping"}, status=503), "it waits for a worker"),
    ],
)
def test_what_nobody_has_claimed_is_told_with_the_reason(ready, words, capsys):
    pending = {**OPERATION, "state": "PENDING"}
    answers = {"events": encode_events(("", None)), "readyz": ready, "other": answer(pending)}

    async def main() -> None:
        async with answering(**answers) as client:
            with pytest.raises(CommandExit) as ended:
                await asyncio.to_thread(
                    progress.watch, client, pending, waits=WaitOptions(timeout=0.0)
                )
            assert ended.value.code is Exit.TIMED_OUT
            assert ended.value.sentence == f"make is PENDING after 0 s and goes on: {words}"

    asyncio.run(main())
    assert capsys.readouterr().err == f"  … {words}\n"


def test_a_server_that_comes_back_is_asked_again(monkeypatch):
    """The first look finds a server that hangs up; the next one finds it well."""
    monkeypatch.setattr("tenure.faces.cli.client.RETRY_SECONDS", ())
    answers = iter([b"", answer(DONE)])

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(answers))
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(on_connect, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
            seen = await asyncio.to_thread(progress._poll, client, NAME, 0.0, None)
            client.close()
            assert seen["state"] == "SUCCEEDED"

    asyncio.run(main())


def test_a_server_that_stays_away_is_given_up_in_the_end(monkeypatch):
    monkeypatch.setattr(progress, "AWAY_SECONDS", 0.05)

    async def main() -> None:
        async with answering() as client:
            pass
        with pytest.raises(CommandExit, match="no server answers"):
            await asyncio.to_thread(progress._poll, client, NAME, 0.0, None)

    asyncio.run(main())


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_the_operation_alone_and_says_how_to_come_back(monkeypatch):
    monkeypatch.setattr(progress, "follow", interrupt)
    client = Client(ServerLocation(address="http://127.0.0.1:1", token="t"))
    with pytest.raises(CommandExit) as ended:
        progress.watch(client, OPERATION, waits=WaitOptions())
    assert (ended.value.code, NAME in ended.value.advice) == (Exit.INTERRUPTED, True)
    with pytest.raises(CommandExit) as ended:
        apply._await(client, [("a", OPERATION)], WaitOptions(), "created")
    assert (ended.value.code, "continue" in ended.value.sentence) == (Exit.INTERRUPTED, True)


def test_what_was_undone_is_not_refused_afterwards():
    progress_state = OperationProgress.of(OPERATION)
    progress_state.fates["identity"] = "undone"
    assert (
        progress_state.apply_record({**RECORD, "kind": "refused", "body": {"why": "late"}})[-1].step
        == ""
    )
    assert progress_state.fates["identity"] == "undone"


@api_test
async def test_on_a_terminal_it_is_drawn(face, typing, monkeypatch):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        code, _, err = await tenure("operation", "watch", await face.accept("make"))
        assert code == 0
        assert "make has succeeded" in err


@api_test
async def test_more_of_an_operators_verbs(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        name = await face.accept("waits")
        await face.until(name, "WAITING")
        code, _, err = await tenure("operation", "watch", name, "--timeout", "0.2")
        assert (code, "after 0.2 s" in err) == (Exit.TIMED_OUT, True)
        code, out, _ = await tenure("operation", "cancel", name, "--no-wait", "-o", "name")
        assert (code, out) == (0, f"{name}\n")
        name = await face.accept("sticks")
        await face.until(name, "STUCK")
        code, _, err = await tenure("operation", "adopt", name, "charge", "--result", "{")
        assert (code, "--result" in err) == (Exit.USAGE, True)
        await tenure("agent", "create", "a", "--command", "true")
        code, out, _ = await tenure("operation", "list", "--agent", "a", "-o", "json")
        assert [one["kind"] for one in json.loads(out)] == ["create_agent"]


@api_test
async def test_what_cannot_be_applied_is_told_and_the_rest_is_done(face, typing, folder):
    file = folder / "agents.yaml"
    file.write_text(
        "name: refused\nruntime: {command: [/bin/true]}\nroles: [refuse-access]\n---\n"
        "name: child\nparent: refused\nruntime: {command: [/bin/true]}\n---\n"
        "name: walled\nruntime: {command: [/bin/true], network: {egress: [x]}}\n---\n"
        "name: good\nruntime: {command: [/bin/true]}\n"
    )
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        code, _, err = await tenure("apply", "-f", str(file), "--timeout", "10")
        assert code == Exit.FAILED
        assert "agent refused is not created" in err
        assert "agent child: not created, because its parent was not created" in err
        assert "agent walled: " in err
        assert "agent good created" in err
        assert "3 failed" in err
        file.write_text("name: later\nruntime: {command: [/bin/true]}\n")
        code, _, err = await tenure("apply", "-f", str(file), "--no-wait")
        assert (code, "agent later: accepted, operation" in err) == (0, True)
