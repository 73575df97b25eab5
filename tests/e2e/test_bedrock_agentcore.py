"""A plain Bedrock AgentCore app, started unchanged: both ways that the example names."""

import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.e2e.support.plane_process import ROOT, home_at

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
EXAMPLE = ROOT / "examples" / "04_bedrock_agentcore"


def is_taken(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("alone", [False, True])
def test_a_bedrock_agentcore_app_runs_unchanged(tmp_path, alone):
    if alone and is_taken(8080):
        pytest.skip("something listens on port 8080")
    folder = tmp_path / "app"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "agent.yaml"
    if alone:
        file.write_text(
            "name: agentcore\nruntime:\n  bundle: .\n  command: [python3, agent.py]\n  port: 8080\n"
        )
    # Whoever has activated the environment in which the app is installed has it on the path.
    with home_at(tmp_path / "home") as plane:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        plane.start(PATH=path)
        plane.run("agent", "create", "-f", str(file))
        told = plane.run("agent", "invoke", "agentcore", '{"prompt": "hi"}')
        assert json.loads(told.stdout) == {"result": "Hello! You said: hi"}
        plane.run("agent", "delete", "agentcore")
        assert plane.stop() == 0
