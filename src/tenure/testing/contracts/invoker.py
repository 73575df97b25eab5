"""The contract of an invoker: each promise of `tenure.ports.invoker.Invoker` is a test.

Derive a class and give it the fixture `run_scenario`. It runs one scenario on a new invoker:

    class TestMyInvoker(InvokerContract):
        @pytest.fixture
        def run_scenario(self):
            def run_scenario(scenario):
                asyncio.run(scenario(MyInvoker(...)))
            return run_scenario

The runtime is a real HTTP server on 127.0.0.1, which counts its requests.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tenure.core.errors import RuntimeBroken, Unavailable
from tenure.ports.invoker import CUSTOM_HEADER_PREFIX, SESSION_HEADER, Headers, Invoker

Scenario = Callable[[Invoker], Coroutine[Any, Any, None]]
RunScenario = Callable[[Scenario], None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RecordedExchange:
    """A request with these headers and pieces, and a record of its response."""

    def __init__(self, *pieces: bytes, headers: Headers = ()) -> None:
        self.headers = headers
        self.has_started = False
        self.has_ended = False
        self.status = 0
        self.response_headers: dict[bytes, bytes] = {}
        self.body = b""
        self.first_piece = asyncio.Event()
        """Set when the first piece of the response's body has arrived."""
        self._pieces = pieces

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the request."""
        for piece in self._pieces:
            yield piece

    async def watch_caller(self) -> None:
        """This caller stays."""
        await asyncio.Event().wait()

    async def start(self, status: int, headers: Headers) -> None:
        """Record the head of the response."""
        self.has_started, self.status, self.response_headers = True, status, dict(headers)

    async def send(self, piece: bytes) -> None:
        """Record a piece of the response."""
        self.body += piece
        self.first_piece.set()

    async def end(self) -> None:
        """Record that the response is complete."""
        self.has_ended = True


class RuntimeServer:
    """An HTTP server in the place of a runtime."""

    def __init__(self, handler: Handler) -> None:
        self.requests: list[tuple[str, dict[bytes, bytes], bytes]] = []
        """Path, headers and body of each request."""
        self.address = ""
        self._handler = handler

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Record the request and call the handler."""
        body = await request.read()
        headers = {name.lower(): value for name, value in request.raw_headers}
        self.requests.append((request.path, headers, body))
        return await self._handler(request)


@asynccontextmanager
async def runtime_server(handler: Handler) -> AsyncIterator[RuntimeServer]:
    """A runtime that answers every request so."""
    server = RuntimeServer(handler)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.address = f"{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


async def is_ours() -> bool:
    """The agent's own runtime listens."""
    return True


async def is_foreign() -> bool:
    """Another program listens."""
    return False


async def nobody_can_tell() -> bool:
    """The provider does not answer."""
    raise Unavailable("the provider is away")


async def hello(_: web.Request) -> web.Response:
    """A complete response with headers that are passed on, and one that is not."""
    headers = {"Content-Type": "text/x-odd", "Set-Cookie": "stolen=1", "Retry-After": "3"}
    return web.Response(status=201, body=b"hello", headers=headers)


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without a response."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


class InvokerContract:
    """Derive a class and give it the fixture `run_scenario`."""

    @pytest.fixture
    def run_scenario(self) -> RunScenario:
        """Returns a function that runs one scenario on a new invoker."""
        raise NotImplementedError

    def test_the_body_is_passed_on_and_the_response_comes_back(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(invoker: Invoker) -> None:
            exchange = RecordedExchange(b"one ", b"two")
            async with runtime_server(hello) as runtime:
                await invoker.invoke(runtime.address, exchange, runtime_listens=is_ours)
                ((path, _, body),) = runtime.requests
                assert (path, body) == ("/invocations", b"one two")
                assert (exchange.status, exchange.body) == (201, b"hello")
                assert exchange.has_ended
                await invoker.close()

        run_scenario(scenario)

    def test_only_headers_of_the_lists_are_passed_on(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            custom = CUSTOM_HEADER_PREFIX + b"colour"
            headers = [(b"authorization", b"Bearer x"), (b"cookie", b"a=b"), (b"x-other", b"1")]
            headers += [(SESSION_HEADER, b"s1"), (custom, b"red")]
            exchange = RecordedExchange(b"{}", headers=headers)
            async with runtime_server(hello) as runtime:
                await invoker.invoke(runtime.address, exchange, runtime_listens=is_ours)
                ((_, sent, _),) = runtime.requests
                assert (sent[SESSION_HEADER], sent[custom]) == (b"s1", b"red")
                assert not sent.keys() & {b"authorization", b"cookie", b"x-other"}
                assert exchange.response_headers[b"content-type"] == b"text/x-odd"
                assert exchange.response_headers[b"retry-after"] == b"3"
                assert b"set-cookie" not in exchange.response_headers
                await invoker.close()

        run_scenario(scenario)

    def test_a_response_is_passed_on_while_it_is_written(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            exchange = RecordedExchange(b"{}")

            async def stream(request: web.Request) -> web.StreamResponse:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(b"first ")
                async with asyncio.timeout(30):
                    await exchange.first_piece.wait()
                await response.write(b"last")
                return response

            async with runtime_server(stream) as runtime:
                await invoker.invoke(runtime.address, exchange, runtime_listens=is_ours)
                assert exchange.body == b"first last"
                await invoker.close()

        run_scenario(scenario)

    def test_a_redirect_is_a_response_and_is_not_followed(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            async def redirect(_: web.Request) -> web.Response:
                return web.Response(status=307, headers={"Location": "/elsewhere"})

            exchange = RecordedExchange(b"{}")
            async with runtime_server(redirect) as runtime:
                await invoker.invoke(runtime.address, exchange, runtime_listens=is_ours)
                assert exchange.status == 307
                assert len(runtime.requests) == 1
                await invoker.close()

        run_scenario(scenario)

    def test_nothing_is_sent_to_another_program(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            async with runtime_server(hello) as runtime:
                with pytest.raises(RuntimeBroken):
                    await invoker.invoke(
                        runtime.address, RecordedExchange(b"{}"), runtime_listens=is_foreign
                    )
                with pytest.raises(Unavailable):
                    await invoker.invoke(
                        runtime.address, RecordedExchange(b"{}"), runtime_listens=nobody_can_tell
                    )
                assert runtime.requests == []
                await invoker.close()

        run_scenario(scenario)

    def test_a_runtime_that_does_not_answer_is_broken(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            exchange = RecordedExchange(b"{}")
            async with runtime_server(hang_up) as runtime:
                address = runtime.address
                with pytest.raises(RuntimeBroken):
                    await invoker.invoke(address, exchange, runtime_listens=is_ours)
            with pytest.raises(RuntimeBroken):  # nobody listens there any more
                await invoker.invoke(address, exchange, runtime_listens=is_ours)
            assert not exchange.has_started
            await invoker.close()

        run_scenario(scenario)

    def test_a_response_that_breaks_off_stays_incomplete(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            async def break_off(request: web.Request) -> web.StreamResponse:
                response = web.StreamResponse(headers={"Content-Length": "100"})
                await response.prepare(request)
                await response.write(b"half")
                return await hang_up(request)

            exchange = RecordedExchange(b"{}")
            async with runtime_server(break_off) as runtime:
                with pytest.raises(RuntimeBroken):
                    await invoker.invoke(runtime.address, exchange, runtime_listens=is_ours)
                assert exchange.has_started
                assert not exchange.has_ended
                await invoker.close()

        run_scenario(scenario)

    def test_an_invoker_that_was_closed_can_be_used_again(self, run_scenario: RunScenario) -> None:
        async def scenario(invoker: Invoker) -> None:
            await invoker.load()
            async with runtime_server(hello) as runtime:
                for _ in range(2):
                    exchange = RecordedExchange(b"{}")
                    await invoker.invoke(runtime.address, exchange, runtime_listens=is_ours)
                    assert exchange.has_ended
                    await invoker.close()
            await invoker.close()

        run_scenario(scenario)
