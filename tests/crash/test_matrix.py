"""The crash matrix of every subject.

Goal: whatever the instant at which a plane is killed, and whatever single fault strikes beside it,
every accepted operation reaches its goal or is fully undone, counted in the providers' own truth.
Method: `proofs.harness.crash` runs each scenario once for each fault to learn its port crossings,
then once for each crossing and side: the plane dies there, a fresh one starts on the same disk, and
every invariant is checked. A failure prints the case as a call that runs it again, with the same
trace.
"""

import itertools
from functools import partial

import pytest

from proofs.agents import invariants, lifecycle
from proofs.agents.scenarios import MATRIX as AGENTS
from proofs.harness.crash import CALM, Case
from proofs.operations import scenarios
from proofs.operations.scenarios import MATRIX as OPERATIONS
from proofs.subjects import SUBJECTS
from tenure.app.agents import plane_api, subject, verbs
from tenure.ports.store import Change
from tenure.testing import memory_store, plans
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.patches import patched
from tenure.testing.tripwire import CrossingSide
from tests.simulation.sqlite_disk import sqlite_disks

pytestmark = pytest.mark.timeout(600)

MATRICES = {name: one.matrix for name, one in SUBJECTS.items() if one.matrix is not None}
SCENARIOS = [(name, scenario) for name, one in MATRICES.items() for scenario in one.scenarios]
WHOLE = {"operations": ("linear", "parallel", "pivot", "undo_refused_for_a_while")}
"""Every cell of these is run each time; of the others a share, and all by the long run."""
ONE_IN = {"operations": 16, "agents": 300}
"""Of the cells with a fault one in so many is run each time, another one for the next fault."""
LONG_ONE_IN = {"operations": 1, "agents": 10}
PARTS = 4
"""Test items for each scenario, so that several workers can share it."""
THIN = [("operations", name) for name in ("linear", "parallel_refused", "pivot", "unaskable")]
THIN += [("agents", name) for name in ("create", "create_refused", "delete")]
IN_WHOLE = [(name, scenario) for name, all_of in WHOLE.items() for scenario in all_of]
IN_PART = [one for one in SCENARIOS if one not in IN_WHOLE]


def check(matrix, results, tally) -> None:
    """Fail with the calls that run the failed cases again."""
    count, failed = matrix.report(results)
    tally.add("crash_runs", count)
    assert not failed, failed


def run_cases(matrix, scenario, one_in, *, part=0, parts=1):
    """Every fault of one part, and of its cells one in so many."""
    for number, fault in enumerate(matrix.faults_of(scenario)):
        if fault != CALM and number % parts == part:
            yield from matrix.results(scenario, fault, first=number % one_in, one_in=one_in)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scenario"), SCENARIOS)
def test_every_crossing_and_side(name, scenario, tally):
    check(MATRICES[name], MATRICES[name].results(scenario), tally)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "scenario"), IN_WHOLE)
def test_every_crossing_and_side_and_single_fault(name, scenario, part, tally):
    check(MATRICES[name], run_cases(MATRICES[name], scenario, 1, part=part, parts=PARTS), tally)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scenario"), IN_PART)
def test_a_share_of_every_single_fault(name, scenario, tally):
    check(MATRICES[name], run_cases(MATRICES[name], scenario, ONE_IN.get(name, 300)), tally)


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "scenario"), IN_PART)
def test_more_of_every_single_fault(name, scenario, part, tally):
    one_in = LONG_ONE_IN.get(name, 10)
    check(
        MATRICES[name], run_cases(MATRICES[name], scenario, one_in, part=part, parts=PARTS), tally
    )


@pytest.mark.parametrize(("name", "scenario"), SCENARIOS)
def test_a_scenario_without_faults_ends_as_it_should(name, scenario, tally):
    matrix = MATRICES[name]
    result = matrix.run(Case(scenario))
    tally.add("crash_runs")
    assert result.wrong == []
    assert result.states == matrix.scenarios[scenario].ends
    assert matrix.run(Case(scenario)).trace == result.trace
    if "signalled" in scenario:
        assert result.seconds < 1, "the signal was not seen before the deadline"


@pytest.mark.parametrize(("name", "scenario"), THIN)
def test_a_thin_matrix_for_the_inner_loop(name, scenario, tally):
    one_in = 1 if name == "operations" else 3
    check(MATRICES[name], MATRICES[name].results(scenario, one_in=one_in), tally)


# --- the same on disk -------------------------------------------------------------------------


@pytest.fixture
def disk():
    """Opens a fresh SQLite file for each run."""
    with sqlite_disks() as disks:
        yield disks.for_case


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scenario", "one_in"),
    [
        *(("operations", n, 1) for n in ("linear", "linear_refused", "parallel", "pivot")),
        *(("agents", name, 5) for name in ("create_refused", "resume", "delete_while_creating")),
    ],
)
def test_the_same_on_sqlite(name, scenario, one_in, disk, tally):
    matrix = MATRICES[name]
    check(matrix, matrix.results(scenario, one_in=one_in, disk=disk), tally)


def test_memory_and_sqlite_run_the_same(disk):
    for case in itertools.islice(OPERATIONS.cases_of("linear"), 0, None, 7):
        assert OPERATIONS.run(case, disk=disk).states == OPERATIONS.run(case).states


# --- the harness itself -----------------------------------------------------------------------


def broken(result):
    return {wrong.partition(":")[0] for wrong in result.wrong}


def test_a_broken_world_is_seen_by_the_matrix(monkeypatch):
    """Without burned keys what arrives after a compensation is an orphan, and is seen."""
    without = partial(plans.providers_of, burns=False)
    monkeypatch.setattr(scenarios, "providers_of", without)
    case = Case("linear_refused", FaultPoint("access", "ensure", 1), Fault.DUPLICATED)
    assert any("is an orphan" in wrong for wrong in OPERATIONS.run(case).wrong)


def test_a_store_that_forgets_is_seen_by_the_matrix(monkeypatch):
    """A commit that is acknowledged and not kept is an operation lost."""
    real = memory_store.Tables.apply

    def forgets(tables, change):
        if change.is_new_work:
            return None
        return real(tables, change)

    monkeypatch.setattr(memory_store.Tables, "apply", forgets)
    assert any("acknowledged" in wrong for wrong in OPERATIONS.run(Case("linear")).wrong)


@pytest.mark.parametrize(
    ("matrix", "case"),
    [
        (OPERATIONS, Case("parallel_refused", FaultPoint("access", "ensure", 1), Fault.SLOWER, 14,
                          CrossingSide.AFTER, 3)),
        (OPERATIONS, Case("unaskable", None, None, 9, CrossingSide.DURING, 1)),
        (AGENTS, Case("stop_while_resuming", None, None, 60, CrossingSide.AFTER, 3)),
    ],
)  # fmt: skip
def test_a_case_gives_the_same_trace_again(matrix, case):
    assert len({matrix.run(case).trace for _ in range(3)}) == 1


def test_a_failed_case_is_reported_as_a_call_that_runs_it_again():
    result = OPERATIONS.run(Case("linear"))._replace(wrong=["a rule: it does not hold"])
    count, text = OPERATIONS.report([result])
    assert count == 1
    assert "proofs.operations.scenarios.MATRIX.run(Case(scenario='linear'" in text
    assert "a rule: it does not hold" in text


def test_an_agent_that_keeps_its_runtime_unasked_is_seen(monkeypatch):
    """The suspend says that it removed it, and did not."""

    async def keep(self, key):
        return None

    monkeypatch.setattr(lifecycle.FakeRuntime, "remove", keep)
    assert "holds_what_its_state_says" in broken(AGENTS.run(Case("suspend")))


def test_a_delete_that_forgets_the_quota_is_seen():
    with patched(subject, _release_writes=lambda live, end: []):
        seen = broken(AGENTS.run(Case("delete")))
    assert {"quota_counts_live_agents", "names_are_unique"} <= seen


def test_a_lock_that_is_not_waited_for_is_seen():
    real = plane_api.AgentPlaneApi.acquire_lock

    async def acquire(self, agent, operation, **kwargs):
        lock = await real(self, agent, operation, **kwargs)
        return (
            lock
            if not lock.lock_holder
            else lock._replace(lock_holder="", return_state=kwargs["return_state"])
        )

    with patched(plane_api.AgentPlaneApi, acquire_lock=acquire):
        assert AGENTS.run(Case("delete_while_creating")).wrong


def test_a_close_that_does_not_cancel_the_holder_is_seen():
    async def cancel_nothing(plane, superseded, *, closing_operation, now):
        return Change("", (), ())

    with patched(verbs, _supersede=cancel_nothing):
        assert AGENTS.run(Case("delete_while_creating")).wrong


def test_every_invariant_of_agents_is_checked():
    named = {check.__name__ for check in invariants.INVARIANTS}
    assert len(named) == len(invariants.INVARIANTS) >= 12
