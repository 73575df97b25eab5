"""One move performed and recorded: every way a call can end, and every way a record can fail."""

import asyncio
from typing import Any

import pytest

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import (
    Defect,
    OutcomeUnknown,
    ProviderError,
    Rejected,
    StaleToken,
    StoreFull,
    Unavailable,
)
from tenure.core.limits import RESULT_BYTES_MAX
from tenure.core.moves import Act
from tenure.core.operation import IntentState, OperationState
from tenure.core.plan import StepKind, nobody_knows, repeat
from tenure.core.records import OperationRecord
from tenure.ports.store import Change, Set
from tenure.testing.loop import forever
from tenure.testing.operators import by
from tests.unit.support.scripted_planes import (
    LIMITS,
    TENANT,
    Script,
    accept,
    journal,
    refuse,
    step,
    virtual_time_test,
)


async def hang(_):
    await forever()


async def run_to_end(cluster, plane, plan):
    name = await accept(plane, plan)
    return await reads.wait(plane, TENANT, name)


class Mute(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError


# ---------------------------------------------------------------------------------- how a call ends


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (hang, "no answer within 1 s"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
        (asyncio.CancelledError(), "the step was cancelled from within"),
        (OutcomeUnknown("the line went dead"), "the line went dead"),
        ("yes", "step made returned a str; return tenure.Done(value), NotYet, Waiting or None"),
        (Done("x" * RESULT_BYTES_MAX), f"at most {RESULT_BYTES_MAX} bytes as JSON"),
        (Done(object()), "must be plain data"),
        (SystemExit(3), "SystemExit: 3"),
        (ProviderError("of no kind"), "of no kind"),
        (ValueError("caf\udce9"), "ValueError: caf?"),
        (Mute(), "a Mute that cannot be shown"),
        (NotYet(float("nan")), "which makes no sense"),
        (Waiting(""), "which makes no sense"),
    ],
    ids=[
        "limit",
        "bug",
        "cancelled",
        "unknown",
        "nonsense",
        "large",
        "no JSON",
        "exit",
        "no kind",
        "no UTF-8",
        "mute",
        "nan",
        "nameless",
    ],
)
@virtual_time_test
async def test_an_end_that_nobody_knows_is_looked_into_before_anything_is_repeated(
    cluster, ending, words
):
    async def before_the_look(_):
        (seen,) = (await reads.get_operation(plane, TENANT, name)).steps
        seen_before.append((seen.detail, seen.unknown, len(do.calls)))
        raise Unavailable("busy")

    seen_before: list[tuple[str, bool, int]] = []  # an assert inside a step would be caught
    do, look = Script(ending, Done({"n": 2})), Script(before_the_look, Absent())
    cluster.plan("one", step("made", do, Script(), look))
    plane = (await cluster.start()).plane
    name = await accept(plane, "one")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (len(do.calls), len(look.calls)) == (2, 2)
    ((detail, unknown, calls),) = seen_before
    assert words in detail
    assert (unknown, calls) == (True, 1)
    assert await journal(plane, name) == ["accepted", "done made"]


@virtual_time_test
async def test_what_is_found_by_looking_counts_as_done(cluster):
    do, look, later = Script(hang), Script(Done({"n": 1})), Script()
    cluster.plan("two", step("made", do, Script(), look), step("later", later))
    plane = (await cluster.start()).plane
    assert (await run_to_end(cluster, plane, "two")).state is OperationState.SUCCEEDED
    assert (len(do.calls), later.calls[0].results) == (1, {"made": {"n": 1}})


@virtual_time_test
async def test_a_bug_in_an_undo_is_tried_again(cluster):
    undo = Script(KeyError("gone"), hang, Done())
    cluster.plan("two", step("made", Script(), undo), step("later", Script(Rejected("no"))))
    plane = (await cluster.start()).plane
    assert (await run_to_end(cluster, plane, "two")).state is OperationState.COMPENSATED
    assert len(undo.calls) == 3


@virtual_time_test
async def test_a_bug_in_a_step_is_logged_once_with_its_traceback_and_without_its_text(
    cluster, caplog
):
    async def broken(_):
        raise KeyError("a secret")

    do = Script(broken, broken, broken, ZeroDivisionError(), Unavailable("busy"), Done())
    cluster.plan("one", step("made", do, inspect=repeat))
    plane = (await cluster.start()).plane
    assert (await run_to_end(cluster, plane, "one")).state is OperationState.SUCCEEDED
    first, second = (one for one in caplog.records if one.name == "tenure.steps")
    assert (first.levelname, first.step, first.act) == ("WARNING", "made", "do")
    assert "made.do of operation" in first.getMessage()
    assert "raised KeyError\n" in first.getMessage()
    assert "in broken\n" in first.getMessage()
    assert "secret\n" not in first.getMessage().replace('raise KeyError("a secret")', "")
    assert "raised ZeroDivisionError" in second.getMessage()


@pytest.mark.parametrize("ending", [None, Done(), Done({"n": 1})])
@virtual_time_test
async def test_a_step_is_done_when_it_returns_nothing_or_done(cluster, ending):
    later = Script()
    cluster.plan("two", step("made", Script(ending)), step("later", later))
    plane = (await cluster.start()).plane
    assert (await run_to_end(cluster, plane, "two")).state is OperationState.SUCCEEDED
    assert later.calls[0].results == {"made": ending.result if ending else None}


@virtual_time_test
async def test_later_steps_read_what_the_journal_keeps_before_and_after_a_restart(cluster):
    later = Script(Waiting("go"))
    made = Done({"sizes": (1, 2), "by": {"3": "x"}})
    cluster.plan("two", step("made", Script(made)), step("later", later))
    process = await cluster.start()
    name = await accept(process.plane, "two")
    await asyncio.sleep(1)
    await process.stop()
    plane = (await cluster.start()).plane
    await operations.signal(plane, by("a friend"), name, name="go")
    await reads.wait(plane, TENANT, name)
    kept = {"sizes": [1, 2], "by": {"3": "x"}}
    assert [call.results["made"] for call in later.calls] == [kept, kept]


@virtual_time_test
async def test_a_step_is_told_its_key_its_token_and_its_attempts(cluster):
    do = Script(Unavailable("busy"), NotYet(1.0), Done())
    cluster.plan("one", step("made", do, slot="thing"))
    plane = (await cluster.start()).plane
    await run_to_end(cluster, plane, "one")
    assert len({call.key.text for call in do.calls}) == 1
    assert (do.calls[0].key.slot, do.calls[0].key.generation) == ("thing", 1)
    assert [(call.token, call.attempt) for call in do.calls] == [(1, 0), (1, 1), (1, 0)]


# ----------------------------------------------------------------------------- stopped from outside


@virtual_time_test
async def test_a_cancel_stops_a_call_and_its_outcome_is_then_unknown(cluster):
    undo = Script()
    cluster.plan("one", step("made", Script(hang), undo, Script()))
    plane = (await cluster.start()).plane
    name = await accept(plane, "one")
    await asyncio.sleep(0.1)
    await operations.cancel(plane, by("the caller"), name)
    seen = await reads.wait(plane, TENANT, name, seconds=0.5)
    assert (seen.state, len(undo.calls)) == (OperationState.COMPENSATED, 1)


@virtual_time_test
async def test_a_cancel_at_the_very_limit_of_a_call_stops_it_once(cluster):
    do, undo = Script(hang), Script()
    cluster.plan("one", step("made", do, undo, Script()))
    process = await cluster.start()
    plane = process.plane
    name = await accept(plane, "one")
    handle = None
    while not handle:
        await asyncio.sleep(0)
        handle = process.engine._active[name].handle
    cluster.loop.call_at(1.0, process.engine._executor.interrupt, handle)
    await asyncio.sleep(1.0)
    await operations.cancel(plane, by("the caller"), name)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.COMPENSATED
    assert len(do.calls) == 1


@virtual_time_test
async def test_a_shutdown_at_the_same_time_as_a_cancel_wins(cluster):
    """The call is stopped twice: once to be recorded, once because nobody may record any more."""
    cluster.plan("one", step("made", Script(hang), Script(), Script()))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    await asyncio.sleep(0.1)
    driven = process.engine._active[name]
    process.engine._executor.interrupt(driven.handle)
    driven.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driven.task
    assert await journal(process.plane, name) == ["accepted"]
    (intent,) = (await process.plane.store.load(name)).intents
    assert (intent.unknown_since, intent.attempts) == (None, 0), "nothing was recorded"


@virtual_time_test
async def test_a_shutdown_alone_records_nothing_and_the_next_worker_looks_first(cluster):
    do, look = Script(hang), Script(Done({"n": 1}))
    cluster.plan("one", step("made", do, Script(), look))
    process = await cluster.start()
    name = await accept(process.plane, "one")
    await asyncio.sleep(0.1)
    await process.engine.stop(grace_seconds=0.1)
    plane = (await cluster.start()).plane
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (len(do.calls), len(look.calls)) == (1, 1)


# --------------------------------------------------------------------------------------- the record


@virtual_time_test
async def test_while_the_disk_refuses_the_end_of_a_call_is_remembered(cluster):
    do = Script(Done({"n": 1}))
    cluster.plan("one", step("made", do))
    plane = (await cluster.start(lease_ttl_seconds=60)).plane
    name = await accept(plane, "one")

    async def full():
        raise StoreFull("no room")

    cluster.stores[0].before["commit"] = [full, refuse, full]
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert (len(do.calls), cluster.loop.time()) == (1, pytest.approx(3.0, abs=0.1))


@virtual_time_test
async def test_while_the_disk_cannot_be_read_an_operation_is_read_again_and_again(cluster):
    do = Script(Waiting("go"))
    cluster.plan("one", step("made", do))
    plane = (await cluster.start()).plane
    name = await accept(plane, "one")
    await asyncio.sleep(0.1)

    async def then_refuse():
        cluster.stores[0].before["load"] = [refuse] * 3

    cluster.stores[0].after["commit"] = [then_refuse]
    signalled = await operations.signal(plane, by("a friend"), name, name="go")
    assert signalled.state is OperationState.RUNNING, "it was recorded, and the caller is told so"
    await asyncio.sleep(4)
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert len(do.calls) == 2


@virtual_time_test
async def test_who_fails_on_the_revision_reads_again_and_decides_again(cluster):
    """A signal is recorded between the call and its record: the call is not repeated."""
    do = Script(Done({"n": 1}))
    cluster.plan("one", step("made", do))
    plane = (await cluster.start()).plane
    other = (await cluster.start()).plane
    name = await accept(plane, "one")

    async def meanwhile():
        await operations.signal(other, by("a friend"), name, name="go")

    cluster.stores[0].before["commit"] = [meanwhile]
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert await journal(plane, name) == ["accepted", "signalled", "done made"]
    assert len(do.calls) == 1


async def taken_over(cluster, plane, name):
    """Another worker holds it now."""
    (row,) = [await plane.store.find(OperationRecord, (name,))]
    token: Any = row.token + 1
    writes = [
        Set("operation", (name,), {"token": token, "revision": row.revision + 1}),
        *(
            Set("intent", (name, intent.step), {"token": token})
            for intent in (await plane.store.load(name)).intents
        ),
    ]
    assert await cluster.disk.observer().commit(Change("", (), tuple(writes))) is None


@virtual_time_test
async def test_who_has_lost_the_token_stops_and_touches_nothing(cluster):
    later = Script()
    cluster.plan("two", step("made", Script()), step("later", later))
    process = await cluster.start()
    plane = process.plane
    name = await accept(plane, "two")
    cluster.stores[0].before["commit"] = [lambda: taken_over(cluster, plane, name)]
    await asyncio.sleep(1)
    assert name not in process.engine._active
    assert await journal(plane, name) == ["accepted"]
    assert not later.calls


@virtual_time_test
async def test_loading_under_a_token_that_does_not_hold_is_a_lost_lease(cluster):
    process = await cluster.start()
    plane, work = process.plane, process.engine._executor
    name = await accept(plane, "waits")
    await asyncio.sleep(1)
    handle = await work.load(name, 1)
    assert handle.id == name
    with pytest.raises(StaleToken):
        await work.load(name, 2)
    with pytest.raises(StaleToken):
        await work.load("no-such-operation", 1)
    await taken_over(cluster, plane, name)
    with pytest.raises(StaleToken):
        await work.refresh(handle)
    handle.id = "no-such-operation"
    with pytest.raises(StaleToken):
        await work.refresh(handle)


@virtual_time_test
async def test_what_has_ended_is_not_loaded(cluster):
    process = await cluster.start()
    name = (await run_to_end(cluster, process.plane, "linear")).id
    assert await process.engine._executor.load(name, 1) is None


@virtual_time_test
async def test_a_record_that_leads_where_no_row_leads_is_a_defect_and_is_not_written(cluster):
    cluster.plan("one", step("made", Script()))
    process = await cluster.start()
    work = process.engine._executor
    name = await accept(process.plane, "one")
    handle = process.engine._active[name].handle
    handle.state = OperationState.COMPENSATING
    (move,) = work.moves(handle).due
    assert move.act is Act.DO
    with pytest.raises(Defect, match="done leads from COMPENSATING to SUCCEEDED: no such row"):
        await work.perform(handle, move)
    assert await journal(process.plane, name) == ["accepted"]
    assert not handle.intents["made"].busy


# ---------------------------------------------------------------------------- several steps at once


@virtual_time_test
async def test_the_later_of_two_siblings_completes_the_stage(cluster):
    async def slow(_):
        await asyncio.sleep(0.5)
        return Done({"slow": True})

    later = Script()
    cluster.plan(
        "fork",
        (step("quick", Script()), step("slow", Script(slow))),
        step("later", later, needs=("slow",)),
    )
    plane = (await cluster.start()).plane
    assert (await run_to_end(cluster, plane, "fork")).state is OperationState.SUCCEEDED
    assert later.calls[0].results == {"quick": None, "slow": {"slow": True}}


@virtual_time_test
async def test_a_refusal_waits_for_the_call_of_a_sibling_before_it_undoes_it(cluster):
    order = []

    async def slow(_):
        await asyncio.sleep(0.5)
        order.append("made")
        return Done()

    async def remove(_):
        order.append("removed")
        return Done()

    cluster.plan("fork", (step("bad", Script(Rejected("no"))), step("slow", Script(slow), remove)))
    plane = (await cluster.start()).plane
    assert (await run_to_end(cluster, plane, "fork")).state is OperationState.COMPENSATED
    assert order == ["made", "removed"]


@virtual_time_test
async def test_a_late_end_of_what_nobody_else_could_tell_of_is_recorded_on_the_way_back(cluster):
    async def slow(_):
        await asyncio.sleep(0.5)
        return Done({"charged": 1})

    meter = step("meter", Script(slow), inspect=nobody_knows)
    cluster.plan("fork", (step("bad", Script(Rejected("no"))), meter))
    plane = (await cluster.start()).plane
    seen = await run_to_end(cluster, plane, "fork")
    assert seen.state is OperationState.COMPENSATED
    assert [one.state for one in seen.steps] == [IntentState.REFUSED, IntentState.PRESENT]


@virtual_time_test
async def test_after_the_pivot_a_refusal_is_tried_again_until_it_is_stuck(cluster):
    no = [Rejected("not today")] * 20
    cluster.plan(
        "forward",
        step("pivot", Script(), None, kind=StepKind.PIVOT),
        step("notice", Script(*no), None, kind=StepKind.RETRIABLE),
    )
    plane = (await cluster.start()).plane
    seen = await run_to_end(cluster, plane, "forward")
    assert seen.state is OperationState.STUCK
    assert seen.error == f"notice was not done within {LIMITS.deadline_seconds:g} s: not today"


@virtual_time_test
async def test_a_store_that_was_closed_ends_what_was_under_way_and_is_not_asked_for_ever(
    cluster, caplog
):
    async def close_it(_):
        await process.plane.store.close()
        return Done()

    cluster.plan("one", step("made", Script(close_it)))
    process = await cluster.start()
    waits = await accept(process.plane, "waits")
    await asyncio.sleep(0.5)
    name = await accept(process.plane, "one")
    await asyncio.sleep(1)
    process.engine.wake(waits)
    await asyncio.sleep(1)
    for operation in (name, waits):
        assert f"operation {operation}: stopped by a defect" in caplog.text
    assert not process.engine._active
