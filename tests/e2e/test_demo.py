"""The demonstration, run as a newcomer would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

DEMO = Path(__file__).resolve().parents[2] / "examples" / "01_operations" / "demo.py"


def test_the_demo_finishes_undoes_survives_and_says_so(tmp_path):
    ran = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True, text=True, timeout=55, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    ends = re.findall(r"=> (\w+)", ran.stdout)
    assert ends == ["SUCCEEDED", "COMPENSATED", "SUCCEEDED"]
    worlds = re.findall(r"the world holds: (.*)", ran.stdout)
    counts = [list(map(int, re.findall(r"\d+", world))) for world in worlds]
    assert counts == [[1, 1, 1, 1], [1, 1, 1, 1], [2, 2, 2, 1], [2, 2, 2, 2]]
    for words in ("runtime refuses this spec", "kill -9", "made twice", "left nothing"):
        assert words in ran.stdout
    assert list(tmp_path.iterdir()) == [], "the demo cleans up"
