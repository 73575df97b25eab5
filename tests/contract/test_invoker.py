"""Which invokers keep the contract of an invoker: the one that uses aiohttp."""

import asyncio

import pytest

from tenure.adapters.invoker.aiohttp import AiohttpInvoker
from tenure.testing.contracts.invoker import InvokerContract, Scenario


class TestAiohttpInvoker(InvokerContract):
    @pytest.fixture
    def run_scenario(self):
        def run_scenario(scenario: Scenario) -> None:
            asyncio.run(scenario(AiohttpInvoker()))

        return run_scenario
