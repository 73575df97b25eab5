"""Who answers at an agent's address: only the agent itself is ever sent a request.

Goal: another program of this machine that takes the port of a dead agent hears nothing.
Method: a real plane and a real agent, which is killed; then a listener of our own on its port.
"""

import asyncio
import os
import signal
import socket
from contextlib import asynccontextmanager

import pytest

from tenure.adapters.runtime.process import proc
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.agents.spec import read_spec
from tenure.app.operations import reads
from tenure.app.tenancy import tokens
from tenure.core.operation import OperationState
from tenure.faces.http import server
from tenure.faces.http.state import HttpState
from tenure.settings import Settings
from tenure.testing.contracts.provider import key
from tenure.wiring import run_agent_plane
from tests.real.support import runtimes
from tests.real.support.runtimes import agent, open_runtime, run, start_and_wait
from tests.unit.support.api_client import ADMIN, FaceClient, tokens_of

pytestmark = pytest.mark.timeout(300)
SECRET = b"for the agent alone"
PATH = "/v1/agents/alpha/invocations"


@asynccontextmanager
async def impostor(port: int):
    """Somebody else on this port, who answers everything; what it was told."""
    heard: list[bytes] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(10_000))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen")
        writer.close()

    listening = await asyncio.start_server(on_connect, "127.0.0.1", port)
    try:
        yield heard
    finally:
        listening.close()
        await listening.wait_closed()


@asynccontextmanager
async def serving_agent(home):
    """A face on a plane with a real agent that answers; and the port of the agent."""
    settings = Settings(home=str(home), sandbox="off", reconcile_seconds=1_000.0)
    async with run_agent_plane(settings) as plane:
        await tokens.store_first_token(plane, ADMIN)
        http_state = HttpState(plane)
        face = FaceClient(
            http_state, server.build(http_state), tokens=await tokens_of(plane), providers={}
        )
        admin = await tokens.authenticate(plane, ADMIN)
        spec = read_spec({"name": "alpha", "runtime": agent()})
        made = await agents.create_agent(plane, admin, spec)
        ended = await reads.wait(plane, "default", made.id, seconds=120)
        assert ended.state is OperationState.SUCCEEDED, ended.error
        _, address = await invocations.address_of(plane, admin, "alpha")
        yield face, int(address.rpartition(":")[2])


def kill_agent(home) -> None:
    """With -9, as the kernel does when memory is short; nothing is left of it."""
    for pid in runtimes.agent_processes(home):
        runtimes.tell(pid, signal.SIGKILL)
    runtimes.until(lambda: not runtimes.agent_processes(home))


def test_a_request_for_a_dead_agent_never_reaches_who_took_its_port(tmp_path):
    async def main() -> None:
        async with serving_agent(tmp_path) as (face, port):
            told = await face.ask("POST", PATH, raw=SECRET)
            assert (told.status, told.json) == (200, {"status": "Healthy"})
            await asyncio.to_thread(kill_agent, tmp_path)
            async with impostor(port) as heard:
                told = await face.ask("POST", PATH, raw=SECRET)
            assert (told.status, told.json["code"]) == (502, "runtime_broken")
            assert "another program listens" in told.json["detail"]
            assert heard == [b""], "it saw a connection, and not one byte on it"

    with runtimes.end_all_after(tmp_path):
        asyncio.run(main())


def test_without_the_question_it_would_have_been_told_everything(tmp_path, monkeypatch):
    """The safeguard off: the same scene, and the impostor hears the request."""

    async def anybody(*_: object) -> bool:
        return True

    async def main() -> None:
        async with serving_agent(tmp_path) as (face, port):
            monkeypatch.setattr(invocations, "is_at", anybody)
            await asyncio.to_thread(kill_agent, tmp_path)
            async with impostor(port) as heard:
                told = await face.ask("POST", PATH, raw=SECRET)
            assert (told.status, told.body) == (200, b"stolen")
            assert SECRET in heard[0]

    with runtimes.end_all_after(tmp_path):
        asyncio.run(main())


def test_who_listens_beside_an_agent_is_not_the_agent(tmp_path):
    """Two that share a port by SO_REUSEPORT: the kernel would give either the next connection."""
    with runtimes.end_all_after(tmp_path), open_runtime(tmp_path) as runtime:
        share = (
            "import os, socket\n"
            "one = socket.create_server(('127.0.0.1', int(os.environ['PORT'])), reuse_port=True)\n"
            "while True:\n"
            "    client, _ = one.accept()\n"
            "    client.recv(4096)\n"
            "    client.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 21\\r\\n\\r\\n'\n"
            '                   b\'{"status": "Healthy"}\')\n'
            "    client.close()\n"
        )
        address = str(start_and_wait(runtime, runtimes.program(share))["address"])
        assert run(runtime.listens_at(key(), address))
        where = ("127.0.0.1", int(address.rpartition(":")[2]))
        with socket.create_server(where, reuse_port=True):
            assert not run(runtime.listens_at(key(), address))
        assert run(runtime.listens_at(key(), address))


def test_the_same_port_at_another_address_is_another_matter(tmp_path):
    """A listener at 127.0.0.2 or ::1 never hears what is sent to 127.0.0.1."""
    with runtimes.end_all_after(tmp_path), open_runtime(tmp_path) as runtime:
        address = str(start_and_wait(runtime, agent())["address"])
        port = int(address.rpartition(":")[2])
        with socket.create_server(("127.0.0.2", port)):
            assert run(runtime.listens_at(key(), address))


def test_who_hears_by_any_address_is_counted():
    for host, family in (("", socket.AF_INET), ("::", socket.AF_INET6)):
        dual = family == socket.AF_INET6
        with socket.create_server((host, 0), family=family, dualstack_ipv6=dual) as one:
            inode = os.fstat(one.fileno()).st_ino
            assert proc.listeners(one.getsockname()[1]) == {inode}
