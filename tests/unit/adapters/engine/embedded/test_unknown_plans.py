"""Two releases side by side: what the older one cannot perform is the newer one's at once."""

import asyncio

import pytest

from tenure.adapters.engine.embedded.unknown_plans import UnknownPlans
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.start_checks import prepare
from tenure.core.endings import Done
from tenure.core.errors import PlanUnknown
from tenure.core.operation import OperationState
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Change, Set
from tenure.testing.memory_store import Tables
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tests.unit.support.scripted_planes import TENANT, Script, accept, step, virtual_time_test

LATER_SECONDS = 60.0
"""Many looks round, far fewer than a defect is left alone for in the end."""


async def two_releases(cluster, *steps):
    """A worker of the older one, and a process of the newer that has accepted for nobody."""
    older = await cluster.start()
    cluster.catalogue = Catalogue(cluster.catalogue)
    cluster.plan("newer", *steps)
    front = cluster.boot("front")
    await prepare(front.plane)
    return older, front, await accept(front.plane, "newer")


async def row_of(process, name):
    loaded = await process.plane.store.load(name)
    return loaded.operation


async def left_to_the_newer(cluster):
    do, look = Script(), Script()
    older, front, name = await two_releases(cluster, step("made", do, Script(), look))
    await asyncio.sleep(LATER_SECONDS)
    row = await row_of(front, name)
    assert (row.worker, row.state) == ("", OperationState.PENDING), "it is held, or seems called"
    assert row.token == 1, "it was claimed more than once"
    assert (await reads.get_operation(older.plane, TENANT, name)).steps[0].name == "made"
    with pytest.raises(PlanUnknown, match="newer@1/made"):
        await operations.cancel(older.plane, by("a friend"), name)
    mine = await accept(older.plane, "linear")
    assert (await reads.wait(older.plane, TENANT, mine)).state is OperationState.SUCCEEDED
    newer = await cluster.start()
    assert await newer.engine.wait(name, 1.0) is OperationState.SUCCEEDED
    assert (len(do.calls), len(look.calls)) == (1, 0), "nobody had called it: it is not asked about"


@virtual_time_test
async def test_what_follows_a_plan_that_is_unknown_here_is_left_to_a_newer_worker(cluster, caplog):
    await left_to_the_newer(cluster)
    assert caplog.text.count("nobody here knows how to perform newer@1/made") == 1
    assert "stopped by a defect" not in caplog.text


def claimed_all_the_same():
    real = Tables.claim

    def claim(self, worker, *, limit, now, **_):
        return real(self, worker, limit=limit, now=now)

    return patched(Tables, claim=claim)


def halted_as_by_a_defect():
    return patched(UnknownPlans, load=lambda self, name, token, _: self._executor.load(name, token))


@pytest.mark.parametrize("off", [claimed_all_the_same, halted_as_by_a_defect])
def test_ablation_an_older_worker_that_holds_it_or_takes_it_again_is_seen(off, tally):
    @virtual_time_test
    async def without(cluster):
        with pytest.raises(AssertionError, match=r"it is held|claimed more than once"):
            await left_to_the_newer(cluster)

    with off():
        without()
    tally.add("ablations")


@virtual_time_test
async def test_what_a_dead_newer_worker_may_have_called_is_asked_about(cluster):
    look = Script(Done())
    older = await cluster.start()
    cluster.catalogue = Catalogue(cluster.catalogue)

    async def dies(_):
        await asyncio.sleep(0.1)
        newer.crash()
        await asyncio.sleep(3600)

    cluster.plan("newer", step("made", Script(dies), Script(), look))
    newer = await cluster.start()
    name = await newer.ask(lambda plane: accept(plane, "newer"))
    await asyncio.sleep(LATER_SECONDS)
    row = await row_of(older, name)
    assert (row.worker, row.state) == ("", OperationState.RUNNING)
    again = await cluster.start()
    assert await again.engine.wait(name, 1.0) is OperationState.SUCCEEDED
    assert len(look.calls) == 1


@virtual_time_test
async def test_what_is_recorded_while_it_is_given_back_counts(cluster):
    older, front, name = await two_releases(cluster, step("made", Script(), Script(), Script()))

    async def nothing():
        pass

    async def cancel():
        await operations.cancel(front.plane, by("a friend"), name)

    cluster.stores[0].after["load"] = [nothing, cancel]  # it is read to be moved, then given back
    await asyncio.sleep(LATER_SECONDS)
    row = await row_of(older, name)
    assert (row.worker, row.state) == ("", OperationState.COMPENSATING)
    newer = await cluster.start()
    assert await newer.engine.wait(name, 1.0) is OperationState.COMPENSATED


@virtual_time_test
async def test_what_another_has_taken_meanwhile_is_not_given_back(cluster):
    _, front, name = await two_releases(cluster, step("made", Script(), Script(), Script()))

    async def take():
        taken = Set("operation", (name,), {"worker": "another"})
        await front.plane.store.commit(Change("", (), (taken,)))

    cluster.stores[0].after["load"] = [take]
    await asyncio.sleep(LATER_SECONDS)
    row = await row_of(front, name)
    assert (row.worker, row.state) == ("another", OperationState.RUNNING)
