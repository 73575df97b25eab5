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


class SizedRuntime:
    """The contract's abstract specs, `{"size": n}`, as an agent that is told its size."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self.inspect = runtime.inspect
        self.remove = runtime.remove
        self.list_owned = runtime.list_owned

    async def ensure(self, key, spec):
        agent = runtimes.agent(env={"SIZE": str(spec.get("size", ""))})
        return await self._runtime.ensure(key, agent)


class ProcessRuntimes:
    """Opens a runtime for one test; its agents are stopped at the end."""

    SANDBOX = "off"

    @asynccontextmanager
    async def reach(self, runtime, home):
        """The runtime, called directly."""
        yield runtime

    @pytest.fixture
    def runtime(self, tmp_path):
        means = {"sandbox": self.SANDBOX, "path": os.environ["PATH"]}
        with runtimes.end_all_after(tmp_path), runtimes.open_runtime(tmp_path, **means) as runtime:
            yield runtime


class HostedRuntimes(ProcessRuntimes):
    def reach(self, runtime, home):
        return use_through_host(home, runtime=runtime)


class SandboxedRuntimes(ProcessRuntimes):
    SANDBOX = "require"


class TestProcessProvider(ProcessRuntimes, ProviderContract):
    @pytest.fixture
    def run_scenario(self, runtime, tmp_path):
        async def plant(key: ResourceKey) -> None:
            place = tmp_path / "local-a" / key.text
            place.mkdir()
            row = {"plane": "another", "tenant": "t", "agent": "b", "generation": 1, "since": 0.0}
            (place / "owner.json").write_text(json.dumps(row))

        def run_scenario(scenario: Scenario) -> None:
            async def main() -> None:
                async with self.reach(runtime, tmp_path) as client:
                    await scenario(ProviderCase(SizedRuntime(client), plant))

            asyncio.run(main())

        return run_scenario


class TestProcessRuntime(ProcessRuntimes, RuntimeContract):
    @pytest.fixture
    def run_scenario(self, runtime, tmp_path):
        def run_scenario(scenario: RuntimeScenario) -> None:
            async def main() -> None:
                async with self.reach(runtime, tmp_path) as client:
                    await scenario(RuntimeCase(client, runtimes.agent))

            asyncio.run(main())

        return run_scenario


@pytest.mark.slow
class TestHostedProvider(HostedRuntimes, TestProcessProvider): ...


@pytest.mark.slow
class TestHostedRuntime(HostedRuntimes, TestProcessRuntime): ...


no_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")


@pytest.mark.slow
@no_bubblewrap
class TestSandboxedProvider(SandboxedRuntimes, TestProcessProvider): ...


@pytest.mark.slow
@no_bubblewrap
class TestSandboxedRuntime(SandboxedRuntimes, TestProcessRuntime): ...
