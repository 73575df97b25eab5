"""A plane refuses to start where it could not finish what it has, or may be asked for."""

import asyncio
from dataclasses import replace

import pytest

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.start_checks import prepare
from tenure.core.endings import Waiting
from tenure.core.errors import Invalid
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.plans.steps import provided
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import TENANT, Script, accept, step, virtual_time_test


def rows_of(cluster):
    return {table: dict(rows) for table, rows in cluster.disk.tables.rows.items()}


@virtual_time_test
async def test_a_plan_that_calls_a_provider_which_is_not_there_is_refused_by_name(cluster):
    cluster.plan("far", provided("moon_base", "moon"))
    with pytest.raises(Invalid) as refused:
        await prepare(cluster.boot("plane").plane)
    for words in ("plan far: step moon_base calls provider 'moon'", "it has: access, credentials"):
        assert words in str(refused.value)
    cluster.providers = {}
    with pytest.raises(Invalid, match="it has: none"):
        await prepare(cluster.boot("poor").plane)
    assert not any(rows_of(cluster).values())


@virtual_time_test
async def test_open_operations_whose_steps_are_unknown_are_told_and_nothing_is_changed(cluster):
    ask = Script(Waiting("go"), Waiting("go"))
    cluster.catalogue = Catalogue([Plan("asks", stages=(step("ask", ask), step("tell", Script())))])
    process = await cluster.start()
    names = [await accept(process.plane, "asks") for _ in range(2)]
    await asyncio.sleep(1)
    await process.stop()
    known, cluster.catalogue = (
        cluster.catalogue,
        Catalogue([Plan("other", stages=(step("x", ask),))]),
    )
    before = rows_of(cluster)
    with pytest.raises(Invalid, match=r"nobody here knows how to perform asks@1/ask\. Start it"):
        await cluster.start()
    assert rows_of(cluster) == before
    cluster.catalogue = known
    plane = (await cluster.start()).plane
    for name in names:
        await operations.signal(plane, by("a friend"), name, name="go")
        assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_an_open_operation_whose_plan_is_lost_is_named_by_its_digest(cluster):
    process = await cluster.start()
    await accept(process.plane, "waits")
    (digest,) = await process.plane.store.plans_of_open_operations()
    await process.stop()
    del cluster.disk.tables.rows["plan"][digest,]
    known, cluster.catalogue = cluster.catalogue, Catalogue()
    with pytest.raises(Invalid, match=f"plan {digest} is lost"):
        await cluster.start()
    with pytest.raises(Invalid, match=f"plan {digest} is lost"):
        await prepare(replace(cluster.boot("one of several").plane, shared=True))
    cluster.catalogue = known
    await cluster.start()  # who knows the plan keeps it again


@virtual_time_test
async def test_a_plan_that_is_kept_in_a_newer_way_is_told_before_anything_starts(cluster):
    process = await cluster.start()
    name = await accept(process.plane, "waits")
    await process.stop()
    tables = cluster.disk.tables.rows
    kept = dict(tables["plan"][tables["operation"][name,]["plan"],])
    kept["body"] = kept["body"].replace('"limits":{', '"limits":{"patience_seconds":1.0,')
    tables["plan"]["newer",] = kept
    tables["operation"][name,]["plan"] = "newer"
    with pytest.raises(Invalid, match="stored in a form that is unknown here"):
        await cluster.start()


@virtual_time_test
async def test_beside_newer_processes_an_older_one_starts_and_leaves_their_work_to_them(
    cluster, caplog
):
    ask, older = Script(Waiting("go"), Waiting("go")), cluster.catalogue
    newer = Catalogue([*older, Plan("asks", stages=(step("ask", ask),))])
    cluster.catalogue = newer
    process = await cluster.start()
    names = [await accept(process.plane, "asks") for _ in range(2)]
    await asyncio.sleep(1)
    await process.stop()  # it is replaced too, a moment later
    cluster.catalogue = older
    with pytest.raises(Invalid, match="asks@1/ask"):
        await cluster.start()  # alone on its file it would be nobody's work
    assert "left to" not in caplog.text
    one = cluster.boot("one of several")
    one.plane = replace(one.plane, shared=True)
    await one.start()
    told = "open operations left to processes of a newer release: 2; nobody here knows how to"
    assert caplog.text.count(f"{told} perform asks@1/ask") == 1
    mine = await accept(one.plane, "linear")
    assert (await reads.wait(one.plane, TENANT, mine)).state is OperationState.SUCCEEDED
    cluster.catalogue = newer
    plane = (await cluster.start()).plane
    for name in names:
        await operations.signal(plane, by("a friend"), name, name="go")
        assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_an_open_operation_goes_on_with_the_plan_it_was_accepted_under(cluster):
    """A newer version has other limits and one more step; the steps of both are known by name."""
    ask, more = Script(Waiting("go")), Script()
    cluster.catalogue = Catalogue([Plan("asks", stages=(step("ask", ask),))])
    process = await cluster.start()
    name = await accept(process.plane, "asks")
    await asyncio.sleep(1)
    await process.stop()
    cluster.catalogue = Catalogue([Plan("asks", stages=(step("ask", ask), step("more", more)))])
    plane = (await cluster.start()).plane
    await operations.signal(plane, by("a friend"), name, name="go")
    seen = await reads.wait(plane, TENANT, name)
    assert (seen.state, [one.name for one in seen.steps]) == (OperationState.SUCCEEDED, ["ask"])
    other = await reads.wait(plane, TENANT, await accept(plane, "asks"))
    assert [one.name for one in other.steps] == ["ask", "more"]
    assert len(more.calls) == 1


@virtual_time_test
async def test_a_store_of_another_plane_is_refused_since_its_keys_would_not_be_found(cluster):
    process = await cluster.start()
    await process.stop()
    plane = replace(cluster.boot("again").plane, id="renamed")
    before = rows_of(cluster)
    with pytest.raises(Invalid, match=r"belongs to plane .*, not to 'renamed'.*Nothing"):
        await prepare(plane)
    assert rows_of(cluster) == before


@virtual_time_test
async def test_a_store_that_is_shared_is_refused_to_a_process_of_another_home(cluster):
    process = await cluster.start()
    await process.stop()
    plane = cluster.boot("again").plane
    await prepare(replace(plane, home="one"))
    await prepare(replace(plane, home="one"))
    before = rows_of(cluster)
    with pytest.raises(Invalid, match=r"with another home.*by --home or TENURE_HOME.*Nothing"):
        await prepare(replace(plane, home="two"))
    assert rows_of(cluster) == before
    await prepare(replace(plane, home="two"), new_home=True)
    with pytest.raises(Invalid, match="with another home"):
        await prepare(replace(plane, home="one"))


@virtual_time_test
async def test_of_two_homes_that_start_on_a_new_store_at_once_one_is_refused(cluster):
    process = await cluster.start()
    await process.stop()
    plane = cluster.boot("again").plane
    homes = [replace(plane, home="one"), replace(plane, home="two")]
    ended = await asyncio.gather(*map(prepare, homes), return_exceptions=True)
    assert [type(one) for one in ended].count(Invalid) == 1, ended
