"""Runs of earlier releases replay: as they are, under another plan, under another saga."""

import asyncio
from contextlib import ExitStack

import pytest
from msgspec.structs import replace
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from tenure.adapters.engine.temporal.payloads import CONVERTER
from tenure.adapters.engine.temporal.workflow import OperationRun
from tenure.app.operations import commands as operations
from tenure.core import plan as core_plan
from tenure.core import saga
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.testing.contracts.engine import wait_for_end
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tenure.testing.plans import PLANS
from tests.real.support.temporal_planes import TemporalBench, run_on_temporal, with_real_time_limits
from tests.real.temporal.histories import PLACE, waiting

pytestmark = pytest.mark.timeout(300)
FIXTURES = sorted(PLACE.glob("*.json"))
ENDS = {"succeeded", "compensated", "stuck", "abandoned", "cancelled-in-temporal"}


def replay(path) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    replayer = Replayer(
        workflows=[OperationRun],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=CONVERTER,
    )
    asyncio.run(replayer.replay_workflow(history))


def nobody_decides(*_args):
    raise AssertionError("a replay decides nothing")


def test_there_is_a_history_of_every_end():
    assert {path.stem.partition("-")[2] for path in FIXTURES} >= ENDS


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("changed_part", ["nothing", "plan", "saga"])
def test_a_kept_history_replays(path, changed_part):
    with ExitStack() as stack:
        if changed_part == "plan":
            stack.enter_context(patched(core_plan, Plan=nobody_decides, Step=nobody_decides))
        if changed_part == "saga":
            stack.enter_context(
                patched(
                    saga,
                    next_moves=nobody_decides,
                    decide_outcome=nobody_decides,
                    steps_to_undo=nobody_decides,
                )
            )
        replay(path)


def test_ablation_a_run_that_decides_for_itself_does_not_replay():
    real = OperationRun._start_due

    def reversed_undos(self):
        moves = list(self._answer.moves)
        if any(due.act == "undo" for due in moves):
            moves = [replace(due, step="identity") for due in moves]
            self._answer = replace(self._answer, moves=moves)
        real(self)

    (path,) = [path for path in FIXTURES if path.stem.endswith("-compensated")]
    with patched(OperationRun, _start_due=reversed_undos), pytest.raises(NondeterminismError):
        replay(path)


def test_an_open_run_goes_on_under_another_plan_and_another_order_of_undos(temporal):
    async def scenario(bench: TemporalBench) -> None:
        old = await bench.start()
        name = await waiting(old)
        await bench.stop(old)
        steps = [stage for stage in PLANS["waits"].stages if stage[0].name != "runtime"]
        bench.plans = [
            *bench.plans,
            with_real_time_limits(Plan("waits", stages=tuple(steps), version=2)),
        ]

        def other_order(plan, progress, intents, now):
            moves = real(plan, progress, intents, now)
            return moves._replace(due=tuple(reversed(moves.due)))

        real = saga.next_moves
        with patched(saga, next_moves=other_order):
            new = await bench.start()
            await operations.cancel(new, by("the caller"), name)
            assert await wait_for_end(new, name) is OperationState.COMPENSATED
        assert not bench.world.holds()

    run_on_temporal(temporal.address, scenario)
