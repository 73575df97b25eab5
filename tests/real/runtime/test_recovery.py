"""Goal: an agent whose process dies is repaired by one plan, and has what it had written.

Method: a whole plane in this process, agents that are real processes and keep a diary in their own
directory. The keeper is killed by SIGKILL and the reconciler looks; what counts is what the process
that answers afterwards finds on its disk.
"""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenure.adapters.runtime.process import inherited_directory
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.agents import views as agent_views
from tenure.app.agents.spec import read_spec
from tenure.app.operations import reads
from tenure.app.safety import findings
from tenure.core.operation import OperationState
from tenure.core.records import OperationRecord
from tenure.core.roles import Caller, Role
from tenure.reconcilers import drift
from tenure.settings import Settings
from tenure.testing.patches import patched
from tenure.wiring import run_agent_plane
from tests.real.support import runtimes

pytestmark = pytest.mark.timeout(300)
CALLER = Caller("default", "someone", Role.ADMIN)
DIARY = """
import http.server, os, pathlib, sys
diary = pathlib.Path(os.environ["HOME"], "diary")
with diary.open("a") as file:
    file.write("began\\n")
if pathlib.Path(sys.argv[1]).exists():
    sys.exit("not now")
class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "Healthy"}')
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(diary.read_bytes())
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Told).serve_forever()
"""


class Life:
    """One agent with a diary, on a plane."""

    def __init__(self, plane, home: Path) -> None:
        self.plane = plane
        self.home = home
        self.sign = home.parent / "not now"

    async def create(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", DIARY, str(self.sign)]
        spec = read_spec({"name": "alpha", "runtime": {"command": command, "ready_seconds": 60}})
        made = await agents.create_agent(self.plane, CALLER, spec)
        ended = await reads.wait(self.plane, "default", made.id, seconds=120)
        assert ended.state is OperationState.SUCCEEDED, ended.error

    async def diary(self) -> str:
        """What the process that answers now reads in its own directory."""
        _, address = await invocations.address_of(self.plane, CALLER, "alpha")
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /invocations HTTP/1.0\r\n\r\n")
        said = (await reader.read()).decode()
        writer.close()
        return said.partition("\r\n\r\n")[2]

    async def kill(self) -> None:
        """Its keeper and all below it."""
        pids = [*runtimes.keepers(self.home), *runtimes.agent_processes(self.home)]
        for pid in pids:
            runtimes.tell(pid, signal.SIGKILL)
        assert runtimes.until(lambda: not any(map(runtimes.is_alive, pids)))

    async def repair(self) -> OperationState:
        """Look twice; how the one plan that this asks for ended."""
        for _ in range(2):
            await drift.tick(self.plane)
        rows = await self.plane.store.list_rows(OperationRecord, {"kind": "recover_runtime"})
        last = max(row.id for row in rows)
        return (await reads.wait(self.plane, "default", last, seconds=120)).state


@asynccontextmanager
async def living(tmp_path: Path):
    settings = Settings(home=str(tmp_path / "home"), reconcile_seconds=1_000.0)
    with runtimes.end_all_after(tmp_path):
        async with run_agent_plane(settings) as plane:
            life = Life(plane, tmp_path / "home")
            await life.create()
            yield life


def run_twice(tmp_path: Path, scenario) -> None:
    async def main() -> None:
        async with living(tmp_path) as life:
            await scenario(life)

    asyncio.run(main())


def test_an_agent_that_was_killed_finds_what_it_had_written(tmp_path):
    async def scenario(life: Life) -> None:
        assert await life.diary() == "began\n"
        for times in (2, 3):
            await life.kill()
            assert await life.repair() is OperationState.SUCCEEDED
            assert await life.diary() == "began\n" * times
        diaries = list(life.home.rglob("diary"))
        assert len(diaries) == 1, "there is one state, and nothing of the dead is left"

    run_twice(tmp_path, scenario)


def test_a_repair_that_comes_to_nothing_takes_nothing_with_it(tmp_path):
    async def scenario(life: Life) -> None:
        await life.kill()
        life.sign.touch()
        assert await life.repair() is OperationState.COMPENSATED
        assert [one.reconciler for one in await findings.list_findings(life.plane, CALLER)]
        life.sign.unlink()
        agent = await agent_views.get_agent_row(life.plane, CALLER, "alpha")
        again = await agents.recover_runtime(life.plane, CALLER, agent.uid)
        ended = await reads.wait(life.plane, "default", again.id, seconds=120)
        assert ended.state is OperationState.SUCCEEDED, ended.error
        # The one that gave up had begun, too.
        assert await life.diary() == "began\n" * 3

    run_twice(tmp_path, scenario)


def test_ablation_if_nothing_is_inherited_the_diary_is_lost(tmp_path, tally):
    async def scenario(life: Life) -> None:
        await life.kill()
        await life.repair()
        assert await life.diary() == "began\n"

    with patched(inherited_directory, move_from=lambda *_, **__: ""):
        run_twice(tmp_path, scenario)
    tally.add("ablations")
