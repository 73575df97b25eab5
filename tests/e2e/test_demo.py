"""The demonstration, run as a newcomer would."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.support.readme import deep_imports

pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ELSEWHERE = {
    "TENURE_HOME": "/nowhere",
    "TENURE_STORE": "postgresql://nobody@127.0.0.1:1/none",
    "TENURE_ENGINE": "temporal",
    "TENURE_TEMPORAL": "127.0.0.1:1",
}
"""What a shell says in which README's way to scale out was typed."""


def run(demo, tmp_path, **more):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / demo / "demo.py")],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), **more},
    )


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.py")), ids=lambda file: file.parent.name)
def test_an_example_imports_nothing_deeper_than_tenure(file):
    assert deep_imports(file.read_text(encoding="utf-8")) == []


@pytest.mark.slow
def test_the_demo_of_the_lifecycle_leaves_nothing_behind(tmp_path):
    ran = run("03_lifecycle", tmp_path, **ELSEWHERE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    held = [
        dict(re.findall(r"'(\w+)': (\d+)", line))
        for line in re.findall(r"The providers hold: (.*)", ran.stdout)
    ]
    assert len(held) == 3
    assert held[0] == held[1], "what was undone left nothing"
    assert all(int(count) > 0 for count in held[0].values())
    assert set(held[2].values()) == {"0"}
    assert '"you said: still there?"' in ran.stdout
    assert "credentials was refused" in ran.stderr
    undone = re.findall(r"↺ (\w+) undone", ran.stderr)
    assert undone == ["credentials", "runtime", "access", "identity"]
    assert list(tmp_path.iterdir()) == [], "the demo cleans up"


def test_a_plane_that_does_not_start_is_told_in_its_own_words(tmp_path):
    demo = runpy.run_path(str(EXAMPLES / "03_lifecycle" / "demo.py"))["Demo"](tmp_path)
    demo.environment["TENURE_ENGINE"] = "temporal"  # which needs a store that is shared
    with pytest.raises(
        SystemExit, match=r"code 1:\nerror: the Temporal engine needs a shared store"
    ):
        demo.up()


def test_the_demo_of_operations_finishes_undoes_survives_and_says_so(tmp_path):
    ran = run("01_operations", tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    ends = re.findall(r"=> (\w+)", ran.stdout)
    assert ends == ["SUCCEEDED", "COMPENSATED", "SUCCEEDED"]
    lines = re.findall(r"the providers hold: (.*)", ran.stdout)
    counts = [list(map(int, re.findall(r"\d+", line))) for line in lines]
    assert counts == [[1, 1, 1, 1], [1, 1, 1, 1], [2, 2, 2, 1], [2, 2, 2, 2]]
    for words in ("runtime refuses this spec", "kill -9", "made twice", "left nothing"):
        assert words in ran.stdout
    assert list(tmp_path.iterdir()) == [], "the demo cleans up"
