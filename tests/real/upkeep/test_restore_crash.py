"""Goal: a restore that is killed at any instant leaves a home that is as it was, or does not move.

Method: a process restores over a home and dies at its Nth touch of a file, for every N (in the
short run for every fourth); then what is there is looked at, and the restore is said again.
"""

import asyncio
import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tenure.core.errors import Invalid
from tenure.home.epoch_file import EpochFile
from tenure.settings import Settings
from tenure.upkeep.backup import back_up
from tenure.upkeep.restore import restore
from tenure.wiring import files_of_a_home, run_agent_plane

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
FILES = files_of_a_home()
DYING = """
import os, sys
from pathlib import Path
from tenure.upkeep.restore import restore
from tenure.wiring import files_of_a_home
source, home, first, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
files = files_of_a_home()
left = 0
def hook(event, args):
    global left
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.link", "os.chmod") and left:
        left -= 1
        if not left:
            os._exit(9)
sys.addaudithook(hook)
for number in range(first, 10_000, step):
    child = os.fork()
    if not child:
        left = number
        restore(source, Path(f"{home}-{number}"), files, report=lambda _: None)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(number, code, flush=True)
    if not code:
        break
    sys.stdin.readline()
"""


def live(home: Path):
    """Start and stop a plane in the home; the epoch, and what holds it."""

    async def main():
        async with run_agent_plane(Settings(home=str(home), sandbox="off")) as plane:
            return plane.pause.epoch, plane.pause.why

    return asyncio.run(main())


def agents(home: Path) -> int:
    file = apsw.Connection(str(home / "tenure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    count: int = file.execute("SELECT count(*) FROM agent").get
    file.close()
    return count


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_a_restore_that_is_killed_anywhere_never_leaves_an_old_world_that_moves(
    step, tmp_path, tally
):
    first = tmp_path / "home"
    live(first)
    back_up(first, tmp_path / "copy", FILES, release="1", now=0.0, report=lambda _: None)
    file = apsw.Connection(str(first / "tenure.db"))
    file.execute("INSERT INTO agent (uid, tenant, generation) VALUES ('late', 'default', 1)")
    file.close()
    shutil.copytree(first, tmp_path / "h-1")
    names = [str(tmp_path / "copy"), str(tmp_path / "h"), "1", str(step)]
    command = [sys.executable, "-c", DYING, *names]
    deaths, refused, untouched, home = 0, 0, 0, first
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdin is not None
        assert dying.stdout is not None
        for number in itertools.count(1, step):
            home = tmp_path / f"h-{number}"
            told, code = map(int, dying.stdout.readline().split())
            assert told == number
            kept = EpochFile(home).read()
            assert kept is not None
            if not code:
                break
            deaths += 1
            if kept.epoch == 1:
                untouched += 1
                assert (live(home), agents(home)) == ((1, ""), 1), "nothing was touched yet"
            elif kept.restoring:
                refused += 1
                with pytest.raises(Invalid, match="tenure restore again"):
                    live(home)
            else:
                assert live(home)[1], "it is held"
            again = restore(tmp_path / "copy", home, FILES, report=lambda _: None)
            assert (live(home)[0], agents(home)) == (again.epoch, 0)
            shutil.rmtree(home)
            shutil.copytree(first, tmp_path / f"h-{number + step}")
            dying.stdin.write("\n")
            dying.stdin.flush()
    assert (live(home)[0], agents(home)) == (2, 0)
    assert min(refused, untouched) > 1, "its beginning and its middle were met"
    tally.add("kills", deaths)
