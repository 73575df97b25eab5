"""The commands of the pages on upkeep are run, as they stand there, one after the other."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.e2e.started import ROOT, environment, home_at, until

pytestmark = [pytest.mark.timeout(90), pytest.mark.slow]


def commands_of(page: str) -> list[str]:
    """Every line of the page's shell blocks."""
    text = (ROOT / "docs" / "howto" / page).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def typed(line: str, home: Path) -> str:
    """What the line prints."""
    assert line.startswith("tenure ")
    command = f'"$PYTHON" -m {line}'
    ran = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False,
        cwd=home.parent, env=environment(PYTHON=sys.executable, TENURE_HOME=str(home)),
    )  # fmt: skip
    assert ran.returncode == 0, (line, ran.stderr)
    return ran.stdout


def test_a_plane_is_backed_up_restored_and_let_go_as_the_page_says(tmp_path):
    with home_at(tmp_path / ".tenure") as plane:
        plane.start()
        lines = commands_of("backup-and-restore.md")
        assert len(lines) == 5, "the page has changed: so must this test"
        backup, restore, up, review, confirm = lines
        typed(backup, plane.home)
        old = (plane.home / "token").read_text()
        plane.stop()
        assert "epoch 2" in typed(restore, plane.home)
        assert up == "tenure up &"
        plane.start()
        assert (plane.home / "token").read_text() != old
        assert "held: restored from backup-1" in typed(review, plane.home)
        assert "held" in plane.run("doctor", code=None).stdout
        assert "let go" in typed(confirm, plane.home)
        assert until(lambda: '"ready"' in plane_health(plane.home))
        plane.stop()


def plane_health(home: Path) -> str:
    try:
        with urlopen((home / "address").read_text().strip() + "/readyz") as answer:
            return str(answer.read())
    except HTTPError as answer:  # it is not ready yet
        return str(answer.read())


def test_an_upgrade_is_looked_at_as_the_page_says(tmp_path):
    with home_at(tmp_path / ".tenure") as plane:
        plane.start()
        check, backup = commands_of("upgrade.md")
        assert "would migrate:   nothing" in typed(check, plane.home)
        typed(backup, plane.home)
        plane.stop()
