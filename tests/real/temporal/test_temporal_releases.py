"""Workers of two releases on one task queue: what only the newer one knows reaches it soon."""

from datetime import timedelta

import pytest
from temporalio.common import RetryPolicy

from tenure.adapters.engine.temporal import activities as temporal_activities
from tenure.adapters.engine.temporal import workflow as temporal_workflow
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.testing.contracts.engine import LINEAR, accept, wait_for_end
from tenure.testing.patches import patched
from tenure.testing.plans import PLANS
from tests.real.support.temporal_planes import (
    TemporalBench,
    engine_of,
    eventually,
    run_on_temporal,
    with_real_time_limits,
)

pytestmark = pytest.mark.timeout(300)
NEWER = with_real_time_limits(Plan("newer", stages=PLANS["linear"].stages[:1]))
PATIENT = RetryPolicy(initial_interval=timedelta(hours=1))
"""As Temporal has become after many attempts: by itself it would not come back to it in time."""
SOON_SECONDS = 120.0
"""Each of its few activities is offered to either worker, about once a second."""


async def side_by_side(bench: TemporalBench, caplog, seconds: float) -> None:
    """An older worker has tried what it does not know, and stays; a newer one comes."""
    older = await bench.start(activities_max=1)  # so that it is not asked most of the time
    bench.plans = [*bench.plans, NEWER]
    face = await bench.start(executes_operations=False)
    name = await accept(face, NEWER.name)
    await eventually(lambda: f"{NEWER.name}@{NEWER.version}" in caplog.text)
    newer = await bench.start()
    assert await wait_for_end(newer, name, seconds) is OperationState.SUCCEEDED
    assert bench.applied_calls() == LINEAR[:1]
    assert engine_of(older).accepts


def test_what_an_older_worker_does_not_know_a_newer_one_gets_soon(temporal, caplog):
    with patched(temporal_workflow, RETRY=PATIENT):
        run_on_temporal(temporal.address, lambda bench: side_by_side(bench, caplog, SOON_SECONDS))


def test_ablation_without_its_own_delay_it_waits_for_temporals(temporal, caplog):
    ours = patched(temporal_activities, unknown_delay=lambda _attempt: None)
    with patched(temporal_workflow, RETRY=PATIENT), ours, pytest.raises(AssertionError):
        run_on_temporal(temporal.address, lambda bench: side_by_side(bench, caplog, 5.0))
