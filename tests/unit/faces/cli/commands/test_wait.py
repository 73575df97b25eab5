"""`tenure wait`, as it is typed before, while and after the control plane becomes ready."""

import asyncio
import time

from tenure.faces.http.server import Listen, serving
from tests.unit.support.api_client import api_test


@api_test
async def test_it_returns_once_the_plane_is_ready(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        face.http_state.ready = False
        waiting = asyncio.create_task(tenure("wait"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        face.http_state.ready = True
        assert (await waiting)[0] == 0


@api_test
async def test_what_is_not_ready_in_time_is_named(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        face.http_state.ready = False
        code, _, told = await tenure("wait", "--timeout", "0.1")
    assert code == 5
    assert "not ready after 0.1 s: the engine does not accept operations yet" in told
    code, _, told = await tenure("wait", "--timeout", "0.1")
    assert code == 5
    assert "no server answers" in told


@api_test
async def test_a_server_that_is_silent_is_waited_for_no_longer(face, typing):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        tenure = typing(face, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        begun = time.monotonic()
        code, _, told = await tenure("wait", "--timeout", "1.2")
        assert time.monotonic() - begun < 30
    assert code == 5
    assert "did not answer in time" in told


@api_test
async def test_a_refusal_is_not_waited_out(face, typing, monkeypatch):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        monkeypatch.setenv("TENURE_ADDRESS", address + "/elsewhere")
        code, _, told = await tenure("wait")
        assert code == 2
        assert "not the address of a server" in told
