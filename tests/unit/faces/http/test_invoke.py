"""Invocations: what travels to a runtime and back, and what happens when either side breaks off.

The runtimes here are real sockets: one that captures what it is sent, and some that misbehave.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tenure.adapters.invoker import aiohttp
from tenure.app.agents.invocations import Invocation
from tenure.core.errors import Unavailable
from tenure.core.roles import Role
from tenure.faces.http import invoke, problems, server
from tenure.faces.http.face import Face as HttpFace
from tenure.faces.http.route_table import HttpRequest, Route, Stream
from tests.unit.support.api_client import FaceClient, api_test

ADDRESS = ""
SECRET = "a-secret-of-the-caller"


async def is_there() -> bool:
    """It is; tests of strangers put something else in this place."""
    return True


async def pass_on(ask: HttpRequest) -> Stream:
    """Pass it on to the runtime of this test."""
    invocation = Invocation(
        ask.plane.invoker,
        agent="adder",
        address=ADDRESS,
        runtime_listens=is_there,
        close_event=asyncio.Event(),
        count=ExitStack(),
    )
    return Stream(partial(invoke.serve, ask, invocation))


ROUTE = Route(
    "POST",
    "/v1/agents/{agent}/invocations",
    pass_on,
    "Pass on",
    role=Role.OPERATOR,
    raw_body="any",
    no_key="it is passed on",
)
PATH = "/v1/agents/adder/invocations"


def scope_of(face: FaceClient, *more: tuple[bytes, bytes]) -> dict[str, Any]:
    """A request with a token and these headers."""
    bearer = f"Bearer {face.tokens['operator']}".encode()
    return {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "query_string": b"",
        "root_path": "",
        "headers": [(b"authorization", bearer), *more],
    }


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def runtime(face: FaceClient, serve: Serve) -> AsyncIterator[None]:
    """A runtime that behaves so, and a face that knows where it is."""

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    global ADDRESS  # noqa: PLW0603 (a handler has no other way to learn it)
    ADDRESS = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    face.app = server.build(face.http_state, faces=[HttpFace("invocations", (ROUTE,))])
    try:
        yield
    finally:
        assert face.plane.invoker is not None
        await face.plane.invoker.close()
        listening.close()
        await listening.wait_closed()


def captures(requests: list[bytes], answer: bytes) -> Serve:
    """A runtime that keeps what it is sent and gives this answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        requests.append(head)
        for line in head.lower().splitlines():
            if line.startswith(b"content-length:"):
                requests.append(await reader.readexactly(int(line.split(b":")[1])))
        if b"transfer-encoding: chunked" in head.lower():
            requests.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(answer)
        await writer.drain()

    return serve


GOOD = (
    b"HTTP/1.1 201 Created\r\nContent-Type: text/x-odd\r\nContent-Length: 5\r\n"
    b"Set-Cookie: stolen=1\r\nX-Amzn-Bedrock-AgentCore-Runtime-Session-Id: s1\r\n"
    b"Content-Security-Policy: none\r\nLocation: http://elsewhere/\r\nConnection: close\r\n"
    b"Access-Control-Allow-Origin: *\r\n\r\nhello"
)


@api_test
async def test_a_request_is_passed_on_and_its_answer_back(face):
    requests: list[bytes] = []
    async with runtime(face, captures(requests, GOOD)):
        told = await face.ask(
            "POST",
            PATH,
            raw=b"\x00\xffbody",
            headers={
                "content-type": "text/odd",
                "accept": "text/event-stream",
                "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "s" * 33,
                "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Team": "ops",
            },
        )
    assert (told.status, told.headers["content-type"], told.body) == (201, "text/x-odd", b"hello")
    head, body = requests
    assert head.startswith(b"POST /invocations HTTP/1.1\r\n")
    assert body == b"\x00\xffbody"
    for line in (
        b"content-type: text/odd",
        b"accept: text/event-stream",
        b"x-amzn-bedrock-agentcore-runtime-session-id: " + b"s" * 33,
        b"x-amzn-bedrock-agentcore-runtime-custom-team: ops",
    ):
        assert line in head.lower()
    assert told.headers["x-amzn-bedrock-agentcore-runtime-session-id"] == "s1"


@api_test
async def test_no_secret_of_the_caller_reaches_a_runtime(face):
    requests: list[bytes] = []
    async with runtime(face, captures(requests, GOOD)):
        await face.ask(
            "POST",
            PATH,
            raw=b"{}",
            headers={
                "cookie": SECRET,
                "proxy-authorization": SECRET,
                "x-api-key": SECRET,
                "idempotency-key": SECRET,
                "workloadaccesstoken": SECRET,
                "x-forwarded-for": SECRET,
                "forwarded": SECRET,
                "te": "trailers",
            },
        )
    head = requests[0].lower()
    assert SECRET.encode() not in head
    assert face.tokens["operator"].lower().encode() not in head
    assert b"authorization" not in head
    assert b"cookie" not in head


@api_test
async def test_a_runtime_says_nothing_in_our_name(face):
    async with runtime(face, captures([], GOOD)):
        told = await face.ask("POST", PATH, raw=b"{}")
    assert "set-cookie" not in told.headers
    assert "location" not in told.headers
    assert "access-control-allow-origin" not in told.headers
    assert told.headers["content-security-policy"] == "sandbox"
    assert told.headers["x-content-type-options"] == "nosniff"


@api_test
async def test_a_redirect_is_not_followed_and_a_cookie_is_not_kept(face):
    requests: list[bytes] = []
    away = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nSet-Cookie: a=1\r\n\r\n"
    away = away.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    async with runtime(face, captures(requests, away)):
        for _ in range(2):
            told = await face.ask("POST", PATH, raw=b"{}")
            assert told.status == 302
    assert not any(b"cookie" in head.lower() for head in requests)


@api_test
async def test_both_ways_stream(face):
    """The runtime answers before the request is whole, and the caller goes on sending."""
    order: list[str] = []
    sent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"first")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n"
        )
        await writer.drain()
        await reader.readuntil(b"second")
        order.append("second arrived")
        writer.write(b"4\r\nlate\r\n0\r\n\r\n")
        await writer.drain()

    async with runtime(face, serve):
        pieces = [(b"first", True), (b"second", False)]

        async def receive():
            if len(pieces) == 1:
                await sent.wait()
            if not pieces:
                await asyncio.sleep(60)
            piece, more = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": more}

        told = []

        async def send(message):
            told.append(message)
            if message.get("body") == b"early":
                order.append("early told")
                sent.set()

        scope = scope_of(face)
        async with asyncio.timeout(5):
            await face.app(scope, receive, send)
    assert order == ["early told", "second arrived"]
    assert b"".join(m.get("body", b"") for m in told) == b"earlylate"
    assert told[-1].get("more_body", False) is False


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nBroken",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: a\x01b\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_runtime_that_does_not_answer_as_http_asks_for_is_a_bad_gateway(tmp_path, answer):
    @api_test
    async def test(face):
        async with runtime(face, captures([], answer)):
            told = await face.ask("POST", PATH, raw=b"{}")
        assert (told.status, told.json["code"]) == (502, "runtime_broken")
        cut = answer in {b"", b"HTTP/1.1 200 OK\r\nBroken"}
        assert ("closed the connection without an answer" in told.json["detail"]) is cut

    test(tmp_path=tmp_path)


@api_test
async def test_a_runtime_that_is_not_there_is_a_bad_gateway(face):
    async with runtime(face, captures([], GOOD)):
        pass
    told = await face.ask("POST", PATH, raw=b"{}")
    assert (told.status, told.json["code"]) == (502, "runtime_broken")
    assert "the agent soon has a new one" in told.json["detail"]


@api_test
async def test_a_silent_runtime_is_a_bad_gateway(face, monkeypatch):
    monkeypatch.setattr(aiohttp, "SILENCE_SECONDS", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with runtime(face, serve):
        told = await face.ask("POST", PATH, raw=b"{}")
    assert (told.status, told.json["code"]) == (502, "runtime_broken")


@api_test
async def test_an_answer_that_breaks_half_way_is_not_ended_as_if_it_were_whole(face):
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    told: list[dict[str, Any]] = []

    async def send(message):
        told.append(message)

    async def receive():
        if told:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": b"{}", "more_body": False}

    scope = scope_of(face, (b"content-length", b"2"))
    async with runtime(face, captures([], half)):
        await face.app(scope, receive, send)
    assert told[0]["status"] == 200
    assert all(message.get("more_body", True) for message in told)


@api_test
async def test_a_caller_who_leaves_stops_the_call_to_the_runtime(face):
    left = asyncio.Event()
    begun = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        await reader.read()
        left.set()

    messages = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        pytest.fail("nobody listens")

    scope = scope_of(face, (b"content-length", b"2"))
    async with runtime(face, serve), asyncio.timeout(5):
        await face.app(scope, receive, send)
        await left.wait()


@api_test
async def test_a_request_that_is_too_large_is_refused_however_it_is_sent(face, monkeypatch):
    monkeypatch.setattr(invoke, "REQUEST_BYTES_MAX", 10)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with runtime(face, serve):
        said = await face.ask("POST", PATH, raw=b"x" * 11)
        sent = await face.ask("POST", PATH, chunks=[b"x" * 6, b"x" * 6])
        odd = await face.ask("POST", PATH, raw=b"", headers={"content-length": "lots"})
    assert {said.status, sent.status, odd.status} == {413}


KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@api_test
async def test_a_connection_is_asked_once_whose_it_is(face, monkeypatch):
    asked: list[str] = []

    async def ask() -> bool:
        asked.append(ADDRESS)
        return True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(KEPT)

    monkeypatch.setitem(globals(), "is_there", ask)
    async with runtime(face, serve):
        for _ in range(3):
            assert (await face.ask("POST", PATH, raw=b"{}")).body == b"hello"
    assert asked == [ADDRESS]


async def stranger() -> bool:
    return False


async def nobody_knows() -> bool:
    raise Unavailable("away")


async def nobody_answers() -> bool:
    await asyncio.sleep(60)
    return True


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (stranger, "runtime_broken", "another program listens"),
        (nobody_knows, "unavailable", "is not known (away)"),
        (nobody_answers, "unavailable", "is not known (its provider has not answered for"),
    ],
)
def test_who_is_not_known_to_be_the_agent_is_told_nothing(
    tmp_path, monkeypatch, answer, code, said
):
    monkeypatch.setattr(aiohttp, "LISTENER_CHECK_SECONDS", 0.1)
    requests: list[bytes] = []
    heard = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.read())
        heard.set()

    @api_test
    async def test(face):
        async with runtime(face, serve):
            told = await face.ask("POST", PATH, raw=b"{}")
            await heard.wait()
        assert (told.status, told.json["code"]) == (problems.PROBLEMS[code].status, code)
        assert said in told.json["detail"]

    monkeypatch.setitem(globals(), "is_there", answer)
    test(tmp_path=tmp_path)
    assert requests == [b""]
