"""The tutorial, typed by a test: every command in its order, every line of output compared.

In the page `…` stands for whatever comes; alone on a line, for any number of lines.  Files are the
blocks that the text says to save, `^C` is typed where the plane runs.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support.plane_process import ROOT, environment, home_at

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

PAGE = (ROOT / "docs" / "tutorial" / "first-agent.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"(?:save this as `(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with the output that is shown below it."""
    for piece in re.split(r"^(?=\$ |\^C)", block, flags=re.MULTILINE):
        if piece:
            command, _, output = piece.partition("\n")
            yield command.removeprefix("$ "), output


def pattern(output: str) -> re.Pattern[str]:
    whole = "".join(
        r"(?:.*\n)*?" if line == "…" else _line(line) + r"\n" for line in output.splitlines()
    )
    return re.compile(whole + r"\Z")


def _line(line: str) -> str:
    text = re.escape(line).replace("…", ".*")
    return re.sub(r"(?:\\ )+", r"\\s+", text) if not line.startswith(" ") else text


class Terminal:
    """A shell that remembers how the last command ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._code = 0

    def type(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", f"(exit {self._code}); {command}"],
            cwd=self._directory,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            env=environment(
                PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                HOME=str(self._directory),
                PYTHONUNBUFFERED="1",
            ),
        )
        self._code = ran.returncode
        whole = not ran.stdout or ran.stdout.endswith("\n")
        return ran.stdout if whole else f"{ran.stdout}\n"  # a terminal gets it, a pipe does not


def test_every_command_of_the_tutorial_does_what_it_shows(tmp_path):
    terminal, count = Terminal(tmp_path), 0
    with home_at(tmp_path / ".tenure") as plane:
        for block in BLOCK.finditer(PAGE):
            if block["file"]:
                (tmp_path / block["file"]).write_text(block["text"])
                continue
            assert block["kind"] == "console"
            for command, output in commands_of(block["text"]):
                count += 1
                match command:
                    case "tenure up":
                        said = plane.start()
                        said = re.sub(r" --home \S+$", "", said)
                    case "^C":
                        assert plane.stop(signal.SIGINT) == 0
                        said = ""
                    case _:
                        said = terminal.type(command)
                assert pattern(output).match(said), f"$ {command}\n{said}\nshown:\n{output}"
        assert plane.stop() == 0
    assert count > 20
