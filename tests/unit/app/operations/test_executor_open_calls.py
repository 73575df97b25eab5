"""No operation ends while a call of it is out, and none is looked at more often than it is due."""

import asyncio

import pytest

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.endings import Absent, Done
from tenure.core.errors import Conflict, OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import LATE_SECONDS, StepLimits
from tenure.core.operation import OperationState
from tenure.core.plan import StepKind, nobody_knows, nothing, repeat
from tenure.core.records import OperationRecord, TombstoneRecord
from tenure.ports.store import Change, Put
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    journal,
    step,
    virtual_time_test,
)


class Slow:
    """A call that takes a while to end, also when it is stopped."""

    def __init__(self) -> None:
        self.out = 0

    async def __call__(self, _):
        self.out += 1
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)
            self.out -= 1


@virtual_time_test
async def test_a_cancelled_operation_ends_when_its_call_has_also_where_nothing_is_undone(cluster):
    slow = Slow()
    cluster.plan("one", step("told", slow, nothing))
    cluster.plan("two", step("told", Script(), nothing))
    plane = (await cluster.start()).plane
    name = await accept(plane, "one", agent="a")
    await asyncio.sleep(0.1)
    cancelled = await operations.cancel(plane, by("the caller"), name)
    assert (cancelled.state, slow.out) == (OperationState.COMPENSATING, 1)
    with pytest.raises(Conflict, match="works on this agent"):
        await accept(plane, "two", agent="a")
    ended = await reads.wait(plane, TENANT, name)
    assert (ended.state, slow.out) == (OperationState.COMPENSATED, 0)
    await accept(plane, "two", agent="a")
    assert await journal(plane, name) == ["accepted", "compensating", "undone told"]


@virtual_time_test
async def test_who_abandons_an_operation_stops_its_calls(cluster):
    slow = Slow()
    unknown = step("unknown", Script(OutcomeUnknown("lost")), inspect=nobody_knows)
    cluster.plan("two", [unknown, step("slow", slow, Script())])
    plane = (await cluster.start()).plane
    name = await accept(plane, "two")
    await asyncio.sleep(0.1)
    abandoned = await operations.abandon(plane, by("an operator"), name)
    assert (abandoned.state, slow.out) == (OperationState.ABANDONED, 1)
    await asyncio.sleep(0.5)
    assert slow.out == 0


@virtual_time_test
async def test_what_is_stuck_is_read_when_it_is_due_and_not_before(cluster):
    cluster.plan("one", step("unknown", Script(OutcomeUnknown("lost")), inspect=nobody_knows))
    undo = Script(*[Unavailable("down")] * 100)
    cluster.plan("two", step("made", Script(), undo), step("refused", Script(Rejected("no"))))
    process = await cluster.start()
    plane = process.plane
    names = [await accept(plane, "one"), await accept(plane, "two")]
    for name in names:
        assert (await reads.wait(plane, TENANT, name)).state is OperationState.STUCK
    by_nothing, by_time = [await plane.store.find(OperationRecord, (name,)) for name in names]
    assert by_nothing.due_at is None
    assert by_time.due_at > plane.store.now()
    assert names[0] not in [one.id for one in await plane.store.list_due(process.engine.worker)]
    retried = await operations.retry(plane, by("an operator"), names[0])
    assert retried.state is not OperationState.STUCK


@virtual_time_test
async def test_a_step_that_was_burned_before_is_burned_again(cluster):
    """Its tombstone begins anew, and the record is not refused for ever."""

    async def remove(call):
        return Done("gone", burned=((call.input["operation"], "made"),))

    cluster.plan("one", step("made", Script()))
    cluster.plan("two", step("removed", remove))
    plane = (await cluster.start()).plane
    name = await accept(plane, "one")
    await reads.wait(plane, TENANT, name)
    stone = Put("tombstone", (name, "made"), {"until": 1.0, "sightings": 1})
    await plane.store.commit(Change("", (), (stone,)))
    removed = await accept(plane, "two", operation=name)
    ended = await reads.wait(plane, TENANT, removed, seconds=20.0)
    assert ended.state is OperationState.SUCCEEDED
    row = await plane.store.find(TombstoneRecord, (name, "made"))
    assert (row.absences, row.until > plane.store.now()) == (0, True)


def pivot(do, look):
    limits = StepLimits(call_seconds=1.0, deadline_seconds=300.0, retry_cap_seconds=4.0)
    return step("exposed", do, None, look, kind=StepKind.PIVOT, limits=limits)


@pytest.mark.parametrize("look", [Script(Absent()), repeat])
@virtual_time_test
async def test_a_pivot_whose_first_call_comes_late_is_not_undone_for_the_second_ones_refusal(
    cluster, look
):
    """The first is late in flight, the second is refused, then the first is applied."""
    do = Script(OutcomeUnknown("late"), Rejected("no"), Rejected("no"), Done("the first"))
    undo = Script()
    cluster.plan("one", step("made", Script(), undo), pivot(do, look))
    plane = (await cluster.start()).plane
    ended = await reads.wait(plane, TENANT, await accept(plane, "one"))
    assert (ended.state, ended.steps[1].result) == (OperationState.SUCCEEDED, "the first")
    assert not undo.calls


@pytest.mark.parametrize("look", [Script(Absent()), repeat])
@virtual_time_test
async def test_a_pivot_is_refused_once_no_earlier_call_can_arrive_any_more(cluster, look):
    do = Script(OutcomeUnknown("late"), *[Rejected("no")] * 100)
    cluster.plan("one", step("made", Script(), Script()), pivot(do, look))
    plane = (await cluster.start()).plane
    began = plane.store.now()
    ended = await reads.wait(plane, TENANT, await accept(plane, "one"), seconds=200.0)
    assert (ended.state, ended.error) == (OperationState.COMPENSATED, "exposed was refused: no")
    assert LATE_SECONDS <= plane.store.now() - began < LATE_SECONDS + 10


@virtual_time_test
async def test_an_operators_word_that_a_pivot_is_absent_ends_the_doubt(cluster):
    do = Script(OutcomeUnknown("late"), *[Rejected("no")] * 100)
    limits = StepLimits(call_seconds=1.0, deadline_seconds=5.0, retry_cap_seconds=1.0)
    look = Script(Absent())
    cluster.plan("one", step("exposed", do, None, look, kind=StepKind.PIVOT, limits=limits))
    plane = (await cluster.start()).plane
    name = await accept(plane, "one")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.STUCK
    await operations.mark_absent(plane, by("an operator"), name, step="exposed")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.COMPENSATED
    assert plane.store.now() < 1_700_000_000 + LATE_SECONDS
