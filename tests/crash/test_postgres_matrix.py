"""The crash matrix on a real PostgreSQL, by one plane and by two that share it.

Goal and method are those of `tests.crash.test_matrix`; only the store is another. A server takes a
hundred times as long as tables in memory, so the matrix is thinned: of the cells one in so many is
run each time, another one for the next scenario, and all of them by the long run.
`crash_runs_on_postgres` in the closing line says how many it was.
"""

import asyncio
import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from proofs.agents.scenarios import MATRIX as AGENTS
from proofs.harness.crash import Case
from proofs.operations.scenarios import MATRIX
from tenure.adapters.store.postgres.committer import PostgresCommitter
from tenure.testing.patches import patched
from tests.simulation.postgres_disk import PostgresDisk, RealLoop

pytestmark = pytest.mark.timeout(300)
SCENARIOS = ("linear", "parallel_refused", "pivot", "charge")
OF_AGENTS = ("create_refused", "delete_while_creating", "suspend_while_resuming")
SHARE, SHARE_OF_AGENTS = 7, 40
PLANES = (1, 2)


@pytest.fixture
def disk(postgres_url) -> Iterator[partial[PostgresDisk]]:
    with RealLoop(postgres_url) as real:
        yield partial(PostgresDisk, real)


def check(matrix, results, tally) -> None:
    count, failed = matrix.report(results)
    assert count
    tally.add("crash_runs", count)
    tally.add("crash_runs_on_postgres", count)
    assert not failed, failed


@pytest.mark.slow
@pytest.mark.parametrize("planes", PLANES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_share_of_the_crossings_and_sides(scenario, planes, disk, tally):
    cases = MATRIX.cases_of(scenario, planes=planes)
    begin = (SCENARIOS.index(scenario) * 2 + planes) % SHARE
    some = itertools.islice(cases, begin, None, SHARE)
    check(MATRIX, (MATRIX.run(case, disk=disk) for case in some), tally)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", OF_AGENTS)
def test_a_share_of_the_crossings_of_an_agent(scenario, disk, tally):
    begin = OF_AGENTS.index(scenario) * 13 + 7
    some = itertools.islice(AGENTS.cases_of(scenario), begin, None, SHARE_OF_AGENTS)
    check(AGENTS, (AGENTS.run(case, disk=disk) for case in some), tally)


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("planes", PLANES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_crossing_and_side(scenario, planes, disk, tally):
    check(MATRIX, MATRIX.results(scenario, planes=planes, disk=disk), tally)


@pytest.mark.parametrize("planes", PLANES)
def test_memory_and_postgres_run_the_same(planes, disk, tally):
    """Also where the first one dies: the traces hold everything that became of every request."""
    cases = [Case("linear", planes=planes)]
    cases += MATRIX.cases_of("linear", planes=planes)[30::13]
    results = [MATRIX.run(case, disk=disk) for case in cases]
    check(MATRIX, results, tally)
    for result in results[:2]:
        assert result.trace == MATRIX.run(result.case).trace


def test_a_postgres_that_forgets_is_seen_by_the_matrix(disk, tally):
    """A commit that is acknowledged and not kept is an operation lost."""
    real = PostgresCommitter.commit

    def forgets(committer, change):
        if not change.is_new_work:
            return real(committer, change)
        told = asyncio.get_running_loop().create_future()
        told.set_result(None)
        return told

    with patched(PostgresCommitter, commit=forgets):
        assert any("acknowledged" in wrong for wrong in MATRIX.run(Case("linear"), disk=disk).wrong)
    tally.add("ablations")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_planes_on_tables_in_memory(scenario, tally):
    """Every cell, since here it costs little: the second one takes over, or both go on."""
    count, failed = MATRIX.report(MATRIX.results(scenario, planes=2))
    tally.add("crash_runs", count)
    assert not failed, failed
