"""Who is held to the provider's contract: the shelf, quick and slow."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from tenure.core.ids import ResourceKey
from tenure.testing.contracts.provider import ProviderCase, ProviderContract, Scenario
from tenure.testing.shelf import Shelf


def held_in(directory: Path, slow: float = 0.0):
    def run_scenario(scenario: Scenario) -> None:
        async def plant(key: ResourceKey) -> None:
            row = {"plane": "another", "agent": "b", "generation": 1, "since": 0.0, "spec": {}}
            (directory / "thing" / key.text).write_text(json.dumps(row))

        async def settle() -> None:
            """A listing never lags."""

        shelf = Shelf(directory, "thing", now=time.time, slow=slow)
        asyncio.run(scenario(ProviderCase(shelf, plant, settle)))

    return run_scenario


class TestShelf(ProviderContract):
    @pytest.fixture
    def run_scenario(self, tmp_path):
        return held_in(tmp_path)


class TestSlowShelf(ProviderContract):
    @pytest.fixture
    def run_scenario(self, tmp_path):
        return held_in(tmp_path, slow=0.001)
