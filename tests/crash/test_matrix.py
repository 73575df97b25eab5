"""The crash matrix.

Goal: whatever the instant at which a plane is killed, and whatever single thing goes wrong beside
it, every accepted operation reaches its goal or is fully undone, counted in the providers' own
truth. Method: `proofs.operations.crash` runs each scenario once for each fault to learn its port
crossings, then once for each crossing and side: the plane dies there, a fresh one starts on the
same disk, and every invariant is checked. A failure prints the case; `run_case(Case(...))` runs it
again alone, with the same trace.
"""

import itertools
from functools import partial
from pathlib import Path

import apsw
import pytest

from proofs.harness.rig import MemoryDisk
from proofs.operations.crash import SCENARIOS, Case, cases_of, faults_of, run_case
from tenure.adapters.store import sqlite
from tenure.adapters.store.sqlite import SqliteStore
from tenure.core.operation import OperationState
from tenure.ports.clock import Clock
from tenure.ports.store import Store
from tenure.sqlite.commit_thread import Inline
from tenure.testing import memory_store
from tenure.testing.faults import Call, Fault
from tenure.testing.tripwire import Side
from tests.simulation.sqlite_disk import observer

pytestmark = pytest.mark.timeout(600)

WHOLE = ("linear", "parallel", "pivot", "undo_refused_for_a_while")
"""Every cell of these is run each time; of the others a share, and all by the long run."""
SHARE = 16
PARTS = 4
"""Test items for each scenario, so that several workers can share it."""
SHOWN = 5


def check(cases, tally, *, disk=MemoryDisk) -> None:
    """Runs these cases and says which of them went wrong, each as a call that repeats it."""
    wrong, runs = [], 0
    for case in cases:
        runs += 1
        outcome = run_case(case, disk=disk)
        if outcome.wrong:
            wrong.append(f"run_case({case!r})\n    " + "\n    ".join(outcome.wrong))
    tally.add("crash_runs", runs)
    assert not wrong, f"{len(wrong)} of {runs} runs:\n" + "\n".join(wrong[:SHOWN])


def rows(scenario: str, part: int) -> list[tuple[int, Call | None, Fault | None]]:
    """One part of a scenario's faults, each with its number."""
    return [
        (number, call, fault)
        for number, (call, fault) in enumerate(faults_of(scenario))
        if number % PARTS == part
    ]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("scenario", WHOLE)
def test_every_crossing_and_side_and_single_fault(scenario, part, tally):
    check(
        (
            case
            for _, call, fault in rows(scenario, part)
            for case in cases_of(scenario, call, fault)
        ),
        tally,
    )


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in WHOLE])
def test_a_share_of_the_other_scenarios(scenario, tally):
    """Without a fault all of it; with each fault a sixteenth of the cells, another for the next."""

    def share():
        for number, (call, fault) in enumerate(faults_of(scenario)):
            cases = cases_of(scenario, call, fault)
            step = 1 if fault is None else SHARE
            yield from itertools.islice(cases, number % step, None, step)

    check(share(), tally)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in WHOLE])
def test_all_of_the_other_scenarios(scenario, part, tally):
    check(
        (
            case
            for _, call, fault in rows(scenario, part)
            for case in cases_of(scenario, call, fault)
        ),
        tally,
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_without_faults_ends_as_it_should(scenario, tally):
    outcome = run_case(Case(scenario))
    tally.add("crash_runs")
    assert outcome.wrong == []
    assert outcome.states == [ENDS[scenario]]
    assert run_case(Case(scenario)).trace == outcome.trace
    if "signalled" in scenario:
        assert outcome.seconds < 1, "the signal was not seen before the deadline"


ENDS = {
    "linear": OperationState.SUCCEEDED,
    "linear_refused": OperationState.COMPENSATED,
    "linear_cancelled": OperationState.COMPENSATED,
    "parallel": OperationState.SUCCEEDED,
    "parallel_refused": OperationState.COMPENSATED,
    "parallel_cancelled": OperationState.COMPENSATED,
    "pivot": OperationState.SUCCEEDED,
    "pivot_refused": OperationState.COMPENSATED,
    "pivot_cancelled": OperationState.SUCCEEDED,  # the cancel comes too late
    "undo_refused_for_a_while": OperationState.COMPENSATED,
    "undo_refused_for_ever": OperationState.ABANDONED,
    "undo_retried": OperationState.COMPENSATED,
    "undo_marked_absent": OperationState.COMPENSATED,
    "ready": OperationState.SUCCEEDED,
    "ready_late": OperationState.COMPENSATED,
    "waits": OperationState.SUCCEEDED,
    "waits_signalled_early": OperationState.SUCCEEDED,
    "waits_signalled_meanwhile": OperationState.SUCCEEDED,
    "waits_in_vain": OperationState.COMPENSATED,
    "charge": OperationState.SUCCEEDED,
    "unaskable": OperationState.SUCCEEDED,
    "unaskable_resolved": OperationState.SUCCEEDED,
    "unaskable_cancelled": OperationState.STUCK,
}


@pytest.mark.parametrize("scenario", ["linear", "parallel_refused", "pivot", "unaskable"])
def test_a_thin_matrix_for_the_inner_loop(scenario, tally):
    check(cases_of(scenario, None, None), tally)


# --- the same on disk -------------------------------------------------------------------------


class SqliteDisk:
    """A real file with COMMIT on the loop; a killed process leaves its log as it is."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._path = folder / "store.db"
        self._clock = clock
        self._observer: Store | None = None

    def open(self, clock: Clock) -> Store:
        return sqlite.build(self._path, clock=clock, flush=Inline())

    def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        store._file.writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        store._file.close()

    def look(self) -> Store:
        """A connection of nobody's process that can only read."""
        if self._observer is None:
            self._observer = observer(self._path, self._clock)
        return self._observer


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["linear", "linear_refused", "parallel", "pivot"])
def test_the_same_on_sqlite(scenario, tmp_path_factory, tally):
    check(
        cases_of(scenario, None, None),
        tally,
        disk=lambda clock: SqliteDisk(tmp_path_factory.mktemp("disk"), clock),
    )


def test_memory_and_sqlite_live_the_same_life(tmp_path_factory):
    for number, case in enumerate(itertools.islice(cases_of("linear", None, None), 0, None, 7)):
        folder = tmp_path_factory.mktemp(f"disk{number}")
        on_disk = run_case(case, disk=partial(SqliteDisk, folder))
        assert on_disk.states == run_case(case).states


# --- the harness itself -----------------------------------------------------------------------


def test_a_broken_world_is_seen_by_the_matrix(monkeypatch):
    """Without burned keys what arrives after a compensation is an orphan, and is seen."""
    from proofs.operations import crash
    from tenure.testing import plans

    monkeypatch.setattr(
        crash, "providers_of", lambda world, faults: plans.providers_of(world, faults, burns=False)
    )
    case = Case("linear_refused", Call("access", "ensure", 1), Fault.DUPLICATED)
    assert any("is an orphan" in wrong for wrong in run_case(case).wrong)


def test_a_store_that_forgets_is_seen_by_the_matrix(monkeypatch):
    """A commit that is acknowledged and not kept is an operation lost."""
    real = memory_store.Tables.apply

    def forgets(tables, change):
        if change.admits:
            return None
        return real(tables, change)

    monkeypatch.setattr(memory_store.Tables, "apply", forgets)
    assert any("acknowledged" in wrong for wrong in run_case(Case("linear")).wrong)


def test_a_case_gives_the_same_trace_again():
    for case in (
        Case("parallel_refused", Call("access", "ensure", 1), Fault.SLOWER, 14, Side.AFTER, 3),
        Case("unaskable", None, None, 9, Side.DURING, 1),
    ):
        assert len({run_case(case).trace for _ in range(3)}) == 1
