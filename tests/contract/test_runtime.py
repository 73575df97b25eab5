"""Who is held to the contracts of a provider and of a runtime: local processes, and guests'."""

import asyncio
import json
import os
import shutil
from contextlib import asynccontextmanager

import pytest

from tenure.adapters.runtime.process import ProcessRuntime
from tenure.core.ids import ResourceKey
from tenure.testing.contracts.provider import ProviderCase, ProviderContract, Scenario
from tenure.testing.contracts.runtime import RuntimeCase, RuntimeContract, RuntimeScenario
from tests.contract.support.hosted_providers import use_through_host
from tests.real.support import runtimes

pytestmark = pytest.mark.timeout(300)


class Sized:
    """The contract's abstract specs, `{"size": n}`, as an agent that is told its size."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self.inspect = runtime.inspect
        self.remove = runtime.remove
        self.list_owned = runtime.list_owned

    async def ensure(self, key, spec):
        agent = runtimes.agent(env={"SIZE": str(spec.get("size", ""))})
        return await self._runtime.ensure(key, agent)


class TestProcessRuntime(ProviderContract, RuntimeContract):
    SANDBOX = "off"

    @asynccontextmanager
    async def had(self, runtime, home):
        """The runtime as it is asked."""
        yield runtime

    @pytest.fixture
    def runtime(self, tmp_path):
        means = {"sandbox": self.SANDBOX, "path": os.environ["PATH"]}
        with runtimes.end_all_after(tmp_path), runtimes.open_runtime(tmp_path, **means) as runtime:
            yield runtime

    @pytest.fixture
    def hold(self, runtime, tmp_path):
        async def plant(key: ResourceKey) -> None:
            place = tmp_path / "local-a" / key.text
            place.mkdir()
            row = {"plane": "another", "tenant": "t", "agent": "b", "generation": 1, "since": 0.0}
            (place / "owner.json").write_text(json.dumps(row))

        def hold(scenario: Scenario) -> None:
            async def main() -> None:
                async with self.had(runtime, tmp_path) as asked:
                    await scenario(ProviderCase(Sized(asked), plant))

            asyncio.run(main())

        return hold

    @pytest.fixture
    def hold_runtime(self, runtime, tmp_path):
        def hold(scenario: RuntimeScenario) -> None:
            async def main() -> None:
                async with self.had(runtime, tmp_path) as asked:
                    await scenario(RuntimeCase(asked, runtimes.agent))

            asyncio.run(main())

        return hold


class TestVisitedRuntime(TestProcessRuntime):
    def had(self, runtime, home):
        return use_through_host(home, runtime=runtime)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap here")
class TestSandboxedRuntime(TestProcessRuntime):
    SANDBOX = "require"
