"""Goal: whatever the order in which everything happens and fails, every promise holds.

Method: thousands of simulation runs of every subject, each drawn from a seed: processes that race,
die, sleep and come back, callers who ask twice and cancel, providers that lose, delay, repeat and
refuse, reactions that are lost.  When all is calm again every invariant is checked in the world's
truth (`proofs.harness.simulation`).  Some seeds run on a real SQLite file.  That a seed replays is
shown with trace hashes, also in a fresh process that hashes strings otherwise: promise 22.
"""

import itertools

import pytest

from proofs import simulation
from proofs.agents.workload import AgentsSimulation
from proofs.harness.schedule import Failure
from proofs.harness.simulation import Simulation, simulate
from proofs.operations import workload
from proofs.operations.profiles import PROFILES
from proofs.operations.promises import traces_elsewhere
from proofs.operations.workload import OperationsSimulation
from proofs.simulation import simulate_many
from proofs.subjects import SIMULATIONS, SUBJECTS
from tests.simulation.sqlite_disk import sqlite_disks

pytestmark = pytest.mark.timeout(300)

PARTS = 8
"""Test items for the usual profile, so that several workers can share it."""
SEEDS_A_PART = 250
MORE_SEEDS = {"reconcilers": 150}
"""Where more seeds are run than a proof takes."""
LONG_SEEDS = {"operations": 5_000, "agents": 3_000, "reconcilers": 1_000, "events": 1_000}
FEW = {"operations": 100, "agents": 10, "reconcilers": 3, "events": 4}
"""Seeds for the inner loop."""
ALL = [(name, profile) for name, one in SIMULATIONS.items() for profile in one.profiles]
AIMED = [one for one in ALL if one != ("operations", "usual")]


def usual(seed):
    return simulate(OperationsSimulation, seed, "usual")


def check(runs, tally, subject="operations", profile="usual"):
    tally.add("seeds", runs.seeds)
    failed = [
        "\n    ".join((SUBJECTS[subject].again(profile, result.seed), *result.wrong))
        for result in runs.failed[:5]
    ]
    assert not failed, f"{len(runs.failed)} of {runs.seeds} seeds:\n" + "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_every_run(part, tally):
    check(simulate_many(range(part * SEEDS_A_PART, (part + 1) * SEEDS_A_PART)), tally)


@pytest.mark.slow
@pytest.mark.parametrize(("subject", "profile"), AIMED)
def test_every_promise_holds_where_a_profile_aims(subject, profile, tally):
    """These are the runs of the proofs, each run once, however many promises it stands for."""
    seeds = range(MORE_SEEDS.get(subject, SUBJECTS[subject].seeds))
    check(simulate_many(seeds, profile, subject=subject), tally, subject, profile)


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize(("subject", "profile"), ALL)
def test_every_promise_holds_for_longer(subject, profile, tally):
    seeds = range(20_000, 20_000 + LONG_SEEDS.get(subject, 1_000))
    check(simulate_many(seeds, profile, subject=subject), tally, subject, profile)


@pytest.mark.parametrize("subject", SIMULATIONS)
def test_a_few_runs_for_the_inner_loop(subject, tally):
    profile = next(iter(SIMULATIONS[subject].profiles))
    seeds = range(FEW.get(subject, 3))
    check(simulate_many(seeds, profile, subject=subject), tally, subject, profile)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_same_on_sqlite(part, tally):
    seeds = range(part * 100, (part + 1) * 100)
    with sqlite_disks() as disks:
        runs = simulate_many(seeds, "alone", disk=disks.for_simulation)
    check(runs, tally, profile="alone")


# --- a seed replays ------------------------------------------------------------------------------


def test_a_seed_gives_the_same_trace_again(tally):
    seeds = range(500, 530)
    assert [usual(seed).trace for seed in seeds] == [usual(seed).trace for seed in seeds]
    tally.add("seeds", 2 * len(seeds))


@pytest.mark.parametrize(("subject", "profile"), ALL)
def test_a_seed_of_every_profile_gives_the_same_trace_again(subject, profile, tally):
    one = SIMULATIONS[subject]
    assert simulate(one, 1, profile).trace == simulate(one, 1, profile).trace != ""
    tally.add("seeds", 2)


def test_a_seed_gives_the_same_trace_in_a_process_that_hashes_otherwise(tally):
    here = [usual(seed).trace for seed in range(20)]
    assert traces_elsewhere(20, hash_seed="1") == here
    assert traces_elsewhere(20, hash_seed="2") == here
    tally.add("seeds", 60)


def test_other_seeds_are_other_runs():
    assert len({usual(seed).trace for seed in range(30)}) == 30


def test_a_schedule_is_drawn_before_it_is_run():
    assert PROFILES["usual"].draw(7) == PROFILES["usual"].draw(7)
    assert PROFILES["usual"].draw(7) != PROFILES["usual"].draw(8)


def test_the_usual_profile_has_everything_in_it():
    """So that a zero means something: each failure, each plan and each habit of callers occurs."""
    drawn = [PROFILES["usual"].draw(seed) for seed in range(300)]
    assert {failure.what for one in drawn for failure in one.failures} == set(Failure)
    requests = list(itertools.chain.from_iterable(one.requests for one in drawn))
    assert {request.plan for request in requests} == set(PROFILES["usual"].plans)
    assert {request.operator for request in requests} == {"", "retry", "abandon", "resolve"}
    assert any(request.twice_after == 0.0 for request in requests)
    assert any(not request.keyed for request in requests)
    assert any(len(request.signals) > 1 for request in requests)
    assert any(request.cancel_twice and request.cancel_after is not None for request in requests)
    assert any(one.full for one in drawn)
    assert any(one.front for one in drawn)
    assert {len(one.clocks) for one in drawn} == {1, 2, 3}


def test_agents_are_disrupted_in_every_way():
    profile = AgentsSimulation.profiles["disrupted"]
    drawn = [profile.draw(seed) for seed in range(300)]
    assert {failure.what for one in drawn for failure in one.failures} == set(Failure)
    assert any(one.refuse_rate for one in drawn)


def test_the_usual_profile_ends_in_every_way():
    states = {state for seed in range(200) for state in usual(seed).states}
    assert states == {"SUCCEEDED", "COMPENSATED", "STUCK", "ABANDONED"}


def test_invocations_are_let_through_in_a_run():
    assert simulate(AgentsSimulation, 1, "agents").counts["invocations"] > 0


def test_an_error_of_the_harness_is_a_violation(monkeypatch):
    async def broken(self):
        raise ZeroDivisionError

    monkeypatch.setattr(Simulation, "run", broken)
    assert usual(0).wrong == ["no_surprise: ZeroDivisionError()"]


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "counter"), [("operations", "faults"), ("agents", "invocations")]
)
def test_the_command_says_how_many_and_how_fast(subject, counter, capsys):
    assert simulation.main(["--subject", subject, "--seeds", "5", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seeds=5 failures=0 seeds_per_second=")
    assert f"{counter}=" in printed


def test_the_command_tells_how_to_see_a_failure_again(capsys, monkeypatch):
    monkeypatch.setattr(workload, "violations", lambda _: ["an invariant: it does not hold"])
    assert simulation.main(["--seeds", "1", "--first", "3", "--profile", "undo"]) == 1
    printed = capsys.readouterr().out
    assert "an invariant: it does not hold" in printed
    assert "python -m proofs.simulation --profile undo --first 3 --seeds 1" in printed


def test_the_command_refuses_a_profile_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        simulation.main(["--subject", "events", "--profile", "usual"])
    assert "events has no profile usual; it has relay_dies" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_shares_the_work_out(capsys):
    assert simulation.main(["--seeds", "120", "--jobs", "2"]) == 0
    assert "seeds=120 failures=0" in capsys.readouterr().out
