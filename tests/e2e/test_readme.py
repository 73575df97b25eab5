"""What the README shows is run, so that it stays true.

Its Python is one program, told in pieces: what a piece leaves out is given here.  Its commands
are targets of the Makefile; that they are there is asked of make itself, and what they do is
tested elsewhere (`tests/e2e/test_demo.py`), since to make an environment while tests run in it
breaks them.
"""

import ast
import asyncio
import os
import re
import shutil
import subprocess
import sys
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


def commands() -> list[str]:
    lines = "\n".join(blocks_of("sh")).split("\n")
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def test_every_command_in_the_readme_is_there():
    assert {"make demo", "make test"} <= set(commands())
    odd = [one for one in commands() if not one.startswith(("make ", "tenure "))]
    assert odd == ["sleep 2", "kill %1"]


@pytest.mark.slow
def test_an_agent_answers_within_sixty_lines_of_the_readme(tmp_path):
    """The lines are typed at a shell as they stand; only the port is any that is free."""
    lines = README.splitlines()
    invoked = next(n for n, line in enumerate(lines, 1) if line.startswith("tenure agent invoke"))
    assert invoked <= 60
    typed = [one for one in commands() if one.startswith(("tenure ", "kill "))]
    assert typed[0] == "tenure up &"
    typed[0] = "tenure up --port 0 &"
    typed.insert(1, "for n in $(seq 100); do [ -s .tenure/address ] && break; sleep .1; done")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ran = subprocess.run(
        ["bash", "-m", "-e", "-c", "\n".join([*typed, "wait || true"])],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "you said: hi" in ran.stdout
    assert "is deleted, and nothing of it is left" in ran.stderr


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
