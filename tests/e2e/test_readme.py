"""What the README shows is run, so that it stays true.

Its Python is one program, told in pieces: what a piece leaves out is given here.  Its commands
are targets of the Makefile; that they are there is asked of make itself, and what they do is
tested elsewhere (`tests/e2e/test_demo.py`), since to make an environment while tests run in it
breaks them.
"""

import ast
import asyncio
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tenure.app import operations
from tenure.app.operations import Accept
from tenure.core.operation import State
from tenure.settings import Settings
from tenure.testing.shelf import Shelf
from tenure.wiring import running

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELVES = ("identity", "access", "runtime", "endpoint")


def blocks_of(language: str) -> list[str]:
    """The code between fences of this language, each piece on its own lines of the file."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return ["\n" * README.count("\n", 0, block.start(1)) + block[1] for block in found]


def test_the_program_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "operations": operations,
        "Accept": Accept,
        "Settings": Settings,
        "running": running,
        "providers": {name: Shelf(tmp_path, name, now=time.time) for name in SHELVES},
    }
    pieces = blocks_of("python")
    assert pieces
    for piece in pieces:
        code = compile(piece, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waits = eval(code, names)
        if waits is not None:
            asyncio.run(waits)
    assert names["ended"].state is State.SUCCEEDED
    assert (tmp_path / "tenure.db").is_file()


def test_every_command_in_the_readme_is_there():
    lines = "\n".join(blocks_of("sh")).split("\n")
    commands = {line.split("#")[0].strip() for line in lines}
    assert {"make demo", "make test"} <= commands
    assert not [command for command in commands - {""} if not command.startswith("make ")]


def test_every_target_that_the_readme_names_is_in_the_makefile():
    if shutil.which("make") is None:
        pytest.skip("make is not here")
    named = r"(?:^|`)make ([a-z]+(?:-[a-z]+)*)"
    targets = set(re.findall(named, README, re.MULTILINE))
    assert "prove" in targets
    for target in sorted(targets):
        asked = subprocess.run(
            ["make", "-n", target, "P=1"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert asked.returncode == 0, asked.stderr
