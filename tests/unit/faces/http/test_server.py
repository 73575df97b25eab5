"""One connection: how many there may be, how long a head may be, and who does not read."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import uvicorn

from tenure.faces.http.bounds import Bounds
from tenure.faces.http.server import Listen, _Server, serving
from tenure.faces.http.state import HttpState
from tenure.testing.loop import run
from tests.unit.support.api_client import api_test

ASK = b"GET /livez HTTP/1.1\r\nHost: h\r\n"


@asynccontextmanager
async def listening(face, **bounds):
    """Where a face with these bounds listens."""
    http_state = HttpState(face.plane, bounds=Bounds(**bounds))
    async with serving(http_state, Listen(port=0)) as address:
        host, _, port = address.removeprefix("http://").rpartition(":")
        yield host, int(port)


def test_an_idle_server_looks_at_the_clock_once_a_second_and_ends_when_it_is_told():
    looks = []

    class CountingServer(_Server):
        async def on_tick(self, counter):
            looks.append(counter)
            return await super().on_tick(counter)

    async def main(_):
        stopping = asyncio.Event()
        server = CountingServer(uvicorn.Config(main), stopping)
        serving = asyncio.ensure_future(server.main_loop())
        await asyncio.sleep(60.5)
        assert [name for name, _ in server.server_state.default_headers] == [b"date"]
        stopping.set()
        await asyncio.wait_for(serving, 0.01)

    run(0, main)
    assert looks == [0] * 61, "each sees to the date"


@api_test
async def test_one_connection_too_many_is_told_to_come_again(face):
    async with listening(face, connections_max=1) as where:
        reader, writer = await asyncio.open_connection(*where)
        writer.write(ASK + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        more, other = await asyncio.open_connection(*where)
        head, _, body = (await more.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"retry-after: " in head.lower()
        assert json.loads(body)["code"] == "too_many_connections"
        other.close()
        writer.close()


@api_test
async def test_a_head_without_end_is_refused(face):
    async with listening(face, head_bytes_max=1_000) as where:
        reader, writer = await asyncio.open_connection(*where)
        writer.write(ASK)
        told = asyncio.ensure_future(reader.read())
        for n in range(20):
            if told.done():
                break
            writer.write(b"X-%d: %b\r\n" % (n, b"x" * 200))
            await asyncio.sleep(0.01)
        assert (await told).startswith(b"HTTP/1.1 400")
        writer.close()


@api_test
async def test_who_reads_late_gets_everything_and_who_never_reads_is_cut_off(face):
    """The answers fill all that lies between, so that the server has to wait for its client."""
    bearer = f"Authorization: Bearer {face.tokens['operator']}\r\n".encode()
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: h\r\n" + bearer + b"\r\n"
    for patience, whole in ((20.0, True), (0.2, False)):
        async with listening(face, write_seconds=patience) as where:
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                slow.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(slow, where)
                await loop.sock_sendall(slow, asked * 60 + ASK + b"Connection: close\r\n\r\n")
                await asyncio.sleep(0.6)
                assert (await _rest(slow)).endswith(b'{"status":"alive"}') == whole


async def _rest(slow: socket.socket) -> bytes:
    """The end of what comes."""
    last, loop = b"", asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(slow, 65_536):
            last = (last + data)[-100:]
    except ConnectionResetError:
        return b""
    return last
