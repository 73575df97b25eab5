"""An operator's exits from STUCK: retry, adopt, mark-absent, abandon; each only from there."""

import asyncio

import pytest

from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.core.endings import Done, Waiting
from tenure.core.errors import Conflict, Forbidden, Invalid, LimitExceeded, NotFound, Rejected
from tenure.core.limits import RESULT_BYTES_MAX
from tenure.core.operation import IntentState, OperationState
from tenure.core.plan import StepKind
from tenure.core.roles import Role
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    journal,
    step,
    virtual_time_test,
)

BY = by("an operator")


async def stuck_forward(cluster, plane):
    """Nobody can tell whether the meter was charged."""
    cluster.faults.script[FaultPoint("meter", "ensure", 1)] = Fault.BROKE
    name = await accept(plane, "unaskable")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.STUCK
    return name


async def stuck_backward(cluster, plane):
    """The runtime is refused, and access cannot be removed for a while."""
    cluster.faults.script[FaultPoint("runtime", "ensure", 1)] = Fault.REFUSED
    cluster.faults.script[FaultPoint("access", "remove", 1)] = Fault.REFUSED
    name = await accept(plane, "linear")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.STUCK
    await asyncio.sleep(1)
    return name


def plant_resource(cluster, provider):
    """The provider refuses nothing any more."""
    cluster.providers[provider]._refuses.clear()


@virtual_time_test
async def test_who_may_only_look_decides_nothing(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_forward(cluster, plane)
    viewer = BY._replace(role=Role.VIEWER)
    for asked in (
        operations.cancel(plane, viewer, name),
        operations.signal(plane, viewer, name, name="go"),
        operations.retry(plane, viewer, name),
        operations.adopt(plane, viewer, name, step="meter"),
        operations.mark_absent(plane, viewer, name, step="meter"),
        operations.abandon(plane, viewer, name),
    ):
        with pytest.raises(Forbidden, match="operator"):
            await asked
    assert (await reads.get_operation(plane, TENANT, name)).state is OperationState.STUCK


@virtual_time_test
async def test_there_is_no_exit_from_what_is_not_stuck(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits")
    await asyncio.sleep(1)
    exits = (
        operations.retry(plane, BY, name),
        operations.adopt(plane, BY, name, step="identity"),
        operations.mark_absent(plane, BY, name, step="identity"),
        operations.abandon(plane, BY, name),
    )
    for leave in exits:
        with pytest.raises(Conflict, match="is not stuck: it is WAITING") as refused:
            await leave
        assert (refused.value.code, refused.value.holder) == ("not_stuck", name)
    assert await journal(plane, name) == ["accepted", "done identity"]


@virtual_time_test
async def test_a_cancel_is_advised_only_while_it_is_possible(cluster):
    cluster.plan(
        "late",
        step("pivot", Script(), None, kind=StepKind.PIVOT),
        step("notice", Script(Waiting("go")), None, kind=StepKind.RETRIABLE),
    )
    plane = (await cluster.start()).plane
    for plan, advice in (("waits", "cancel it, or wait"), ("late", "wait for its end")):
        name = await accept(plane, plan)
        await asyncio.sleep(1)
        with pytest.raises(Conflict, match=f"is not stuck: it is WAITING; {advice}$"):
            await operations.retry(plane, BY, name)


@virtual_time_test
async def test_only_the_step_that_is_stuck_can_be_adopted_or_marked_absent(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_forward(cluster, plane)
    for verb in (operations.adopt, operations.mark_absent):
        with pytest.raises(Conflict, match=r"step identity of operation .* is not stuck"):
            await verb(plane, BY, name, step="identity")
        with pytest.raises(NotFound, match="has no step 'moon'; it has identity, meter, runtime"):
            await verb(plane, BY, name, step="moon")


@virtual_time_test
async def test_what_is_adopted_counts_as_done_with_its_result(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_forward(cluster, plane)
    seen = await reads.get_operation(plane, TENANT, name)
    (meter,) = [one for one in seen.steps if one.stuck]
    assert (meter.name, meter.unknown) == ("meter", True)
    assert "nobody can tell whether meter happened" in seen.error
    large = "x" * RESULT_BYTES_MAX
    with pytest.raises(LimitExceeded):
        await operations.adopt(plane, BY, name, step="meter", result=large)
    with pytest.raises(Invalid):
        await operations.adopt(plane, BY, name, step="meter", result=object())
    adopted = await operations.adopt(plane, BY, name, step="meter", result={"n": 7})
    assert adopted.state is OperationState.RUNNING
    assert adopted == await reads.get_operation(plane, TENANT, name)
    ended = await reads.wait(plane, TENANT, name)
    assert (ended.state, ended.error) == (OperationState.SUCCEEDED, "")
    assert ended.steps[1].detail == "adopted by an operator"
    assert sum(cluster.world.made.values()) == 3


@virtual_time_test
async def test_what_is_marked_absent_is_done_again(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_forward(cluster, plane)
    marked = await operations.mark_absent(plane, BY, name, step="meter")
    assert marked == await reads.get_operation(plane, TENANT, name)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert cluster.faults.calls["meter", "ensure"] == 2
    assert "marked_absent meter" in await journal(plane, name)


@virtual_time_test
async def test_a_stuck_operation_can_be_cancelled_and_asks_again_for_what_nobody_knows(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_forward(cluster, plane)
    await operations.cancel(plane, BY, name)
    seen = await reads.wait(plane, TENANT, name)
    await asyncio.sleep(1)
    assert seen.state is OperationState.STUCK
    assert not cluster.world.holds(provider="identity"), "older undos go on beside a stuck step"
    await operations.mark_absent(plane, BY, name, step="meter")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.COMPENSATED
    assert cluster.faults.calls["meter", "ensure"] == 1


@virtual_time_test
async def test_what_has_no_undo_can_be_adopted_also_on_the_way_back(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_forward(cluster, plane)
    await operations.cancel(plane, BY, name)
    await reads.wait(plane, TENANT, name)
    await operations.adopt(plane, BY, name, step="meter")
    ended = await reads.wait(plane, TENANT, name)
    assert (ended.state, ended.error) == (OperationState.COMPENSATED, "cancelled by an operator")
    assert ended.steps[1].state is IntentState.PRESENT


@virtual_time_test
async def test_a_retry_tries_what_is_stuck_at_once_and_its_clock_starts_anew(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_backward(cluster, plane)
    seen = await reads.get_operation(plane, TENANT, name)
    assert [one.name for one in seen.steps if one.stuck] == ["access"]
    assert cluster.holds() == ["access"], "the older undo went on without it"
    plant_resource(cluster, "access")
    await operations.retry(plane, BY, name)
    assert (await reads.wait(plane, TENANT, name, seconds=0.5)).state is OperationState.COMPENSATED
    assert not cluster.holds()


@virtual_time_test
async def test_a_retry_of_what_still_fails_is_stuck_again_after_its_time(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_backward(cluster, plane)
    again = await operations.retry(plane, BY, name)
    assert again.state is OperationState.COMPENSATING
    assert again == await reads.get_operation(plane, TENANT, name)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.STUCK
    assert (await journal(plane, name)).count("stuck access") == 2


@virtual_time_test
async def test_what_is_stuck_is_still_tried_and_ends_by_itself(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_backward(cluster, plane)
    plant_resource(cluster, "access")
    await asyncio.sleep(10)
    assert (await reads.get_operation(plane, TENANT, name)).state is OperationState.COMPENSATED


@virtual_time_test
async def test_an_undo_cannot_be_adopted(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_backward(cluster, plane)
    with pytest.raises(Conflict, match="use mark-absent or abandon") as refused:
        await operations.adopt(plane, BY, name, step="access")
    assert refused.value.code == "compensating"


@virtual_time_test
async def test_an_undo_that_is_marked_absent_counts_as_undone(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_backward(cluster, plane)
    ended = await operations.mark_absent(plane, BY, name, step="access")
    assert ended.state is OperationState.COMPENSATED
    assert [one.name for one in ended.left] == []
    assert ended.steps[1].detail == "marked absent by an operator"
    assert "runtime was refused" in ended.error
    await admission.accept(
        plane, admission.OperationRequest("linear", ended.agent)
    )  # the agent is free


@virtual_time_test
async def test_abandoning_ends_it_and_lists_what_is_left(cluster):
    plane = (await cluster.start()).plane
    name = await stuck_backward(cluster, plane)
    with pytest.raises(Conflict):
        await accept(plane, "linear", (await reads.get_operation(plane, TENANT, name)).agent)
    ended = await operations.abandon(plane, BY, name)
    (left,) = ended.left
    assert (ended.state, left.name, left.state) == (
        OperationState.ABANDONED,
        "access",
        IntentState.REMOVING,
    )
    assert cluster.world.holds(key=left.key)
    loaded = await plane.store.load(name)
    assert loaded.journal[-1].body == (
        f'{{"by":"an operator","left":[{{"step":"access","key":"{left.key}","state":"REMOVING"}}]}}'
    )
    await asyncio.sleep(60)
    assert cluster.holds() == ["access"], "nothing is tried any more"
    await admission.accept(plane, admission.OperationRequest("linear", ended.agent))


@virtual_time_test
async def test_two_steps_of_a_stage_get_stuck_and_are_settled_one_by_one(cluster):
    never = [Rejected("no")] * 30
    cluster.plan(
        "both",
        (step("left", Script(), Script(*never)), step("right", Script(), Script(*never))),
        step("last", Script(Rejected("not this one"))),
    )
    plane = (await cluster.start()).plane
    name = await accept(plane, "both")
    await reads.wait(plane, TENANT, name)
    await asyncio.sleep(9)
    seen = await reads.get_operation(plane, TENANT, name)
    assert [one.name for one in seen.steps if one.stuck] == ["left", "right"]
    half = await operations.mark_absent(plane, BY, name, step="left")
    assert half.state is OperationState.STUCK
    ended = await operations.mark_absent(plane, BY, name, step="right")
    assert ended.state is OperationState.COMPENSATED


@virtual_time_test
async def test_an_operation_that_is_settled_elsewhere_is_not_tried_any_more(cluster):
    tries = Script(*[Rejected("no")] * 50)
    cluster.plan("one", step("made", Script(), tries), step("last", Script(Rejected("no"))))
    mover, other = (await cluster.start()).plane, (await cluster.start()).plane
    name = await accept(mover, "one")
    await reads.wait(mover, TENANT, name)
    ended = await operations.mark_absent(other, BY, name, step="made")
    assert ended.state is OperationState.COMPENSATED
    await asyncio.sleep(20)
    seen = len(tries.calls)
    await asyncio.sleep(60)
    assert len(tries.calls) == seen
    assert Done not in map(type, tries.endings)
