"""How the command line asks a server that is slow, breaks off, or is none of ours."""

import asyncio

import pytest

from tenure.faces.cli.client import Client, ConnectionBroken
from tenure.faces.cli.exits import CommandExit
from tenure.faces.cli.where import ServerLocation
from tests.unit.support.fixed_answer_server import answers


def test_a_server_that_is_no_tenure_is_told_apart():
    async def main() -> None:
        text = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"
        async with await asyncio.start_server(answers(text), "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
            with pytest.raises(CommandExit, match="is not Tenure"):
                await asyncio.to_thread(client.get, "/v1/agents")
            client.close()

    asyncio.run(main())


def test_an_answer_that_is_late_is_waited_for_in_the_open(monkeypatch):
    """As while the plane's store is away."""
    monkeypatch.setattr("tenure.faces.cli.client.SLOW_SECONDS", 0.0)
    told: list[str] = []

    async def main() -> None:
        loop, said = asyncio.get_running_loop(), asyncio.Event()

        def say(line: str) -> None:
            told.append(line)
            loop.call_soon_threadsafe(said.set)

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await said.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            writer.close()

        monkeypatch.setattr("tenure.faces.cli.output.say", say)
        async with await asyncio.start_server(late, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
            assert await asyncio.to_thread(client.get, "/v1/agents") == {}
            client.close()

    asyncio.run(main())
    assert "waiting for a response from http://127.0.0.1:" in told[0]


def test_after_a_broken_connection_a_change_is_sent_again_under_the_same_key(monkeypatch):
    monkeypatch.setattr("tenure.faces.cli.client.RETRY_SECONDS", (0.01, 0.01))
    seen: list[str] = []
    keys: list[str] = []

    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head.split()[0])
        keys.extend(line for line in head.splitlines() if line.startswith("Idempotency-Key: "))
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(breaks, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
            with pytest.raises(CommandExit, match="broke"):
                await asyncio.to_thread(client.get, "/v1/agents")
            with pytest.raises(CommandExit, match="broke"):
                await asyncio.to_thread(client.send, "POST", "/v1/operations/x:cancel")

    asyncio.run(main())
    assert seen == ["GET"] * 3 + ["POST"] * 3 + ["GET"], "the last read asks what is wrong"
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_silence_is_not_waited_for_twice_and_a_change_is_said_to_be_uncertain(monkeypatch):
    monkeypatch.setattr("tenure.faces.cli.client.DIAGNOSIS_SECONDS", 0.2)
    seen: list[str] = []
    words = [b'{"detail": "PostgreSQL is away", "code": "unavailable"}']

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target = (await reader.readuntil(b"\r\n\r\n")).decode().split()[:2]
        seen.append(method)
        for data in words if "limit" in target else ():
            head = f"HTTP/1.0 503 X\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
        await reader.read()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
            client.timeout = 0.1
            with pytest.raises(CommandExit, match="did not answer in time") as read:
                await asyncio.to_thread(client.get, "/v1/agents")
            with pytest.raises(CommandExit, match="did not answer in time") as changed:
                await asyncio.to_thread(client.send, "DELETE", "/v1/agents/a")
            words.clear()
            with pytest.raises(CommandExit) as unknown:
                await asyncio.to_thread(client.send, "DELETE", "/v1/agents/a")
            with pytest.raises(CommandExit, match="did not answer in time") as said:
                await asyncio.to_thread(
                    client.send, "POST", "/v1/tokens", body={}, check_command="token list"
                )
        assert "tenure doctor" in read.value.advice
        assert "token list" in said.value.advice
        assert "operation list" in changed.value.advice
        assert changed.value.sentence.endswith("in time: PostgreSQL is away (unavailable)")
        assert unknown.value.sentence.endswith("in time")
        assert client.timeout == 0.1

    asyncio.run(main())
    assert seen == ["GET", *["DELETE", "GET"] * 2, "POST", "GET"]


def test_a_server_that_dies_in_the_middle_is_asked_again_when_it_is_back():
    made: list[asyncio.Server] = []

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        made[0].close()
        writer.close()

    async def main() -> object:
        made.append(await asyncio.start_server(dies, "127.0.0.1", 0))
        port = made[0].sockets[0].getsockname()[1]
        client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
        asking = asyncio.ensure_future(asyncio.to_thread(client.send, "DELETE", "/v1/agents/a"))
        await asyncio.sleep(0.3)
        text = b"HTTP/1.1 202 OK\r\nContent-Length: 2\r\n\r\n{}"
        async with await asyncio.start_server(answers(text), "127.0.0.1", port):
            answer = await asking
        client.close()
        with pytest.raises(CommandExit, match="no server answers"):
            await asyncio.to_thread(client.get, "/v1/agents")
        return answer

    assert asyncio.run(main()) == {}


def test_a_server_that_dies_in_the_middle_and_stays_away_may_have_accepted(monkeypatch):
    monkeypatch.setattr("tenure.faces.cli.client.RETRY_SECONDS", (0.01, 0.01))
    made: list[asyncio.Server] = []

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        made[-1].close()
        writer.close()

    async def main(method: str, check_command: str = "tenure operation list") -> CommandExit:
        made.append(await asyncio.start_server(dies, "127.0.0.1", 0))
        port = made[-1].sockets[0].getsockname()[1]
        client = Client(ServerLocation(address=f"http://127.0.0.1:{port}", token="t"))
        with pytest.raises(
            ConnectionBroken, match=r"broke: .*, and now no server answers at"
        ) as told:
            await asyncio.to_thread(client.send, method, "/v1/a", check_command=check_command)
        return told.value

    assert asyncio.run(main("DELETE")).advice == (
        "it may have been accepted: tenure operation list shows it once the server is back"
    )
    advice = asyncio.run(main("POST", check_command="tenure subscription list")).advice
    assert "accepted: tenure subscription list shows it" in advice
    assert "tenure up" in asyncio.run(main("GET")).advice
