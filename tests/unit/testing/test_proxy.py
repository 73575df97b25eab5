"""The proxy does what it is told: passes, delays, loses, cuts, refuses, half-opens."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tenure.testing.proxy import PLAIN, Behaviour, Proxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def with_an_echo(play: Callable[[Proxy, list[bytes]], Awaitable[None]]) -> None:
    """Run this beside a server that answers with what it hears, and writes it down."""
    lines: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1000):
                lines.append(chunk)
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
            async with asyncio.timeout(30):
                await play(proxy, lines)
        server.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())


async def send_line(streams: Streams, text: bytes) -> None:
    streams[1].write(text)
    await streams[1].drain()


async def hung_up(streams: Streams) -> bytes:
    """What still comes until the connection ends."""
    rest = b""
    try:
        while chunk := await streams[0].read(1000):
            rest += chunk
    except ConnectionResetError:
        pass
    streams[1].close()
    return rest


def test_passes_both_ways_and_waits_when_told() -> None:
    async def play(proxy: Proxy, lines: list[bytes]) -> None:
        near = await asyncio.open_connection("127.0.0.1", proxy.port)
        await send_line(near, b"one")
        assert await near[0].readexactly(3) == b"one"
        proxy.behaviour = Behaviour(delay_seconds=0.05)
        started = asyncio.get_running_loop().time()
        await send_line(near, b"two")
        assert await near[0].readexactly(3) == b"two"
        assert asyncio.get_running_loop().time() - started >= 0.1
        assert lines == [b"one", b"two"]
        assert proxy.let_in == 1
        near[1].close()

    with_an_echo(play)


@pytest.mark.parametrize(
    ("behaviour", "server_hears"),
    [(Behaviour(mute=True), [b"lost"]), (Behaviour(deaf=True, mute=True), [])],
    ids=["mute", "half-open"],
)
def test_loses_what_is_said_and_stays_open(behaviour: Behaviour, server_hears: list[bytes]) -> None:
    async def play(proxy: Proxy, lines: list[bytes]) -> None:
        near = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.behaviour = behaviour
        await send_line(near, b"lost")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(near[0].read(1), 0.1)
        assert lines == server_hears
        proxy.behaviour = PLAIN
        await send_line(near, b"kept")
        assert await near[0].readexactly(4) == b"kept"
        proxy.cut()
        assert await hung_up(near) == b""

    with_an_echo(play)


def test_cuts_after_so_many_bytes_in_either_direction() -> None:
    async def play(proxy: Proxy, lines: list[bytes]) -> None:
        near = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.behaviour = Behaviour(cut_after_answered=2)
        await send_line(near, b"four")
        assert await hung_up(near) in {b"", b"fo"}  # a reset may overtake what was passed
        assert lines == [b"four"]
        near = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.behaviour = Behaviour(cut_after_sent=3)
        await send_line(near, b"seven")
        await hung_up(near)
        assert lines == [b"four", b"sev"]

    with_an_echo(play)


def test_refuses_who_comes_and_keeps_who_is_there() -> None:
    async def play(proxy: Proxy, lines: list[bytes]) -> None:
        near = await asyncio.open_connection("127.0.0.1", proxy.port)
        await send_line(near, b"in")
        assert await near[0].readexactly(2) == b"in"
        proxy.behaviour = Behaviour(refuses=True)
        late = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await hung_up(late) == b""
        await send_line(near, b"still")
        assert await near[0].readexactly(5) == b"still"
        near[1].close()

    with_an_echo(play)


def test_a_server_that_is_not_there_is_hung_up_on() -> None:
    async def scenario() -> None:
        async with Proxy("127.0.0.1", 1) as proxy:
            near = await asyncio.open_connection("127.0.0.1", proxy.port)
            assert await hung_up(near) == b""

    asyncio.run(scenario())
