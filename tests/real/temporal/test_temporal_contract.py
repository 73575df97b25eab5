"""The engine's contract on a real Temporal server, in real time."""

import pytest

from tenure.testing.contracts.engine import EngineContract, Scenario
from tests.real.support.temporal_planes import run_on_temporal

pytestmark = pytest.mark.timeout(300)


class TestTemporalEngine(EngineContract):
    @pytest.fixture
    def run_scenario(self, temporal):
        def run_scenario(scenario: Scenario) -> None:
            run_on_temporal(temporal.address, scenario)

        return run_scenario
