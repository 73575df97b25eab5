"""Marks: which agents have invocations under way, as several processes of one home see it."""

import asyncio
import subprocess
import sys

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.adapters.provider_host.unix.marks import NAME, FileMarks
from tenure.app.agents import commands as agents
from tenure.app.agents.in_flight import ABORT_POLLS_MAX, InFlight
from tenure.core.agent import AgentState
from tenure.core.errors import Unavailable
from tenure.core.operation import OperationState
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test


@pytest.fixture
def marks(tmp_path):
    """Two, each with a description of its own, as two processes have."""
    both = FileMarks(tmp_path), FileMarks(tmp_path)
    yield both
    for one in both:
        one.close()


def test_a_mark_is_seen_by_others_until_it_is_lifted(marks):
    mine, theirs = marks
    mine.mark_in_flight("a")
    assert theirs.is_in_flight_elsewhere("a")
    assert not theirs.is_in_flight_elsewhere("b")
    assert not mine.is_in_flight_elsewhere("a")
    mine.clear_in_flight("a")
    assert not theirs.is_in_flight_elsewhere("a")


def test_several_may_mark_one_agent_and_none_lifts_anothers_mark(marks):
    mine, theirs = marks
    mine.mark_in_flight("a")
    theirs.mark_in_flight("a")
    mine.clear_in_flight("a")
    mine.clear_in_flight("a")
    assert mine.is_in_flight_elsewhere("a")
    assert not theirs.is_in_flight_elsewhere("a")


def test_the_marks_of_a_process_that_was_killed_are_gone(tmp_path):
    script = (
        "import sys; from pathlib import Path;"
        "from tenure.adapters.provider_host.unix.marks import FileMarks;"
        "marks = FileMarks(Path(sys.argv[1])); marks.mark_in_flight('a'); print('put', flush=True);"
        "sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    marks = FileMarks(tmp_path)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"put\n"
        assert marks.is_in_flight_elsewhere("a")
        other.kill()
        other.wait()
        assert not marks.is_in_flight_elsewhere("a")
    marks.close()


def test_only_the_owner_can_read_the_file_and_nothing_is_written(marks, tmp_path):
    marks[0].mark_in_flight("a")
    file = (tmp_path / NAME).stat()
    assert (file.st_mode & 0o777, file.st_size) == (0o600, 0)


def test_a_file_that_cannot_be_locked_is_unavailable(tmp_path):
    marks = FileMarks(tmp_path)
    marks.close()
    with pytest.raises(Unavailable, match=NAME):
        marks.mark_in_flight("a")
    marks.clear_in_flight("a")
    marks.close()


def test_what_is_in_flight_elsewhere_is_seen_from_before_it_looks_until_it_ends(marks):
    mine, theirs = (InFlight(one) for one in marks)
    with mine.count_one("a"), mine.count_one("a"):
        assert (mine.count_of("a"), theirs.count_of("a")) == (2, 1)
        with theirs.count_one("a"):
            assert (mine.count_of("a"), theirs.count_of("a")) == (3, 2)
        assert (mine.count_of("a"), theirs.count_of("a")) == (2, 1)
    assert (mine.count_of("a"), theirs.count_of("a")) == (0, 0)


async def drained_with_another_process(harness, marks):
    """Suspend an agent here, with an invocation under way that goes through another process."""
    uid = await harness.create_ready()
    harness.plane.in_flight._marks, elsewhere = marks[0], InFlight(marks[1])
    with elsewhere.count_one(uid):
        operation = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=60.0)
        await asyncio.sleep(5.0)
        assert await harness.agent_state() is AgentState.SUSPENDING, "the drain has seen nothing"
    assert (await harness.wait_for(operation)).state is OperationState.SUCCEEDED


@agent_test
async def test_a_drain_waits_for_what_another_process_passes_through(harness, marks):
    await drained_with_another_process(harness, marks)


@pytest.mark.parametrize(
    "off",
    [{"mark_in_flight": lambda *_: None}, {"is_in_flight_elsewhere": lambda *_: False}],
    ids=["put", "seen"],
)
def test_ablation_without_the_marks_a_drain_is_over_too_soon(off, marks, tally):
    @agent_test
    async def play(harness):
        with patched(FileMarks, **off), pytest.raises(AssertionError, match="has seen nothing"):
            await drained_with_another_process(harness, marks)

    play()
    tally.add("ablations")


def test_what_is_cut_ends_in_other_processes_and_what_begins_later_does_not(marks):
    mine, theirs = (InFlight(one) for one in marks)
    with theirs.count_one("a") as old, theirs.count_one("b") as other:
        mine.abort("a")
        assert not old.is_set()
        theirs.apply_remote_aborts()
        assert (old.is_set(), other.is_set()) == (True, False)
        mine.apply_remote_aborts()
        with theirs.count_one("a") as new:  # the agent is open again
            theirs.apply_remote_aborts()
            assert not new.is_set()
    mine.apply_remote_aborts()  # nothing is under way there any more
    with theirs.count_one("a") as later:
        theirs.apply_remote_aborts()
        assert not later.is_set()
        mine.abort("a")
        theirs.apply_remote_aborts()
        assert later.is_set(), "a second cut is heeded as well"


def test_one_who_begins_while_others_are_cut_is_not_meant_and_nobody_is_waited_for_long(marks):
    mine, theirs = (InFlight(one) for one in marks)
    marks[0].mark_in_flight("a")  # by a process that stands still
    theirs.abort("a")
    with mine.count_one("a") as begun:
        mine.apply_remote_aborts()
        assert not begun.is_set()
        for _ in range(ABORT_POLLS_MAX + 1):
            theirs.apply_remote_aborts()
        assert not marks[0].is_abort_requested("a")
        mine.apply_remote_aborts()
        assert not begun.is_set()


def test_a_process_that_is_alone_has_nobody_to_heed():
    alone = InFlight()
    with alone.count_one("a") as one:
        alone.apply_remote_aborts()
        assert not one.is_set()
