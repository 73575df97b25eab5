"""Commands that come to nothing: the creation is undone, says why, and leaves nothing behind.

Goal: whatever a program does instead of serving, also if there is none, the operation ends
COMPENSATED with the reason and the last lines printed.  Method: a real plane with its embedded
providers; afterwards each of them, the process table and the disk are asked.
"""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from tenure.app.agents import commands as agents
from tenure.app.agents.spec import read_spec
from tenure.app.operations import reads
from tenure.app.tenancy import tokens
from tenure.core.operation import OperationState
from tenure.core.roles import Caller, Role
from tenure.settings import Settings
from tenure.wiring import run_agent_plane
from tests.real.support import runtimes
from tests.real.support.runtimes import agent, program

pytestmark = pytest.mark.timeout(300)
CALLER = Caller(tokens.PLANE_TENANT, "someone", Role.ADMIN)
SLOTS = ("identity", "access", "runtime", "credentials")
PRINTS = "import os\nwhile True: os.write(1, (b'x' * 99 + b'\\n') * 655)\n"
LOG_BYTES = 1_000_000
READY_SECONDS = 4.0
"""For one that comes to nothing to say why, also on a machine with much else to do."""


async def remaining_resources(plane) -> list[str]:
    """What the providers still hold."""
    return [
        f"{slot} {one.key}"
        for slot in SLOTS
        async for one in plane.providers[slot].list_owned(plane.id)
    ]


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("runtime", "why", "last_words"),
    [
        (agent("exits"), "exited with code 3", "cannot go on"),
        (agent("wrong-port"), "the agent has to listen there, on $PORT", "started"),
        (agent("silent"), "no process listens", "started"),
        (agent("odd"), "does not answer GET /ping", "started"),
        (program(PRINTS, log_bytes=LOG_BYTES), "not ready after 4 s", "xxxxxxxx"),
        (agent("missing"), "no-such-program was not found on", "in zone local-a"),
        ({"command": ["/no/such"]}, "/no/such cannot be read in zone local-a", "No such file"),
        ({"command": ["true"], "bundle": "/no/such"}, "bundle: /no/such cannot", "No such file"),
    ],
    ids=[
        "exits at once",
        "another port",
        "never answers",
        "answers nonsense",
        "prints for ever",
        "is not on the path",
        "is not there",
        "has no bundle",
    ],
)
def test_a_creation_ends_undone_with_the_reason_and_the_last_lines(
    tmp_path, runtime, why, last_words
):
    async def main() -> None:
        settings = Settings(home=str(tmp_path), sandbox="off")
        async with run_agent_plane(settings) as plane:
            patient = {**runtime, "ready_seconds": READY_SECONDS}
            spec = read_spec({"name": "alpha", "runtime": patient})
            made = await agents.create_agent(plane, CALLER, spec)
            ended = await reads.wait(plane, "default", made.id, seconds=150)
            assert ended.state is OperationState.COMPENSATED
            assert why in ended.error
            assert last_words in ended.error
            assert await remaining_resources(plane) == []
        assert runtimes.agent_processes(tmp_path) == []
        assert size_of(tmp_path / "runtimes") < 3 * LOG_BYTES

    with runtimes.end_all_after(tmp_path):
        asyncio.run(main())


def test_a_command_that_vanishes_after_it_was_accepted_is_undone(tmp_path):
    """Lost just after its digest was taken, which is before the acceptance."""
    home, script = tmp_path / "home", tmp_path / "agent"
    script.write_text("#!/bin/sh\nsleep 600\n")
    script.chmod(0o755)

    async def main() -> None:
        async with run_agent_plane(Settings(home=str(home), sandbox="off")) as plane:
            runtime = cast(Any, plane.providers["runtime"])
            digest = runtime.digest

            async def digest_and_lose(spec):
                found = await digest(spec)
                script.unlink()
                return found

            runtime.digest = digest_and_lose
            spec = read_spec({"name": "alpha", "runtime": {"command": [str(script)]}})
            made = await agents.create_agent(plane, CALLER, spec)
            ended = await reads.wait(plane, "default", made.id, seconds=150)
            assert ended.state is OperationState.COMPENSATED
            assert f"{script} cannot be read" in ended.error
            assert await remaining_resources(plane) == []

    with runtimes.end_all_after(tmp_path):
        asyncio.run(main())
