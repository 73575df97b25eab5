"""What an engine does when it hears what another process has recorded."""

import asyncio

import pytest

from tenure.app.operations import reads
from tenure.core.errors import CommitUnknown
from tenure.core.operation import OperationState
from tenure.testing.loop import forever
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    refuse,
    step,
    virtual_time_test,
)


async def broken():
    raise CommitUnknown("a COMMIT failed")


async def accepted_for_nobody(cluster) -> str:
    """By a process that takes requests and leaves the work to others."""
    cluster.plan("one", step("made", Script()))
    return await accept(cluster.boot("idle").plane, "one")


@virtual_time_test
async def test_whoever_waits_for_what_another_has_is_told_to_look(cluster):
    first, second = await cluster.start(), await cluster.start()
    name = await accept(first.plane, "waits")
    waiters = [asyncio.create_task(second.engine.wait(name)) for _ in range(2)]
    await asyncio.sleep(0.1)
    second.engine.on_notification(name)
    assert await asyncio.gather(*waiters) == [None, None]


@virtual_time_test
async def test_what_nobody_has_is_claimed_as_soon_as_it_is_heard_of(cluster):
    process = await cluster.start(lease_ttl_seconds=600.0)
    name = await accepted_for_nobody(cluster)
    began = cluster.clock.monotonic()
    process.engine.on_notification(name, unclaimed=True)
    assert await process.engine.wait(name) is OperationState.SUCCEEDED
    assert cluster.clock.monotonic() - began < 1


@virtual_time_test
async def test_what_is_heard_of_while_it_claims_is_claimed_after_that(cluster):
    go_on = asyncio.Event()
    process = await cluster.start(lease_ttl_seconds=600.0)
    name = await accepted_for_nobody(cluster)
    cluster.stores[0].after["claim"] = [go_on.wait]
    process.engine.on_notification(name, unclaimed=True)
    await asyncio.sleep(0.1)
    later = await accept(cluster.processes[-1].plane, "one")
    process.engine.on_notification(later, unclaimed=True)
    began = cluster.clock.monotonic()
    go_on.set()
    assert await process.engine.wait(later) is OperationState.SUCCEEDED
    assert (
        await reads.get_operation(process.plane, TENANT, name)
    ).state is OperationState.SUCCEEDED
    assert cluster.clock.monotonic() - began < 1


@virtual_time_test
async def test_what_the_store_did_not_let_it_claim_is_found_by_the_next_look(cluster, caplog):
    process = await cluster.start()
    name = await accepted_for_nobody(cluster)
    cluster.stores[0].before["claim"] = [refuse]
    process.engine.on_notification(name, unclaimed=True)
    assert await process.engine.wait(name, 30) is OperationState.SUCCEEDED
    assert "cannot claim operations: the disk refused to take this" in caplog.text


@virtual_time_test
async def test_a_store_that_fails_while_it_claims_ends_the_engine(cluster):
    process = await cluster.start()
    name = await accepted_for_nobody(cluster)
    cluster.stores[0].before["claim"] = [broken]
    process.engine.on_notification(name, unclaimed=True)
    with pytest.raises(CommitUnknown):
        await process.engine.join()


@virtual_time_test
async def test_an_engine_that_stops_claims_nothing_more(cluster):
    process = await cluster.start()
    name = await accepted_for_nobody(cluster)
    cluster.stores[0].before["claim"] = [forever]
    process.engine.on_notification(name, unclaimed=True)
    await asyncio.sleep(0.1)
    await process.engine.stop()
    process.engine.on_notification(name, unclaimed=True)
    await asyncio.sleep(30)
    assert (await reads.get_operation(process.plane, TENANT, name)).state is OperationState.PENDING
