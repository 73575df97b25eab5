"""What Temporal could not carry never reaches it, and what it loses on the way stops nothing."""

from typing import Any

import pytest

from tenure.adapters.engine.temporal.activities import WORDS_MAX
from tenure.app.claims import OneByOne
from tenure.core.operation import State
from tenure.testing.contracts.engine import LINEAR, accept, ended
from tenure.testing.patches import patched
from tests.real.on_temporal import TemporalBench, engine_of, held

pytestmark = pytest.mark.timeout(90)
LARGE = 5_000_000
"""Beyond the 2 MB of a payload, and the 4 MB of a message."""


def test_an_error_larger_than_temporal_takes_is_cut_and_the_move_tried_again(temporal) -> None:
    fell: list[str] = []

    async def scenario(bench: TemporalBench) -> None:
        begin = OneByOne.begin

        async def failing(self: Any, operation: str) -> Any:
            if not fell:
                fell.append(operation)
                raise ValueError("x" * LARGE)
            return await begin(self, operation)

        with patched(OneByOne, begin=failing):
            plane = await bench.start()
            name = await accept(plane, "linear")
            assert await ended(plane, name) is State.SUCCEEDED
            client = engine_of(plane)._client
            assert client is not None
            history = await client.get_workflow_handle(name).fetch_history()
            assert max(event.ByteSize() for event in history.events) < 10_000
            failed = [
                event.activity_task_started_event_attributes.last_failure
                for event in history.events
                if event.activity_task_started_event_attributes.HasField("last_failure")
            ]
            # It was told, and not found out when a heartbeat was missed.
            assert [one.application_failure_info.type for one in failed] == ["ValueError"]
            assert failed[0].message == "x" * WORDS_MAX
        assert fell == [name]
        assert bench.applied() == LINEAR

    held(temporal.address, scenario)
