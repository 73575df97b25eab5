"""What a caller may do with an operation that is there: look, wait, cancel, signal."""

import asyncio
from functools import partial

import pytest

from tenure.app import pages
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.start_checks import prepare
from tenure.core.endings import Done, NotYet, Waiting
from tenure.core.errors import Conflict, Invalid, LimitExceeded
from tenure.core.limits import PAGE_MAX, RESULT_BYTES_MAX, SIGNALS_MAX
from tenure.core.operation import IntentState, OperationState
from tenure.core.plan import StepKind
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.operators import by
from tenure.testing.plans import SIGNAL
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    journal,
    step,
    virtual_time_test,
)

# ------------------------------------------------------------------------------------ look and wait


@virtual_time_test
async def test_a_page_lists_operations_oldest_first_and_the_next_follows_it(cluster):
    plane = (await cluster.start()).plane
    names = []
    for _ in range(5):
        names.append(await accept(plane, "linear"))
        await asyncio.sleep(1)
    waiting = await accept(plane, "waits")
    first = await reads.list_operations(plane, TENANT, limit=2)
    assert [row.id for row in first] == names[:2]
    rest = await reads.list_operations(plane, TENANT, after=names[1])
    assert [row.id for row in rest] == [*names[2:], waiting]
    done = await reads.list_operations(plane, TENANT, states=(OperationState.SUCCEEDED,))
    assert [row.id for row in done] == names


@virtual_time_test
async def test_a_page_can_be_of_one_agent(cluster):
    plane = (await cluster.start()).plane
    names = []
    for _ in range(3):
        names.append(await accept(plane, "linear", "bird"))
        await reads.wait(plane, TENANT, names[-1])
        await accept(plane, "linear")
    waiting = await accept(plane, "waits", "bird")

    async def list_names(tenant=TENANT, **options):
        rows = await reads.list_operations(plane, tenant, agent="bird", **options)
        return [row.id for row in rows]

    assert await list_names() == [*names, waiting]
    assert await list_names(states=(OperationState.SUCCEEDED,), limit=2) == names[:2]
    assert await list_names(states=(OperationState.SUCCEEDED,), after=names[1]) == names[2:]
    assert await list_names("another") == []


@virtual_time_test
async def test_a_page_has_at_least_one_row_and_at_most_so_many(cluster, monkeypatch):
    plane = (await cluster.start()).plane
    monkeypatch.setattr(pages, "PAGE_MAX", 3)
    assert PAGE_MAX > 3
    for _ in range(5):
        await accept(plane, "linear")
    lengths = [
        len(await reads.list_operations(plane, TENANT, limit=limit))
        for limit in (-1, 0, 1, 3, 4, 10_000)
    ]
    assert lengths == [1, 1, 1, 3, 3, 3]


@virtual_time_test
async def test_an_operation_is_shown_with_what_each_step_holds_and_what_became_of_it(cluster):
    cluster.faults.script[FaultPoint("access", "ensure", 1)] = Fault.BUSY
    plane = (await cluster.start()).plane
    name = await accept(plane, "linear", "bird")
    await asyncio.sleep(0.05)
    seen = await reads.get_operation(plane, TENANT, name)
    identity, access, *rest = seen.steps
    assert (identity.state, identity.kind) == (IntentState.PRESENT, "compensatable")
    assert not identity.unknown
    assert (access.state, access.attempts, access.detail) == (
        IntentState.INTENDED, 1, "429: too many requests"
    )  # fmt: skip
    assert access.due_at is not None
    assert access.due_at > seen.updated_at
    assert [one.state for one in rest] == [None, None]
    assert [one.name for one in seen.left] == ["identity", "access"]
    assert cluster.world.holds(key=identity.key)
    ended = await reads.wait(plane, TENANT, name)
    assert (ended.done, ended.error, len(ended.left)) == (True, "", 4)
    assert ended.created_at < ended.updated_at


@virtual_time_test
async def test_waiting_returns_at_the_end_when_stuck_or_when_its_time_is_over(cluster):
    plane = (await cluster.start()).plane
    waits = await accept(plane, "waits")
    began = cluster.loop.time()
    seen = await reads.wait(plane, TENANT, waits, seconds=2.5)
    assert (seen.state, cluster.loop.time() - began) == (OperationState.WAITING, pytest.approx(2.5))
    cluster.faults.script[FaultPoint("meter", "ensure", 1)] = Fault.BROKE
    stuck = await accept(plane, "unaskable")
    assert (await reads.wait(plane, TENANT, stuck)).state is OperationState.STUCK
    assert (await reads.wait(plane, TENANT, stuck, seconds=0)).state is OperationState.STUCK
    assert (await reads.wait(plane, TENANT, waits, seconds=0)).state is OperationState.WAITING


@virtual_time_test
async def test_an_end_that_another_plane_brought_about_is_seen_as_well(cluster):
    mover = (await cluster.start()).plane
    other = (await cluster.start()).plane
    name = await accept(mover, "linear")
    assert (await reads.wait(other, TENANT, name)).state is OperationState.SUCCEEDED


# ------------------------------------------------------------------------------------------- cancel


@virtual_time_test
async def test_what_nobody_has_claimed_is_cancelled_without_a_call(cluster):
    cluster.plan("forward", step("pivot", Script(), None, kind=StepKind.PIVOT))
    idle = cluster.boot("idle").plane
    await prepare(idle)
    names = [await accept(idle, plan) for plan in ("linear", "forward")]
    for name in names:  # also where nothing but the pivot is intended
        cancelled = await operations.cancel(idle, by("the caller"), name)
        assert (cancelled.state, cancelled.error) == (
            OperationState.COMPENSATED,
            "cancelled by the caller",
        )
        assert cancelled == await reads.get_operation(idle, TENANT, name)
        assert await journal(idle, name) == ["accepted", "compensating"]
    plane = (await cluster.start()).plane
    for name in names:
        assert (await reads.get_operation(plane, TENANT, name)).state is OperationState.COMPENSATED
    assert not cluster.world.log


@virtual_time_test
async def test_a_running_operation_is_undone_newest_first(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits")
    await asyncio.sleep(1)
    cancelled = await operations.cancel(plane, by("the caller"), name)
    assert cancelled.state is OperationState.COMPENSATING
    ended = await reads.wait(plane, TENANT, name)
    assert (ended.state, ended.error) == (OperationState.COMPENSATED, "cancelled by the caller")
    assert not cluster.holds()
    assert [one.state for one in ended.steps] == [IntentState.BURNED, IntentState.BURNED, None]


@virtual_time_test
async def test_a_second_cancel_changes_nothing(cluster):
    cluster.faults.script[FaultPoint("identity", "remove", 1)] = Fault.SLOW
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits")
    await asyncio.sleep(1)
    for who in ("the caller", "a friend"):
        cancelled = await operations.cancel(plane, by(who), name)
        assert (cancelled.state, cancelled.error) == (
            OperationState.COMPENSATING, "cancelled by the caller"
        )  # fmt: skip
    await reads.wait(plane, TENANT, name)
    assert (await journal(plane, name)).count("compensating") == 1


@virtual_time_test
async def test_a_cancel_that_comes_after_the_pivot_is_refused_and_names_it(cluster):
    cluster.faults.script[FaultPoint("exposure", "ensure", 1)] = Fault.SLOW
    plane = (await cluster.start()).plane
    name = await accept(plane, "pivot")
    await asyncio.sleep(0.1)
    with pytest.raises(Conflict, match="step `exposure`, the pivot, has begun;") as refused:
        await operations.cancel(plane, by("the caller"), name)
    assert (refused.value.code, refused.value.holder) == ("past_pivot", name)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_what_has_ended_can_neither_be_cancelled_nor_signalled(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "linear")
    await reads.wait(plane, TENANT, name)
    for ask in (
        operations.cancel(plane, by("the caller"), name),
        operations.signal(plane, by("a friend"), name, name=SIGNAL),
        operations.retry(plane, by("an operator"), name),
    ):
        with pytest.raises(Conflict, match="has ended as SUCCEEDED") as refused:
            await ask
        assert (refused.value.code, refused.value.holder) == ("ended", name)


@virtual_time_test
async def test_a_cancel_beats_a_poll_that_is_recorded_at_the_same_time(cluster):
    """The poll moves `due_at` and no revision; the cancel must be seen all the same."""
    plane = (await cluster.start()).plane
    other = (await cluster.start()).plane
    polled = asyncio.Event()

    async def poll(_):
        polled.set()
        return NotYet(3600.0)

    cluster.plan("polls", step("wait", Script(poll), Script()))
    name = await accept(plane, "polls")

    async def after_the_poll():
        await polled.wait()
        await asyncio.sleep(0.5)

    cluster.stores[1].after["find"] = [after_the_poll]
    await operations.cancel(other, by("the caller"), name)
    assert (await reads.wait(plane, TENANT, name, seconds=9)).state is OperationState.COMPENSATED


@virtual_time_test
async def test_a_cancel_decides_again_when_someone_was_faster(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "pivot")

    async def a_moment():
        await asyncio.sleep(0.1)  # the pivot is intended meanwhile

    cluster.stores[0].before["commit"] = [a_moment]
    with pytest.raises(Conflict) as refused:
        await operations.cancel(plane, by("the caller"), name)
    assert refused.value.code in ("past_pivot", "ended")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED


# ------------------------------------------------------------------------------------------ signals


@virtual_time_test
async def test_a_signal_that_comes_early_is_kept_until_it_is_waited_for(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits")
    await operations.signal(plane, by("a friend"), name, name=SIGNAL, payload={"ok": True})
    assert (await reads.wait(plane, TENANT, name, seconds=2)).state is OperationState.SUCCEEDED
    loaded = await plane.store.load(name)
    (said,) = [row.body for row in loaded.journal if row.step == "approval"]
    assert said == '{"said":{"ok":true}}'


@virtual_time_test
async def test_signals_are_given_by_name_and_in_order(cluster):
    ask = Script(Waiting("colour"), Waiting("colour"), Waiting("shape"))
    cluster.plan("asks", step("ask", ask))
    plane = (await cluster.start()).plane
    name = await accept(plane, "asks")
    for signal, payload in (("colour", "red"), ("colour", "blue"), ("shape", None)):
        await asyncio.sleep(1)
        assert (await reads.get_operation(plane, TENANT, name)).state is OperationState.WAITING
        seen = await operations.signal(plane, by("a friend"), name, name=signal, payload=payload)
        assert seen.state is OperationState.RUNNING
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert ask.calls[-1].signals == {"colour": ("red", "blue"), "shape": (None,)}


@virtual_time_test
async def test_so_many_signals_are_kept_and_no_more(cluster, monkeypatch):
    monkeypatch.setattr(operations, "SIGNALS_MAX", 3)
    assert SIGNALS_MAX > 3
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits")
    await asyncio.sleep(1)
    for number in range(3):
        await operations.signal(plane, by("a friend"), name, name=f"other{number}")
    with pytest.raises(LimitExceeded, match="has 3 signals already"):
        await operations.signal(plane, by("a friend"), name, name=SIGNAL)
    assert (await journal(plane, name)).count("signalled") == 3


@virtual_time_test
async def test_a_signal_that_cannot_be_kept_is_refused(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits")
    large = "x" * RESULT_BYTES_MAX
    with pytest.raises(LimitExceeded, match=f"at most {RESULT_BYTES_MAX} bytes as JSON"):
        await operations.signal(plane, by("a friend"), name, name=SIGNAL, payload=large)
    with pytest.raises(Invalid, match="must be plain data"):
        await operations.signal(plane, by("a friend"), name, name=SIGNAL, payload=object())
    assert "signalled" not in await journal(plane, name)


@virtual_time_test
async def test_a_signal_with_the_same_idempotency_key_is_delivered_once(cluster):
    ask = Script(Waiting("x"), Waiting("x"))
    cluster.plan("asks", step("ask", ask))
    plane = (await cluster.start()).plane
    name = await accept(plane, "asks")
    await asyncio.sleep(1)

    async def signal(payload=1, key="k", principal="a friend"):
        return await operations.signal(
            plane, by(principal), name, name="x", payload=payload, idempotency_key=key
        )

    await asyncio.gather(*(signal({"a": 1, "b": [2]}) for _ in range(3)))
    await asyncio.sleep(1)
    assert (await signal({"b": [2], "a": 1})).state is OperationState.WAITING
    assert (await journal(plane, name)).count("signalled") == 1
    with pytest.raises(Conflict) as refused:
        await signal(2)
    assert (refused.value.code, refused.value.holder) == ("idempotency_mismatch", name)
    await signal(2, principal="another")  # whose keys are others
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert ask.calls[-1].signals == {"x": ({"a": 1, "b": [2]}, 2)}
    ended = await signal({"a": 1, "b": [2]})
    assert ended.state is OperationState.SUCCEEDED, "a repetition of what was done is no conflict"
    with pytest.raises(Conflict, match="has ended"):
        await signal(3, key="another")


@virtual_time_test
async def test_a_signal_and_its_key_survive_a_crash_of_the_process_that_took_them(cluster):
    first = await cluster.start()
    name = await accept(first.plane, "waits")
    once = partial(operations.signal, name=SIGNAL, payload={"ok": True}, idempotency_key="k")
    await once(first.plane, by("a friend"), name)
    first.crash()
    plane = (await cluster.start()).plane
    await once(plane, by("a friend"), name)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (await journal(plane, name)).count("signalled") == 1


@virtual_time_test
async def test_two_signals_at_the_same_time_are_both_kept(cluster):
    ask = Script(Waiting("x"), Waiting("x"))
    cluster.plan("asks", step("ask", ask))
    plane = (await cluster.start()).plane
    name = await accept(plane, "asks")
    await asyncio.sleep(1)
    said = (operations.signal(plane, by("a friend"), name, name="x", payload=n) for n in (1, 2))
    await asyncio.gather(*said)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert sorted(map(str, ask.calls[-1].signals["x"])) == ["1", "2"]


# -------------------------------------------------------------------------------- plans come and go


@virtual_time_test
async def test_an_ended_operation_is_shown_after_its_plan_has_gone(cluster):
    cluster.plan("old", step("one", Script(Done({"n": 1})), Script(), Script()))
    plane = (await cluster.start()).plane
    name = (await admission.accept(plane, OperationRequest("old"))).id
    ended = await reads.wait(plane, TENANT, name)
    cluster.catalogue = type(cluster.catalogue)()
    later = (await cluster.start()).plane
    assert await reads.get_operation(later, TENANT, name) == ended
