"""Temporal behind TLS and behind a gate: who is let in, and what is said to who is not.

Method: a real dev server, in front of it a proxy that speaks TLS with certificates made here; and a
gate that answers every call over the wire as a server does that knows who may do what.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tenure.adapters.engine.temporal import TemporalSettings, probe
from tenure.adapters.engine.temporal.connection import connect, register_attributes
from tenure.core.errors import EngineError
from tenure.testing.temporal_server import TemporalServer
from tests.real.support.tls import DAY, Authority, Pair, carry

pytestmark = pytest.mark.timeout(300)


AnswerClient = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def listening(
    answer_client: AnswerClient, pair: Pair, *, clients: str = ""
) -> AsyncIterator[int]:
    """A port at which TLS is spoken; `clients` is who signs theirs, if they need one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.set_alpn_protocols(["h2"])
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    visits: list[asyncio.Task[None]] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError):
                await answer_client(reader, writer)
        finally:
            writer.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(asyncio.create_task(on_connect(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        await asyncio.sleep(0)


@asynccontextmanager
async def behind_tls(
    server: TemporalServer, pair: Pair, *, clients: str = ""
) -> AsyncIterator[int]:
    """The port at which this server speaks TLS."""

    async def answer_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(carry(reader, back))
                both.create_task(carry(there, writer))
        finally:
            back.transport.abort()

    async with listening(answer_client, pair, clients=clients) as port:
        yield port


async def refusal(settings: TemporalSettings) -> str:
    with pytest.raises(EngineError) as raised:
        await connect(settings)
    return str(raised.value)


def test_over_tls_it_is_reached(temporal: TemporalServer, tmp_path: Path) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        async with behind_tls(temporal, authority.sign("localhost")) as port:
            settings = TemporalSettings(address=f"localhost:{port}", tls_server_ca=authority.file)
            return await probe(settings)

    assert asyncio.run(main()).startswith("Temporal ")


def test_with_a_certificate_of_its_own_it_is_let_in(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        mine = authority.sign("worker")
        server = authority.sign("temporal.internal")
        async with behind_tls(temporal, server, clients=authority.file) as port:
            settings = TemporalSettings(
                address=f"127.0.0.1:{port}",
                tls_server_ca=authority.file,
                tls_server_name="temporal.internal",
                tls_client_certificate=mine.certificate,
                tls_client_key=mine.key,
            )
            return await probe(settings)

    assert asyncio.run(main()).startswith("Temporal ")


@pytest.mark.parametrize("client", ["none", "a stranger's", "expired"])
def test_who_has_no_good_certificate_is_told_to_look_at_it(
    temporal: TemporalServer, tmp_path: Path, client: str
) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        stranger = Authority(tmp_path, "stranger")
        mine = Pair("", "")
        if client == "a stranger's":
            mine = stranger.sign("worker")
        elif client == "expired":
            mine = authority.sign("worker", lasts=DAY)
        async with behind_tls(
            temporal, authority.sign("localhost"), clients=authority.file
        ) as port:
            settings = TemporalSettings(
                address=f"localhost:{port}",
                tls_server_ca=authority.file,
                connect_seconds=5.0,
                tls_client_certificate=mine.certificate,
                tls_client_key=mine.key,
            )
            return await refusal(settings)

    words = asyncio.run(main())
    assert "cannot be reached" in words
    assert "certificate" in words
    assert words.endswith("Nothing was changed")


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("expired", "a certificate has expired"),
        ("a stranger's", "check the server's CA"),
        ("another host's", "check the server's CA"),
    ],
)
def test_a_server_that_cannot_be_trusted_is_not_asked(
    temporal: TemporalServer, tmp_path: Path, server: str, message: str
) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        theirs = {
            "expired": lambda: authority.sign("localhost", lasts=DAY),
            "a stranger's": lambda: Authority(tmp_path, "stranger").sign("localhost"),
            "another host's": lambda: authority.sign("elsewhere"),
        }[server]()
        async with behind_tls(temporal, theirs) as port:
            settings = TemporalSettings(
                address=f"localhost:{port}", tls_server_ca=authority.file, connect_seconds=5.0
            )
            return await refusal(settings)

    assert message in asyncio.run(main())


def test_a_wrong_namespace_is_named_over_tls_too(temporal: TemporalServer, tmp_path: Path) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        async with behind_tls(temporal, authority.sign("localhost")) as port:
            address = f"localhost:{port}"
            settings = TemporalSettings(
                address=address, namespace="elsewhere", tls_server_ca=authority.file
            )
            return await refusal(settings)

    assert "has no namespace 'elsewhere'" in asyncio.run(main())


def test_a_host_that_nobody_knows_is_said() -> None:
    settings = TemporalSettings(address="temporal.invalid:7233", connect_seconds=5.0)
    words = asyncio.run(refusal(settings))
    assert "Temporal at temporal.invalid:7233 cannot be reached" in words
    assert "check the address" in words


# --- a gate ---------------------------------------------------------------------------------------

DATA, HEADERS, SETTINGS, PING, ACK = 0, 1, 4, 6, 1


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    head = len(body).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + body


def _header(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


@asynccontextmanager
async def a_gate(pair: Pair, status: int, words: bytes, *, let_in: int = 0) -> AsyncIterator[int]:
    """A port where all but the first calls are answered over HTTP/2 with this status of gRPC."""
    begun = b"\x88" + _header(b"content-type", b"application/grpc")  # 0x88 is `:status: 200`
    no = begun + _header(b"grpc-status", str(status).encode()) + _header(b"grpc-message", words)
    left = let_in

    async def answer_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        await reader.readexactly(24)  # how every client begins
        writer.write(_frame(SETTINGS, 0, 0))
        while True:
            head = await reader.readexactly(9)
            sent = await reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == SETTINGS and not flags & ACK:
                writer.write(_frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                writer.write(_frame(PING, ACK, 0, sent))
            elif kind == HEADERS and left:
                left -= 1
                writer.write(_frame(HEADERS, 0x4, stream, begun))
                writer.write(_frame(DATA, 0, stream, bytes(5)))  # a message that says nothing
                writer.write(_frame(HEADERS, 0x5, stream, _header(b"grpc-status", b"0")))
            elif kind == HEADERS:
                writer.write(_frame(HEADERS, 0x5, stream, no))

    async with listening(answer_client, pair) as port:
        yield port


@pytest.mark.parametrize("let_in", [0, 1], ids=["nowhere", "into no such namespace"])
@pytest.mark.parametrize(
    ("status", "words"), [(7, b"Request unauthorized."), (16, b"invalid api key")]
)
def test_who_may_not_do_it_is_told_to_look_at_the_key(
    tmp_path: Path, status: int, words: bytes, let_in: int
) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        pair = authority.sign("localhost")
        async with a_gate(pair, status, words, let_in=let_in) as port:
            settings = TemporalSettings(
                address=f"localhost:{port}",
                tls_server_ca=authority.file,
                api_key="wrong",
                namespace="ours",
                connect_seconds=5.0,
            )
            return await refusal(settings)

    message = asyncio.run(main())
    assert "does not let this client into namespace 'ours'" in message
    assert words.decode() in message
    assert "check the API key" in message
    assert "wrong" not in message


def test_a_server_that_is_lost_while_the_doctor_asks_is_said(tmp_path: Path) -> None:
    async def main() -> str:
        authority = Authority(tmp_path)
        async with a_gate(authority.sign("localhost"), 14, b"gone", let_in=2) as port:
            settings = TemporalSettings(
                address=f"localhost:{port}", tls_server_ca=authority.file, connect_seconds=2.0
            )
            with pytest.raises(EngineError) as raised:
                await probe(settings)
            return str(raised.value)

    assert "cannot be reached over TLS: gone" in asyncio.run(main())


def test_who_may_not_add_search_attributes_works_without_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> bool:
        authority = Authority(tmp_path)
        async with a_gate(authority.sign("localhost"), 7, b"not an admin", let_in=2) as port:
            settings = TemporalSettings(
                address=f"localhost:{port}", tls_server_ca=authority.file, connect_seconds=5.0
            )
            return await register_attributes(await connect(settings), settings)

    assert not asyncio.run(main())
    assert "operations cannot be searched for in Temporal (not an admin)" in caplog.text
    assert "temporal operator search-attribute create" in caplog.text
