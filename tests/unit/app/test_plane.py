"""A plane refuses to start where it could not finish what it has, or may be asked for."""

import asyncio
from dataclasses import replace

import pytest

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.plane import prepare
from tenure.core.endings import Waiting
from tenure.core.errors import Invalid
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.plans.steps import provided
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import TENANT, Script, accept, step, virtual


def rows_of(solo):
    return {table: dict(rows) for table, rows in solo.disk.tables.rows.items()}


@virtual
async def test_a_plan_that_calls_a_provider_which_is_not_there_is_refused_by_name(solo):
    solo.plan("far", provided("moon_base", "moon"))
    with pytest.raises(Invalid) as refused:
        await prepare(solo.boot("plane").plane)
    for words in ("plan far: step moon_base calls provider 'moon'", "it has: access, credentials"):
        assert words in str(refused.value)
    solo.providers = {}
    with pytest.raises(Invalid, match="it has: none"):
        await prepare(solo.boot("poor").plane)
    assert not any(rows_of(solo).values())


@virtual
async def test_open_operations_whose_steps_are_unknown_are_told_and_nothing_is_changed(solo):
    ask = Script(Waiting("go"), Waiting("go"))
    solo.catalogue = Catalogue([Plan("asks", stages=(step("ask", ask), step("tell", Script())))])
    process = await solo.start()
    names = [await accept(process.plane, "asks") for _ in range(2)]
    await asyncio.sleep(1)
    await process.stop()
    known, solo.catalogue = solo.catalogue, Catalogue([Plan("other", stages=(step("x", ask),))])
    before = rows_of(solo)
    with pytest.raises(Invalid, match=r"nobody here knows how to perform asks@1/ask\. Start it"):
        await solo.start()
    assert rows_of(solo) == before
    solo.catalogue = known
    plane = (await solo.start()).plane
    for name in names:
        await operations.signal(plane, by("a friend"), name, name="go")
        assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED


@virtual
async def test_an_open_operation_whose_plan_is_lost_is_named_by_its_digest(solo):
    process = await solo.start()
    await accept(process.plane, "waits")
    (digest,) = await process.plane.store.plans_of_open_operations()
    await process.stop()
    del solo.disk.tables.rows["plan"][digest,]
    known, solo.catalogue = solo.catalogue, Catalogue()
    with pytest.raises(Invalid, match=f"plan {digest} is lost"):
        await solo.start()
    with pytest.raises(Invalid, match=f"plan {digest} is lost"):
        await prepare(replace(solo.boot("one of several").plane, shared=True))
    solo.catalogue = known
    await solo.start()  # who knows the plan keeps it again


@virtual
async def test_a_plan_that_is_kept_in_a_newer_way_is_told_before_anything_starts(solo):
    process = await solo.start()
    name = await accept(process.plane, "waits")
    await process.stop()
    tables = solo.disk.tables.rows
    kept = dict(tables["plan"][tables["operation"][name,]["plan"],])
    kept["body"] = kept["body"].replace('"limits":{', '"limits":{"patience_seconds":1.0,')
    tables["plan"]["newer",] = kept
    tables["operation"][name,]["plan"] = "newer"
    with pytest.raises(Invalid, match="stored in a form that is unknown here"):
        await solo.start()


@virtual
async def test_beside_newer_processes_an_older_one_starts_and_leaves_their_work_to_them(
    solo, caplog
):
    ask, older = Script(Waiting("go"), Waiting("go")), solo.catalogue
    newer = Catalogue([*older, Plan("asks", stages=(step("ask", ask),))])
    solo.catalogue = newer
    process = await solo.start()
    names = [await accept(process.plane, "asks") for _ in range(2)]
    await asyncio.sleep(1)
    await process.stop()  # it is replaced too, a moment later
    solo.catalogue = older
    with pytest.raises(Invalid, match="asks@1/ask"):
        await solo.start()  # alone on its file it would be nobody's work
    assert "left to" not in caplog.text
    one = solo.boot("one of several")
    one.plane = replace(one.plane, shared=True)
    await one.start()
    told = "open operations left to processes of a newer release: 2; nobody here knows how to"
    assert caplog.text.count(f"{told} perform asks@1/ask") == 1
    mine = await accept(one.plane, "linear")
    assert (await reads.wait(one.plane, TENANT, mine)).state is OperationState.SUCCEEDED
    solo.catalogue = newer
    plane = (await solo.start()).plane
    for name in names:
        await operations.signal(plane, by("a friend"), name, name="go")
        assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED


@virtual
async def test_an_open_operation_goes_on_with_the_plan_it_was_accepted_under(solo):
    """A newer version has other limits and one more step; the steps of both are known by name."""
    ask, more = Script(Waiting("go")), Script()
    solo.catalogue = Catalogue([Plan("asks", stages=(step("ask", ask),))])
    process = await solo.start()
    name = await accept(process.plane, "asks")
    await asyncio.sleep(1)
    await process.stop()
    solo.catalogue = Catalogue([Plan("asks", stages=(step("ask", ask), step("more", more)))])
    plane = (await solo.start()).plane
    await operations.signal(plane, by("a friend"), name, name="go")
    seen = await reads.wait(plane, TENANT, name)
    assert (seen.state, [one.name for one in seen.steps]) == (OperationState.SUCCEEDED, ["ask"])
    other = await reads.wait(plane, TENANT, await accept(plane, "asks"))
    assert [one.name for one in other.steps] == ["ask", "more"]
    assert len(more.calls) == 1


@virtual
async def test_a_store_of_another_plane_is_refused_since_its_keys_would_not_be_found(solo):
    process = await solo.start()
    await process.stop()
    plane = replace(solo.boot("again").plane, id="renamed")
    before = rows_of(solo)
    with pytest.raises(Invalid, match=r"belongs to plane .*, not to 'renamed'.*Nothing"):
        await prepare(plane)
    assert rows_of(solo) == before


@virtual
async def test_a_store_that_is_shared_is_refused_to_a_process_of_another_home(solo):
    process = await solo.start()
    await process.stop()
    plane = solo.boot("again").plane
    await prepare(replace(plane, home="one"))
    await prepare(replace(plane, home="one"))
    before = rows_of(solo)
    with pytest.raises(Invalid, match=r"with another home.*by --home or TENURE_HOME.*Nothing"):
        await prepare(replace(plane, home="two"))
    assert rows_of(solo) == before
    await prepare(replace(plane, home="two"), new_home=True)
    with pytest.raises(Invalid, match="with another home"):
        await prepare(replace(plane, home="one"))


@virtual
async def test_of_two_homes_that_start_on_a_new_store_at_once_one_is_refused(solo):
    process = await solo.start()
    await process.stop()
    plane = solo.boot("again").plane
    homes = [replace(plane, home="one"), replace(plane, home="two")]
    ended = await asyncio.gather(*map(prepare, homes), return_exceptions=True)
    assert [type(one) for one in ended].count(Invalid) == 1, ended
