"""The crash matrix on a real PostgreSQL, by one plane and by two that share it.

Goal and method are those of `tests.crash.test_matrix` and `tests.crash.test_lifecycle`; only the
store is another. A server takes a hundred times as long as tables in memory, so the matrix is
thinned: of the cells one in so many is run each time, another one for the next scenario, and all
of them by the long run. `crash_runs_on_postgres` in the closing line says how many it was.
"""

import asyncio
import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from proofs.agents import crash as lifecycle_crash
from proofs.operations.crash import Case, cases_of, run_case
from tenure.adapters.store.postgres.committer import Committer
from tenure.testing.patches import patched
from tests.simulation.postgres_disk import PostgresDisk, RealLoop

pytestmark = pytest.mark.timeout(300)
SCENARIOS = ("linear", "parallel_refused", "pivot", "charge")
LIVES = ("create_refused", "delete_while_creating", "suspend_while_resuming")
SHARE, SHARE_OF_LIVES = 7, 40
PLANES = (1, 2)
SHOWN = 5


@pytest.fixture
def disk(postgres_url) -> Iterator[partial[PostgresDisk]]:
    with RealLoop(postgres_url) as real:
        yield partial(PostgresDisk, real)


def check(cases, tally, run) -> None:
    wrong, runs = [], 0
    for case in cases:
        runs += 1
        if found := run(case).wrong:
            wrong.append(f"run_case({case!r})\n    " + "\n    ".join(found))
    assert runs
    tally.add("crash_runs", runs)
    tally.add("crash_runs_on_postgres", runs)
    assert not wrong, f"{len(wrong)} of {runs} runs:\n" + "\n".join(wrong[:SHOWN])


@pytest.mark.slow
@pytest.mark.parametrize("planes", PLANES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_share_of_the_crossings_and_sides(scenario, planes, disk, tally):
    cases = cases_of(scenario, None, None, planes=planes)
    begin = (SCENARIOS.index(scenario) * 2 + planes) % SHARE
    check(itertools.islice(cases, begin, None, SHARE), tally, partial(run_case, disk=disk))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", LIVES)
def test_a_share_of_the_crossings_in_an_agents_life(scenario, disk, tally):
    cases = lifecycle_crash.cases_of(scenario, None, None)
    begin = LIVES.index(scenario) * 13 + 7
    some = itertools.islice(cases, begin, None, SHARE_OF_LIVES)
    check(some, tally, partial(lifecycle_crash.run_case, disk=disk))


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("planes", PLANES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_crossing_and_side(scenario, planes, disk, tally):
    cases = cases_of(scenario, None, None, planes=planes)
    check(cases, tally, partial(run_case, disk=disk))


@pytest.mark.parametrize("planes", PLANES)
def test_memory_and_postgres_live_the_same_life(planes, disk, tally):
    """Also where the first one dies: the traces hold everything that became of every request."""
    cases = [Case("linear", planes=planes)]
    cases += itertools.islice(cases_of("linear", None, None, planes=planes), 30, None, 13)
    check(cases, tally, partial(run_case, disk=disk))
    for case in cases[:2]:
        assert run_case(case, disk=disk).trace == run_case(case).trace


def test_a_postgres_that_forgets_is_seen_by_the_matrix(disk, tally):
    """A commit that is acknowledged and not kept is an operation lost."""
    real = Committer.commit

    def forgets(committer, change):
        if not change.admits:
            return real(committer, change)
        told = asyncio.get_running_loop().create_future()
        told.set_result(None)
        return told

    with patched(Committer, commit=forgets):
        assert any("acknowledged" in wrong for wrong in run_case(Case("linear"), disk=disk).wrong)
    tally.add("ablations")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_planes_on_tables_in_memory(scenario, tally):
    """Every cell, since here it costs little: the second one takes over, or both go on."""
    cases = list(cases_of(scenario, None, None, planes=2))
    wrong = [(case, found) for case in cases if (found := run_case(case).wrong)]
    tally.add("crash_runs", len(cases))
    assert not wrong, wrong[:SHOWN]
