"""kill -9 of a real process on a real file, again and again.

Goal: nothing that was acknowledged is lost, every operation ends as it must, and the world holds
exactly what the operations that succeeded have made.
Method: `proofs.kills.kill9` kills a plane at random instants, starts it on the same directory,
lets the last one finish, and counts files.  That the count can fail is shown by acknowledging too
early, and by tampering with each of the witnesses.
"""

import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from proofs.kills import audit, kill9
from proofs.kills.audit import ChildLine
from tenure.core.operation import OperationState

pytestmark = pytest.mark.timeout(300)

PARTS = 4
KILLS = 60
"""In each of the parts."""


def kill(tally, directory: Path, kills: int) -> audit.Report:
    report = kill9.run(kills=kills, directory=directory)
    tally.add("kills", report.kills)
    assert report.sound, report
    assert report.kills == kills
    return report


def test_a_few_kills_lose_nothing_and_leave_nothing_behind(tally, tmp_path):
    report = kill(tally, tmp_path, 15)
    assert report.acknowledged <= report.operations


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_kills_lose_nothing_and_leave_nothing_behind(tally, tmp_path, part):
    report = kill(tally, tmp_path, KILLS)
    assert report.acknowledged > KILLS
    assert report.succeeded > report.compensated > 0
    assert report.files == report.succeeded * len(audit.SHELVES)


@pytest.mark.slow
def test_an_acknowledgement_before_the_commit_would_be_found_out(tally, tmp_path):
    for attempt in range(10):
        directory = tmp_path / str(attempt)
        report = kill9.run(kills=10, directory=directory, ablate=kill9.ACK_BEFORE_COMMIT)
        if report.lost:
            tally.add("ablations")
            return
    pytest.fail("100 kills, and nothing was lost that was acknowledged before its commit")


def test_the_command_prints_the_report_and_fails_with_it(tmp_path):
    command = [sys.executable, "-m", "proofs.kills.kill9", "--kills", "1", "--directory"]
    fine = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=True)
    report = json.loads(fine.stdout)
    assert (report["kills"], report["lost"], report["notes"]) == (1, 0, [])
    (tmp_path / "runtime" / "stray").write_text('{"spec": {"label": "9-9"}}')
    bad = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["orphans"] == 1


# ------------------------------------------------------------------------------ the audit can fail


@pytest.fixture
def audited_run(tmp_path):
    """A directory in which one operation of each kind has ended, and what was said of them."""
    file = tmp_path / "said"
    with file.open("wb") as out:
        subprocess.run([sys.executable, "-c", SOME, str(tmp_path)], stdout=out, check=True)
    lines = audit.lines_of([file])
    assert audit.audit(tmp_path, lines).sound
    return tmp_path, lines


SOME = """
import asyncio, sys
from pathlib import Path
from proofs.kills.kill9 import *

async def main(directory):
    providers = shelves_of(directory)
    async with run_plane(settings_of(directory), plans=PLANS, providers=providers) as plane:
        for number in range(7):
            await ask(plane, LabelledRequest(0, number))

asyncio.run(main(Path(sys.argv[1])))
"""


def faults(directory: Path, lines: list[ChildLine]) -> dict[str, int]:
    report = audit.audit(directory, lines)
    assert not report.sound
    return {name: count for name in audit.FAULTS if (count := getattr(report, name))}


def test_the_audit_sees_what_was_said_and_is_not_so(audited_run):
    directory, lines = audited_run
    first = lines[0]
    lost = [*lines, ChildLine("accepted", "f" * 32, "0-99")]
    assert faults(directory, lost) == {"lost": 1}
    twice = [*lines, ChildLine("accepted", lines[2].operation, first.rest)]
    assert faults(directory, twice) == {"split": 1}
    changed = [*lines, ChildLine("ended", first.operation, OperationState.COMPENSATED)]
    assert faults(directory, changed) == {"changed": 1}


def test_the_audit_sees_what_the_world_holds_and_should_not(audited_run):
    directory, lines = audited_run
    shelf = directory / "runtime"
    held = min(path for path in shelf.iterdir() if path.suffix != ".burned")
    (shelf / "copy").write_text(held.read_text())
    assert faults(directory, lines) == {"doubled": 1}
    (shelf / "copy").write_text('{"spec": {"label": "0-2"}}')  # which was refused
    assert faults(directory, lines) == {"orphans": 1}
    (shelf / "copy").unlink()
    held.unlink()
    assert faults(directory, lines) == {"missing": 1}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("DELETE FROM journal WHERE seq = 2 AND operation = (SELECT id FROM operation)", "holes"),
        ("DELETE FROM outbox WHERE position = 3", "holes"),
        ("UPDATE operation SET state = 'RUNNING' WHERE input LIKE '%\"0-2\"%'", "unended"),
        ("UPDATE agent SET operation = 'o' WHERE uid = (SELECT min(uid) FROM agent)", "broken"),
    ],
)
def test_the_audit_sees_what_is_wrong_in_the_file(audited_run, sql, found):
    directory, lines = audited_run
    base = apsw.Connection(str(directory / audit.STORE))
    base.execute(sql)
    base.close()
    assert faults(directory, lines)[found] == 1
