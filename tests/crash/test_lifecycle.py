"""The crash matrix of an agent's life.

Goal: whatever the instant at which a plane is killed while it creates, suspends, resumes, stops or
deletes, and whatever single thing goes wrong beside it, providers hold exactly what the agents'
states say. Method: `proofs.agents.crash` runs each scenario once for each fault to learn
its port crossings, then once for each crossing and side: the plane dies there, a fresh one starts
on the same disk, and every sentence of `proofs.agents.invariants` is checked. A failure
prints the case; `run_case(Case(...))` runs it again alone, with the same trace.
"""

import itertools
from functools import partial

import pytest

from proofs.agents import invariants, lifecycle
from proofs.agents.crash import SCENARIOS, Case, cases_of, faults_of, run_case
from tenure.app.agents import plane_api, verbs
from tenure.testing.patches import patched
from tenure.testing.tripwire import Side
from tests.crash.test_matrix import SqliteDisk

pytestmark = pytest.mark.timeout(600)

SHOWN = 5
SHARE = 300
"""Of the cells with a fault one in so many is run each time, another for the next fault."""
LONG_SHARE = 10
THIN = ("create", "create_refused", "delete")


def check(cases, tally, **more) -> int:
    """Runs these cases and says which of them went wrong, each as a call that repeats it."""
    wrong, runs = [], 0
    for case in cases:
        runs += 1
        outcome = run_case(case, **more)
        if outcome.wrong:
            wrong.append(f"run_case({case!r})\n    " + "\n    ".join(outcome.wrong))
    tally.add("crash_runs", runs)
    assert not wrong, f"{len(wrong)} of {runs} runs:\n" + "\n".join(wrong[:SHOWN])
    return runs


def share(scenario, one_in):
    """Every fault with a share of its cells."""
    for number, (call, fault) in enumerate(faults_of(scenario)):
        if fault is not None:
            yield from itertools.islice(
                cases_of(scenario, call, fault), number % one_in, None, one_in
            )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_without_faults_ends_as_it_should(scenario, tally):
    outcome = run_case(Case(scenario))
    tally.add("crash_runs")
    assert outcome.wrong == []
    assert outcome.states == SCENARIOS[scenario].ends
    assert run_case(Case(scenario)).trace == outcome.trace


@pytest.mark.parametrize("scenario", THIN)
def test_a_thin_matrix_for_the_inner_loop(scenario, tally):
    check(itertools.islice(cases_of(scenario, None, None), 0, None, 3), tally)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_crossing_and_side(scenario, tally):
    check(cases_of(scenario, None, None), tally)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_share_of_every_single_fault(scenario, tally):
    check(share(scenario, SHARE), tally)


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_more_of_every_single_fault(scenario, tally):
    check(share(scenario, LONG_SHARE), tally)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["create_refused", "resume", "delete_while_creating"])
def test_the_same_on_sqlite(scenario, tmp_path_factory, tally):
    for number, case in enumerate(itertools.islice(cases_of(scenario, None, None), 0, None, 5)):
        folder = tmp_path_factory.mktemp(f"disk{number}")
        check([case], tally, disk=partial(SqliteDisk, folder))


# --- the harness itself -----------------------------------------------------------------------


def sentences(outcome):
    return {wrong.partition(":")[0] for wrong in outcome.wrong}


def test_a_case_gives_the_same_trace_again():
    case = Case("stop_while_resuming", None, None, 60, Side.AFTER, 3)
    assert len({run_case(case).trace for _ in range(3)}) == 1


def test_an_agent_that_keeps_its_runtime_unasked_is_seen(monkeypatch):
    """The suspend says that it removed it, and did not."""

    async def keep(self, key):
        return None

    monkeypatch.setattr(lifecycle.FakeRuntime, "remove", keep)
    assert "holds_what_its_state_says" in sentences(run_case(Case("suspend")))


def test_a_delete_that_forgets_the_quota_is_seen():
    from tenure.app.agents import subject as app

    with patched(app, _released=lambda live, end: []):
        seen = sentences(run_case(Case("delete")))
    assert {"quota_counts_live_agents", "names_are_unique"} <= seen


def test_a_turn_that_is_not_waited_for_is_seen():
    real = plane_api.ServingPlaneApi.acquire_lock

    async def take(self, agent, operation, **given):
        lock = await real(self, agent, operation, **given)
        return lock._replace(holder="", was=given["was"]) if lock.holder else lock

    with patched(plane_api.ServingPlaneApi, acquire_lock=take):
        assert run_case(Case("delete_while_creating")).wrong


def test_a_close_that_says_nothing_to_the_one_at_work_is_seen():
    async def say_nothing(plane, holder, *, by, now):
        from tenure.ports.store import Change

        return Change("", (), ())

    with patched(verbs, _closing=say_nothing):
        assert run_case(Case("delete_while_creating")).wrong


def test_every_sentence_is_checked():
    named = {check.__name__ for check in invariants.INVARIANTS}
    assert len(named) == len(invariants.INVARIANTS) >= 12
