"""What counts as an answer to `GET /ping`, from agents that may say anything."""

import asyncio

import pytest

from tenure.adapters.runtime.process.ping import Health, health_of, ping

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (HEAD + b'{"status": "Healthy"}', Health.HEALTHY),
        (HEAD + b'{"status": "HealthyBusy", "time_of_last_update": 1}', Health.BUSY),
        (b'HTTP/1.0 200\r\n\r\n{"status":"Healthy"}', Health.HEALTHY),
        (HEAD + b'15\r\n{"status": "Healthy"}\r\n0\r\n\r\n', Health.HEALTHY),
        (b'HTTP/1.1 500 No\r\n\r\n{"status": "Healthy"}', Health.ODD),
        (b'HTTP/1.1 302 Found\r\n\r\n{"status": "Healthy"}', Health.ODD),
        (b'SSH-2.0 200\r\n\r\n{"status": "Healthy"}', Health.ODD),
        (HEAD + b'{"status": "Unhealthy"}', Health.ODD),
        (HEAD + b'{"status": ["Healthy"]}', Health.ODD),
        (HEAD + b'{"status": "odd"}', Health.ODD),
        (HEAD + b'["Healthy"]', Health.ODD),
        (HEAD + b"{" + b"[" * 9000 + b"}", Health.ODD),
        (HEAD + b'{"a":' * 3000 + b"1" + b"}" * 3000, Health.ODD),
        (HEAD + b"\xff\xfe{}", Health.ODD),
        (b"", Health.ODD),
    ],
)
def test_only_a_whole_and_healthy_answer_counts(answer, health):
    assert health_of(answer) is health


def ping_server(serve, seconds=0.3):
    async def on_connect(reader, writer):
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    async def main():
        server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
        async with server:
            return await ping(server.sockets[0].getsockname()[1], seconds=seconds)

    return asyncio.run(main())


def test_an_answer_is_taken_as_soon_as_it_is_whole():
    async def serve(reader, writer):
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"status": "Healthy"}')
        await asyncio.sleep(5)

    assert ping_server(serve, seconds=4).health is Health.HEALTHY


def test_how_an_odd_one_answers_is_told():
    def answering(data):
        async def serve(reader, writer):
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            await reader.read()

        return ping_server(serve, seconds=4)

    assert answering(b"HTTP/1.1 404 Not Found\r\n\r\n") == (Health.ODD, "HTTP/1.1 404 Not Found")
    assert answering(b"\x1b[2J" + b"x" * 100) == (Health.ODD, "[2J" + "x" * 56)
    assert answering(b"") == (Health.ODD, "nothing")


def test_an_answer_that_drips_or_never_ends_is_cut_off():
    async def drip(reader, writer):
        while not writer.is_closing():
            writer.write(b"H")
            await asyncio.sleep(0.01)

    async def flood(reader, writer):
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 200 OK\r\n" + b"x" * 65_536)
            await asyncio.sleep(0)

    assert ping_server(drip) == (Health.ODD, "no complete answer in 0.3 s")
    assert ping_server(flood).health is Health.ODD


def test_nobody_there_is_silence():
    async def main():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return await ping(port, seconds=1)

    assert asyncio.run(main()) == (Health.SILENT, "")
