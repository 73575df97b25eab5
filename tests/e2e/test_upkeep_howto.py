"""The commands of the pages on upkeep are run, as they stand there, one after the other."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tenure.testing.servers import postgres_binaries
from tests.e2e.support.plane_process import ROOT, TENURE, environment, home_at, until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def commands_of(page: str, section: str = "") -> list[str]:
    """Every line of the shell blocks of the page, or of one section."""
    text = (ROOT / "docs" / "howto" / page).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def run_line(line: str, home: Path, **env: str) -> str:
    """What the line prints."""
    command = re.sub("^tenure ", '"$PYTHON" -m tenure ', line)
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=home.parent,
        env=environment(PYTHON=sys.executable, TENURE_HOME=str(home), **env),
    )
    assert ran.returncode == 0, (line, ran.stderr)
    return ran.stdout


def test_a_plane_is_backed_up_restored_and_let_go_as_the_page_says(tmp_path):
    with home_at(tmp_path / ".tenure") as plane:
        plane.start()
        lines = commands_of("backup-and-restore.md")
        assert len(lines) == 6, "the page has changed: so must this test"
        backup, restore, up, wait, review, confirm = lines
        run_line(backup, plane.home)
        old = (plane.home / "token").read_text()
        plane.stop()
        assert "epoch 2" in run_line(restore, plane.home)
        assert up == "tenure up &"
        plane.start()
        run_line(wait, plane.home)
        assert (plane.home / "token").read_text() != old
        assert "paused: restored from backup-1" in run_line(review, plane.home)
        assert "held" in plane.run("doctor", code=None).stdout
        assert "the pause has ended" in run_line(confirm, plane.home)
        assert until(lambda: '"ready"' in plane_health(plane.home))
        plane.stop()


def test_a_plane_on_postgresql_is_backed_up_and_put_back_as_the_page_says(tmp_path, own_postgres):
    dump, backup, *lines = commands_of("scale-out.md", "Back up")
    aside, put_back, restore, up, wait, review, confirm, worker = lines
    path = f"{postgres_binaries()}:{os.environ['PATH']}"
    env = {"TENURE_STORE": own_postgres.url, "PATH": path}
    with home_at(tmp_path / ".tenure") as plane:
        plane.start(**env)
        for line in (dump, backup):
            run_line(line, plane.home, **env)
        plane.run("token", "create", "later", "--role", "viewer", **env)
        plane.stop()
        for line in (aside, put_back):
            run_line(line, plane.home, **env)
        assert "epoch 2" in run_line(restore, plane.home, **env)
        assert up == "tenure up &"
        plane.start(**env)
        run_line(wait, plane.home, **env)
        assert "paused: restored from backup-1" in run_line(review, plane.home, **env)
        assert "the pause has ended" in run_line(confirm, plane.home, **env)
        assert "later" not in plane.run("token", "list", **env).stdout
        assert worker == "tenure worker &"
        with works(plane.home, **env) as said:
            assert said.startswith("tenure works for plane")
        plane.stop()


@contextmanager
def works(home: Path, **env: str) -> Iterator[str]:
    """What a worker says first, which is ended afterwards."""
    words = [*TENURE, "worker", "--home", str(home)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment(**env))
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=120)


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
        assert "would migrate:   nothing" in run_line(check, plane.home)
        run_line(backup, plane.home)
        plane.stop()
