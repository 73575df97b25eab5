"""Operations on a real Temporal server whose runs, workers or server are lost.

Goal: whatever is lost, the operation ends as the store's journal says, and the world holds what
that end promises.  The ablations show that each safeguard is needed.  Method: as in
`test_temporal.py`.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest
from msgspec import structs

from tenure.adapters.engine.temporal import activities as temporal_activities
from tenure.adapters.engine.temporal import workflow as temporal_workflow
from tenure.adapters.engine.temporal.messages import ActivityInput
from tenure.adapters.engine.temporal.run_starter import RunStarter
from tenure.app.operations import commands as operations
from tenure.app.operations.single_claims import SingleClaims
from tenure.core.operation import OperationState
from tenure.testing.contracts.engine import LINEAR, LONG, accept, wait_for_end
from tenure.testing.faults import Delays, Fault, FaultPoint
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tenure.testing.plans import PLANS, SIGNAL
from tenure.testing.temporal_server import temporal_server
from tests.real.support.temporal_planes import (
    NEVER_SECONDS,
    TemporalBench,
    engine_of,
    eventually,
    intercept_arrivals,
    make_ready,
    run_of,
    run_on_temporal,
    wait_for_state,
    wait_until_closed,
    with_limits,
)

pytestmark = pytest.mark.timeout(300)
UNDISTURBED = {"margin_seconds": 120.0}
"""For who counts what a run asks for: on a busy machine it may stand still, and is not woken."""


# ---------------------------------------------------------------------------- runs that are lost


async def terminate_workflows(bench: TemporalBench, seconds: float = LONG) -> None:
    """Someone terminates a run in Temporal while a call is under way."""
    bench.faults.delays = Delays(slow=NEVER_SECONDS)
    bench.strike(FaultPoint("access", "ensure", 1), Fault.SLOW)
    late = intercept_arrivals(bench.world)
    plane = await bench.start()
    name = await accept(plane, "linear")
    await eventually(lambda: late)
    await (await run_of(plane, name)).terminate("by hand")
    late[0]()
    assert await wait_for_end(plane, name, seconds) is OperationState.SUCCEEDED
    assert bench.applied_calls() == LINEAR


def test_a_run_that_was_terminated_is_started_again(temporal):
    run_on_temporal(temporal.address, terminate_workflows)


async def terminated_while_waiting(bench: TemporalBench) -> None:
    plane = await bench.start()
    name = await accept(plane, "waits")
    await wait_for_state(plane, name, OperationState.WAITING)
    await (await run_of(plane, name)).terminate("by hand")
    await operations.signal(plane, by("a friend"), name, name=SIGNAL)
    assert await wait_for_end(plane, name) is OperationState.SUCCEEDED


def test_a_signal_starts_a_run_if_there_is_none(temporal):
    run_on_temporal(temporal.address, terminated_while_waiting)


def test_what_was_accepted_while_temporal_was_down_starts_when_it_is_back(tmp_path, caplog):
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        assert await wait_for_end(plane, await accept(plane, "linear")) is OperationState.SUCCEEDED
        assert plane.engine.outage == ""
        await asyncio.to_thread(server.kill)
        await eventually(lambda: plane.engine.outage.startswith("Temporal cannot be reached ("))
        names = [await accept(plane, "linear") for _ in range(5)]
        await asyncio.to_thread(server.start)
        for name in names:
            assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        assert plane.engine.outage == ""
        told = [one.getMessage() for one in caplog.records if server.address in one.getMessage()]
        assert [words.rpartition(": ")[2] for words in told] == [
            "accepted operations wait for it", "waiting operations continue",
        ], "each once, and nothing for each operation"  # fmt: skip
        assert "did not start" not in caplog.text
        assert Counter(bench.applied_calls()) == Counter(LINEAR * 6)

    with temporal_server(tmp_path) as server:
        run_on_temporal(server.address, scenario)


@pytest.mark.parametrize("is_persistent", [True, False], ids=["its file kept", "all its data lost"])
def test_operations_end_after_the_server_was_killed(tmp_path, is_persistent):
    async def scenario(bench: TemporalBench) -> None:
        bench.faults.delays = Delays(slow=1.0)
        plane = await bench.start()
        waiting = await accept(plane, "waits")
        await wait_for_state(plane, waiting, OperationState.WAITING)
        for nth in range(1, 11):
            bench.strike(FaultPoint("access", "ensure", nth), Fault.SLOW)
        names = [await accept(plane, "linear") for _ in range(10)]
        await eventually(lambda: bench.faults.calls["access", "ensure"] >= 5)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await operations.signal(plane, by("a friend"), waiting, name=SIGNAL)
        for name in [*names, waiting]:
            assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        made = [n for (provider, _), n in bench.world.made.items() if provider == "access"]
        assert made == [1] * 10

    with temporal_server(tmp_path, is_persistent=is_persistent) as server:
        run_on_temporal(server.address, scenario)


def test_of_two_orchestrators_on_one_operation_one_is_fenced(temporal, tmp_path):
    async def scenario(bench: TemporalBench) -> None:
        bench.faults.delays = Delays(slow=2.0)
        bench.strike(FaultPoint("access", "ensure", 1), Fault.SLOW)
        one = await bench.start()
        name = await accept(one, "linear")
        await eventually(lambda: bench.faults.calls["access", "ensure"] == 1)
        other = await bench.start(address=server.address)
        await engine_of(other)._runs.start_or_wake(name)
        assert await wait_for_end(other, name) is OperationState.SUCCEEDED
        assert bench.applied_calls() == LINEAR
        await wait_until_closed(one, name)
        await wait_until_closed(other, name)

    with temporal_server(tmp_path) as server:
        run_on_temporal(temporal.address, scenario, margin_seconds=60.0)


# ------------------------------------------------------------------------- workers that are lost

CHARGE = with_limits(
    PLANS["charge"], call_seconds=300.0, visible_seconds=6.0, deadline_seconds=600.0
)


async def an_attempt_is_lost(bench: TemporalBench) -> None:
    """A worker falls silent while its request, which counts each time, is on its way for long."""
    bench.faults.delays = Delays(slow=NEVER_SECONDS)
    bench.strike(FaultPoint("ledger", "ensure", 1), Fault.SLOW)
    late, calls = intercept_arrivals(bench.world), bench.faults.calls
    plane = await bench.start()
    name = await accept(plane, "charge")
    # Until another has asked, or has not.
    await eventually(lambda: calls["ledger", "inspect"] or calls["ledger", "ensure"] > 1)
    late[0]()
    assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
    await bench.world.quiet()
    assert [n for (p, _), n in bench.world.made.items() if p == "ledger"] == [1]


def silent():
    """No worker says that it lives, and the server minds after a second."""
    second = timedelta(seconds=1)
    return (
        patched(temporal_workflow, HEARTBEAT_TIMEOUT=second),
        patched(temporal_activities, HEARTBEAT_SECONDS=1000.0),
    )


def test_a_second_attempt_asks_before_it_repeats(temporal):
    short, mute = silent()
    with short, mute:
        run_on_temporal(temporal.address, an_attempt_is_lost, plans=[CHARGE])


def test_a_run_goes_on_as_new_when_its_history_grows_long(tmp_path):
    async def scenario(bench: TemporalBench) -> None:
        bench.faults.delays = Delays(ready=NEVER_SECONDS)
        bench.strike(FaultPoint("runtime", "ensure", 1), Fault.UNREADY)
        plane = await bench.start()
        name = await accept(plane, "ready")
        await wait_for_state(plane, name, OperationState.RUNNING)
        first = (await (await run_of(plane, name)).describe()).run_id

        async def is_new() -> bool:
            return (await (await run_of(plane, name)).describe()).run_id != first

        await eventually(is_new)
        make_ready(bench)
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        assert not bench.world.burned

    config = {"limit.historyCount.suggestContinueAsNew": "40"}
    with temporal_server(tmp_path, config=config) as server:
        run_on_temporal(
            server.address, scenario, plans=[with_limits(PLANS["ready"], deadline_seconds=600.0)]
        )


# --------------------------------------------------------------------- without its safeguards


def rings_off():
    """A second attempt goes on under the token of the first, as if that had never called."""

    async def same(self, live, step, token):
        return live

    return patched(SingleClaims, raise_token=same)


def test_ablation_without_the_raised_token_an_effect_happens_twice(temporal):
    short, mute = silent()
    with short, mute, rings_off(), pytest.raises(AssertionError, match=r"\[2\] == \[1\]"):
        run_on_temporal(temporal.address, an_attempt_is_lost, plans=[CHARGE])


def test_ablation_without_await_an_undo_runs_beside_its_own_do(temporal):
    def begin(self):
        for due in self._answer.moves:
            self._running[f"{due.step}/{due.act}"] = (due.act, self._start_move(due))
        self._answer = structs.replace(self._answer, moves=[])
        if self._can_start_request():
            request, self._next_request = self._next_request, ""
            task = ActivityInput(self._operation, self._answer.token)
            self._running[""] = ("", self._start(request, task))

    run = temporal_workflow.OperationRun
    off = patched(run, _start_due=begin, _interrupt=lambda self: None)
    with off, pytest.raises(AssertionError, match=r"\['remove'"):
        run_on_temporal(temporal.address, partial(undone_after_its_do, watched_seconds=60.0))


async def undone_after_its_do(bench: TemporalBench, watched_seconds: float = 2.0) -> None:
    """A sibling is refused while the do of another is under way: its undo comes after that."""
    bench.faults.delays = Delays(slow=NEVER_SECONDS)
    bench.strike(FaultPoint("access", "ensure", 1), Fault.SLOW)
    bench.strike(FaultPoint("runtime", "ensure", 1), Fault.REFUSED)
    late, calls = intercept_arrivals(bench.world), bench.faults.calls
    plane = await bench.start()
    name = await accept(plane, "parallel")
    await eventually(lambda: late and calls["runtime", "ensure"])
    with suppress(TimeoutError):  # whoever waits cannot say so
        await eventually(lambda: "remove" in verbs_on(bench, "access"), watched_seconds)
    late[0]()
    assert await wait_for_end(plane, name) is OperationState.COMPENSATED
    await bench.world.quiet()
    assert verbs_on(bench, "access") == ["ensure", "remove"]


def verbs_on(bench: TemporalBench, provider: str) -> list[str]:
    return [one.verb for one in bench.world.log if one.provider == provider]


def test_a_step_is_undone_only_when_no_call_of_its_do_is_under_way(temporal):
    run_on_temporal(temporal.address, undone_after_its_do)


def test_ablation_without_the_relay_what_was_terminated_lies(temporal):
    async def start_nothing(self):
        return 0

    with (
        patched(RunStarter, run_pass=start_nothing),
        pytest.raises(AssertionError, match="RUNNING"),
    ):
        run_on_temporal(temporal.address, partial(terminate_workflows, seconds=12.0))
