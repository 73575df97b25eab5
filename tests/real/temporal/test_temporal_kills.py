"""Workers on Temporal that are killed -9 in the midst of a do, and that exit in peace.

The store and the providers' truth are files, so another process takes over and can be counted.
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import apsw
import pytest

ROOT = Path(__file__).parents[3]
NAMES = ("identity", "access", "runtime", "credentials")
OPERATIONS = 6


def start_process(address: str, place: Path, count: int) -> tuple[subprocess.Popen[str], list[str]]:
    """A worker's process, and the operations it has accepted."""
    module = "tests.real.support.temporal_worker"
    command = [sys.executable, "-m", module, address, str(place), str(count)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = []
    while (line := process.stdout.readline().strip()) not in {"ready", ""}:
        said.append(line)
    assert process.poll() is None
    return process, said


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def states(place: Path, names: list[str]) -> set[str]:
    database = apsw.Connection(str(place / "tenure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    rows = database.execute("SELECT id, state FROM operation").fetchall()
    database.close()
    return {str(state) for name, state in rows if name in names}


def count_made(place: Path, shelf: str) -> Counter[str]:
    """How often each resource was made."""
    files = [one for one in (place / shelf).glob("*") if one.suffix == ""]
    return Counter({one.name: int(json.loads(one.read_text())["written"]) for one in files})


@pytest.mark.timeout(300)
def test_what_a_killed_worker_was_doing_is_done_once_by_another(temporal, tmp_path, tally):
    process, names = start_process(temporal.address, tmp_path, OPERATIONS)
    try:
        for shelf in ("access", "runtime"):  # kill it twice, each time between effect and answer
            deadline = time.monotonic() + 120
            while not count_made(tmp_path, shelf) and time.monotonic() < deadline:
                time.sleep(0.01)
            kill(process)
            tally.add("kills")
            process, _ = start_process(temporal.address, tmp_path, 0)
        deadline = time.monotonic() + 120
        while states(tmp_path, names) != {"SUCCEEDED"} and time.monotonic() < deadline:
            time.sleep(0.05)
        assert states(tmp_path, names) == {"SUCCEEDED"}
    finally:
        kill(process)
    for shelf in NAMES:
        assert list(count_made(tmp_path, shelf).values()) == [1] * OPERATIONS


@pytest.mark.timeout(300)
def test_a_worker_that_is_asked_to_stop_exits_in_peace(temporal, tmp_path):
    for number in range(5):
        place = tmp_path / str(number)
        place.mkdir()
        process, _ = start_process(temporal.address, place, 1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert said.startswith("stopped")
