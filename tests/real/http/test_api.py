"""The HTTP face on a real socket: what it listens on, how it stops, what it imports."""

import asyncio
import http.client
import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tenure.core.errors import CommitUnknown, Invalid
from tenure.faces.http.server import Listen, serve, serving
from tests.unit.support.api_client import ADMIN, face

pytestmark = pytest.mark.timeout(300)
LOCAL = Listen(port=0)


def ask(address: str, method: str, path: str, **more) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own."""
    where = urlsplit(address)
    to = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    try:
        to.request(method, path, **{"headers": {"authorization": f"Bearer {ADMIN}"}, **more})
        answer = to.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        to.close()


async def request(*args, **more):
    return await asyncio.to_thread(ask, *args, **more)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "example.test", "", "127.0.0.1.x"]
)
def test_it_never_listens_beyond_this_machine_without_tls(host):
    with pytest.raises(Invalid, match="can be reached from other machines"):
        Listen(host=host)
    assert Listen(host=host, certificate="c.pem", key="k.pem").host == host


def test_tls_needs_both_halves():
    with pytest.raises(Invalid, match="both"):
        Listen(certificate="c.pem")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_this_machine_needs_no_tls(host):
    assert Listen(host=host).host == host


def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path):
    async def main() -> None:
        async with face(tmp_path) as one:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                with pytest.raises(Invalid, match=f"cannot listen on 127.0.0.1:{port}"):
                    async with serving(one.http_state, Listen(port=port)):
                        pytest.fail("it must not start")

    asyncio.run(main())


def test_requests_are_served_over_http(tmp_path):
    async def main() -> None:
        async with face(tmp_path) as one, serving(one.http_state, LOCAL) as address:
            name = await one.accept("make")
            status, headers, body = await request(
                address, "GET", f"/v1/operations/{name}/wait?seconds=60"
            )
            assert (status, json.loads(body)["state"]) == (200, "SUCCEEDED")
            assert "server" not in headers
            status, headers, body = await request(address, "GET", "/nowhere")
            assert (status, headers["content-type"]) == (404, "application/problem+json")
            status, _, body = await request(address, "HEAD", f"/v1/operations/{name}")
            assert (status, body) == (200, b"")
            status, _, body = await request(address, "GET", f"/v1/operations/{name}/events")
            assert body.endswith(b"\n\n")
            assert b"event: settled" in body
            long = b" " * (2 << 20)
            path = f"/v1/operations/{name}/steps/identity:adopt"
            for sent in (long, iter([long])):
                status, _, body = await request(address, "POST", path, body=sent)
                assert (status, json.loads(body)["code"]) == (413, "body_too_large")

    asyncio.run(main())


def test_it_stops_though_someone_follows_and_someone_waits(tmp_path):
    async def main() -> None:
        async with face(tmp_path) as one:
            name = await one.accept("waits")
            await one.until(name, "WAITING")
            async with serving(one.http_state, LOCAL) as address:
                known = one.http_state.authenticate
                met: list[str] = []

                async def count_and_authenticate(token: str):
                    met.append(token)
                    return await known(token)

                one.http_state.authenticate = count_and_authenticate
                hanging = [
                    asyncio.ensure_future(request(address, "GET", f"/v1/operations/{name}/{what}"))
                    for what in ("events", "wait?seconds=60")
                ]
                while len(met) < len(hanging):  # noqa: ASYNC110 (they are threads)
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                begun = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - begun < 30, "it waits for who waits"
            assert [status for status, _, _ in await asyncio.gather(*hanging)] == [200, 200]

    asyncio.run(main())


def test_it_ends_by_what_made_it_stop(tmp_path):
    async def main() -> None:
        async with face(tmp_path) as one:
            told: list[str] = []

            async def lose_connection(_: str):
                raise CommitUnknown("EIO")

            one.http_state.ready = False
            running = asyncio.ensure_future(serve(one.http_state, LOCAL, on_listening=told.append))
            while not told:  # noqa: ASYNC110 (it is told by a call)
                await asyncio.sleep(0.01)
            assert (await request(told[0], "GET", "/readyz"))[0] == 200
            one.http_state.authenticate = lose_connection
            status, headers, _ = await request(told[0], "GET", "/v1/operations")
            assert (status, headers["retry-after"]) == (503, "2")
            with pytest.raises(CommitUnknown):
                await running

    asyncio.run(main())


def test_https_is_served(tmp_path):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ed25519",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("openssl is not there")

    def look(port: int) -> int:
        import ssl

        context = ssl.create_default_context(cafile=str(certificate))
        to = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
        to.request("GET", "/livez")
        status = to.getresponse().status
        to.close()
        return status

    async def main() -> None:
        listen = Listen(port=0, certificate=str(certificate), key=str(key))
        async with face(tmp_path) as one, serving(one.http_state, listen) as address:
            assert address.startswith("https://")
            assert await asyncio.to_thread(look, urlsplit(address).port or 0) == 200

    asyncio.run(main())


def test_the_face_imports_no_more_than_it_needs_to_start():
    script = (
        "import sys; import tenure.faces.http.server; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    ).stdout.split()
    late = {"aiohttp", "joserfc", "jinja2", "prometheus_client", "yaml", "rich", "structlog",
            "sse_starlette", "cryptography", "httpx", "opentelemetry"}  # fmt: skip
    assert not late & set(found)
