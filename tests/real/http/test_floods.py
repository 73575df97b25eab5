"""The bounds of the HTTP face on real sockets: what `make prove P=21` shows in virtual time.

Goal: a flood and clients that never finish are refused or cut off while another tenant is served.
Method: a real server with small bounds; what is counted is answers and ends of connections.
"""

import asyncio
import json
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from tenure.faces.http.bounds import Bounds
from tenure.faces.http.server import Listen, serving
from tenure.faces.http.state import HttpState
from tests.real.support import runtimes
from tests.unit.support.api_client import face

pytestmark = pytest.mark.timeout(300)

FLOODED = Bounds(requests_per_second=20.0, requests_at_once=10)
UNFINISHED = Bounds(head_seconds=1.0, body_seconds=1.0)
ASKED = 400


def words(token: str, path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n{more}\r\n".encode()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
    await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers


def sockets(one: socket.socket) -> int:
    """How many of this process's sockets are ends of the same connection."""
    ends = {one.getsockname(), one.getpeername()}
    return sum(_ends(file) == ends for file in Path("/proc/self/fd").iterdir())


def _ends(file: Path) -> set[object]:
    try:
        if not str(file.readlink()).startswith("socket:"):
            return set()
        with socket.socket(fileno=os.dup(int(file.name))) as found:
            return {found.getsockname(), found.getpeername()}
    except OSError:
        return set()


def test_a_flood_of_one_tenant_leaves_anothers_requests_alive(tmp_path):
    async def main() -> None:
        async with face(tmp_path) as one:
            http_state = HttpState(one.plane, bounds=FLOODED)
            async with serving(http_state, Listen(port=0)) as address:
                host, _, port = address.removeprefix("http://").rpartition(":")
                loop = asyncio.get_running_loop()
                began, seen, told = loop.time(), Counter[int](), []

                async def flood() -> None:
                    reader, writer = await asyncio.open_connection(host, int(port))
                    for _ in range(ASKED // 4):
                        writer.write(words(one.tokens["operator"], "/v1/agents"))
                        status, headers = await read_answer(reader)
                        seen[status] += 1
                        told.append(status != 429 or int(headers["retry-after"]) >= 1)
                    writer.close()

                async def ask_politely() -> list[int]:
                    reader, writer = await asyncio.open_connection(host, int(port))
                    statuses = []
                    for _ in range(30):
                        writer.write(words(one.tokens["stranger"], "/v1/agents"))
                        statuses.append((await read_answer(reader))[0])
                    writer.close()
                    return statuses

                *_, polite = await asyncio.gather(*(flood() for _ in range(4)), ask_politely())
                assert polite == [200] * 30
                assert all(told)
                assert seen.total() == ASKED
                assert set(seen) == {200, 429}
                assert 40 <= seen[200] <= 40 + 20 * (loop.time() - began) + 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"GET /v1/agents HTTP/1.1\r\nHost:",
        (
            b"POST /v1/agents HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        ),
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_client_that_does_not_finish_is_cut_off(tmp_path, request_bytes):
    async def main() -> None:
        async with face(tmp_path) as one:
            http_state = HttpState(one.plane, bounds=UNFINISHED)
            async with serving(http_state, Listen(port=0)) as address:
                host, _, port = address.removeprefix("http://").rpartition(":")
                slow = []
                for _ in range(5):
                    reader, writer = await asyncio.open_connection(host, int(port))
                    writer.write(request_bytes.replace(b"%b", one.tokens["operator"].encode()))
                    slow.append((reader, writer))
                for reader, writer in slow:
                    try:
                        rest = await asyncio.wait_for(reader.read(), 120)
                    except ConnectionResetError:
                        rest = b""
                    if request_bytes.endswith(b"{"):
                        assert rest.startswith(b"HTTP/1.1 408")
                        body = rest.partition(b"\r\n\r\n")[2]
                        assert json.loads(body)["code"] == "request_timeout"
                    else:
                        assert rest == b""
                    writer.close()

    asyncio.run(main())


def test_a_client_that_does_not_read_is_cut_off(tmp_path):
    async def main() -> None:
        async with face(tmp_path) as one:
            http_state = HttpState(one.plane, bounds=Bounds(write_seconds=0.5))
            async with serving(http_state, Listen(port=0)) as address:
                host, _, port = address.removeprefix("http://").rpartition(":")
                with socket.socket() as deaf:
                    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                    deaf.setblocking(False)
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(deaf, (host, int(port)))
                    assert await asyncio.to_thread(runtimes.until, lambda: sockets(deaf) == 2)
                    asked = words(one.tokens["operator"], "/openapi.json") * 200
                    await loop.sock_sendall(deaf, asked)
                    assert await asyncio.to_thread(runtimes.until, lambda: sockets(deaf) == 1)

    asyncio.run(main())
