"""Who is held to the contracts of a provider and of a runtime: local processes under keepers."""

import asyncio
import json
import os
import shutil

import pytest

from tenure.adapters.runtime.process import ProcessRuntime
from tenure.core.ids import ResourceKey
from tenure.testing.contracts.provider import Held, ProviderContract, Scenario
from tenure.testing.contracts.runtime import HeldRuntime, RuntimeContract, RuntimeScenario
from tests.real import kept


class Sized:
    """The contract's abstract specs, `{"size": n}`, as an agent that is told its size."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self.inspect = runtime.inspect
        self.remove = runtime.remove
        self.list_owned = runtime.list_owned

    async def ensure(self, key, spec):
        return await self._runtime.ensure(key, kept.agent(env={"SIZE": str(spec.get("size", ""))}))


class TestProcessRuntime(ProviderContract, RuntimeContract):
    SANDBOX = "off"

    @pytest.fixture
    def runtime(self, tmp_path):
        means = {"sandbox": self.SANDBOX, "path": os.environ["PATH"]}
        with kept.swept(tmp_path), kept.opened(tmp_path, **means) as runtime:
            yield runtime

    @pytest.fixture
    def hold(self, runtime, tmp_path):
        async def plant(key: ResourceKey) -> None:
            place = tmp_path / "local-a" / key.text
            place.mkdir()
            row = {"plane": "another", "tenant": "t", "agent": "b", "generation": 1, "since": 0.0}
            (place / "owner.json").write_text(json.dumps(row))

        def hold(scenario: Scenario) -> None:
            asyncio.run(scenario(Held(Sized(runtime), plant)))

        return hold

    @pytest.fixture
    def hold_runtime(self, runtime):
        def hold(scenario: RuntimeScenario) -> None:
            asyncio.run(scenario(HeldRuntime(runtime, kept.agent)))

        return hold


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap here")
class TestSandboxedRuntime(TestProcessRuntime):
    SANDBOX = "require"
