"""Who is held to the provider's contract: the providers that the docs and the examples show."""

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tenure.testing.contracts.provider import ProviderCase, ProviderContract

ROOT = Path(__file__).parents[2]


def hold_to(make):
    def run_scenario(scenario):
        asyncio.run(scenario(ProviderCase(make())))

    return run_scenario


class TestNamesOfTheHowTo(ProviderContract):
    @pytest.fixture
    def run_scenario(self):
        page = (ROOT / "docs/howto/write-a-plan.md").read_text(encoding="utf-8")
        names: dict[str, Any] = {}
        for piece in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            exec(compile(piece, "write-a-plan.md", "exec"), names)
        return hold_to(names["Names"])


class TestFolderOfTheDemo(ProviderContract):
    @pytest.fixture
    def run_scenario(self, tmp_path):
        demo = runpy.run_path(str(ROOT / "examples/01_operations/demo.py"))
        return hold_to(lambda: demo["Folder"](tmp_path, "thing"))
